"""What the runs of a page say about sharing: their files, made ready for `secea.learn.verdict`."""

from __future__ import annotations

from secea.learn.verdict import ALONE, SHARED, About, Seen, Verdict, judged, nobody
from secea.report.blocks import table
from secea.report.figures import GAP
from secea.report.markup import Content, Markup, tag
from secea.report.runs import Group, Run


def verdict_of(group: Group) -> Verdict:
    """The verdict of all seeds of a configuration."""
    first = group.first
    about = About.of(first.config, first.metric, group.methods, higher=first.higher)
    return judged(about, map(seen, group.runs))


def seen(run: Run) -> Seen:
    """What a run gave: at its end; or, if it is unfinished, in the last round that both methods have come to."""
    seed = run.config.get("seed")
    at = None if run.result is not None else _reached(run)
    finals = {method: run.final(method) for method in run.methods}
    if at:
        finals = {
            method: {run.metric: curve[at]} for method in run.methods if at in (curve := run.curve(method, run.metric))
        }
    clients = {method: run.client_finals(method, at) for method in run.methods}
    why = next((why for own in clients.values() for _, why in own.values() if why), "")
    return Seen(
        seed if isinstance(seed, int) else 0,
        {method: own[run.metric] for method, own in finals.items() if run.metric in own},
        {
            method: {name: value for name, (value, _) in own.items() if value is not None}
            for method, own in clients.items()
        },
        None if at is not None and at == run.config.get("rounds") else at,
        nobody(why),
    )


def _reached(run: Run) -> int:
    """The last round in which `local`, and what it is compared with, were both evaluated; 0 if there is none."""
    curves = {method: set(run.curve(method, run.metric)) for method in (ALONE, *SHARED)}
    return next((max(both) for method in SHARED if (both := curves[ALONE] & curves[method])), 0)


def typeset(words: str) -> str:
    """As a page writes what a terminal has to spell."""
    words = words.replace("+-", "\N{PLUS-MINUS SIGN}").replace("(-", "(\N{MINUS SIGN}")
    return words.replace(" %", f"{GAP}%")


def evidence(group: Group, found: Verdict) -> Markup | None:
    """The differences by seed, and how their margin follows; nothing for one seed, whose numbers stand above."""
    if found.margin is None or found.gain is None:
        return None
    ends = {str(each.seed): each.finals for each in map(seen, group.runs)}
    rows: list[list[Content]] = [
        [seed, *(f"{ends[seed][method]:.4f}" for method in (ALONE, found.method)), _signed(gain)]
        for seed, gain in found.by_seed.items()
    ]
    mean = f"{_signed(found.gain)} \N{PLUS-MINUS SIGN} {found.margin:.4f}"
    rows.append(["mean", f"{found.alone:.4f}", f"{found.shared:.4f}", mean])
    how = (
        "After the +- stands half of the 95 % interval of the mean, by Student's t over"
        f" {len(found.seeds)} seeds. What lies within it may be chance."
    )
    listed = table(["seed", ALONE, found.method, "gain"], rows)
    return tag("details", tag("summary", "What this rests on: the gain, seed by seed"), tag("p", typeset(how)), listed)


def _signed(gain: float) -> str:
    return f"{gain:+.4f}".replace("-", "\N{MINUS SIGN}")
