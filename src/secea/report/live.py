"""A run as it goes on, as one page: written again and again, and loaded again by the browser. No script, no socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from secea.report.blocks import section
from secea.report.markup import Content, Markup, tag
from secea.report.page import document

REFRESH_SECONDS: Final = 5
"""After so long the browser loads the page again."""


class Level(StrEnum):
    """How much a line matters."""

    FINE = "fine"
    PLAIN = "plain"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Note:
    """Something that an operator should know."""

    level: Level
    text: str


@dataclass(frozen=True)
class ClientRow:
    """One client."""

    name: str
    does: str
    since: str
    rounds: str
    remark: str
    level: Level = Level.PLAIN


@dataclass(frozen=True)
class View:
    """A run in words. All texts are as they came: whoever shows them takes care of what they may hold."""

    subject: str
    """Whose view this is, of which run."""
    at: str
    """The time at which it was seen."""
    level: Level
    word: str
    """What the run comes to, in one word."""
    sentence: str
    """The same as a sentence."""
    stage: str = ""
    """What goes on now."""
    done: int = 0
    asked: int = 0
    """Rounds, where it is known how many there will be."""
    facts: tuple[tuple[str, str], ...] = ()
    """Short values, and what each is."""
    notes: tuple[Note, ...] = ()
    clients: tuple[ClientRow, ...] = ()
    over: bool = False
    """Whether nothing more is to be expected."""


def page(view: View, *, watched: bool = True) -> str:
    """The whole page. It is loaded again as long as somebody watches, and the run goes on."""
    goes_on = watched and not view.over
    refresh = REFRESH_SECONDS if goes_on else None
    said = "" if goes_on else " This page does not change any more."
    head = tag(
        "header",
        tag("p", view.subject, class_="eyebrow"),
        tag("h1", tag("span", f"{view.word}:", class_=f"state {view.level}"), " ", view.sentence),
        tag("p", view.stage, class_="sentence") if view.stage else None,
        _bar(view),
        tag("ul", (tag("li", tag("b", value), tag("span", what)) for what, value in view.facts), class_="tiles"),
        tag("p", f"As of {view.at}.{said}", class_="lead asof"),
    )
    body = [head, _notes(view.notes), _clients(view.clients)]
    return document(f"{view.word}: {view.subject}", tag("div", body, class_="live"), refresh=refresh)


def _bar(view: View) -> Markup | None:
    """How far it is, as a bar; the numbers stand beside it."""
    if not view.asked:
        return None
    share = min(1.0, view.done / view.asked)
    label = f"{view.done} of {view.asked} rounds"
    filled = tag("rect", x=0, y=0, width=round(1000 * share), height=10, class_="bar")
    track = tag("rect", x=0, y=0, width=1000, height=10, class_="track")
    return tag(
        "svg", track, filled, viewBox="0 0 1000 10", preserveAspectRatio="none", role="img", aria_label=label,
        class_="progress",
    )  # fmt: skip


def _notes(notes: Sequence[Note]) -> Markup | None:
    if not notes:
        return None
    listed = [tag("li", note.text, class_=note.level) for note in notes]
    return section("What to know", None, tag("ul", listed, class_="notes"))


def _doing(row: ClientRow) -> list[Markup]:
    remark = [tag("small", row.remark)] if row.remark else []
    return [tag("span", row.does, class_=f"state {row.level}"), *remark]


def _clients(clients: Sequence[ClientRow]) -> Markup | None:
    if not clients:
        return None
    heads = ("client", "does", "since", "rounds")
    rows = [
        tag(
            "tr",
            tag("th", row.name, scope="row"),
            tag("td", _doing(row)),
            tag("td", row.since),
            tag("td", row.rounds),
        )
        for row in clients
    ]  # fmt: skip
    head = tag("thead", tag("tr", [tag("th", each, scope="col") for each in heads]))
    table = tag("table", head, tag("tbody", rows), class_="clients")
    scroll: Content = tag("div", table, class_="scroll", tabindex="0")
    return section("Clients", None, scroll)
