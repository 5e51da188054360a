"""Exact views of the server: openings, answers under pads, and the union's tables show it nothing that is private.

As in `views.py`, with the product's clients over tiny fields. The union's tables are made by `union.fill` and
`union.mask` over a field of five elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from secea.arithmetic.field import Residues, insecure_ring
from secea.audit import Claim
from secea.audit.coins import Coins, Elements, Label, fixed
from secea.audit.laws import Law, flat, law
from secea.audit.tiny import Tiny, World
from secea.audit.views import FEDERATIONS, same, title, worlds
from secea.params import Params
from secea.steps import union
from secea.steps.union import Geometry, Words
from secea.wire.messages import Kind

# ----------------------------------------------------------------------------------------------------------- openings


def _opening_law(params: Params, world: World, contributors: Sequence[int], seed: int) -> Law:
    """The openings for client 0's two queries, over every rho and zeta, for fixed queries and indicators."""
    tiny = Tiny(params, world, queries=2)
    tiny.coins = Coins(seed=seed)
    with tiny.labelled():
        tiny.asked().begin_weights(contributors)

        def view(coins: Coins) -> Elements:
            tiny.coins = coins
            return flat(*(tiny.clients[v]._openings()[:, 0] for v in contributors))

        return law(view, tiny.p, ["zeta"], {"rho*": 2}, seed=seed)


def check_openings(federations: Sequence[Params] = FEDERATIONS) -> int:
    """With all contributors."""
    cases = 0
    for params in federations:
        given = worlds(params) if params.N == 3 else worlds(params)[1:]
        laws = [_opening_law(params, world, range(params.N), seed) for seed, world in enumerate(given)]
        cases += same(laws, title(params))
    return cases


def check_absent_owner() -> int:
    """One client is absent, and it is the only owner of an entity; or it is not."""
    sole = World(({0: [1]}, {0: [1]}, {}, {1: [1]}))
    shared = World(({0: [1]}, {0: [1], 1: [1]}, {}, {1: [1]}))
    params = Params(4, 1, collusion=1, dropouts=1)
    return same([_opening_law(params, world, (0, 1, 2), 0) for world in (sole, shared)], "a sole owner is absent")


FIVE = Params(5, 1, collusion=1, dropouts=2)
FOUR_SETS = ((0, 1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4), (0, 3, 4))
"""U, U-x, U-y and U-x-y, whose counts are linearly dependent."""
FIVE_WORLDS = (
    World(({0: [1]}, {1: [1]}, {2: [1]}, {}, {})),
    World(({0: [1]}, {0: [1], 1: [1]}, {2: [1]}, {0: [1]}, {})),
    World(({0: [1]}, {0: [1]}, {0: [1], 1: [1]}, {0: [1], 2: [1]}, {0: [1]})),
)
"""Entity 0 has another count in each world and in the four sets; its mean is always 1."""


def _rho_given(tiny: Tiny, opened: Callable[[int, int], Elements]) -> Callable[[Label], Residues]:
    """rho = opened / count: each determines the other, so both are uniform; `opened(number, size)` is fixed."""

    def rho(label: Label) -> Residues:
        _, _, number, whose = label
        contributors = [int(n) for n in bytes(whose).split()]  # type: ignore[call-overload]
        counts = np.array([*tiny.world.counts(contributors), 1])
        behind = np.concatenate([counts[tiny.clients[n].placement] for n in contributors])
        inverses = tiny.ring.inverse(tiny.ring.constant(np.maximum(behind, 1)))
        return tiny.ring.multiply(tiny.ring.constant(opened(int(number), behind.size)), inverses)  # type: ignore[call-overload]

    return rho


def check_openings_over_sets() -> int:
    """Openings for four contributor sets, for fixed queries and indicators, given what is opened."""
    cases = 0
    for choice in range(3):
        laws = []
        for seed, world in enumerate(FIVE_WORLDS):
            tiny = Tiny(FIVE, world, queries=1)
            tiny.coins = Coins(seed=seed)

            def opened(number: int, size: int, choice: int = choice) -> Elements:
                return fixed(choice, number, ("opened",)).integers(1, 7, size)

            with tiny.labelled():
                tiny.asked()
                given = {"rho*": _rho_given(tiny, opened)}
                laws.append(law(_four_openings(tiny), tiny.p, ["zeta"], seed=seed, given=given))
        cases += same(laws, f"{title(FIVE)}, opened values number {choice}")
    return cases


def _four_openings(tiny: Tiny) -> Callable[[Coins], Elements]:
    """What the server gets for client 0 in the four sets: [queries, messages]."""

    def view(coins: Coins) -> Elements:
        tiny.coins = coins
        seen = [tiny.openings(some, number)[:, 0] for number, some in enumerate(FOUR_SETS, 1)]
        return np.concatenate([np.asarray(part, np.int64).T for part in seen], axis=1)

    return view


def check_zeta() -> int:
    """The same over all noise of a query: each noise that it can have is a query of its own, and a case of its own."""
    laws = []
    for world in FIVE_WORLDS[:2]:
        M = world.union
        tiny = Tiny(FIVE, world, queries=7 ** (M + 1))
        ring, code = tiny.ring, tiny.scheme.code
        noise = np.indices((7,) * (M + 1), ring.dtype).reshape(1, 1, M + 1, -1)
        data = ring.zeros(1, M + 1, noise.shape[3])
        data[:, :, 0] = 1  # each asks for entity 0
        for v, client in enumerate(tiny.clients):
            shares = code.encode(data, noise, [v])[:, 0]  # [1, M + 1, cases]
            query = np.ascontiguousarray(shares[:, :M].transpose(0, 2, 1)).reshape(1, -1)
            whole = np.concatenate([query, shares[:, M]], axis=1)
            client.queries = dict.fromkeys(tiny.everyone, whole)
            client.placement = np.zeros(noise.shape[3], np.int64)
            client._rest()
        again = _four_openings(tiny)

        def view(coins: Coins, tiny: Tiny = tiny, again: Callable[[Coins], Elements] = again) -> Elements:
            tiny.coins = coins
            placements = [client.placement for client in tiny.clients]
            tiny.deal_again(Kind.INDICATOR, *tiny.everyone)
            for client, placement in zip(tiny.clients, placements, strict=True):
                client.placement = placement
            return again(coins)

        with tiny.labelled():
            given = {"rho*": _rho_given(tiny, lambda _, size: np.ones(size, np.int64))}
            laws.append(law(view, tiny.p, ["indicator", "zeta"], given=given, repeat={"zeta": -1}))
    same(laws, "over all noise of a query and of the indicators, four contributor sets")
    return sum(7 ** (world.union + 1) for world in FIVE_WORLDS[:2])


# --------------------------------------------------------------------------------------------- answers under pads, 7b


def _answering(params: Params, world: World, seed: int, number: int = 1) -> Tiny:
    """A federation whose clients have the answers of round `number` ready."""
    tiny = Tiny(params, world, queries=2)
    tiny.coins = Coins(seed=seed)
    with tiny.labelled():
        tiny.asked().weighted(tiny.everyone)
        for each in range(1, number + 1):
            tiny.shared(tiny.everyone, each)
    return tiny


def _covered(tiny: Tiny, coins: Coins) -> Elements:
    tiny.coins = coins
    answers = tiny.answers(tiny.everyone, 0)
    return flat(*(np.frombuffer(answer, tiny.ring.dtype) for answer in answers.values()))


def check_answers(federations: Sequence[Params] = FEDERATIONS) -> int:
    """Answers to client 0's queries, over all pads, for whatever else was drawn."""
    cases = 0
    for params in federations:
        laws = []
        for seed, world in enumerate(worlds(params)):
            tiny = _answering(params, world, seed)
            with tiny.labelled():
                laws.append(law(lambda coins, tiny=tiny: _covered(tiny, coins), tiny.p, ["pad"], seed=seed))  # type: ignore[misc]
        cases += same(laws, title(params))
    return cases


def check_two_rounds() -> int:
    """Answers in two rounds together, in which nothing changed or something did."""
    cases = 0
    for params in FEDERATIONS[:2]:
        laws = []
        for seed, world in enumerate(worlds(params)):
            first, second = (_answering(params, world, seed, number) for number in (1, 2))

            def view(coins: Coins, both: Sequence[Tiny] = (first, second)) -> Elements:
                for tiny in both:
                    tiny.coins = coins
                return flat(*(_covered(tiny, coins) for tiny in both))

            with first.labelled(), second.labelled():
                laws.append(law(view, first.p, ["pad"], seed=seed))
        cases += same(laws, f"{title(params)}, two rounds")
    return cases


# ---------------------------------------------------------------------------------------------------------- the union


@dataclass(frozen=True)
class TinyGeometry(Geometry):
    """The same hash functions, with checks of a tiny field."""

    def checks(self, tags: Words) -> Any:
        """Of five elements."""
        return (super().checks(tags) % np.uint64(5)).astype(np.uint32)


F5 = insecure_ring(5)
GEOMETRY = TinyGeometry(2, (11, 22, 33, 44))
OWNERS = (((0, 1), (2,), ()), ((0, 1), (0, 2), (1, 2)), ((0, 1), (0, 1, 2), (0, 1, 2)), ((0, 1), (), (1, 2)))
"""Four ways to own the same union; client 0 has the same."""


def tables(sets: Sequence[Sequence[int]], coins: Coins) -> list[Residues]:
    """What each client sends for the union: its table under the masks of its pairs."""
    sent = []
    for n, own in enumerate(sets):
        tags: Any = np.array(own, np.uint32)
        streams = [(v, coins.stream("mask", min(n, v), max(n, v))) for v in range(len(sets)) if v != n]
        sent.append(union.mask(union.fill(tags, GEOMETRY, coins.stream("weight", n), F5), n, streams, F5))
    return sent


def check_union() -> int:
    """All masked tables together, over all weights and masks."""
    laws = [law(lambda coins, own=own: flat(*tables(own, coins)), 5, ["weight", "mask"]) for own in OWNERS]  # type: ignore[misc]
    return same(laws, "three clients, a union of three")


def _claim(name: str, claim: str, check: Callable[[], int]) -> Claim:
    return Claim(name, claim, "exact view", check)


CLAIMS = (
    _claim("union", "The masked tables of all clients show the server the union, and not who owns what.", check_union),
    _claim("openings", "Openings of masked counts show the server nothing.", check_openings),
    _claim(
        "absent-owner", "Openings do not show the server whether an absent client is an entity's only owner.",
        check_absent_owner,
    ),
    _claim(
        "openings-over-sets",
        "Openings for contributor sets whose counts depend on each other show the server random numbers alone.",
        check_openings_over_sets,
    ),
    _claim(
        "openings-of-one-query",
        "That holds over all noise of a query that is used for several contributor sets.",
        check_zeta,
    ),
    _claim("answers", "Answers under pads show the server nothing.", check_answers),
    _claim("answers-in-two-rounds", "Answers of two rounds together show the server nothing.", check_two_rounds),
)  # fmt: skip
