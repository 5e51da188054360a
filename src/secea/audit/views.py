"""Exact views of T clients: what they get depends on their own inputs and outputs alone.

The product's clients and server run over tiny fields (`tiny.py`), and the law of what a coalition gets is found exactly
(`laws.py`), in several worlds that differ in what others own. A law that is the same in all worlds and for all other
randomness, stage by stage, makes the whole view the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any
from unittest.mock import patch

import numpy as np

from secea.arithmetic.field import Residues
from secea.arithmetic.lagrange import Code
from secea.audit import Claim, Objection
from secea.audit.coins import Coins, Elements
from secea.audit.laws import Affine, Law, affine, any_differ, differ, flat, law, law_of
from secea.audit.tiny import Tiny, World
from secea.params import Params
from secea.sharing import seeded_clients
from secea.wire.messages import Kind

FEDERATIONS = (
    Params(3, 1, collusion=1),
    Params(5, 2, collusion=1),
    Params(5, 1, collusion=2),
    Params(7, 2, collusion=2),
)


def title(params: Params) -> str:
    """A federation, in an objection."""
    return f"N={params.N}, T={params.T}, K={params.K}"


def row(params: Params, start: int) -> list[int]:
    """An embedding."""
    return list(range(start, start + params.dim))


def worlds(params: Params, coalition: Sequence[int] = (0,), own: int = 2) -> list[World]:
    """Four worlds in which a coalition has the same inputs and outputs, and the union is the same.

    Its entities 0 and 1 have the means a and b; 1 to N clients own them, with equal or with other values. Entity 2 is
    the others' alone. With `own` 1 so is entity 1, in the last three worlds.
    """
    a, b, up, down = row(params, 2), row(params, 1), row(params, 3), row(params, 1)
    u, v, w = row(params, 0), row(params, 4), row(params, 2)
    x, y, *rest = (n for n in range(params.N) if n not in coalition)
    cases: list[tuple[dict[int, list[int]], ...]] = [
        ({2: u}, {}, {}),
        ({0: a, 2: v}, {1: b}, {2: w}),
        ({0: up, 1: b}, {0: down, 2: w}, {0: a}),
        ({0: a, 1: b, 2: u}, {0: a, 1: b, 2: v}, {0: a, 1: b}),
    ]
    found = []
    for of_x, of_y, of_others in cases:
        owned: dict[int, dict[int, list[int]]] = {n: {0: a} for n in coalition}
        owned[coalition[0]] = {0: a, 1: b} if own == 2 else {0: a}
        owned |= {x: of_x, y: of_y} | dict.fromkeys(rest, of_others)
        found.append(World(tuple(owned[n] for n in range(params.N))))
    return found[2 - own :]


def same(laws: Sequence[Law], case: str) -> int:
    """How many laws were compared; an objection where they are not all one."""
    if any_differ(laws):
        raise Objection(f"{case}: the view is not the same in {len(laws)} worlds with the same inputs and outputs")
    return len(laws)


# ------------------------------------------------------------------------------------ what clients send to each other

Messages = Mapping[tuple[Kind, int], Residues]
"""Shares by kind and dealer, [N, elements]."""
Stage = Callable[[Params, World, int], tuple[Tiny, Callable[[], Messages]]]
"""Gets a federation ready under a seed, and gives what makes the messages of one stage."""


def seen_by(whole: Affine, dealers: Sequence[int], N: int, coalition: Sequence[int]) -> Law:
    """The law of what others dealt to a coalition; its own coins it knows: they are what they are."""
    honest = [i for i, label in enumerate(whole.columns) if label[1] not in coalition]
    others = [i for i, n in enumerate(dealers) if n not in coalition]
    linear = whole.linear.reshape(1, N, len(dealers), -1)[:, list(coalition)][:, :, others][..., honest]
    known = np.random.default_rng(len(whole.columns)).integers(0, whole.p, len(whole.columns))
    known[honest] = 0
    moved = (whole.offset + whole.linear @ known).reshape(1, N, -1)[:, list(coalition)][:, :, others]
    D = len(coalition) * len(others)
    return law_of(whole.p, moved.reshape(1, D), linear.reshape(1, D, len(honest)))


def coalition_laws(
    stage: Stage, free: Sequence[str], params: Params, given: Iterable[tuple[int, World]]
) -> dict[tuple[int, ...], list[Law]]:
    """For each coalition, the law of what it gets in a stage, in each world with a choice (a seed) of all the rest."""
    laws: dict[tuple[int, ...], list[Law]] = {c: [] for c in combinations(range(params.N), params.T)}
    for seed, world in given:
        tiny, messages = stage(params, world, seed)
        dealers: list[int] = []

        def view(coins: Coins, tiny: Tiny = tiny, messages: Any = messages, dealers: list[int] = dealers) -> Elements:
            tiny.coins = coins
            dealt: Messages = messages()
            dealers[:] = [n for (_, n), shares in dealt.items() for _ in range(shares.shape[1])]
            return np.concatenate([np.asarray(shares, np.int64) for shares in dealt.values()], axis=1).ravel()

        with tiny.labelled():
            whole = affine(view, tiny.p, free=frozenset(free), seed=seed)
        for coalition, found in laws.items():
            found.append(seen_by(whole, dealers, params.N, coalition))
    return laws


def share_laws(kinds: Sequence[Kind], params: Params) -> dict[tuple[int, ...], list[Law]]:
    """Of the shares of three dealers (all deal alike): queries, indicators, embeddings."""

    def stage(params: Params, world: World, seed: int) -> tuple[Tiny, Callable[[], Messages]]:
        tiny = Tiny(params, world)

        def messages() -> Messages:
            found: dict[tuple[Kind, int], Residues] = {}
            for n in range(3):
                if Kind.SHARE in kinds:
                    tiny.give(n)
                    found |= {(kind, n): shares for kind, shares in tiny.shares(n).items()}
                if set(kinds) != {Kind.SHARE}:
                    tiny.ask([n])
                    found |= {(kind, n): shares for kind, shares in tiny.shares(n, *kinds).items()}
            return found

        return tiny, messages

    return coalition_laws(stage, [kind.name.lower() for kind in kinds], params, enumerate(worlds(params)[1:]))


def resharing_laws(params: Params) -> dict[tuple[int, ...], list[Law]]:
    """Of what is re-shared for client 0's queries, together with the shares of these queries."""

    def stage(params: Params, world: World, seed: int) -> tuple[Tiny, Callable[[], Messages]]:
        tiny = Tiny(params, world)
        tiny.coins = Coins(seed=seed)
        with tiny.labelled():
            tiny.asked()
        last = b""

        def messages() -> Messages:
            nonlocal last
            query = tiny.deal_again(Kind.QUERY, 0)[0]
            if query.tobytes() != last:  # all else that weights are made of is fixed
                tiny.begin_resharing(tiny.everyone)
                last = query.tobytes()
            dealt = {v: tiny.shares(v) for v in tiny.server.resharers}
            return {(Kind.QUERY, 0): query} | {(Kind.RESHARE, v): shares[Kind.RESHARE] for v, shares in dealt.items()}

        return tiny, messages

    some = worlds(params)[1::2] if params.T > 1 else worlds(params)
    given = product((0, 1), some) if params.N == 3 else enumerate(some)
    return coalition_laws(stage, ["query", "reshare"], params, given)


def check_coalitions(
    laws: Callable[[Params], Mapping[tuple[int, ...], Sequence[Law]]], federations: Sequence[Params] = FEDERATIONS
) -> int:
    """In each federation, for each coalition: the law is the same in all worlds."""
    cases = 0
    for params in federations:
        cases += sum(same(found, f"{title(params)}, clients {c}") for c, found in laws(params).items())
    return cases


# --------------------------------------------------------------------------------------------------------------- seeds


def check_seeds() -> int:
    """All N shares together have the law of the paper's, whose noise stands at the last T betas, whoever gets seeds."""
    cases = 0
    for params in FEDERATIONS:
        world = World(tuple({0: row(params, n)} for n in range(params.N)))
        for number in range(1, params.N):
            tiny = Tiny(params, world)
            dealt = _law_of_all_shares(tiny, number)
            if differ(dealt, _papers_law(tiny)):
                raise Objection(f"{title(params)}, round {number}: shares that travel as seeds have another law")
            cases += 1
    return cases


def _law_of_all_shares(tiny: Tiny, number: int) -> Law:
    """Of client 0's one embedding: what the others get, and what it keeps."""

    def view(coins: Coins) -> Elements:
        tiny.coins = coins
        client = tiny.clients[0]
        tiny.give(0, number)
        shares = tiny.shares(0)[Kind.SHARE]
        stage = client.pending[0]
        if len(seeded_clients(tiny.params, 0, stage)) != tiny.params.T:
            raise Objection("not exactly T clients get seeds")
        client._keep_own_share(stage)
        assert client.sums is not None
        shares[0] = client.sums.reshape(-1)
        return flat(shares)

    with tiny.labelled():
        return law(view, tiny.p, ["share"])


def _papers_law(tiny: Tiny) -> Law:
    """Eq. 6 and 7, literally."""
    params, code = tiny.params, tiny.scheme.code
    L = tiny.scheme.form.block_length
    h = np.zeros(params.K * L, np.int64)
    h[: params.dim] = tiny.world.owned[0][0]
    encode = np.asarray(code.matrix(code.beta, code.alpha)[0], np.int64)  # [N, K + T]
    offset = encode[:, : params.K] @ h.reshape(params.K, L) % tiny.p
    linear = np.einsum("nt,lk->nltk", encode[:, params.K :], np.eye(L, dtype=np.int64))
    D = params.N * L
    return law_of(tiny.p, offset.reshape(1, D), linear.reshape(1, D, params.T * L))


# ------------------------------------------------------------------------------------------- reciprocals and the means


def check_reciprocals(federations: Sequence[Params] = FEDERATIONS) -> int:
    """Shares of the reciprocals, for fixed openings."""
    cases = 0
    for params in federations:
        for coalition in combinations(range(params.N), params.T):
            laws = []
            for seed, world in enumerate(worlds(params, coalition)[:: params.T]):
                tiny = Tiny(params, world)
                tiny.coins = Coins(seed=seed)
                with tiny.labelled():
                    opened = tiny.asked().openings(tiny.everyone)

                    def view(
                        coins: Coins, tiny: Tiny = tiny, opened: Residues = opened, those: Sequence[int] = coalition
                    ) -> Elements:
                        tiny.coins = coins
                        told = tiny.reciprocals(tiny.everyone, opened)
                        parts = [m.payload for v in those for m in told[v] if m.header.kind is Kind.RECIPROCAL]
                        return flat(np.frombuffer(b"".join(parts), tiny.ring.dtype))

                    laws.append(law(view, tiny.p, ["reciprocals noise"], seed=seed))
            cases += same(laws, f"{title(params)}, clients {coalition}")
    return cases


def check_results() -> int:
    """In 7b a coalition's results are its means and the server's noise, whatever else is drawn."""
    cases = 0
    for params in FEDERATIONS:
        coalition = tuple(range(params.T))
        means = {0: row(params, 2), 1: row(params, 1), -1: [0] * params.dim}
        for seed, world in product((0, 1), worlds(params, coalition)):
            tiny = Tiny(params, world, followed=params.T)
            tiny.coins = Coins(seed=seed)
            with tiny.labelled():
                tiny.asked().weighted(tiny.everyone).shared(tiny.everyone)
                found = {n: tiny.result(tiny.everyone, n, tiny.mean(tiny.everyone, n)) for n in coalition}
            for n, result in found.items():
                expected = np.array([means[m] for m in tiny.placed(n)]) * params.C
                noise = np.frombuffer(_mean_noise(tiny, n, 4 * result.size), "<u4") >> 31  # one bit of each word
                noise = noise.reshape(params.K, len(result), -1).transpose(1, 0, 2).reshape(result.shape)
                padded = np.pad(expected, ((0, 0), (0, result.shape[1] - params.dim)))
                if not np.array_equal(result, (padded + noise) % tiny.p):
                    raise Objection(f"{title(params)}: client {n} reads more than its means and the server's noise")
                cases += 1
    return cases


SURPLUS = (
    Params(4, 1, collusion=1),
    Params(6, 2, collusion=1),
    Params(5, 1, collusion=1, dropouts=2),
    Params(6, 1, collusion=2),
)
"""Federations in which more clients answer than are needed."""


def check_syndromes() -> int:
    """Under the pads, what the server sends beyond the blocks is 0, whatever is drawn and whoever owns what."""
    cases = 0
    for params, seed in product(SURPLUS, (0, 1)):
        for world in worlds(params, tuple(range(params.T))):
            tiny, seen = Tiny(params, world), list[Residues]()

            def correct(
                code: Code, clients: object, blocks: Residues, found: Residues, seen: list[Residues] = seen
            ) -> tuple[Residues, tuple[int, ...]]:
                seen.append(found)
                return blocks, ()

            tiny.coins = Coins(seed=seed)
            with tiny.labelled(), patch("secea.correction.correct", correct):
                tiny.asked().weighted(tiny.everyone).shared(tiny.everyone)
                seen.clear()  # of openings, which the server sees
                tiny.result(tiny.everyone, 0, tiny.mean(tiny.everyone, 0))
            if not seen or seen[0].shape[1] != params.N - params.need:
                raise Objection(f"{title(params)}: nothing is checked beyond {params.need} answers")
            if seen[0].any():
                raise Objection(f"{title(params)}: beyond its blocks client 0 gets what is not 0 under its pads")
            cases += 1
    return cases


def _mean_noise(tiny: Tiny, n: int, count: int) -> bytes:
    """The bytes that the server draws for client n's mean, in the first chunk."""
    stage = tiny.server.mean_stage
    assert stage is not None
    with tiny.labelled():
        masker: Any = tiny.scheme.form.masker(tiny.server.wire, stage, n)
    drawn: bytes = masker._stream.lane(0).bytes(count)
    return drawn


def _claim(name: str, claim: str, check: Callable[[], int]) -> Claim:
    return Claim(name, claim, "exact view", check)


CLAIMS = (
    _claim(
        "queries",
        "Shares of queries show T clients nothing about what others ask for.",
        partial(check_coalitions, partial(share_laws, [Kind.QUERY])),
    ),
    _claim(
        "indicators",
        "Shares of indicators show T clients nothing about what others own.",
        partial(check_coalitions, partial(share_laws, [Kind.INDICATOR])),
    ),
    _claim(
        "sharing", "Shares of embeddings show T clients nothing about them.",
        partial(check_coalitions, partial(share_laws, [Kind.SHARE]))
    ),
    _claim(
        "shares-together",
        "Shares of queries, indicators and embeddings together show T clients nothing.",
        partial(check_coalitions, partial(share_laws, [Kind.QUERY, Kind.INDICATOR, Kind.SHARE]), FEDERATIONS[::2]),
    ),
    _claim(
        "seeds", "Shares that travel as seeds have, all N together, the law of the paper's shares.", check_seeds
    ),
    _claim(
        "reciprocals", "The server's shares of the reciprocals show T clients nothing about counts.", check_reciprocals
    ),
    _claim(
        "re-sharing", "Re-shared queries show T clients nothing, also together with the query's shares.",
        partial(check_coalitions, resharing_laws),
    ),
    _claim(
        "results", "A client's result by reciprocals is its mean and the server's noise, and nothing else.",
        check_results,
    ),
    _claim(
        "syndromes", "What lets a client check surplus answers is 0 where they are right, and shows nothing.",
        check_syndromes,
    ),
)  # fmt: skip
