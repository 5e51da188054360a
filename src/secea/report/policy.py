"""A policy as one page: for people who decide whether to take part, and who sign it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from secea.report.markup import Content, Markup, tag
from secea.report.page import document

ALARM = "THIS IS NOT COVERED"
"""How a sentence begins that must not be overlooked."""


@dataclass(frozen=True)
class Line:
    """One subject, and what there is to say about it."""

    about: str
    says: tuple[str, ...]
    note: str = ""
    """An assumption, or a value."""
    literal: bool = False
    """Whether what it says is compared digit by digit, as fingerprints are."""


@dataclass(frozen=True)
class Chapter:
    """A heading, a sentence, and lines."""

    title: str
    lead: str
    lines: tuple[Line, ...]


def page(title: str, subtitle: str, fingerprint: str, chapters: Sequence[Chapter], signers: Sequence[str]) -> str:
    """The whole page. Everybody in `signers` has a place to sign."""
    seal = tag(
        "div",
        tag("span", "Fingerprint of this policy, with all names and keys: compare it over another channel"),
        tag("b", fingerprint, class_="print"),
        class_="seal",
    )
    head = tag("header", tag("p", subtitle, class_="eyebrow"), tag("h1", title), seal)
    body = [head, *map(_chapter, chapters), _signatures(fingerprint, signers)]
    return document(title, tag("div", body, class_="policy"))


def _chapter(chapter: Chapter) -> Markup:
    lead = tag("p", chapter.lead, class_="lead") if chapter.lead else None
    rows = [
        tag("tr", tag("th", line.about, _note(line), scope="row"), tag("td", _said(line))) for line in chapter.lines
    ]
    table = tag("table", tag("tbody", rows), class_="said") if rows else None
    return tag("section", tag("h2", chapter.title), lead, table)


def _note(line: Line) -> Content:
    return tag("span", line.note) if line.note else None


def _said(line: Line) -> list[Markup]:
    kind = "print" if line.literal else None
    return [tag("p", each, class_="alarm" if each.startswith(ALARM) else kind) for each in line.says]


def _signatures(fingerprint: str, signers: Sequence[str]) -> Markup:
    heads = ("for", "name", "signature", "date")
    rows = [tag("tr", tag("th", who, scope="row"), tag("td"), tag("td"), tag("td", class_="when")) for who in signers]
    table = tag(
        "table",
        tag("thead", tag("tr", [tag("th", head, scope="col") for head in heads])),
        tag("tbody", rows),
        class_="sign",
    )
    lead = ("We have compared the fingerprint ", tag("span", fingerprint, class_="print"), ", and agree.")
    return tag("section", tag("h2", "Signatures"), tag("p", lead, class_="lead"), table, class_="sign")
