"""Claims about the form "keyed": nobody finds the number of owners behind a mean better than by chance.

Encoding and noise are the form's; masks and keys, which cancel, are left out (`attacks.keyed_counts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks import keyed_counts as counts
from secea.audit.attacks import weights
from secea.audit.attacks.keyed_counts import (
    BF16,
    DECIMALS,
    FLOAT32,
    FLOAT64,
    FP16,
    INT8,
    INT8_SCALED,
    INT16_SCALED,
    Inputs,
    Seen,
    World,
)
from secea.audit.mutants import keyed as mutants
from secea.audit.mutants import numbers as numbers_mutants
from secea.audit.mutants import options
from secea.audit.tails import FALSE_ALARM, judge
from secea.forms.keyed import Keyed

TRIALS: Final = 2000


def form_of(subject: Subject) -> Keyed:
    """The form that is examined."""
    assert isinstance(subject.form, Keyed)
    return subject.form


def rng(*of: int) -> np.random.Generator:
    """For made-up inputs; fill and noise come from the system."""
    return np.random.default_rng([7, *of])


def right(what: str, found: Iterable[NDArray[np.int64]], world: World) -> int:
    """How many guesses were judged, of several suppositions."""
    tried = 0
    for guesses in found:
        judge(what, int((guesses == world.counts).sum()), world.counts.size, 1 / len(world.possible))
        tried += guesses.size
    return tried


def sizes(subject: Subject) -> Sequence[tuple[int, int]]:
    """N and T."""
    return ((5, 1), (5, 4), (10, 1), (10, 9)) if subject.thorough else ((5, 1), (10, 1))


def by_grid(
    seen: Seen, kind: Inputs, *fills: tuple[float, ...], times: float = 1.0, possible: range = counts.COUNTS
) -> list[NDArray[np.int64]]:
    """Guesses for each supposition about the others' fill: none, a step, the next power of two, s parts, and these."""
    power = 2.0 ** np.ceil(np.log2(kind.steps[0])) / kind.steps[0]
    split = (1 / seen.numbers.s,) * seen.numbers.s
    steps = [times * step for step in kind.steps]
    return [counts.by_grid(seen, steps, fill, possible) for fill in ((), (1.0,), (float(power),), split, *fills)]


@claim(
    "attack", KEYED, mutants=(mutants.NO_FILL, mutants.NEXT_POWER, numbers_mutants.SPLIT, numbers_mutants.EIGHT_BITS)
)
def count_by_grid(subject: Subject) -> int:
    """Keyed: an owner that knows how inputs were rounded does not learn from means how many own the entity.

    One mean, and the average of many rounds in which nobody's values change.
    """
    form, cases = form_of(subject), 0
    for kind in counts.KINDS if subject.thorough else (FLOAT32, BF16, INT8_SCALED, INT16_SCALED):
        for clients, collusion in sizes(subject):
            params = counts.parameters(TRIALS, clients=clients, collusion=collusion)
            owners = counts.Owners(TRIALS, form, clients)
            owners.session(params)
            world = counts.unlike(kind, TRIALS, rng(collusion), clients=clients)
            values, rounds = owners.encode(world, kind.dtype), (1, 10, 100) if subject.thorough else (1, 10)
            for q, seen in zip(rounds, counts.seen_after(form, params, values, world, rounds), strict=True):
                found = by_grid(seen, kind, possible=world.possible)
                cases += right(f"N={clients}, {kind.name}, {q} rounds", found, world)
    return cases


@claim("attack", KEYED, mutants=(mutants.NO_NARROW, numbers_mutants.NOISE_OF_T))
def count_by_lattice(subject: Subject) -> int:
    """Keyed: T owners that take a mean as an exact number do not learn from it how many own the entity.

    Each round of a rotation of the noise clients is tried by itself.
    """
    form, cases = form_of(subject), 0
    for kind, collusion in ((FLOAT32, 1), (BF16, 2)):
        params, owners = counts.parameters(TRIALS, collusion=collusion), counts.Owners(TRIALS, form)
        owners.session(params)
        world = counts.unlike(kind, TRIALS, rng(2), inside=collusion)
        values, before = owners.encode(world, kind.dtype), np.zeros(0, np.int32)
        rounds = range(1, counts.CLIENTS + 1)
        for q, seen in zip(rounds, counts.seen_after(form, params, values, world, rounds), strict=True):
            alone = replace(seen, residues=seen.residues - before if q > 1 else seen.residues)
            found = [counts.by_lattice(alone), counts.by_spectrum(alone)]
            cases += right(f"{kind.name}, T={collusion}, round {q}, exact", found, world)
            before = seen.residues
    return cases


@claim("attack", KEYED, mutants=(mutants.NO_NARROW,))
def count_by_spectrum(subject: Subject) -> int:
    """Keyed: an owner that takes the spectrum of many entities' means finds no line that belongs to a count."""
    form, cases = form_of(subject), 0
    for kind, clients in ((FLOAT32, 5), (BF16, 10)):
        params, owners = counts.parameters(TRIALS, clients=clients), counts.Owners(TRIALS, form, clients)
        owners.session(params)
        world = counts.unlike(kind, TRIALS, rng(6), clients=clients)
        seen = counts.seen(form, params, owners.encode(world, kind.dtype), world, 100 if subject.thorough else 10)
        for c in world.possible:
            k, amplitude, samples = counts.strongest_line(seen, world.counts == c)
            # Real and imaginary part are means of numbers within [-1, 1]: Hoeffding's bound, for each of C lines.
            if 4 * seen.numbers.C * math.exp(-samples * amplitude**2 / 4) < FALSE_ALARM:
                raise Objection(
                    f"{kind.name}: means of {c} owners have a line at {k}/{seen.numbers.C}: {amplitude:.2f}"
                )
            cases += samples
    return cases


def by_slope(seen: Seen, kind: Inputs, owners: counts.Owners, world: World) -> list[NDArray[np.int64]]:
    """Guesses for two suppositions about the fill: as wide as the grid, or at least an eighth of the resolution."""
    own = world.rows[0].astype(kind.dtype).astype(np.float64)
    widths = counts.fill_widths(owners.parts[0], own)
    floor = numbers_mutants.floor_of(owners.parts[0].params)
    return [counts.by_slope(seen, own, each, world.possible) for each in (widths, np.maximum(widths, floor))]


@claim("attack", KEYED, mutants=(mutants.NO_WIDE, numbers_mutants.FEW_UNITS, numbers_mutants.UNSCALED))
def count_by_slope(subject: Subject) -> int:
    """Keyed: an owner that knows the others' values does not learn from one mean how many own the entity.

    Numbers are float32 or float64, and the same at all owners, because nobody changed them.
    """
    form, cases = form_of(subject), 0
    for kind in (FLOAT64, FLOAT32):
        for clients, collusion in sizes(subject):
            params = counts.parameters(TRIALS, clients=clients, collusion=collusion)
            owners = counts.Owners(TRIALS, form, clients)
            owners.session(params)
            world = counts.alike(kind, TRIALS, rng(3, collusion), clients=clients)
            seen = counts.seen(form, params, owners.encode(world, kind.dtype), world)
            cases += right(f"N={clients}, {kind.name}, shared values", by_slope(seen, kind, owners, world), world)
    return cases


@claim("attack", KEYED, mutants=(numbers_mutants.FLOOR, mutants.NO_WIDE, numbers_mutants.FEW_UNITS))
def count_over_rounds(subject: Subject) -> int:
    """Keyed: an owner that averages 100 rounds of float64 numbers that nobody changes does not learn how many own them.

    With float32 it learns nothing in ten rounds, and something in a thousand: `secea audit --counts`.
    """
    form, cases = form_of(subject), 0
    for kind, dim, rounds in ((FLOAT64, 64, 100), (FLOAT32, counts.DIM, 10)):
        params, owners = counts.parameters(TRIALS, dim), counts.Owners(TRIALS, form)
        owners.session(params)
        world = counts.alike(kind, TRIALS, rng(7), dim)
        seen = counts.seen(form, params, owners.encode(world, kind.dtype), world, rounds)
        cases += right(f"{kind.name}, {rounds} rounds", by_slope(seen, kind, owners, world), world)
    return cases


@claim("attack", KEYED, mutants=(mutants.FILL_ANEW, numbers_mutants.LOW_BITS))
def count_over_sessions(subject: Subject) -> int:
    """Keyed: an owner that combines the means of two sessions does not learn how many own the entity.

    Nobody's values change, and numbers have another fixed point.
    """
    form, cases = form_of(subject), 0
    for kind in (FLOAT32, BF16, INT8) if subject.thorough else (INT8,):
        owners, world, seen = counts.Owners(TRIALS, form), counts.unlike(kind, TRIALS, rng(4)), []
        for params in (counts.parameters(TRIALS), counts.parameters(TRIALS, clients=7)):
            owners.session(params)
            seen.append(counts.seen(form, params, owners.encode(world, kind.dtype), world))
        one, other = seen
        ratio = 2.0 ** (one.numbers.f - other.numbers.f)
        assert ratio > 1, "the fixed point did not move"
        for a, b in ((0.5, 0.5), (ratio, -1.0), (1.0, -ratio)):
            for times in {1.0, abs(a + b)}:  # the fill's multiples of a step may stay, or the values' alone
                found = by_grid(one.combined(a, other, b), kind, (0.5, 0.5), times=times)
                cases += right(f"{kind.name}, two sessions", found, world)
    return cases


@claim("attack", KEYED, mutants=(mutants.TABLE_GRID, mutants.SCALED_FILL, numbers_mutants.FORGETFUL))
def count_over_grids(subject: Subject) -> int:
    """Keyed: an owner that combines rounds of finer and coarser tables does not learn how many own the entity.

    Before one of the rounds all tables got a number on a finer grid; all else stays. A step that is no power of two is
    found in whole tables alone, so that it has to be kept.
    """
    form, cases = form_of(subject), 0
    for kind in (INT8_SCALED, DECIMALS) if subject.thorough else (INT8_SCALED,):
        params, owners, world = (
            counts.parameters(TRIALS),
            counts.Owners(TRIALS, form),
            counts.unlike(kind, TRIALS, rng(8)),
        )
        owners.session(params)
        for beside in (None, np.full((1, counts.DIM), 1 / np.pi)):
            seen = counts.seen(form, params, owners.encode(world, kind.dtype, beside), world)
            cases += right(f"{kind.name}, then beside a finer number", by_grid(seen, kind), world)
    for kind in (INT8, BF16, FP16) if subject.thorough else (INT8,):
        step = kind.steps[0]
        params, owners, world = (
            counts.parameters(TRIALS),
            counts.Owners(TRIALS, form),
            counts.unlike(kind, TRIALS, rng(5)),
        )
        owners.session(params)
        rows = np.full((1, counts.DIM), 0.5 + step / 2), None
        fine, coarse = (counts.seen(form, params, owners.encode(world, kind.dtype, row), world) for row in rows)
        cases += right(f"{kind.name}, beside a finer number", by_grid(fine, kind, (0.5,)), world)
        for a in (2.0, 0.5, 0.8):
            found = by_grid(fine.combined(a, coarse, 1 - a), kind, (a / 2, 1 - a))
            cases += right(f"{kind.name}, two grids", found, world)
    return cases


@claim("attack", KEYED, mutants=(options.UNBLURRED, options.BLUR_ANEW))
def count_by_weights(subject: Subject) -> int:
    """Keyed: the mean of weights that an owner does not know does not tell it how many own the entity.

    In one round, and in many in which nobody's weight changes. If it knows the others' weights, it learns something in
    one round, and more with other weights in each: `secea audit --counts`.
    """
    cases = 0
    for clients in (5, 10) if subject.thorough else (5,):
        of = weights.Weighing(form_of(subject), TRIALS, clients, rng(9, clients))
        own = weights.own_weights(of.world, of.rng, 0)
        for q, was in zip((1, 40), of.constant(own, (1, 40)), strict=True):
            found = [counts.by_grid(was, (1.0,), fill, of.world.possible) for fill in ((), (1.0,))]
            cases += right(f"N={clients}, weights, {q} rounds", found, of.world)
    return cases
