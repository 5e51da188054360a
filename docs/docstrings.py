"""For the site: examples in docstrings (`>>> ...`) are shown as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


class Examples(Extension):
    """Each example gets a fence."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Of a module, a class, a function or an attribute."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", obj.docstring.value)
