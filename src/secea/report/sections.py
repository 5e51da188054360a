"""The sections of a page about one configuration: each a sentence, a chart, and the numbers beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from secea.learn.metrics import metric_name
from secea.report import charts
from secea.report.blocks import numbers, section, table
from secea.report.charts import Line, Part, for_widths
from secea.report.figures import DASH, number, percent, score, seconds, short, size
from secea.report.markup import Content, Markup, tag, text
from secea.report.options import privacy, which_means
from secea.report.picture import MOST, pictures
from secea.report.runs import PARTS, Group, Run, Spread, as_object
from secea.report.runs import shown as setting

SLOTS: Final = {"secea": 0, "local": 1, "common": 2, "plain": 3, "central": 4}
"""Colours and dashes of the methods; whatever else there is takes the rest in turn."""
MEANING: Final = {
    "secea": "means over all owners, protected",
    "local": "each client alone, without sharing",
    "common": "only entities that all clients have are shared",
    "plain": "the same means, unprotected",
    "central": "all data in one place",
}
CARRIES: Final = {
    "hello": "keys", "begin": "who takes part", "order": "what comes next", "key": "the key of a broadcast",
    "digest": "its hash", "commitment": "hashes", "dealing": "commitments", "share": "secret shares",
    "list": "names, blinded", "mark": "hashes of lists", "confirm": "hashes of all lists", "lists": "names, blinded",
    "evaluation": "answers to blinded names", "part": "secrets, sealed", "table": "the union, masked",
    "tags": "hashed names", "ready": "that a client has trained", "upload": "embeddings, masked",
    "means": "means under keys of entities",
}  # fmt: skip
"""What the messages of each kind carry. A kind that is missing here is shown only by its name."""
SMALL: Final = 0.01
"""Kinds below this part of all bytes are drawn as one."""


def slot(group: Group, method: str) -> int:
    """The colour of a method."""
    others = [each for each in group.methods if each not in SLOTS]
    return SLOTS[method] if method in SLOTS else 5 + others.index(method) % 3


def shade(owners: int, most: int) -> int:
    """The colour of an entity with this number of owners: 0 for a single owner, who gains nothing; then four more."""
    return 0 if owners <= 1 else 1 + min(3, (owners - 2) * 4 // max(most - 1, 1))


def sections(group: Group) -> list[Markup]:
    """All for which the runs have the files."""
    made = (
        _curves(group),
        _finals(group),
        which_means(group),
        privacy(group),
        _time(group),
        _bytes(group),
        _owners(group),
        _embeddings(group),
        _settings(group),
    )
    return [each for each in made if each]


def lines(group: Group, metric: str, *, ends: bool) -> list[Line]:
    """The curves of all methods, with their last values where there is room for them."""
    found = []
    for method in sorted(group.methods, key=lambda method: slot(group, method)):
        if curve := group.curve(method, metric):
            points = [(float(r), each.mean) for r, each in curve.items()]
            band = [(float(r), each.low, each.high) for r, each in curve.items() if each.runs > 1]
            end = score(points[-1][1]) if ends else ""
            found.append(Line(slot(group, method), short(method, 14), points, end, band))
    return found


def _curves(group: Group) -> Markup | None:
    metric = group.first.metric
    main = lines(group, metric, ends=True)
    if not main:
        return None
    name = metric_name(metric)
    direction = "higher is better" if group.first.higher else "lower is better"
    band = " Lines are means over the seeds, bands reach from the lowest to the highest." if len(group.runs) > 1 else ""
    says = f"{name} by round: " + ", ".join(f"{line.label} ends at {line.end}" for line in main)

    def big(width: int) -> Markup:
        height = 400 if width > 500 else 320
        return charts.lines(main, width=width, height=height, says=says, x_name="round", show=score)

    others = [*(each for each in group.metrics() if each != metric), "loss"]
    drawn = [(other, curves) for other in others if (curves := lines(group, other, ends=False))][:6]
    in_pairs = len(drawn) in (1, 2, 4)
    small = [_small(other, curves, 430 if in_pairs else 270) for other, curves in drawn]
    rounds = sorted({r for line in main for r, _ in line.points})
    by_line = [dict(line.points) for line in main]
    rows = [[f"{r:.0f}", *(score(points.get(r)) for points in by_line)] for r in rounds]
    return section(
        "Learning",
        f"{name} on the clients' own test data after each evaluated round; {direction}.{band}",
        tag("figure", for_widths(big, 912), class_="panel"),
        tag("div", small, class_="pair" if in_pairs else "many") if small else None,
        numbers(["round", *(line.label for line in main)], rows),
    )


def _small(metric: str, curves: Sequence[Line], wide: int) -> Markup:
    """The curves of a metric that is not the main one."""
    title = "Training loss" if metric == "loss" else metric_name(metric)

    def draw(width: int) -> Markup:
        return charts.lines(curves, width=width, height=210, says=f"{title} by round", x_name="round", show=score)

    return tag("figure", tag("h3", title), for_widths(draw, wide), class_="panel")


def method_name(group: Group, method: str) -> Markup:
    """A method in its colour, and what it means."""
    words = MEANING.get(method)
    return text([tag("em", method, class_=f"s{slot(group, method)}"), tag("span", words) if words else None])


def spread(each: Spread | None, *, best: bool = False) -> Markup:
    """A cell: the mean, and the lowest and highest of several."""
    if each is None:
        return tag("td", DASH, class_="why")
    reach = tag("small", f"{score(each.low)} to {score(each.high)}") if each.runs > 1 else None
    return tag("td", score(each.mean), reach, class_="best" if best else None)


def _finals(group: Group) -> Markup | None:
    metrics = group.metrics()
    finals = {method: {metric: group.final(method, metric) for metric in metrics} for method in group.methods}
    there = [method for method in group.methods if any(finals[method].values())]
    if not there:
        return None
    missing = [method for method in group.methods if method not in there]
    best = _best(group, finals, metrics)
    rows = [
        [
            method_name(group, method),
            *(spread(finals[method][metric], best=(method, metric) in best) for metric in metrics),
        ]
        for method in there
    ]
    lead = "All methods start from the same embeddings and see the same batches. "
    lead += "Bold: the best without pooling the data." if "central" in there else "Bold: the best."
    if missing:
        lead += f" Without a result: {', '.join(missing)}."
    shown = table(["method", *map(metric_name, metrics)], rows)
    return section("At the end", lead, shown, _validated(group), _clients(group))


def _validated(group: Group) -> Markup | None:
    """What there would be if each method stopped at the round that is best on validation data."""
    metric, rows = group.first.metric, list[list[Content]]()
    for method in group.methods:
        best = [own for run in group.runs if (own := run.best(method))]
        if best:
            rounds = ", ".join(str(own.get("round")) for own in best)
            valid, test = (spread(Spread.of(number(own.get(name)) for own in best)) for name in ("valid", metric))
            rows.append([method, rounds, valid, test])
    name = metric_name(metric)
    head = ["method", "round", f"validation {name}", f"test {name}"]
    return numbers(head, rows, "At the round that is best on validation data") if rows else None


def _best(group: Group, finals: dict[str, dict[str, Spread | None]], metrics: Sequence[str]) -> set[tuple[str, str]]:
    """Winners by metric, as shown."""
    found = set()
    for metric in metrics:
        shown = {m: float(score(each.mean)) for m, own in finals.items() if m != "central" and (each := own[metric])}
        if shown:
            top = (max if group.first.more_is_better(metric) else min)(shown.values())
            found |= {(method, metric) for method, value in shown.items() if value == top}
    return found


def _clients(group: Group) -> Markup | None:
    run = group.first
    finals = {method: own for method in group.methods if (own := run.client_finals(method))}
    described = run.overlap.get("clients")
    listed = map(as_object, described) if isinstance(described, list) else ()
    about = {str(each["name"]): each for each in listed if "name" in each}
    clients = list(dict.fromkeys([*about, *(name for own in finals.values() for name in own)]))
    if not clients:
        return None
    facts = [fact for fact in ("entities", "train", "valid", "test") if any(fact in each for each in about.values())]
    rows = []
    for client in clients:
        cells: list[Content] = [client, *(f"{number(about.get(client, {}).get(fact)) or 0:,.0f}" for fact in facts)]
        for own in finals.values():
            value, why = own.get(client, (None, ""))
            cells.append(
                tag(
                    "td",
                    score(value) if value is not None else why or DASH,
                    class_=None if value is not None else "why",
                )
            )
        rows.append(cells)
    title = f"Client by client, {metric_name(run.metric)}" + (
        f" (seed {run.config.get('seed')})" if len(group.runs) > 1 else ""
    )
    return numbers(["client", *facts, *finals], rows, title)


def _time(group: Group) -> Markup | None:
    spent = group.per_round()
    if not spent or not sum(spent.values()):
        return None
    names = {"training": "training", **{part: part for part in PARTS}}
    whole = [Part("training", "training", spent["training"], seconds(spent["training"]))]
    inner = [Part(part, names[part], spent[part], seconds(spent[part])) for part in PARTS if spent[part]]
    total, inside = sum(spent.values()), sum(spent[part] for part in PARTS)
    says = "Seconds of a round: " + ", ".join(f"{name} {seconds(spent[name])}" for name in spent)

    def draw(width: int) -> Markup:
        return charts.zoomed(whole, f"protection {seconds(inside)}", inner, width=width, says=says)

    legend = [
        tag("li", tag("i", class_=part), f"{names[part]} {seconds(spent[part])}") for part in spent if spent[part]
    ]
    rows = [[names[part], seconds(spent[part]), percent(spent[part] / total)] for part in spent]
    rows += [
        ["a round", seconds(total), percent(1.0)],
        ["set-up, once", seconds(group.mean_of("wall", setup=True)), ""],
    ]
    return section(
        "Where the time of a round went",
        f"A round takes {seconds(total)}, of which protection takes {seconds(inside)}. Below, that part enlarged.",
        tag("figure", for_widths(draw, 912), tag("ul", legend, class_="legend"), _time_caption(), class_="panel"),
        numbers(["", "time", "share"], rows),
        _stages(group),
    )


def _time_caption() -> Markup:
    return tag(
        "figcaption",
        "Wall-clock time with all parties on one machine; a network adds its own. The time of the protocol is divided"
        " as the CPU time of all parties.",
    )


def _stages(group: Group) -> Markup | None:
    """CPU seconds by stage of the protocol."""
    rows = []
    for title, lines in (
        ("set-up", [run.setup for run in group.runs if run.setup]),
        ("round", [line for run in group.runs for line in run.rounds]),
    ):
        stages: dict[str, float] = {}
        for line in lines:
            for stage, each in as_object(line.get("stages")).items():
                stages[str(stage)] = stages.get(str(stage), 0.0) + (number(each) or 0.0) / len(lines)
        rows += [[stage, title, seconds(each)] for stage, each in stages.items()]
    return numbers(["stage", "in", "CPU, all parties"], rows, "By stage of the protocol") if rows else None


def _bytes(group: Group) -> Markup | None:
    panels, rows = [], []
    for title, setup, kind in (("A round", False, "bar"), ("Set-up, once", True, "bar-setup")):
        traffic = group.traffic(setup=setup)
        if not traffic:
            continue
        total = sum(traffic.values())
        parts = [
            Part(kind, short(name, 20), count, size(count), CARRIES.get(name, "")) for name, count in traffic.items()
        ]
        says = f"{title}, bytes by kind of message: " + ", ".join(f"{part.name} {part.shown}" for part in parts)
        seen = _merged(parts, total)
        drawn = for_widths(lambda width, p=seen, s=says: charts.bars(p, width=width, says=s), 430)  # type: ignore[misc]
        panels.append(tag("figure", tag("h3", title, " ", tag("span", size(total))), drawn, class_="panel"))
        rows += [[title, part.name, part.shown, percent(part.value / total)] for part in parts]
        for who, what in (("client_bytes", "sent by the busiest client"), ("server_bytes", "sent by the server")):
            if (count := group.mean_of(who, setup=setup)) is not None:
                rows.append([title, what, size(count), percent(count / total)])
    if not panels:
        return None
    sent, served = group.mean_of("client_bytes"), group.mean_of("server_bytes")
    lead = "All messages of all parties, each counted on both legs of its way: client to server, server to client."
    if sent is not None and served is not None:
        lead += f" In a round the busiest client sends {size(sent)}, the server {size(served)}."
    shown = numbers(["phase", "kind of message", "bytes", "share"], rows)
    return section("Bytes by phase", lead, tag("div", panels, class_="pair"), shown)


def _merged(parts: Sequence[Part], total: float) -> list[Part]:
    """Large parts as they are, small ones together."""
    small = [part for part in parts if part.value < SMALL * total]
    if len(small) < 2:
        return list(parts)
    together = sum(part.value for part in small)
    rest = Part(small[0].kind, f"{len(small)} small kinds", together, size(together), "see the numbers")
    return [*(part for part in parts if part not in small), rest]


def _owned(run: Run) -> dict[int, int]:
    """How many entities have how many owners."""
    given = as_object(run.overlap.get("owners")).items()
    return {int(k): int(count) for k, v in given if k.isdecimal() and (count := number(v)) and count >= 1}


def _owners(group: Group) -> Markup | None:
    run = group.first
    counted = _owned(run)
    if not counted:
        return None
    every = range(1, max(int(number(run.config.get("clients")) or 0), *counted) + 1)
    counts = [(str(k), counted.get(k, 0)) for k in (every if len(every) <= 200 else sorted(counted))]
    columns = [Part(f"o{shade(int(k), max(counted))}", k, v, f"{v:,}") for k, v in counts]
    union = sum(counted.values())
    shared = sum(count for owners, count in counted.items() if owners > 1)
    says = "Entities by number of owners: " + ", ".join(f"{v} owned by {k}" for k, v in counts if v)

    def draw(width: int) -> Markup:
        return charts.histogram(columns, width=width, height=240, says=says, x_name="owners")

    lead = (
        f"{shared:,} of {union:,} entities ({percent(shared / union)}) have more than one owner:"
        " these are the ones that sharing can help. A simulation sees this; in a federation nobody learns it."
    )
    rows: list[list[Content]] = [[k, v, percent(v / union)] for k, v in counts if v]
    return section(
        "How many entities are owned by how many clients",
        lead,
        tag("figure", for_widths(draw, 912), class_="panel"),
        numbers(["owners", "entities", "share"], rows),
    )


def _embeddings(group: Group) -> Markup | None:
    run = group.first
    made = pictures(run)
    if not made:
        return None
    most = max(_owned(run), default=0) or max((n for each in made for n in each.owners), default=1)
    panels = []
    for each in made:
        known = [
            f"{name}, {owners} owner{'s' * (owners != 1)}" if owners else name
            for name, owners in zip(each.names, each.owners, strict=True)
        ]
        spots = [
            (float(x), float(y), shade(max(owners, 1), most), note)
            for (x, y), owners, note in zip(each.points, each.owners, known, strict=True)
        ]
        says = f"{len(spots)} entities of {each.client} under {each.method}, in the plane"
        about = f"{percent(each.kept)} of the variance"
        title = tag(
            "h3",
            tag("em", each.method, class_=f"s{slot(group, each.method)}"),
            " ",
            tag("span", f"{each.client}, {about}"),
        )
        panels.append(tag("figure", title, charts.scatter(spots, width=420, says=says), class_="panel"))
    sampled = f" {MOST} of {made[0].entities:,} entities, the same in every picture." if made[0].entities > MOST else ""
    lead = (
        "Each point is an entity, in the two directions in which its embeddings vary most; point at one for its name."
    )
    if len(made) > 1:
        lead += " The second picture is turned to match the first as well as it can be."
    return section("A picture of the embeddings", lead + sampled, tag("div", panels, class_="pair"), _shades(most))


def _shades(most: int) -> Markup:
    """What the colours of the points say."""
    steps: dict[int, list[int]] = {}
    for owners in range(1, most + 1):
        steps.setdefault(shade(owners, most), []).append(owners)
    said = [(f"{own[0]}" if own[0] == own[-1] else f"{own[0]} to {own[-1]}", step) for step, own in steps.items()]
    entries = [tag("li", tag("i", class_=f"o{step}"), f"{words} owner{'s' * (words != '1')}") for words, step in said]
    return tag("ul", entries, class_="legend")


def _settings(group: Group) -> Markup:
    config = group.first.config
    rows: list[list[Content]] = []
    for name, value in config.items():
        seeds = [run.config.get("seed") for run in group.runs]
        rows.append([name, setting(seeds if name == "seed" else value)])
    rows += [["folder", str(run.folder)] for run in group.runs]
    notes = (
        tag("div", (tag("p", each) for each in said), class_="note", role="note") if (said := _said(group)) else None
    )
    listed = tag("details", tag("summary", "All settings"), table([], rows, "settings"))
    return section("Settings", "What the run was asked to do, and what it had to say.", notes, listed)


def _said(group: Group) -> list[str]:
    """What the runs had to say: once, if all of them say it; otherwise with the seed that does."""
    by_run = [(f"seed {run.config.get('seed')}: ", list(dict.fromkeys(run.messages))) for run in group.runs]
    everywhere = [each for each in by_run[0][1] if all(each in said for _, said in by_run)]
    return everywhere + [who + each for who, said in by_run for each in said if each not in everywhere]
