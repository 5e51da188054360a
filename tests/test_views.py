"""What T clients see depends on their own inputs and outputs alone; what the server sees depends on nothing private.

Exactly, with the project's functions over tiny fields; and the same checker objects where a protection is taken away.
A law that is the same for all worlds and for all other randomness, stage by stage, makes the whole view the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from gmpy2 import mpz  # type: ignore[import-untyped]  # it ships no types

from secea.field import Residues, Ring, insecure_ring
from secea.lagrange import Code
from secea.messages import Kind
from secea.paillier import Packing
from secea.params import Params
from secea.randomness import KeyStream
from secea.retrieval.paillier import _Scrambler
from secea.retrieval.reciprocal import Reciprocal, _Drowner, _Padder
from secea.sharing import seeded_clients
from secea.union import Geometry, Words, fill, mask
from views import (
    LAYERS,
    Affine,
    Coins,
    Core,
    Elements,
    Label,
    Law,
    World,
    affine,
    any_differ,
    differ,
    flat,
    law,
    law_of,
    tiny_ring,
)

FEDERATIONS = [Params(3, 1), Params(5, 2), Params(5, 1, collusion=2), Params(7, 2, collusion=2)]
every_federation = pytest.mark.parametrize("params", FEDERATIONS, ids=lambda q: f"N={q.N},T={q.T},K={q.K}")


def row(params: Params, start: int) -> list[int]:
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


# ------------------------------------------------------------------------------------------------------- the checker


def test_the_checker_tells_laws_apart_exactly_as_enumeration_does() -> None:
    rng = np.random.default_rng(0)
    outcomes = Counter[bool]()
    for _ in range(300):
        laws = []
        for _ in range(2):
            cases = int(rng.integers(1, 3))
            laws.append(law_of(3, rng.integers(0, 2, (cases, 2)), rng.integers(0, 2, (cases, 2, 2))))
        truth = laws[0].points() != laws[1].points()
        assert differ(*laws) == truth
        outcomes[truth] += 1
    assert min(outcomes.values()) > 10


def test_the_checker_refuses_a_view_that_is_not_affine() -> None:
    def squared(coins: Coins) -> Elements:
        x = coins.stream("x").elements(insecure_ring(7), 1)
        return flat(x * x % 7)

    with pytest.raises(AssertionError, match="not affine"):
        law(squared, 7, ["x"])


# ---------------------------------------------------------------------------- clients: shares of all four kinds

SHARED = frozenset({"query", "indicator", "share"})


def dealt_by(parts: Mapping[tuple[str, int], Residues], N: int) -> tuple[Elements, list[int]]:
    """Shares by (layer, dealer) as [N, elements], and the dealer of each element."""
    columns, dealers = [], []
    for (_, n), shares in parts.items():
        columns.append(np.asarray(shares, np.int64)[0].reshape(N, -1))
        dealers += [n] * columns[-1].shape[1]
    return np.concatenate(columns, axis=1), dealers


def seen_by(whole: Affine, dealers: Sequence[int], N: int, coalition: Sequence[int]) -> Law:
    """The law of what others dealt to a coalition; its own coins it knows: they are what they are."""
    honest = [i for i, label in enumerate(whole.columns) if label[2] not in coalition]
    others = [i for i, n in enumerate(dealers) if n not in coalition]
    linear = whole.linear.reshape(1, N, len(dealers), -1)[:, list(coalition)][:, :, others][..., honest]
    known = np.random.default_rng(len(whole.columns)).integers(0, whole.p, len(whole.columns))
    known[honest] = 0
    moved = (whole.offset + whole.linear @ known).reshape(1, N, -1)[:, list(coalition)][:, :, others]
    D = len(coalition) * len(others)
    return law_of(whole.p, moved.reshape(1, D), linear.reshape(1, D, len(honest)))


@dataclass(frozen=True)
class Stage:
    """What clients send to each other: which layers are free, and the messages by layer and dealer."""

    free: frozenset[str]
    messages: Callable[[Core], Mapping[tuple[str, int], Residues]]
    askers: tuple[int, ...] | None = None


def first_shares(core: Core) -> Mapping[tuple[str, int], Residues]:
    """Of three dealers: all deal alike."""
    makers = {"query": core.query, "indicator": core.indicator, "share": core.embedding}
    return {(layer, n): make(n) for layer, make in makers.items() for n in range(3)}


def reshared(core: Core) -> Mapping[tuple[str, int], Residues]:
    queries = {("query", n): core.query(n) for n in core.askers}
    return queries | {("reshare", v): dealt for v, dealt in core.resharing(core.everyone()).items()}


SHARES = Stage(SHARED, first_shares)
RESHARES = Stage(frozenset({"query", "reshare"}), reshared, (0,))


def clients_laws(
    stage: Stage, params: Params, given: Sequence[World], seeds: Sequence[int], **coins: Any
) -> dict[tuple[int, ...], list[Law]]:
    """For each coalition, the law of what it gets in a stage, in each world and for several choices of all the rest."""
    laws: dict[tuple[int, ...], list[Law]] = {c: [] for c in combinations(range(params.N), params.T)}
    for world, seed in product(given, seeds):
        dealers: list[int] = []
        memory: dict[Label, Residues] = {}

        def view(coins: Coins, world: World = world, dealers: list[int] = dealers, memory: Any = memory) -> Elements:
            core = Core(params, world, coins, askers=stage.askers, memory=memory)
            whole, dealers[:] = dealt_by(stage.messages(core), params.N)
            return whole.ravel()

        whole = affine(view, tiny_ring(params).primes[0], free=stage.free, seed=seed, **coins)
        for coalition, found in laws.items():
            found.append(seen_by(whole, dealers, params.N, coalition))
    return laws


@every_federation
def test_shares_of_queries_indicators_and_embeddings_show_t_clients_nothing(params: Params) -> None:
    laws = clients_laws(SHARES, params, worlds(params)[1:], [0])
    assert len(laws) >= params.N
    assert not any(any_differ(found) for found in laws.values())


@every_federation
def test_re_shared_queries_show_t_clients_nothing_also_with_the_queries_shares(params: Params) -> None:
    given = worlds(params)
    some = given[1::2] if params.T > 1 else given
    laws = clients_laws(RESHARES, params, some, [0] if params.T > 1 else [0, 1])
    assert not any(any_differ(found) for found in laws.values())


def one_noise_less(label: Label) -> Label | None:
    return None if label[0] in LAYERS and label[3] == 0 else label


@every_federation
def test_the_checker_objects_to_one_noise_less(params: Params) -> None:
    laws = clients_laws(SHARES, params, worlds(params)[2:], [0], rename=one_noise_less)
    # Who holds the noise that is missing sees 0 in its place; and client 0 has the same data in both worlds.
    assert sum(any_differ(found) for found in laws.values()) >= len(laws) / 2


def without(layer: str) -> Callable[[Label], Label | None]:
    return lambda label: None if label[0] == layer else label


@every_federation
def test_the_checker_objects_to_re_sharing_without_noise(params: Params) -> None:
    laws = clients_laws(RESHARES, params, worlds(params)[2:], [0], rename=without("reshare"))
    assert all(any_differ(found) for found in laws.values())


@every_federation
def test_the_checker_objects_to_a_client_whose_point_carries_data(params: Params) -> None:
    turn: Any = SimpleNamespace(kind=Kind.SHARE, epoch=1, weights=1, round=0)
    dealer = 0
    (exposed, *_) = (v for v in range(1, params.N) if v not in seeded_clients(params, dealer, turn))
    one = [World(({0: row(params, h)}, *({} for _ in range(params.N - 1)))) for h in (0, 1)]

    def view(world: World, code: Code, coins: Coins) -> Elements:
        return flat(Core(params, world, coins, code=code).embedding(dealer)[:, exposed])

    good, broken = Code(params, tiny_ring(params)), Code(params, tiny_ring(params))
    broken.alpha = (*broken.alpha[:exposed], broken.beta[0], *broken.alpha[exposed + 1 :])
    for code, objects in ((good, False), (broken, True)):
        laws = [law(lambda coins, w=w, c=code: view(w, c, coins), code.ring.primes[0], ["share"]) for w in one]  # type: ignore[misc]
        assert any_differ(laws) == objects


# ------------------------------------------------------------------------------- clients: reciprocals and the means


def reciprocal_law(params: Params, world: World, coalition: Sequence[int], seed: int, **coins: Any) -> Law:
    memory: dict[Label, Residues] = {}

    def view(coins: Coins) -> Elements:
        core = Core(params, world, coins, askers=(0, 1), memory=memory)
        return flat(core.reciprocals(core.everyone())[:, list(coalition)])

    return law(view, tiny_ring(params).primes[0], ["t"], seed=seed, **coins)


@every_federation
def test_shares_of_the_reciprocals_show_t_clients_nothing(params: Params) -> None:
    for coalition in combinations(range(params.N), params.T):
        given = worlds(params, coalition)[:: params.T]
        assert not any_differ(reciprocal_law(params, w, coalition, s) for s, w in enumerate(given))


@every_federation
def test_the_checker_objects_to_reciprocals_shared_without_noise(params: Params) -> None:
    coalition = tuple(range(params.T))
    laws = [reciprocal_law(params, w, coalition, 0, rename=without("t")) for w in worlds(params, coalition)]
    assert any_differ(laws)


@every_federation
def test_a_clients_result_is_its_mean_and_the_servers_noise_whatever_else_is_drawn(params: Params) -> None:
    """The rest of a coalition's view: with the laws above, it depends on inputs and outputs alone."""
    coalition = tuple(range(params.T))
    for seed in (0, 1):
        results: list[list[list[list[int]]]] = []
        for world in worlds(params, coalition):
            core = Core(params, world, Coins(seed=seed), askers=coalition)
            found = []
            for n, blocks in core.means(core.everyone()).items():
                stream = core.coins.stream("eta", n)
                bits = np.frombuffer(stream.lane(0).bytes(4 * blocks.size), "<u4").reshape(blocks.shape) >> 31
                plain = core.ring.subtract(blocks, np.ascontiguousarray(bits.astype(core.ring.dtype)))
                assert core.ring.valid(blocks)
                by_row = plain[0].transpose(1, 0, 2).reshape(core.shape.count, -1)
                of_row = {int(m): by_row[j].tolist() for j, m in enumerate(core.placement(n))}
                found.append([of_row[m] for m in sorted(of_row) if m >= 0])
                means = [row(params, 2), row(params, 1)][: len(found[-1])]
                assert found[-1] == [[params.C * x % core.p for x in mean] for mean in means]
                assert not any(any(x) for m, x in of_row.items() if m < 0)
            results.append(found)
        assert results[1:] == results[:-1]


# ------------------------------------------------------------------------------------------- the server: openings


def opening_law(core: type[Core], params: Params, world: World, seed: int, **coins: Any) -> Law:
    """One client's openings with all masks, for fixed queries and indicators."""

    memory: dict[Label, Residues] = {}

    def view(coins: Coins) -> Elements:
        made = core(params, world, coins, askers=(0,), queries=2, memory=memory)
        return flat(made.openings(made.everyone()))

    return law(view, tiny_ring(params).primes[0], ["zeta"], ["rho*"], seed=seed, **coins)


@every_federation
def test_openings_show_the_server_nothing(params: Params) -> None:
    given = worlds(params) if params.N == 3 else worlds(params)[1:]
    assert not any_differ(opening_law(Core, params, w, seed) for seed, w in enumerate(given))


@every_federation
def test_the_checker_objects_to_one_rho_for_two_queries(params: Params) -> None:
    given = worlds(params)
    assert any_differ(opening_law(Core, params, w, 0, repeat={"rho*": -1}) for w in given)


class PerEntity(Core):
    """Opens the count of each entity of the union, in place of the count behind each query."""

    def found(self, v: int, contributors: Sequence[int]) -> Residues:
        counts = self.ring.zeros(self.M)
        for n in contributors:
            self.ring.add_into(counts, np.ascontiguousarray(self.indicator(n)[:, v]))
        return counts[:, None]


def absent_owner_law(core: type[Core], world: World) -> Law:
    params, contributors = Params(4, 1, dropouts=1), (0, 1, 2)

    def view(coins: Coins) -> Elements:
        made = core(params, world, coins, askers=(0,), queries=2)
        return flat(made.openings(contributors))

    return law(view, tiny_ring(params).primes[0], ["zeta"], ["rho*"])


def test_the_checker_objects_to_counts_opened_per_entity_where_a_sole_owner_is_absent() -> None:
    sole = World(({0: [1]}, {0: [1]}, {}, {1: [1]}))
    shared = World(({0: [1]}, {0: [1], 1: [1]}, {}, {1: [1]}))
    assert any_differ(absent_owner_law(PerEntity, w) for w in (sole, shared))
    assert not any_differ(absent_owner_law(Core, w) for w in (sole, shared))


class Opened(Core):
    """Fixes what is opened in place of rho = opened / count. Each determines the other, so both are uniform."""

    choice = 0

    def rho(self, contributors: Sequence[int], number: int, *shape: int) -> Residues:
        counts = [np.array([*self.world.counts(contributors), 1])[self.placement(n)] for n in self.askers]
        opened = Coins(seed=self.choice).stream("opened", number).nonzero(self.ring, *shape)
        return self.ring.multiply(opened, self.ring.inverse(self.ring.constant(counts).reshape(1, *shape)))


class Asking(Opened):
    """One query, for entity 0, with every noise that it can have: each case is a query of its own."""

    def placement(self, n: int) -> Any:
        return np.zeros(1, np.int64)

    def rho(self, contributors: Sequence[int], number: int, *shape: int) -> Residues:
        count = self.ring.constant([self.world.counts(contributors)[0]])
        return np.ascontiguousarray(np.broadcast_to(self.ring.inverse(count)[:, None], (1, *shape)))

    def found(self, v: int, contributors: Sequence[int]) -> Residues:
        ring, M = self.ring, self.M
        counts = ring.zeros(M)
        for n in contributors:
            ring.add_into(counts, np.ascontiguousarray(self.indicator(n)[:, v]))
        noise = np.indices((self.p,) * (M + 1), ring.dtype).reshape(1, 1, M + 1, -1)
        data = ring.zeros(1, M + 1, noise.shape[3])
        data[:, :, 0] = 1
        shares = self.code.encode(data, noise, [v])[:, 0]  # [1, M + 1, cases]
        starts = np.arange(noise.shape[3] + 1) * M
        query = np.ascontiguousarray(shares[:, :M].transpose(0, 2, 1)).reshape(1, -1)
        sums = ring.gather(starts, None, query, counts[:, :, None])[:, :, 0]
        return ring.add(sums, np.ascontiguousarray(shares[:, M]))[:, None]


FOUR_SETS = ((0, 1, 2, 3, 4), (0, 2, 3, 4), (0, 1, 3, 4), (0, 3, 4))
FIVE = Params(5, 1, dropouts=2)


def four_sets_law(core: type[Core], world: World, free: Sequence[str], seed: int, **coins: Any) -> Law:
    """The openings for U, U-x, U-y and U-x-y, whose counts are linearly dependent, given what is opened."""

    memory: dict[Label, Residues] = {}

    def view(coins: Coins) -> Elements:
        made = core(FIVE, world, coins, askers=(0,), queries=1, memory=memory)
        seen = [made.openings(some, number)[0] for number, some in enumerate(FOUR_SETS, 1)]
        cases = [np.asarray(part, np.int64).reshape(-1, part.shape[-1]).T for part in seen]
        return np.concatenate(cases, axis=1)

    return law(view, 7, free, seed=seed, **coins)


FIVE_WORLDS = [
    World(({0: [1]}, {1: [1]}, {2: [1]}, {}, {})),
    World(({0: [1]}, {0: [1], 1: [1]}, {2: [1]}, {0: [1]}, {})),
    World(({0: [1]}, {0: [1]}, {0: [1], 1: [1]}, {0: [1], 2: [1]}, {0: [1]})),
]
"""Entity 0 has another count in each world and in the four sets; its mean is always 1."""


def test_openings_over_dependent_contributor_sets_show_the_server_nothing_but_random_numbers() -> None:
    for choice in range(3):
        core = type("OpenedSo", (Opened,), {"choice": choice})
        assert not any_differ(four_sets_law(core, w, ["zeta"], seed) for seed, w in enumerate(FIVE_WORLDS))


@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "no zeta"])
def test_over_all_noise_of_a_query_the_checker_objects_to_a_missing_zeta(broken: bool) -> None:
    coins: dict[str, Any] = {"rename": without("zeta")} if broken else {"repeat": {"zeta": -1}}  # cases stand alone
    laws = [four_sets_law(Asking, w, ["indicator", "zeta"], 0, **coins) for w in FIVE_WORLDS[:2]]
    assert differ(*laws) == broken


# ---------------------------------------------------------------------------- the server: answers under pads, 7b


def answer_law(params: Params, world: World, seed: int, **coins: Any) -> Law:
    memory: dict[Label, Residues] = {}

    def view(coins: Coins) -> Elements:
        core = Core(params, world, coins, askers=(0,), queries=2, memory=memory)
        return flat(*(part for parts in core.covered(core.everyone()).values() for part in parts))

    return law(view, tiny_ring(params).primes[0], ["pad"], seed=seed, **coins)


@every_federation
def test_answers_under_pads_show_the_server_nothing(params: Params) -> None:
    assert not any_differ(answer_law(params, w, seed) for seed, w in enumerate(worlds(params)))


@every_federation
@pytest.mark.parametrize("broken", ["no pad", "one pad for two queries"])
def test_the_checker_objects_to_a_missing_or_a_repeated_pad(params: Params, broken: str) -> None:
    coins: dict[str, Any] = {"rename": without("pad")} if broken == "no pad" else {"repeat": {"pad": -2}}
    assert any_differ(answer_law(params, w, 0, **coins) for w in worlds(params))


def two_rounds_law(first: int, second: int, rename: Callable[[Label], Label | None]) -> Law:
    """One client's answers in two rounds, of one element each, under the pads of those rounds."""
    ring = insecure_ring(5)

    def view(coins: Coins) -> Elements:
        seen = []
        for number, value in enumerate((first, second)):
            stream: Any = coins.stream("pad", number)
            seen.append(np.frombuffer(_Padder(ring, stream).cover(0, ring.constant([[value]])), "<u4"))
        return flat(*seen)

    return law(view, 5, ["pad"], rename=rename)


def test_the_checker_objects_to_the_same_pad_in_two_rounds() -> None:
    inputs = list(product(range(5), repeat=2))
    assert not any_differ(two_rounds_law(a, b, lambda label: label) for a, b in inputs)
    assert any_differ(two_rounds_law(a, b, lambda label: label[:1]) for a, b in inputs)


# ------------------------------------------------------------------------------------- clients: drowning noise, 7b


class Script:
    """A key stream whose bytes are those of one integer, for noise of one element."""

    def __init__(self, eta: int, bits: int) -> None:
        self.word = (eta << 32 - bits).to_bytes(4, "little")

    def lane(self, number: int) -> Script:
        return self

    def bytes(self, count: int) -> bytes:
        assert count == len(self.word)
        return self.word

    def fill(self, out: memoryview) -> None:
        out[:] = self.bytes(len(out))


Views = dict[int, Fraction]


def drowned(form: Reciprocal, total: int, count: int, *, noise: bool = True) -> Views:
    """What client n finds for an entity with this sum and count: integers and how likely each is, over all noise."""
    ring, code, clients = form.ring, form.code, range(form.params.need)
    weighted = form.params.C // count * total
    pads = [KeyStream(bytes([v]) * 32).elements(ring, 1, 1) for v in clients]
    answers = {v: ring.to_bytes(ring.add(ring.constant([[weighted]]), pads[v])) for v in clients}
    found: Counter[int] = Counter()
    etas = range(1 << form.noise_bits) if noise else [0]
    for eta in etas:
        stream: Any = Script(eta, form.noise_bits)
        blocks = ring.from_bytes(_Drowner(form, stream).mask(0, answers, 1)[0], 1, 1, 1).copy()
        ring.subtract_into(blocks, code.decode(clients, np.stack(pads, axis=1), degree=code.need - 1))
        found[int(ring.join(blocks, 1.0).item())] += 1
    return {value: Fraction(times, len(etas)) for value, times in found.items()}


def distance(one: Views, other: Views) -> Fraction:
    """The statistical distance."""
    none = Fraction(0)
    return sum((abs(one.get(x, none) - other.get(x, none)) for x in one.keys() | other.keys()), none) / 2


TINY_NOISE = Reciprocal(Params(3, 1, sigma=3, rounds=1, precision=4, max_abs=1.0), 1)
SUMS = [(total, count) for count in (1, 2, 3) for total in range(-3 * count, 3 * count + 1)]


def test_equal_means_give_equal_views_and_near_ones_views_within_the_promised_distance() -> None:
    form, C = TINY_NOISE, TINY_NOISE.params.C
    assert form.sigma_prime == 3
    views = {case: drowned(form, *case) for case in SUMS}
    equal = near = 0
    for (one, a), (other, b) in combinations(views.items(), 2):
        shift = abs(Fraction(*one) - Fraction(*other))
        assert distance(a, b) == min(1, C * shift / (1 << form.noise_bits))
        equal += shift == 0
        if shift < 1:
            near += 1
            assert distance(a, b) < Fraction(1, 1 << form.sigma_prime)
    assert equal > 10
    assert near > 50


def test_the_checker_objects_to_a_missing_drowning_noise() -> None:
    third, half = (drowned(TINY_NOISE, 1, count, noise=False) for count in (3, 2))
    assert distance(third, half) == 1


# --------------------------------------------------------------------------------- clients: r, psi and p*R, in 7a


class Clear:
    """A cipher that hides nothing: what client n decrypts."""

    SIZE = 64

    def full_blinds(self, count: int, entropy: object) -> list[int]:
        return [0] * count

    def encrypt(self, plaintexts: Sequence[int], blinds: Sequence[int]) -> list[int]:
        assert len(plaintexts) == len(blinds)
        return list(plaintexts)

    def scale(self, ciphertexts: Sequence[int], scalars: Sequence[int]) -> list[int]:
        run = len(ciphertexts) // len(scalars)
        return [c * int(scalars[i // run]) for i, c in enumerate(ciphertexts)]

    def add(self, left: Sequence[int], right: Sequence[int]) -> list[int]:
        return [a + b for a, b in zip(left, right, strict=True)]

    def ciphertexts_to_bytes(self, ciphertexts: Sequence[int]) -> bytes:
        return b"".join(int(c).to_bytes(self.SIZE, "little") for c in ciphertexts)

    def ciphertexts_from_bytes(self, data: bytes, count: int, **_: bool) -> list[mpz]:
        assert len(data) == count * self.SIZE
        return [mpz(int.from_bytes(data[i : i + self.SIZE], "little")) for i in range(0, len(data), self.SIZE)]


class Narrow:
    """Packing for the elements of a tiny ring."""

    def __init__(self, p: int, sigma: int, *, lifted: bool = True) -> None:
        self.real, self.lifted = Packing(256, p, sigma), lifted
        self.plaintexts, self.unpack = self.real.plaintexts, self.real.unpack

    def pack(self, values: Residues) -> list[mpz]:
        return self.real.pack(values.astype(np.uint64))

    def noise(self, psi: Residues, entropy: Callable[[int], bytes]) -> list[mpz]:
        return self.real.noise(psi.astype(np.uint64), entropy) if self.lifted else self.pack(psi)


def masked(core: Core, contributors: Sequence[int], stream: Any) -> Residues:
    """What the first asker decrypts, modulo p: [clients, queries, L]."""
    L, key, packing = -(-(core.params.dim + 1) // core.code.K), Clear(), Narrow(core.p, 3)
    form: Any = SimpleNamespace(code=core.code, packing=packing, block_length=L)
    answers = core.answers(contributors, weighted=False)
    bodies = {v: key.ciphertexts_to_bytes(packing.pack(answers[v][0][0])) for v in contributors}
    with patch("secea.retrieval.paillier.RING61", core.ring):
        body = bytes(_Scrambler(form, key, stream).mask(0, bodies, core.shape.count)[0])  # type: ignore[arg-type]
    plaintexts = key.ciphertexts_from_bytes(body, len(body) // key.SIZE)
    return packing.unpack(plaintexts, L).reshape(len(contributors), core.shape.count, L)


def decryption(
    params: Params, world: World, coalition: Sequence[int], *, shares: bool = True
) -> Callable[[Coins], Elements]:
    """What a coalition gets in a round in which its first client asks: the others' shares, and what it decrypts."""
    memory: dict[Label, Residues] = {}
    others = [n for n in range(params.N) if n not in coalition]

    def view(coins: Coins) -> Elements:
        core = asking(params, world, coalition, coins, memory)
        dealt = [core.embedding(n)[:, list(coalition)] for n in others if shares]
        return flat(*dealt, masked(core, core.everyone(), coins.stream("noise")))

    return view


def asking(params: Params, world: World, coalition: Sequence[int], coins: Coins, memory: Any = None) -> Core:
    queries = len(world.owned[coalition[0]])
    return Core(params, world, coins, askers=coalition[:1], queries=queries, counted=True, memory=memory)


def decrypted_law(
    params: Params,
    world: World,
    coalition: Sequence[int],
    opened: Sequence[int],
    rename: Callable[[Label], Label | None],
    **coins: Any,
) -> Law:
    """Over psi and the others' noise, given r * count for each query: each of r and r * count determines the other."""

    def own(label: Label) -> Label | None:
        known = label[0] == "share" and label[2] in coalition
        return ("own", *label) if known else rename(label)

    p, core = tiny_ring(params).primes[0], asking(params, world, coalition, Coins())
    counts = np.array(world.counts(core.everyone()))[core.placement(coalition[0])].tolist()
    chosen = [o * pow(c, -1, p) % p for o, c in zip(opened, counts, strict=True)]
    free, enumerated = frozenset({"share", "noise"}), frozenset({"noise*"})
    view = decryption(params, world, coalition)
    found = affine(view, p, free=free, enumerated=enumerated, chosen=chosen, rename=own, **coins)
    return law_of(p, found.offset, found.linear)


PAILLIER = [
    Params(3, 1), Params(5, 1), Params(5, 1, collusion=2), Params(7, 1, collusion=2),
    Params(4, 1), Params(5, 1, dropouts=2),  # with answers beyond `need`
]  # fmt: skip
every_paillier = pytest.mark.parametrize("params", PAILLIER, ids=lambda q: f"N={q.N},T={q.T},K={q.K}")


def unchanged(label: Label) -> Label:
    return label


def paillier_worlds(params: Params) -> tuple[tuple[int, ...], list[World], list[tuple[int, ...]]]:
    """A coalition, worlds in which it has the same inputs and outputs, and what r * count may be."""
    coalition, own = tuple(range(params.T)), 2 if params.N == 3 else 1
    some = list(product(range(1, tiny_ring(params).primes[0]), repeat=own))
    return coalition, worlds(params, coalition, own), some[:: len(some) // 2]


@every_paillier
def test_what_t_clients_decrypt_depends_on_their_means_alone(params: Params) -> None:
    coalition, given, choices = paillier_worlds(params)
    for opened in choices:
        assert not any_differ(decrypted_law(params, w, coalition, opened, unchanged) for w in given)


@every_paillier
def test_the_checker_objects_to_a_missing_psi(params: Params) -> None:
    coalition, given, (opened, *_) = paillier_worlds(params)
    assert any_differ(decrypted_law(params, w, coalition, opened, without("noise")) for w in given)


def test_the_checker_objects_to_one_psi_for_two_queries() -> None:
    coalition, given, (opened, *_) = paillier_worlds(PAILLIER[0])
    assert any_differ(decrypted_law(PAILLIER[0], w, coalition, opened, unchanged, repeat={"noise": -2}) for w in given)


@pytest.mark.parametrize("broken", [False, True], ids=["as it is", "one r"])
def test_over_all_r_the_checker_objects_to_one_r_for_two_queries(broken: bool) -> None:
    coalition, given, _ = paillier_worlds(PAILLIER[0])
    coins: dict[str, Any] = {"repeat": {"noise*": -1}} if broken else {}
    views = [decryption(PAILLIER[0], w, coalition, shares=False) for w in given]
    laws = [law(view, 5, ["noise"], ["noise*"], seed=0, **coins) for view in views]
    assert any_differ(laws) == broken


def integers(p: int, sigma: int, r: int, answer: int, psi: int, *, lifted: bool) -> Views:
    """The plaintext r*A + psi + p*R over all R."""
    packing, found = Narrow(p, sigma, lifted=lifted), Counter[int]()
    for a, b in product(range(p), range(1 << sigma)):
        drawn = iter([0, a])  # what fills unused slots, and the two parts of R

        def entropy(count: int, drawn: Iterator[int] = drawn, b: int = b) -> bytes:
            word = next(drawn, None)
            return bytes([b]) * count if word is None else word.to_bytes(8, "little") * (count // 8)

        (noise,) = packing.noise(np.array([psi], np.uint64), entropy)
        found[int(r * packing.pack(np.array([answer], np.uint64))[0] + noise) % (1 << packing.real.width)] += 1
    return {value: Fraction(times, p << sigma) for value, times in found.items()}


@pytest.mark.parametrize("lifted", [True, False], ids=["as it is", "no p*R"])
def test_over_the_integers_p_times_r_hides_everything_but_the_residue_and_without_it_division_gives_r(
    lifted: bool,
) -> None:
    p, sigma = 5, 3
    for answer in range(1, p):
        views = {(r, psi): integers(p, sigma, r, answer, psi, lifted=lifted) for r in range(1, p) for psi in range(p)}
        pairs = [
            (distance(views[one], views[other]), one[0], other[0])
            for one, other in combinations(views, 2)
            if (one[0] * answer + one[1] - other[0] * answer - other[1]) % p == 0
        ]
        assert pairs
        if lifted:
            assert max(pairs)[0] <= Fraction(1, 1 << sigma)
        else:
            assert any(apart == 1 and r != s for apart, r, s in pairs)
            least = [min(view) // answer == r for (r, psi), view in views.items() if psi < answer]
            assert least
            assert all(least)


# ----------------------------------------------------------------------------------------------------- the union


@dataclass(frozen=True)
class TinyGeometry(Geometry):
    """The same hash functions, with checks of a tiny field."""

    def checks(self, tags: Words) -> Any:
        return (super().checks(tags) % np.uint64(5)).astype(np.uint32)


F5 = insecure_ring(5)
GEOMETRY = TinyGeometry(2, (11, 22, 33, 44))
OWNERS = [((0, 1), (2,), ()), ((0, 1), (0, 2), (1, 2)), ((0, 1), (0, 1, 2), (0, 1, 2)), ((0, 1), (), (1, 2))]
"""Four ways to own the same union; client 0 has the same."""


class Ones:
    """Weights that are always 1."""

    def elements(self, ring: Ring, *shape: int) -> Residues:
        return ring.constant(np.ones(shape, int))


def tables(sets: Sequence[tuple[int, ...]], coins: Coins, *, weighted: bool = True) -> list[Residues]:
    """What each client sends."""
    sent = []
    for n, own in enumerate(sets):
        tags: Any = np.array(own, np.uint32)
        source = coins.stream("weight", n) if weighted else Ones()
        streams = [(v, coins.stream("mask", min(n, v), max(n, v))) for v in range(len(sets)) if v != n]
        sent.append(mask(fill(tags, GEOMETRY, source, F5), n, streams, F5))
    return sent


def union_law(sets: Sequence[tuple[int, ...]], free: Sequence[str], *, weighted: bool = True, **coins: Any) -> Law:
    return law(lambda drawn: flat(*tables(sets, drawn, weighted=weighted)), 5, free, **coins)


def test_the_masked_tables_show_the_server_the_union_alone() -> None:
    assert not any_differ(union_law(sets, ["weight", "mask"]) for sets in OWNERS)


def test_the_checker_objects_to_weights_of_one_in_the_union() -> None:
    assert any_differ(union_law(sets, ["mask"], weighted=False) for sets in OWNERS)


def test_the_checker_objects_to_one_mask_for_all_pairs() -> None:
    def one(label: Label) -> Label:
        return ("mask",) if label[0] == "mask" else label

    assert any_differ(union_law(sets, ["weight", "mask"], rename=one) for sets in OWNERS)


def test_the_checker_objects_to_the_unions_total_shown_to_a_client() -> None:
    def total(sets: Sequence[tuple[int, ...]], coins: Coins) -> Elements:
        return sum((flat(table) for table in tables(sets, coins)), start=np.zeros(1, np.int64)) % 5

    def own(label: Label) -> Label:
        return ("own", *label) if label[:2] == ("weight", 0) else label

    def laws(rename: Callable[[Label], Label]) -> list[Law]:
        return [law(lambda coins, s=s: total(s, coins), 5, ["weight", "mask"], rename=rename) for s in OWNERS]  # type: ignore[misc]

    assert not any_differ(laws(lambda label: label))  # the server
    assert any_differ(laws(own))  # a client, which knows its own weights
