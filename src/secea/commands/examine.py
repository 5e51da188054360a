"""What `secea check` finds out about tables: each by itself, all together, and whether they can be averaged."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final
from unicodedata import is_normalized

import numpy as np

from secea.accuracy import Accuracy, accuracy, coarseness
from secea.arithmetic.grid import blocks
from secea.commands import formats
from secea.engines.costs import PYTHON_BYTES
from secea.errors import DataError, ParamsError, TableError
from secea.forms import FormName, form_of
from secea.names import joining, spellings, text_of
from secea.params import STEPS, Params, Step
from secea.party.form import Form
from secea.table import Name, key_of

MOST_LISTED: Final = 100
"""Groups of spellings that are listed; all are counted."""
MOST_FAULTS: Final = 5
"""Faults of one kind that are listed for one table."""


@dataclass(frozen=True)
class Checked:
    """One argument: a table, or why it cannot be read."""

    path: Path
    source: formats.Source | None
    error: str = ""

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with it by itself."""
        return (self.error,) if self.source is None else self.source.faults


def look(path: Path, layout: formats.Layout, weights: Path | None = None) -> Checked:
    """A table, whatever is wrong with it."""
    try:
        source = formats.look(path, layout)
        if weights is not None and not source.faults:
            source = formats.weighed(source, weights)
    except (DataError, TableError) as error:
        return Checked(formats.shown(path, layout), None, str(error))
    return Checked(source.path, source)


def about(checked: Checked, params: Mapping[str, Any], form: Form) -> dict[str, Any]:
    """One table, in figures."""
    source = checked.source
    if source is None:
        return {"table": str(checked.path), "readable": False, "faults": list(checked.faults)}
    table = source.table
    low, high = _range(source)
    grid = None
    if not source.missing and len(table):
        # What the range is does not matter here, as long as the numbers lie in it.
        most = max(params["max_abs"], formats.range_of(table.matrix))
        grid = coarseness(table, Params(2, table.dim, max_abs=most, precision=params["precision"]), form)
    return {
        "table": str(source.path), "readable": True, "entities": len(table), "dim": table.dim,
        "numbers": _numbers(source), "heading": source.heading is not None, "low": low, "high": high,
        "step": grid.step if grid else None,
        "decimals": grid.decimals if grid and grid.rows else None,
        "coarse_rows": grid.rows if grid else None,
        "doubled": source.doubled, "missing": source.missing, "columns_kept": list(source.kept),
        "assumed": list(source.assumed), "changed_by": changed(table.names), "faults": list(source.faults),
    }  # fmt: skip


def _numbers(source: formats.Source) -> str:
    text = source.path.name.removesuffix(".gz").endswith((".csv", ".tsv", ".vec", ".txt"))
    return "text" if text else source.stored.name


def _range(source: formats.Source) -> tuple[float | None, float | None]:
    """The least and the largest finite number."""
    ends = [
        (block.min(initial=np.inf, where=fine), block.max(initial=-np.inf, where=fine))
        for block in blocks(source.table.matrix)
        if (fine := np.isfinite(block)).any()
    ]
    return (float(min(low for low, _ in ends)), float(max(high for _, high in ends))) if ends else (None, None)


def changed(names: Iterable[Name]) -> dict[str, int]:
    """How many names each step of `normalize` changes."""
    texts = list(map(str, names))
    return {
        "nfc": sum(not is_normalized("NFC", text) for text in texts),
        "strip": sum(text != text.strip() for text in texts),
        "casefold": sum(text != text.casefold() for text in texts),
    }


def keys(names: Iterable[Name], rule: Sequence[str]) -> set[Name]:
    """The entities of a table; names of which nothing is left are none."""
    found = set()
    for name in names:
        if not str(name) or ("strip" in rule and not str(name).strip()):
            continue
        found.add(key_of(text_of(name, rule)))
    return found


@dataclass(frozen=True)
class Together:
    """All tables that could be read, and whether they can be averaged."""

    reasons: tuple[str, ...]
    """Why they do not fit; none if they do."""
    union: int
    notes: tuple[str, ...]
    """What does not keep them from being averaged, and is hardly meant."""
    overlap: tuple[dict[str, Any], ...]
    near: tuple[dict[str, Any], ...]
    near_count: int
    remedy: Mapping[str, Any]
    """The `--normalize` that joins most of these groups, how many it joins, and how many stay apart."""
    exact: Accuracy | None
    cost: dict[str, Any] | None


def together(
    tables: Sequence[Checked], rule: Sequence[Step], form: FormName, params: Mapping[str, Any], *, weighted: bool,
    memory: int | None,
) -> Together:  # fmt: skip
    """Look at several tables. `memory`: the bytes that this machine has, if that is known."""
    sources = [each.source for each in tables if each.source is not None]
    own = [keys(source.table.names, rule) for source in sources]
    union = set().union(*own) if own else set()
    reasons = [fault for each in tables for fault in each.faults]
    if sources:
        reasons += few(formats.faults(sources, params["max_abs"], rule))
    overlap = tuple(_overlap(sources, own))
    close, remedy, count = near(sources, rule)
    if len(sources) == len(tables) and len(union) and not any(pair["common"] for pair in overlap):
        hint = "; some names nearly match: see below" if close else ""
        reasons.append(f"no entity is in two tables, so there is nothing to average{hint}")
    exact = cost = None
    if sources and union:
        try:
            settings, chosen = _settings(sources, union, own, rule, form, params, weighted)
        except (ParamsError, TableError) as error:
            reasons.append(str(error))
        else:
            cost = _cost(settings, chosen)
            if memory is not None and cost["memory"] > memory:
                from secea.commands.fits import size

                reasons.append(
                    f"all parties in one process need about {size(cost['memory'])} of memory, and this machine has"
                    f" {size(memory)}: let each party run by itself (docs/deploy.md), or on a larger machine"
                )
            if not reasons:
                given = [source.table for source in sources]
                exact = accuracy(given, settings, chosen, dtypes=[source.stored for source in sources])
    notes = (*formats.unlike(sources), *(() if reasons else alone(sources, own)))
    return Together(tuple(reasons), len(union), notes, overlap, close, count, remedy, exact, cost)


def few(faults: Iterable[str]) -> Iterator[str]:
    """Some of them, and how many more there are."""
    said: Counter[str] = Counter()
    for fault in faults:
        kind = fault.split(",")[0]
        said[kind] += 1
        if said[kind] <= MOST_FAULTS:
            yield fault
    for kind, count in said.items():
        if count > MOST_FAULTS:
            yield f"{kind}: {count - MOST_FAULTS:,} more like these"


def alone(sources: Sequence[formats.Source], own: Sequence[set[Name]]) -> Iterator[str]:
    """Notes on tables that get nothing from the others."""
    counts = Counter(key for each in own for key in each)
    without = [
        str(source.path)
        for source, each in zip(sources, own, strict=True)
        if each and not any(counts[key] > 1 for key in each)
    ]
    if len(without) == len(sources):
        yield "no entity is in two tables, so that each gets its own rows back; secea check says more"
    elif without:
        several = len(without) > 1
        yield (
            f"{', '.join(without)}: no entity in common with any other table, so that"
            f" {'they get their' if several else 'it gets its'} own rows back"
        )


def _overlap(sources: Sequence[formats.Source], own: Sequence[set[Name]]) -> Iterator[dict[str, Any]]:
    for (one, first), (other, second) in combinations(zip(sources, own, strict=True), 2):
        common = len(first & second)
        smaller = min(len(first), len(second))
        yield {
            "tables": [str(one.path), str(other.path)], "common": common,
            "of_the_smaller": common / smaller if smaller else 0.0,
        }  # fmt: skip


def near(
    sources: Sequence[formats.Source], rule: Sequence[str]
) -> tuple[tuple[dict[str, Any], ...], dict[str, Any], int]:
    """Names that are several entities and nearly look like one, with what would join them."""
    everything = (name for source in sources for name in source.table.names if str(name).strip())
    groups = [group for group in spellings(everything) if len(keys(group, rule)) > 1]
    listed = {name for group in groups[:MOST_LISTED] for name in group}
    owners: dict[Name, list[str]] = {name: [] for name in listed}
    for source in sources:
        for name in listed.intersection(source.table.names):
            owners[name].append(str(source.path))
    found = []
    useful: set[str] = set()
    for i, group in enumerate(groups):
        steps = joining(group)
        useful |= set(steps or ())
        if i < MOST_LISTED:
            found.append(
                {
                    "names": [str(name) for name in group],
                    "tables": [sorted(set(owners[name])) for name in group],
                    "normalize": None if steps is None else ",".join(steps),
                }
            )
    wanted = [step for step in STEPS if step in {*useful, *rule}]
    joined = sum(len(keys(group, wanted)) == 1 for group in groups)
    remedy = {"normalize": ",".join(wanted), "joins": joined, "apart": len(groups) - joined}
    return tuple(found), remedy, len(groups)


def _settings(
    sources: Sequence[formats.Source], union: set[Name], own: Sequence[set[Name]], rule: Sequence[Step], form: FormName,
    params: Mapping[str, Any], weighted: bool,
) -> tuple[Params, Form]:  # fmt: skip
    weights = [source.table.weights for source in sources if source.table.weights is not None]
    most = max((int(each.max(initial=1)) for each in weights), default=1) if weighted else None
    asked = Params(
        clients=len(sources), dim=sources[0].table.dim, normalize=rule, max_weight=most,
        max_entities=max(map(len, own)), max_union=len(union), **params,
    )  # fmt: skip
    chosen = form_of(form)
    return chosen.checked(asked), chosen


def _cost(settings: Params, form: Form) -> dict[str, Any]:
    """What a set-up and a round in one process cost."""
    from secea.commands.estimate import Machine
    from secea.plan import plan

    assert settings.max_union is not None
    machine, planned = Machine(), plan(settings, entities=settings.max_union, form=form)
    seconds = {
        phase: settings.clients * each["client"] / min(settings.clients, machine.cores) + each["server"]
        for phase, each in machine.seconds(settings, settings.max_union, form).items()
    }
    return {
        "setup_bytes": planned.setup_bytes, "round_bytes": planned.round_bytes, "setup_seconds": seconds["setup"],
        "round_seconds": seconds["round"],
        "memory": form.memory(settings, settings.max_union)["together"] + PYTHON_BYTES,
    }  # fmt: skip


def machine_memory() -> int | None:
    """The bytes of memory that this machine has; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
