"""HTML and SVG in which text cannot become markup: whatever is not `Markup` already is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Final, TypeAlias

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that no page shows, or that turn the text around them; names of entities may hold anything."""
_VOID: Final = {"meta", "br", "wbr"}


class Markup(str):
    """Text that is markup on purpose."""

    __slots__ = ()


Content: TypeAlias = "str | float | Iterable[Content] | None"
"""The content of an element. None is nothing."""


def text(content: Content) -> Markup:
    """The content as markup."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int | float):
        readable = _CONTROL.sub("\ufffd", str(content)).encode(errors="replace").decode()
        return Markup(html.escape(readable))
    return Markup("".join(text(each) for each in content))


def tag(name: str, /, *content: Content, **attributes: str | int | float | None) -> Markup:
    """An element. `class_` is class, `aria_label` is aria-label; an attribute that is None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{text(content)}</{name}>")


def _short(value: str | int | float) -> str:
    """Coordinates with one decimal: a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
