"""Whether a federation fits: its round, its set-up and its memory against limits, and what would change it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from secea.commands.costs import Setting, costs
from secea.errors import ParamsError

if TYPE_CHECKING:
    from secea.params import Params
    from secea.party.form import Form

ROUND_MINUTES: Final = 10.0
"""A round that takes longer than this is longer than most training between two rounds."""
SETUP_HOURS: Final = 24.0
"""The set-up comes once: it may take a day."""
COARSE: Final = 16
"""Bits that a plan tries in place of a higher precision."""
QUICKEST: Final = "nvflare"
"""The engine that a plan tries in place of another one."""
WORTH: Final = 0.9
"""A change is named if it leaves no more than this part."""

Costs = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """What a federation has to stay within."""

    round_seconds: float = ROUND_MINUTES * 60
    setup_seconds: float = SETUP_HOURS * 3600
    memory_bytes: float | None = None
    """Of each party. None: nothing is known about it."""


def machine_memory() -> float | None:
    """The memory of this machine, where the system tells it."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not a name that this system knows
        return None


@dataclass(frozen=True)
class Measure:
    """One of the numbers that are judged."""

    what: str
    """A sentence with a gap for the number."""
    would: str
    """How a sentence about another federation begins."""
    of: Callable[[Costs], float]
    limit: float | None
    shown: Callable[[float], str]

    def within(self, found: Costs) -> bool:
        """Whether it stays within its limit."""
        return self.limit is None or self.of(found) <= self.limit

    def says(self, found: Costs) -> str:
        """The number and its limit."""
        limit = "" if self.limit is None else f" (limit {self.shown(self.limit)})"
        return self.what.format(self.shown(self.of(found))) + limit


def measures(limits: Limits, found: Costs) -> tuple[Measure, ...]:
    """All that is judged. Of memory it is the party that needs the most."""
    who = max(("client", "server"), key=lambda party: found["memory"][party])
    party = "the server" if who == "server" else "each client"
    return (
        Measure(
            "a round takes {}",
            "A round would take",
            lambda cost: cost["phases"]["round"]["seconds"],
            limits.round_seconds,
            duration,
        ),
        Measure(
            "the set-up takes {}",
            "The set-up would take",
            lambda cost: cost["phases"]["setup"]["seconds"],
            limits.setup_seconds,
            duration,
        ),
        Measure(
            f"{party} needs {{}} of memory",
            f"{party.capitalize()} would need",
            lambda cost: cost["memory"][who],
            limits.memory_bytes,
            size,
        ),
    )


def judged(found: Costs, limits: Limits, changes: Callable[[], Iterator[tuple[str, Costs]]]) -> dict[str, Any]:
    """The verdict: a sentence, its reasons, and what would change it. `changes` are tried only if it does not fit."""
    every = measures(limits, found)
    beyond = [each for each in every if not each.within(found)]
    tried = list(changes()) if beyond else []
    reasons: list[dict[str, Any]] = []
    for each in beyond:
        value = each.of(found)
        others = [(change, each.of(cost)) for change, cost in tried if each.of(cost) <= WORTH * value]
        cures = [{"change": change, "value": other} for change, other in sorted(others, key=lambda pair: pair[1])]
        reasons.append(
            {"what": each.what.format(each.shown(value)), "value": value, "limit": each.limit, "instead": cures}
        )
    if beyond:
        says = f"Not practical, because {_listed([each.says(found) for each in beyond])}."
    else:
        says = f"Fits: {_listed([each.says(found) for each in every])}."
    instead = [_instead(each, reason["instead"]) for each, reason in zip(beyond, reasons, strict=True)]
    return {"fits": not beyond, "sentence": says, "instead": instead, "limits": asdict(limits), "reasons": reasons}


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _instead(each: Measure, changes: list[dict[str, Any]]) -> str:
    """What becomes of a number that is beyond its limit, change by change."""
    if not changes:
        return f"{each.would} about as much with each change that was tried."
    shown = ", ".join(f"{each.shown(change['value'])} with {change['change']}" for change in changes)
    enough = any(change["value"] <= (each.limit or 0.0) for change in changes)
    return f"{each.would} {shown}.{'' if enough else ' None of these is enough by itself.'}"


def changes(params: Params, form: Form, where: Setting) -> Iterator[tuple[str, Costs]]:
    """Smaller federations, and other ways to run this one, with their costs. What cannot be run is left out."""
    from secea.forms import DEFAULT, form_of

    assert params.max_union is not None
    assert params.max_entities is not None
    half = {"max_union": -(-params.max_union // 2), "max_entities": -(-params.max_entities // 2)}
    other = form_of(DEFAULT)
    tries: list[tuple[str, dict[str, Any], Form, Setting]] = [("half of the entities", half, form, where)]
    if params.dim > 1:
        tries.append((f"dim {params.dim // 2}", {"dim": params.dim // 2}, form, where))
    if params.T > 1:
        tries.append(("T=1", {"collusion": 1}, form, where))
    if params.precision > COARSE:
        tries.append((f"precision {COARSE}", {"precision": COARSE}, form, where))
    if form.name != other.name:
        tries.append((f"form {DEFAULT}", {}, other, where))
    if where.engine not in (None, QUICKEST):
        tries.append((f"engine {QUICKEST}", {}, form, replace(where, engine=QUICKEST)))
    faster = replace(where, mbit=10 * where.mbit)
    tries.append((f"a network of {faster.mbit:g} Mbit/s", {}, form, faster))
    for change, values, chosen, there in tries:
        try:
            yield change, costs(chosen.checked(replace(params, **values)), chosen, there)
        except ParamsError:  # no room for it among the other parameters
            continue


def size(count: float) -> str:
    """Bytes, as people read them."""
    for unit, factor in (("EB", 1e18), ("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.{0 if count >= 100 * factor else 1}f} {unit}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Seconds, as people read them: two digits, since it is an estimate."""
    for unit, factor in (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * factor:
            return f"{_two_digits(seconds / factor)} {unit}"
    return f"{_two_digits(seconds)} s"


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
