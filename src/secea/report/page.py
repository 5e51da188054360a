"""The page: what came out in one sentence, then the curves, the table, time, bytes, owners, and a picture."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import secea
from secea.learn.metrics import metric_name
from secea.learn.verdict import Verdict
from secea.report import charts
from secea.report.blocks import section, table
from secea.report.charts import Line, for_widths
from secea.report.figures import DASH, number, percent, score, seconds, size, three_figures
from secea.report.markup import Content, Markup, tag, text
from secea.report.runs import Group, Spread, as_object, differing, shown
from secea.report.sections import SLOTS, lines, method_name, sections, spread
from secea.report.verdicts import evidence, typeset, verdict_of

OPTION: Final = "--seeds 3"
MOST_NAMED: Final = 4
"""Configurations in the headline of a comparison."""
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The page may load nothing, from anywhere, and runs no script."""


def page(groups: Sequence[Group]) -> str:
    """The whole page."""
    title = ", ".join(_subject(group) for group in groups[:1]) + (" and others" if len(groups) > 1 else "")
    if len(groups) == 1:
        body = [_header(groups[0], "h1"), *sections(groups[0])]
    else:
        body = [_comparison(groups), *(_chapter(group) for group in groups)]
    return document(title, body)


def document(title: str, body: Content, *, refresh: int | None = None) -> str:
    """A page that loads nothing, in the style of them all; or only itself, again after `refresh` seconds."""
    style = files("secea.report").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        None if refresh is None else tag("meta", http_equiv="refresh", content=refresh),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"secea: {title}"),
        tag("style", Markup(style)),
    )
    loads = "nothing" if refresh is None else "nothing but itself"
    made = f"Made by secea {secea.__version__}. This page loads {loads} and runs no script."
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', body, tag('footer', made))), lang='en')}\n"


# ------------------------------------------------------------------------------------------------------- the outcome


def _subject(group: Group) -> str:
    config = group.first.config
    words = [config.get("data"), config.get("model"), config.get("clients") and f"{config['clients']} clients"]
    return " · ".join(str(word) for word in words if word)


def marked(words: str, found: Verdict) -> Markup:
    """Words about what sharing does, in which the size of a gain or a loss stands out, and options stay in one line."""
    much = typeset(found.much) if found.outcome in ("gain", "loss") else ""
    kinds = {much: tag("b", much), OPTION: tag("span", OPTION, class_="whole")}
    parts = re.split(f"({'|'.join(re.escape(each) for each in kinds if each)})", typeset(words))
    return text([kinds.get(part, part) for part in parts if part])


def _detail(group: Group, found: Verdict) -> str:
    """The numbers behind it; where there is no verdict, what there is; and what protection costs."""
    cost = Spread.of(run.share_of_training for run in group.runs)
    said = [found.detail or _reached(group)]
    if "secea" in group.methods and cost:
        said.append(f"Protection costs {percent(cost.mean)} of training time.")
    return typeset(" ".join(filter(None, said)))


def _reached(group: Group) -> str:
    """Who came how far, without a comparison."""
    metric = group.first.metric
    ends = {method: each.mean for method in group.methods if (each := group.final(method, metric))}
    reached = [f"{score(value)} with {method}" for method, value in ends.items()]
    return f"{metric_name(metric)}: {', '.join(reached)}." if reached else ""


def _header(group: Group, level: str) -> Markup:
    config, runs = group.first.config, len(group.runs)
    seeds = [str(run.config.get("seed")) for run in group.runs]
    what = f" · seed {seeds[0]}" if runs == 1 else f" · mean of {runs} runs (seeds {', '.join(seeds)})"
    eyebrow = tag("p", tag("b", config.get("task")), " · ", _subject(group), what, class_="eyebrow")
    found = verdict_of(group)
    alarms = [tag("p", tag("b", each)) for each in found.warnings]
    unfinished = [run for run in group.runs if run.result is None]
    notes = [tag("p", f"{run.folder} is unfinished ({run.progress}): no final result yet.") for run in unfinished]
    return tag(
        "header",
        eyebrow,
        tag("div", alarms, class_="note", role="alert") if alarms else None,
        tag(level, marked(found.headline, found), class_=None if level == "h1" else "sentence"),
        tag("p", _detail(group, found), class_="sentence" if level == "h1" else "lead"),
        tag("div", notes, class_="note", role="note") if notes else None,
        _tiles(group, found),
        evidence(group, found),
    )


def _tiles(group: Group, found: Verdict) -> Markup | None:
    sign = 1 if group.first.higher else -1
    tiles: list[tuple[str, str]] = []
    if found.alone is not None and found.shared is not None and found.gain is not None:
        relative = "" if found.relative is None else f", {found.much}"
        word = "the same" if not found.gain else f"{'better' if found.gain > 0 else 'worse'}{relative}"
        shown = f"{found.shared - found.alone:+.3f}".replace("-", "\N{MINUS SIGN}")
        tiles.append((shown, f"{metric_name(found.metric)} against training alone ({word})"))
        pooling = None if found.pooled is None else sign * (found.pooled - found.alone)
        if pooling and pooling > 0 and found.gain > 0:
            tiles.append((percent(found.gain / pooling), "of the way from training alone to all data in one place"))
    if wall := group.mean_of("wall"):
        setup = group.mean_of("wall", setup=True)
        tiles.append((seconds(wall), f"protection takes in a round, and {seconds(setup)} once before the first"))
    if sent := group.mean_of("client_bytes"):
        tiles.append((size(sent), "sent by a client in a round, at most"))
    if (epsilon := Spread.of(number((run.result or {}).get("epsilon")) for run in group.runs)) is not None:
        unit = as_object((group.first.result or {}).get("privacy")).get("unit")
        tiles.append((f"{epsilon.high:.2f}", f"epsilon of differential privacy{f' for {unit}' if unit else ''}"))
    listed = [tag("li", tag("b", shown), tag("span", what)) for shown, what in tiles]
    return tag("ul", listed, class_="tiles") if tiles else None


# --------------------------------------------------------------------------------------------------- several of them


def _chapter(group: Group) -> Markup:
    return tag("article", tag("h2", group.label), _header(group, "p"), sections(group), class_="chapter")


def _comparison(groups: Sequence[Group]) -> Markup:
    """All configurations side by side."""
    same = len({(group.first.metric, group.first.higher) for group in groups}) == 1
    runs = sum(len(group.runs) for group in groups)
    eyebrow = tag("p", tag("b", "comparison"), f" · {runs} runs", class_="eyebrow")
    title = _outcomes(groups)
    what = metric_name(groups[0].first.metric) if same else "The main metric"
    lead = f"{what} at the end; of several seeds the mean, the lowest and the highest. Below, what else differs."
    scale = "The same scale in all pictures." if same else "Each with its own scale."
    return tag(
        "div",
        tag("header", eyebrow, tag("h1", title)),
        section("At the end", lead, _side_by_side(groups, same=same)),
        section("Learning", scale, tag("div", _small_multiples(groups, same=same), class_="pair")),
    )


def _side_by_side(groups: Sequence[Group], *, same: bool) -> Markup:
    methods = dict.fromkeys(method for group in groups for method in group.methods)
    configs = [group.first.config for group in groups]
    rows: list[list[Content]] = []
    for method in methods:
        named = method_name(groups[0], method) if method in SLOTS else method
        rows.append([named, *(spread(group.final(method, group.first.metric)) for group in groups)])
    rows.append(["sharing", *(typeset(verdict_of(group).short) for group in groups)])
    sums = [sum(group.traffic(setup=False).values()) or None for group in groups]
    rows.append(["protection, of training time", *(percent(_cost(group)) for group in groups)])
    rows.append(["bytes of a round, all parties", *map(size, sums)])
    rows += _options(groups, same=same)
    rows += [
        [tag("span", name), *(tag("td", shown(config.get(name)), class_="why") for config in configs)]
        for name in differing(configs)
    ]
    heads = [group.label if same else f"{group.label} ({metric_name(group.first.metric)})" for group in groups]
    return table(["method", *heads], rows)


def _options(groups: Sequence[Group], *, same: bool) -> list[list[Content]]:
    """What the options of the means did: only what some of the groups have."""
    below = [sum(group.first.below_minimum.values()) for group in groups]
    privacy = [group.first.privacy for group in groups]
    asked: dict[str, list[str]] = {
        "entities below the minimum, all clients": [f"{each:,}" if each else DASH for each in below],
        "what weights gained": [_gain(group, groups) if same else DASH for group in groups],
        "epsilon of a row": [three_figures(number((group.first.result or {}).get("epsilon"))) for group in groups],
        "epsilon of a client": [three_figures(number(each.get("epsilon_table"))) for each in privacy],
    }
    return [[name, *cells] for name, cells in asked.items() if any(cell != DASH for cell in cells)]


def _gain(group: Group, groups: Sequence[Group]) -> str:
    """How much better a weighted configuration is than the same one without weights, if that is there."""
    mine = group.first.config
    if not mine.get("weights"):
        return DASH
    for other in groups:
        theirs = other.first.config
        if not theirs.get("weights") and set(differing([mine, theirs])) <= {"weights", "methods"}:
            for method in ("secea", "plain"):
                a, b = (each.final(method, group.first.metric) for each in (group, other))
                if a and b:
                    return f"{a.mean - b.mean:+.3f} ({method})".replace("-", "\N{MINUS SIGN}")
    return DASH


def _small_multiples(groups: Sequence[Group], *, same: bool) -> list[Markup]:
    drawn = {group.label: lines(group, group.first.metric, ends=True) for group in groups}
    every = [y for curves in drawn.values() for curve in curves for y in curve.reach]
    bounds = (min(every), max(every)) if same and every else None

    def figure(group: Group, curves: Sequence[Line]) -> Markup:
        says = f"{group.label}: {metric_name(group.first.metric)} by round"

        def draw(width: int) -> Markup:
            return charts.lines(curves, width=width, height=280, says=says, x_name="round", show=score, bounds=bounds)

        return tag("figure", tag("h3", group.label), for_widths(draw, 430), class_="panel")

    return [figure(group, drawn[group.label]) for group in groups if drawn[group.label]]


def _outcomes(groups: Sequence[Group]) -> Markup:
    """What sharing does in each of the configurations."""
    said: list[Content] = ["Sharing "]
    for group in groups[:MOST_NAMED]:
        found = verdict_of(group)
        said += ["; " if len(said) > 1 else "", marked(found.short, found), f" ({group.label})"]
    more = len(groups) - MOST_NAMED
    return text([*said, f"; and {more} more." if more > 0 else "."])


def _cost(group: Group) -> float | None:
    found = Spread.of(run.share_of_training for run in group.runs)
    return found.mean if found else None
