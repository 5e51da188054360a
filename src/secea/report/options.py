"""The sections about what means were asked for: weights, a minimum of owners, differential privacy."""

from __future__ import annotations

from secea.report.blocks import numbers, section, table
from secea.report.figures import DASH, number, percent, three_figures
from secea.report.markup import Markup, tag
from secea.report.runs import Group, as_object
from secea.report.runs import shown as setting


def which_means(group: Group) -> Markup | None:
    """Weights, and the minimum of owners."""
    run = group.first
    least, below = number(run.sharing.get("min_owners")) or 1, run.below_minimum
    said = []
    if run.sharing.get("weights"):
        most = number(run.sharing.get("max_weight")) or 0
        said.append(
            "Means are weighted: a row counts as often as its client has training examples that touch the entity, at"
            f" most {most:,.0f} times. Owners learn the mean weight, in which each is blurred by up to half a unit. It"
            " shows how many owners there are to one whose weight is far above the others'."
        )
    if least > 1:
        said.append(
            f"There is no mean for entities with fewer than {least:.0f} owners: each owner goes on with its own row."
            " Everybody sees which slots these are, without names; the server alone sees no count."
        )
    if not said:
        return None
    given = run.overlap.get("clients")
    described = [as_object(each) for each in given] if isinstance(given, list) else []
    sizes = {str(each.get("name")): number(each.get("entities")) for each in described}
    rows = [[client, f"{count:,}", _share(count, sizes.get(client))] for client, count in below.items()]
    shown = table(["client", f"below {least:.0f} owners", "of its entities"], rows) if rows else None
    return section("Which means", " ".join(said), shown)


def _share(count: int, of: float | None) -> str:
    return percent(count / of) if of else DASH


def privacy(group: Group) -> Markup | None:
    """Epsilon of a row and of a client, over the rounds, and whom it rests on."""
    run = group.first
    about, epsilon = run.privacy, number((run.result or {}).get("epsilon"))
    if epsilon is None:
        return None
    lead = (
        f"Epsilon {three_figures(epsilon)} at delta {setting(about.get('delta'))} for {about.get('unit')}, all rounds"
        f" together. Changes are clipped to {setting(about.get('clip'))}; noise of deviation"
        f" {three_figures(number(about.get('noise')))} on each coordinate comes from {about.get('noise_of')}."
        " A client's whole table costs more: many rows at once."
    )
    rounds = about.get("rounds")
    listed = [each for each in rounds if isinstance(each, list) and len(each) == 3] if isinstance(rounds, list) else []
    rows = [[f"{setting(r)}", three_figures(number(row)), three_figures(number(client))] for r, row, client in listed]
    most = number(about.get("rows")) or 0
    by_round = table(["rounds", "a row", f"a client of {most:,.0f} rows"], rows) if rows else None
    clients = [[client, three_figures(number(each))] for client, each in as_object(about.get("clients")).items()]
    each = numbers(["client", "epsilon of its whole table"], clients, "Client by client") if clients else None
    trusted = about.get("trusted")
    words = trusted if isinstance(trusted, list) else []
    notes = tag("div", (tag("p", str(word)) for word in words), class_="note", role="note") if words else None
    return section("Differential privacy", lead, by_round, notes, each)
