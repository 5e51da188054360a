"""What a page is built of: sections, tables, and numbers that open on a click."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from secea.report.markup import Content, Markup, tag


def section(title: str, lead: Content, *content: Content) -> Markup:
    """A heading, what there is to see, and the rest."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead") if lead else None, content)


def table(head: Sequence[Content], rows: Iterable[Sequence[Content]], kind: str | None = None) -> Markup:
    """Rows with a heading each; a cell may be an element of its own."""

    def cell(content: Content, name: str) -> Markup:
        ready = isinstance(content, Markup) and content.startswith(("<td", "<th"))
        return content if ready and isinstance(content, Markup) else tag(name, content)

    top = tag("thead", tag("tr", (tag("th", each, scope="col") for each in head))) if head else None
    body = [tag("tr", tag("th", row[0], scope="row"), (cell(each, "td") for each in row[1:])) for row in rows]
    return tag("div", tag("table", top, tag("tbody", body), class_=kind), class_="scroll", tabindex="0")


def numbers(head: Sequence[Content], rows: Iterable[Sequence[Content]], title: str = "The numbers") -> Markup:
    """A table beside a chart."""
    return tag("details", tag("summary", title), table(head, rows))
