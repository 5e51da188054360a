"""Claims about the form "keyed": what every coalition sees, exactly, in fields of a few elements (`secea.audit.views`).

Worlds with the same admitted values must have the same law. Where these values differ the laws must differ for certain,
otherwise the check would be blind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, product
from typing import Final

import numpy as np

from secea.arithmetic.field import Residues
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.laws import Mixture, Tiny, reduced
from secea.audit.mutants import keyed as known_mutants
from secea.audit.mutants import options
from secea.audit.mutants import views as mutants
from secea.audit.views import Case, Play, Rows, Sent, Stage, World, admitted
from secea.errors import ProtocolError

MOST: Final = 200
"""Values of rho and alpha in a thorough run: all of them, in small cases."""


# -------------------------------------------------------------------------------------------------------------- worlds


def numbers(case: Case, slot: int, owners: Sequence[int], variant: int) -> dict[int, tuple[int, ...]]:
    """Each owner's numbers in a slot. Variants 0 and 1 have the same sum; in variant 3 all columns are equal.

    In variant 2 the others' weights, if there are any, are 0.
    """
    every = range(case.columns)
    given = {n: tuple(1 + j for j in every) for n in owners}
    honest = [n for n in owners if n not in case.inside]
    if variant == 1:
        for n, by in zip(honest[:2], (1, -1), strict=False) if len(honest) > 1 else ():
            given[n] = tuple((x + by) % case.p for x in given[n])
    if variant > 1:
        given.update({n: tuple((2 * x * (3 - variant) + 2 * n + slot) % case.p for x in given[n]) for n in honest})
    if variant == 2 and case.weighted:
        given.update({n: (*given[n][:-1], 0) for n in honest})
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
    rounds = len(case.rounds)
    variants = [0] * rounds, [1] * rounds, [0] * (rounds - 1) + [2], [3] * rounds
    for owners, some in product(patterns, variants if case.columns > 1 else variants[:3]):
        yield world(case, owners, some)


def everything(case: Case) -> Iterator[World]:
    """All inputs of one round of two clients."""
    rows: list[Rows] = [{}, *({0: (x,)} for x in range(case.p))]
    inside = {n: [{0: (1,)} if case.own else {}] for n in case.inside}
    for each in product(*(inside.get(n, rows) for n in range(case.clients))):
        yield (tuple(each),)


def choices(play: Play, *, thorough: bool) -> Tiny:
    """Values of rho and alpha: a few, or up to `MOST`; but of rho always all, if nobody inside knows it."""
    rhos = None if not play.case.inside else 30 if thorough else 3
    few = 2 if play.case.least == 1 or play.case.inside else 1  # a minimum has many values of rho
    return play.choices(max(2, MOST // (rhos or (play.case.p - 1) ** len(play.rho))) if thorough else few, rhos)


def compared(subject: Subject, case: Case, some: Iterable[World], **who: bool) -> int:
    """How many worlds were compared. An `Objection` if a coalition tells apart two that are the same to it.

    `who`: whether the `server` conspires, and whether the coalition knows all `noise`.
    """
    stage, by_leak = Stage(subject, case), dict[object, list[Mixture]]()
    for each in some:
        play = Play(stage, each)
        law = play.law(choices(play, thorough=subject.thorough), **who)
        by_leak.setdefault(admitted(case, each, **who), []).append(law)
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
    tried = sum(compared(subject, case, worlds(case, 16 if subject.thorough else 10), **who) for case in some)
    smallest = [c for c in some if (c.clients, c.slots, c.columns, len(c.rounds), c.own) == (2, 1, 1, 1, ())]
    if subject.thorough:
        tried += sum(compared(subject, case, everything(case), **who) for case in smallest)
    return tried


# -------------------------------------------------------------------------------------------------------------- rounds


@claim(
    "exact view",
    KEYED,
    mutants=(
        mutants.NO_G,
        mutants.ONE_G,
        mutants.NO_RHO,
        mutants.RHO_OF_SLOTS,
        mutants.RHO_OF_CHUNKS,
        mutants.ONE_MASK,
        mutants.SAME_LANE,
        known_mutants.NO_MASKS,
        known_mutants.SAME_MASKS,
    ),
)
def view_of_the_server(subject: Subject) -> int:
    """Keyed: the server alone sees of rounds which slots have no owner, and nothing else."""
    cases = (
        Case(2, 1, p=7),
        Case(3, 1, slots=2, per_chunk=2),
        Case(3, 2, slots=2, per_chunk=1),
        Case(2, 1, dim=2, rounds=(1, 2)),
        Case(4, 2),
    )
    more = (
        Case(2, 1),
        Case(2, 1, slots=3, dim=2, per_chunk=2),
        Case(4, 1, slots=2, per_chunk=1, p=7),
        Case(4, 3, dim=2, p=7),
        Case(3, 1, slots=2, per_chunk=1, rounds=(1, 2)),
    )
    return every(subject, cases, more, server=True)


@claim(
    "exact view",
    KEYED,
    mutants=(
        mutants.NO_G,
        mutants.ONE_G,
        mutants.SAME_G,
        mutants.MISSING_EDGE,
        known_mutants.FEWER_MASKS,
        known_mutants.NO_MASKS,
        known_mutants.SAME_MASKS,
    ),
)
def view_of_server_and_clients(subject: Subject) -> int:
    """Keyed: the server and T clients see how many others own a slot, of own slots the others' sum, nothing else."""
    cases = (
        Case(2, 1, inside=(1,)),
        Case(2, 1, inside=(0,), own=(0,), p=7),
        Case(3, 1, slots=2, per_chunk=1, inside=(2,), own=(1,), rounds=(1, 3)),
        Case(3, 2, slots=2, dim=2, inside=(0, 2), own=(0,)),
        Case(4, 1, inside=(2,), rounds=(2,)),
        Case(5, 2, p=7, inside=(0, 3), absent=(1,)),
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


@claim("exact view", KEYED, mutants=(mutants.NO_G, mutants.FEWER_NOISE, mutants.SAME_NOISE))
def view_of_clients(subject: Subject) -> int:
    """Keyed: T clients see which slots have no owner, and means of own slots under the noise of somebody else.

    With all noise known they would see the means of their own slots, and of other slots still nothing.
    """
    cases = (
        Case(2, 1, inside=(1,)),
        Case(2, 1, slots=2, inside=(0,), own=(1,), rounds=(1, 2)),
        Case(3, 1, slots=2, per_chunk=1, inside=(1,), own=(0,)),
        Case(4, 2, slots=2, dim=2, inside=(1, 2), own=(0,)),
    )
    more = (
        Case(3, 2, slots=2, inside=(0, 2), own=(1,), p=7, rounds=(1, 2)),
        Case(4, 1, slots=2, inside=(2,), own=(0,), rounds=(1, 2, 3)),
        Case(4, 3, slots=3, inside=(0, 1, 2), own=(0, 2)),
    )
    few = [case for case in (*cases[2:], *(more if subject.thorough else ())) if len(case.rounds) == 1]
    return every(subject, cases, more, server=False) + every(subject, few[:1], few[1:], server=False, noise=True)


@claim("exact view", KEYED, mutants=(mutants.NO_SELF_MASKS, mutants.ONE_FOR_BATCH, mutants.MISSING_EDGE, mutants.NO_G))
def view_with_drop_outs(subject: Subject) -> int:
    """Keyed: if clients vanish and their uploads come late, the server and T clients see only what U tells."""
    cases = (
        Case(3, 1, 1, vanish=(2,), rounds=(1, 2)),
        Case(4, 1, 1, inside=(1,), own=(0,), vanish=(3,), rounds=(1, 2)),
        Case(7, 1, 2, p=11, inside=(3,), absent=(4,), vanish=(6,), rounds=(3,)),
    )
    more = (
        Case(4, 2, 1, slots=2, per_chunk=1, inside=(0, 3), own=(1,), vanish=(2,)),
        Case(4, 2, 1, inside=(0, 3), vanish=(3,)),
        Case(5, 2, 1, p=7, inside=(0, 2), own=(0,), rounds=(1, 2)),
        Case(6, 1, 2, p=7, inside=(4,), own=(0,), vanish=(2, 5), rounds=(2,)),
        Case(7, 1, 2, p=11, inside=(3,), vanish=(1, 6), rounds=(3,)),
    )
    return every(subject, cases, more, server=True)


# ------------------------------------------------------------------------------------------------------------- options


@claim(
    "exact view",
    KEYED,
    mutants=(
        options.LEAST_IN_ORDER, options.LEAST_ONE_ORDER, options.LEAST_OF_CHUNKS, options.LEAST_OF_ROUNDS,
        options.LEAST_ONE_RHO, options.LEAST_RHO_OF_COUNT, known_mutants.NO_MASKS,
    ),
)  # fmt: skip
def view_of_a_minimum(subject: Subject) -> int:
    """Keyed: with a minimum of owners the server alone sees which slots have none, too few, or enough: no count.

    Whoever drops out, and over rounds. The order of a slot's columns and its blindings are all tried.
    """
    cases = (
        Case(3, 2, least=2),
        Case(3, 1, least=3),
        Case(4, 3, least=3),
        Case(4, 1, 1, least=2, vanish=(3,), rounds=(2,)),
    )
    more = (Case(3, 2, least=3, p=7), Case(4, 2, least=4, p=7), Case(4, 1, 1, least=3, vanish=(2,), rounds=(3,)))
    tried = every(subject, cases, more, server=True)
    for case in (Case(3, 1, slots=2, per_chunk=2, least=3), Case(3, 1, slots=2, per_chunk=1, least=3)):
        tried += _two_slots(subject, case)
    return tried + _two_slots(subject, Case(3, 1, least=3, rounds=(1, 2)))


def _two_slots(subject: Subject, case: Case) -> int:
    """Two slots below the minimum, or two rounds of one: which count each has makes no difference.

    What the server opens, whatever is drawn, is looked at by itself: in which of the columns there is a 0.
    """
    stage, laws, tried = Stage(subject, case), list[Counter[bytes]](), 0
    for counts in product((1, 2), repeat=case.slots * len(case.rounds)):
        by_round = [counts[r * case.slots : (r + 1) * case.slots] for r in range(len(case.rounds))]
        rounds = [world(case, [range(c) for c in some], [0])[0] for some in by_round]
        play = Play(stage, tuple(rounds))
        decides, _ = play.order()
        orders = np.array(list(product(range(1, case.least), repeat=len(decides))), np.uint8)
        values = np.random.default_rng(1).integers(1, case.p, (len(orders), play.draws.size), np.uint8)
        values[:, decides] = orders
        width = stage.form.width(stage.params)
        sums = [one.reshape(len(orders), -1, width) for sent in play.sent(values) for one in sent.sums]
        counts_at = slice(2 - 2 * case.least, 1 - case.least)
        zeros = np.concatenate([(one[:, :, counts_at] == 0).reshape(len(orders), -1) for one in sums], axis=1)
        laws.append(Counter(row.tobytes() for row in zeros))
        tried += len(orders)
    if any(other != laws[0] for other in laws[1:]):
        raise Objection(f"{case}: where a slot's columns are 0 depends on counts below the minimum")
    return tried


@claim("exact view", KEYED, mutants=(mutants.NO_G, options.LEAST_THETAS))
def view_below_a_minimum(subject: Subject) -> int:
    """Keyed: T clients see which slots are below a minimum of owners, and of these nothing else, if they own them too.

    With the server's help they see counts, as without a minimum.
    """
    cases = (
        Case(3, 1, least=2, inside=(0,), own=(0,)),
        Case(4, 1, least=3, inside=(1,), own=(0,)),
        Case(4, 2, slots=2, least=3, inside=(1, 2), own=(0,)),
    )
    more = (
        Case(4, 1, least=4, p=7, inside=(0,), own=(0,)),
        Case(5, 2, 1, slots=2, per_chunk=1, p=7, least=3, inside=(0, 3), own=(1,), vanish=(2,)),
    )
    alone = every(subject, cases, more, server=False) + every(subject, cases[:2], more[:1], server=False, noise=True)
    return alone + every(subject, cases, more, server=True)


@claim(
    "exact view",
    KEYED,
    mutants=(
        options.NONE_EVERYWHERE, options.ONE_EVERYWHERE, options.EVERYWHERE_OF_CHUNKS, options.EVERYWHERE_OF_ROUNDS,
    ),
)  # fmt: skip
def view_under_noise(subject: Subject) -> int:
    """Keyed: with noise on every slot, the noise of one honest client covers all that others see of a sum.

    Each number of each slot, chunk and round has noise of its own, whoever owns the slot. (Noise is uniform here, so
    that nothing is left. How much there is of real noise is another claim's matter.)
    """
    cases = (
        Case(2, 1, inside=(1,), own=(0,), everywhere=True, rounds=(1, 2)),
        Case(2, 1, slots=2, dim=2, per_chunk=1, inside=(1,), own=(0, 1), everywhere=True),
        Case(3, 1, inside=(2,), own=(0,), everywhere=True, least=2),
        Case(4, 1, 1, inside=(1,), own=(0,), everywhere=True, vanish=(3,)),
    )
    more = (Case(3, 2, slots=2, p=7, inside=(0, 2), own=(1,), everywhere=True, rounds=(1, 2)),)
    alone = (Case(3, 1, everywhere=True), Case(2, 1, dim=2, everywhere=True))
    others = Case(3, 1, slots=2, inside=(2,), own=(0,), everywhere=True, least=2)
    clients = every(subject, (others,), more, server=False, noise=True)
    return every(subject, cases, more, server=True) + every(subject, alone, (), server=True) + clients


@claim("exact view", KEYED, mutants=(options.OPENLY_LEFT_OUT, options.UNWEIGHTED_KEYS, mutants.NO_G))
def view_of_weights(subject: Subject) -> int:
    """Keyed: a weight is seen like any other number of a row, and a weight of 0 shows in the mean weight alone.

    Where rows may be left out openly, others see who contributes, and never who has a row that it leaves out.
    """
    cases = (
        Case(2, 1, weighted=True),
        Case(3, 1, slots=2, weighted=True, inside=(2,), own=(1,)),
        Case(3, 1, partial=True),
        Case(3, 1, slots=2, per_chunk=1, partial=True, inside=(1,), own=(0,)),
    )
    more = (
        Case(3, 2, weighted=True, p=7, inside=(0, 1), own=(0,), rounds=(1, 2)),
        Case(4, 1, 1, partial=True, least=2, inside=(1,), own=(0,), vanish=(3,)),
    )
    return every(subject, cases, more, server=True) + every(subject, cases[1::2], more[1:], server=False)


# ------------------------------------------------------------------------------------------------------ wrong means


CHECKED: Final = (
    known_mutants.NO_J,
    known_mutants.NO_H,
    mutants.NO_THETA,
    mutants.NO_BETA,
    mutants.TWO_SEEDS,
    mutants.J_OF_SLOTS,
    mutants.J_OF_CHUNKS,
    mutants.H_OF_SLOTS,
    mutants.H_OF_CHUNKS,
    mutants.THETA_OF_SLOTS,
    mutants.THETA_OF_CHUNKS,
    mutants.SAME_SECRETS,
    mutants.ONE_H,
    options.LEAST_NO_THETA,
    options.LEAST_NO_BETA,
    options.LEAST_ONE_BETA,
    options.LEAST_THETA_OF_EMPTY,
    options.NO_GAMMA,
)


@claim("exact view", KEYED, mutants=CHECKED)
def secrets_of_the_check(subject: Subject) -> int:
    """Keyed: the server alone learns nothing of alpha, nor of theta of a slot that has an owner, from uploads.

    So a row other than the right one passes for one alpha in p, and a false "empty" for one theta in p; with a minimum
    of owners, a false "below the minimum" too. With noise on every slot, slots without owners show whether a sum of
    alpha is 0, which it is for one in p.
    """
    cases = [
        Case(2, 1, sends=2),
        Case(3, 1, slots=2, per_chunk=2),
        Case(3, 1, slots=2, per_chunk=1),
        Case(3, 1, 1, vanish=(2,)),
        Case(2, 1, p=3, checks=2),
        Case(2, 1, rounds=(1, 2)),
        Case(3, 1, least=2),
        Case(2, 1, p=3, least=2),
        Case(3, 1, least=3),
        Case(2, 1, slots=2, everywhere=True),
    ]
    if subject.thorough:
        cases += [Case(3, 1, 1, least=2, everywhere=True, vanish=(2,))]
        cases += [Case(2, 1, p=7, dim=2, sends=2), Case(4, 2, slots=2, dim=2), Case(2, 1, p=7, rounds=(1, 2))]
    tried = 0
    for case in cases:
        stage = Stage(subject, case)
        tables: list[list[tuple[int, ...]]] = [[(0, 1)] * case.slots, [(0,), *[()] * (case.slots - 1)]]
        for owners in (*tables, *([[tuple(range(case.clients))]] if case.least > 1 else ())):
            play = Play(stage, world(case, owners, [0] * len(case.rounds)))
            values = play.choices(case.p ** len(play.alpha))
            every_alpha = np.split(values, case.p ** len(play.alpha))
            if case.everywhere:
                every_alpha = [each for each in every_alpha if each[0, len(play.rho) :].all()]
            laws = [play.law(some, server=True, alpha=False, theta=True) for some in every_alpha]
            if any(other.law != laws[0].law for other in laws[1:]):
                raise Objection(f"{case}: what the server sees depends on alpha, so it can forge means")
            if not all(each.free(sum(part.shape[1] for part in play.theta())) for each in laws):
                raise Objection(f"{case}: the server knows something of theta, so it can call a slot empty")
            tried += len(values)
    return tried


@claim("exact view", KEYED, mutants=(mutants.SAME_ALPHA, mutants.ONE_ALPHA, mutants.ONE_WEIGHT))
def lies_in_two_rounds(subject: Subject) -> int:
    """Keyed: a shifted mean passes a check for one alpha in p, and no more often if one passed in the round before."""
    cases = [
        Case(2, 1, rounds=(1, 2)),
        Case(2, 1, p=3, checks=2, rounds=(1, 2)),
        Case(2, 1, p=3, dim=2, rounds=(1, 2)),
        *((Case(3, 2, p=7, rounds=(1, 2)), Case(4, 2, 1, vanish=(3,), rounds=(1, 2))) if subject.thorough else ()),
    ]
    return sum(_lies(subject, case, shift) for case in cases for shift in ((1,), (1, -1))[: case.dim])


def _lies(subject: Subject, case: Case, shift: Sequence[int]) -> int:
    """The server adds `shift` to the means of two rounds: for how many alphas it was tried."""
    stage, rng, chance = Stage(subject, case), np.random.default_rng(11), case.p**case.checks
    play = Play(stage, world(case, [(0, 1)], (0, 2)))
    stage.server.change = partial(_shifted, case, shift)
    passed: Counter[tuple[bool, ...]] = Counter()
    for alpha in product(range(case.p), repeat=len(play.alpha)):
        values = rng.integers(1, case.p, (1, play.draws.size)).astype(np.uint8)
        values[:, play.alpha] = alpha
        passed[tuple(_taken(play, each) for each in play.sent(values))] += 1
    first = passed[True, True] + passed[True, False]
    if first * chance != passed.total():
        raise Objection(
            f"{case}: a shifted mean passes for {first} of {passed.total()} alphas, not for one in {chance}"
        )
    if passed[True, True] * chance != first:
        raise Objection(f"{case}: a lie that passed passes again for {passed[True, True]} of {first} alphas")
    return passed.total()


def _shifted(case: Case, shift: Sequence[int], total: Residues) -> None:
    """Add to the means, and to each check as if all alphas were 2."""
    p, K = case.p, total[:, :, case.dim + case.checks].astype(np.int64)
    for j, by in enumerate(shift):
        total[:, :, j] = (total[:, :, j] + by * K) % p
    for k in range(case.dim, case.dim + case.checks):
        total[:, :, k] = (total[:, :, k] + 2 * sum(shift) * K) % p


def _taken(play: Play, sent: Sent) -> bool:
    """Whether client 0 takes a broadcast."""
    try:
        play.judge(0, sent)
    except ProtocolError:
        return False
    return True


@claim("exact view", KEYED, mutants=(mutants.WRAPPING, mutants.NO_RHO, mutants.NO_G))
def sums_in_the_field(subject: Subject) -> int:
    """Keyed: the sum that the server opens is one of field elements: by itself it shows only whether a slot is empty.

    Every value of all that moves the sum is enumerated.
    """
    tried = 0
    for case in (Case(2, 1), *((Case(3, 1), Case(2, 1, p=7)) if subject.thorough else ())):
        stage, laws = Stage(subject, case), dict[object, list[Counter[bytes]]]()
        for each in everything(case) if case.clients == 2 else worlds(case, 8):
            play = Play(stage, each)
            values = play.every(play.moving())
            (sums,) = (one for sent in play.sent(values) for one in sent.sums)
            law = Counter(row.tobytes() for row in sums)
            laws.setdefault(admitted(case, each, server=True), []).append(law)
            tried += len(values)
        for leak, found in laws.items():
            if any(other != found[0] for other in found[1:]):
                raise Objection(f"{case}: sums show more than what is admitted, which is {leak}")
        assert len(laws) > 1, "nothing is admitted"
    return tried


# --------------------------------------------------------------------------------------------------------- enumeration


@claim("exact view", KEYED, mutants=(mutants.NO_G, known_mutants.NO_MASKS))
def views_by_enumeration(subject: Subject) -> int:
    """Keyed: the same is seen if every value of everything that is drawn is played: two clients, one number modulo 3.

    For each rho and alpha, or in a quick run for one of them; the law that linear algebra gives must be the same.
    """
    tried = 0
    for case, owners in ((Case(2, 1, p=3), ((0,), (1,))), (Case(2, 1, p=3, inside=(1,)), ((0,), (0,)))):
        stage, laws = Stage(subject, case), []
        for some, variant in zip(owners, (0, 2), strict=True):
            play = Play(stage, world(case, [some], [variant]))
            values = play.choices(*((3, None) if subject.thorough else (1, 1)))
            laws.append(np.sort(np.concatenate([_enumerated(play, choice) for choice in values])))
            tried += laws[-1].size
        if not np.array_equal(laws[0], laws[1]):
            raise Objection(f"{case}: two worlds look different in which the same is admitted")
    return tried


def _enumerated(play: Play, choice: Tiny) -> Tiny:
    """What the server and the clients inside see in each draw, as a number, given rho and alpha.

    An error if it is not uniform on the coset that linear algebra gives.
    """
    p, chosen = play.case.p, [*play.rho, *play.alpha]
    moving = [each for each in play.known(server=True) if each not in chosen]
    values = play.every([each for each in range(play.draws.size) if each not in chosen])
    values[:, chosen] = choice
    seen = np.concatenate(play.seen(play.sent(values), server=True), axis=1).astype(np.int64)
    known, size = values[:, moving].astype(np.int64), seen.shape[1]
    law = play.law(choice[None], server=True)
    points = (seen - known @ law.points[0, 1:, :size] - law.points[0, 0, :size]) % p
    _, some = np.unique(points @ p ** np.arange(size), return_index=True)
    _, left = reduced(law.spans[:, :, :size], points[None, some], p)
    whole: Tiny = np.concatenate([seen, known], axis=1) @ p ** np.arange(size + len(moving))
    often = len(values) // p ** int(law.spans.any(axis=2).sum() + len(moving))
    assert not left.any(), "what was played is not in the coset"
    assert (np.unique(whole, return_counts=True)[1] == often).all(), "what was played is not uniform on the coset"
    return whole
