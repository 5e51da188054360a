"""Claims about the form "keyed": what every coalition sees, exactly, in fields of a few elements (`secea.audit.views`).

Worlds with the same admitted values must have the same law. Where these values differ, the laws must differ for certain:
otherwise the check would be blind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import M61, Residues
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.claims.counts import form_of
from secea.audit.laws import Coset, Mixture, coset_of, reduced
from secea.audit.mutants import keyed as known_mutants
from secea.audit.mutants import views as mutants
from secea.audit.views import Case, Draws, Play, Rows, Stage, World, admitted
from secea.errors import SERVER, ProtocolError
from secea.forms.keyed.form import Kind
from secea.params import Params
from secea.steps import masks
from secea.wire.keys import expand
from secea.wire.messages import DIGEST_BYTES

MOST: Final = 2000
"""Values of rho and alpha, in a thorough run."""


# -------------------------------------------------------------------------------------------------------------- worlds


def numbers(case: Case, slot: int, owners: Sequence[int], variant: int) -> dict[int, tuple[int, ...]]:
    """Each owner's numbers in a slot. Of the first three variants two have the same sum."""
    every = range(case.dim)
    given = {n: tuple(1 + j for j in every) for n in owners}
    honest = [n for n in owners if n not in case.inside]
    if variant == 1:
        for n, by in zip(honest[:2], (1, -1), strict=False) if len(honest) > 1 else ():
            given[n] = tuple((x + by) % case.p for x in given[n])
    if variant > 1:
        given.update({n: tuple((variant * x + n + slot) % case.p for x in given[n]) for n in honest})
    return given


def world(case: Case, owners: Sequence[Sequence[int]], variants: Sequence[int]) -> World:
    """A world with these honest owners of each slot, and these numbers in each round."""
    rounds = []
    for variant in variants:
        rows: list[dict[int, tuple[int, ...]]] = [{} for _ in range(case.clients)]
        for slot, some in enumerate(owners):
            inside = case.inside if slot in case.own else ()
            for n, row in numbers(case, slot, [*some, *inside], variant).items():
                rows[n][slot] = row
        rounds.append(tuple(rows))
    return tuple(rounds)


def worlds(case: Case, most: int) -> Iterator[World]:
    """Everybody owns what it may own, as often as `most` allows; each with a few choices of numbers."""
    each = [some for size in range(len(case.honest) + 1) for some in combinations(case.honest, size)]
    patterns = list(product(each, repeat=case.slots))
    if len(patterns) > most:
        rng, one = np.random.default_rng(case.clients), [() if i else each[1] for i in range(case.slots)]
        few = [patterns[i] for i in sorted(rng.choice(len(patterns), most - 3, replace=False))]
        patterns = list(dict.fromkeys([patterns[0], tuple(one), tuple(reversed(one)), *few]))
    again = len(case.rounds) - 1
    for owners in patterns:
        for variants in ((0,) * (again + 1), (1,) * (again + 1), (0,) * again + (2,)):
            yield world(case, owners, variants)


def everything(case: Case) -> Iterator[World]:
    """All inputs of one round of two clients."""
    rows: list[Rows] = [{}, *({0: (x,)} for x in range(case.p))]
    inside = {n: [{0: (1,)} if case.own else {}] for n in case.inside}
    for each in product(*(inside.get(n, rows) for n in range(case.clients))):
        yield (tuple(each),)


def compared(subject: Subject, case: Case, some: Iterable[World], **who: bool) -> int:
    """How many worlds were compared. An `Objection` if a coalition tells apart two that are the same to it.

    `who`: whether the `server` conspires, and whether the coalition knows all `noise`.
    """
    stage, by_leak = Stage(subject, case), dict[object, list[Mixture]]()
    for each in some:
        play = Play(stage, each)
        few = (2, 3 if case.inside else None)
        choices = play.choices(*(few if not subject.thorough else (30, MOST // 30 if case.inside else None)))
        by_leak.setdefault(admitted(case, each, **who), []).append(play.law(choices, **who))
    for leak, laws in by_leak.items():
        if any(other.law != laws[0].law for other in laws[1:]):
            seen = "with the server" if who["server"] else "without the server"
            raise Objection(f"{case}, {seen}: more is seen than what is admitted, which is {leak}")
    firsts = [laws[0] for laws in by_leak.values()]
    assert max(map(len, by_leak.values())) > 1, "nothing was compared"
    assert len(firsts) > 1, "nothing is admitted"
    assert all(one.differs(two) for one, two in combinations(firsts, 2)), "the check does not see what is admitted"
    return sum(map(len, by_leak.values()))


def every(subject: Subject, cases: Sequence[Case], more: Sequence[Case], **who: bool) -> int:
    """Compare the worlds of some cases; in a thorough run of more of them, and all inputs of the smallest."""
    some = [*cases, *more] if subject.thorough else cases
    tried = sum(compared(subject, case, worlds(case, 40 if subject.thorough else 10), **who) for case in some)
    smallest = [case for case in some if (case.clients, case.slots, case.dim, len(case.rounds)) == (2, 1, 1, 1)]
    if subject.thorough:
        tried += sum(compared(subject, case, everything(case), **who) for case in smallest)
    return tried


# -------------------------------------------------------------------------------------------------------------- rounds


@claim(
    "exact view",
    KEYED,
    mutants=(mutants.NO_G, mutants.NO_RHO, mutants.RHO_OF_SLOTS, mutants.RHO_OF_CHUNKS, known_mutants.NO_MASKS),
)
def view_of_the_server(subject: Subject) -> int:
    """Keyed: the server alone sees of rounds which slots have no owner, and nothing else."""
    cases = (
        Case(2, 1),
        Case(3, 1, slots=2, per_chunk=2),
        Case(3, 2, slots=2, per_chunk=1, p=7),
        Case(4, 2, dim=2, rounds=(1, 2)),
    )
    more = (
        Case(2, 1, p=7),
        Case(2, 1, slots=3, dim=2, per_chunk=2),
        Case(4, 1, slots=2, per_chunk=1),
        Case(4, 3, dim=2, p=7),
        Case(3, 1, slots=2, per_chunk=1, rounds=(1, 2)),
    )
    return every(subject, cases, more, server=True)


@claim(
    "exact view",
    KEYED,
    mutants=(mutants.NO_G, mutants.MISSING_EDGE, known_mutants.FEWER_MASKS, known_mutants.NO_MASKS),
)
def view_of_server_and_clients(subject: Subject) -> int:
    """Keyed: the server and T clients see how many others own a slot, of own slots the others' sum, nothing else."""
    cases = (
        Case(2, 1, inside=(1,)),
        Case(2, 1, inside=(0,), own=(0,), p=7),
        Case(3, 1, slots=2, per_chunk=1, inside=(2,), own=(1,), rounds=(1, 3)),
        Case(3, 2, dim=2, inside=(0, 2), own=(0,)),
        Case(4, 1, inside=(2,), rounds=(2,)),
        Case(4, 2, slots=2, per_chunk=2, inside=(1, 3), own=(0,)),
    )
    more = (
        Case(2, 1, slots=3, dim=2, per_chunk=2, inside=(1,), own=(0, 2), p=7),
        Case(3, 1, inside=(2,), rounds=(1, 2, 3)),
        Case(3, 1, inside=(0,), own=(0,), p=7),
        Case(4, 3, slots=2, inside=(0, 1, 3), own=(1,), p=7),
        Case(4, 2, dim=2, inside=(0, 3), own=(0,), rounds=(1, 2)),
    )
    return every(subject, cases, more, server=True)


@claim("exact view", KEYED, mutants=(mutants.NO_G, mutants.FEWER_NOISE))
def view_of_clients(subject: Subject) -> int:
    """Keyed: T clients see which slots have no owner, and of their own slots the mean under one honest noise or more."""
    cases = (
        Case(2, 1, inside=(1,)),
        Case(3, 1, slots=2, per_chunk=1, inside=(1,), own=(0,)),
        Case(4, 2, slots=2, dim=2, inside=(1, 2), own=(0,)),
    )
    more = (
        Case(3, 2, slots=2, inside=(0, 2), own=(1,), p=7, rounds=(1, 2)),
        Case(4, 1, slots=2, inside=(2,), own=(0,), rounds=(1, 2, 3)),
        Case(4, 3, slots=3, inside=(0, 1, 2), own=(0, 2)),
    )
    few = [case for case in (*cases[1:], *(more if subject.thorough else ())) if len(case.rounds) == 1]
    return every(subject, cases, more, server=False) + every(subject, few[:1], few[1:], server=False, noise=True)


@claim("exact view", KEYED, mutants=(mutants.NO_SELF_MASKS, mutants.MISSING_EDGE, mutants.NO_G))
def view_with_drop_outs(subject: Subject) -> int:
    """Keyed: if clients vanish and their uploads come late, the server and T clients see only what U tells."""
    cases = (
        Case(3, 1, 1, vanish=(2,)),
        Case(4, 1, 1, inside=(1,), own=(0,), vanish=(3,)),
        Case(6, 1, 2, p=7, inside=(4,), vanish=(2, 5), rounds=(2,)),
    )
    more = (
        Case(4, 2, 1, slots=2, per_chunk=1, inside=(0, 3), own=(1,), vanish=(2,)),
        Case(4, 2, 1, inside=(0, 3), vanish=(3,)),
        Case(5, 2, 1, p=7, inside=(0, 2), own=(0,), rounds=(1, 2)),
        Case(7, 1, 2, p=11, inside=(3,), own=(0,), vanish=(1, 6), rounds=(3,)),
    )
    return every(subject, cases, more, server=True)
