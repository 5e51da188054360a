"""Exact views of the keyed form in tiny fields: what each coalition sees of a round is what sections 7 and 8 admit.

Given rho, alpha and beta a view is affine in everything else that is drawn: masks, G, J, H, theta and noise. Its law is
uniform on a coset, which is found by probing the real steps. Noise counts as uniform where its client is honest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import Residues, Ring, insecure_ring
from secea.steps import masks, means

Numbers = NDArray[np.int64]
Law = Counter[bytes]
Rows = Mapping[int, tuple[int, ...]]

SCALE = 2
"""In the place of C: not 0 modulo 3, 5 and 7."""


# ------------------------------------------------------------------------------------------------------------- worlds


@dataclass(frozen=True)
class World:
    """Who owns which slot, with which numbers; and the faults of a mutant."""

    rows: tuple[Rows, ...]
    """For each client: slot to numbers."""
    slots: int
    p: int = 5
    degree: int = 9
    """Of the graph of masks; complete where it is large."""
    noisy: tuple[int, ...] = (0, 1)
    faults: frozenset[str] = frozenset()
    unmasked: frozenset[tuple[int, int]] = frozenset()
    """Edges of the graph whose masks a mutant forgets."""

    @property
    def N(self) -> int:
        return len(self.rows)

    @property
    def dim(self) -> int:
        return next(len(numbers) for own in self.rows for numbers in own.values())

    @property
    def edges(self) -> list[tuple[int, int]]:
        members = range(self.N)
        near = {n: masks.neighbours(members, self.degree, n) for n in members}
        return [(n, v) for n in members for v in near[n] if n < v]

    def count(self, slot: int, among: Iterable[int]) -> int:
        return sum(slot in self.rows[n] for n in among)

    def total(self, slot: int, among: Iterable[int]) -> tuple[int, ...]:
        found = [self.rows[n][slot] for n in among if slot in self.rows[n]]
        return tuple(sum(column) % self.p for column in zip(*found, strict=True))


@dataclass(frozen=True)
class Draw:
    """Everything that is drawn, for many copies of a world's slots side by side: [copies, ...]."""

    rho: Numbers
    beta: Numbers
    alpha: Numbers  # [dim]: the same in all copies
    rest: Numbers
    names: Mapping[tuple[Any, ...], int] = field(repr=False)  # which coordinate of `rest` is which

    def of(self, *name: Any) -> Numbers:
        """[copies, slots]: one number for each slot."""
        slots = self.rho.shape[1]
        return self.rest[:, [self.names[(*name, i)] for i in range(slots)]]


def coordinates(world: World) -> dict[tuple[Any, ...], int]:
    """Everything that is uniform once rho, alpha and beta are given."""
    width, every = world.dim + 3, range(world.slots)
    names: list[tuple[Any, ...]] = [("theta", i) for i in every]
    names += [("J", i) for i in every]
    names += [("G", j, i) for j in range(world.dim) for i in every]
    names += [("H", w, i) for w in world.noisy for i in every]
    names += [("e", w, j, i) for w in world.noisy for j in range(world.dim) for i in every]
    names += [("mask", *edge, c, i) for edge in world.edges for c in range(width) for i in every]
    return {name: k for k, name in enumerate(names)}


@dataclass(frozen=True)
class Round:
    """One round of many copies of a world, by the real steps: [copies, slots, ...]."""

    uploads: dict[int, Numbers]
    columns: dict[int, Numbers]
    means: Numbers
    empty: NDArray[np.bool_]
    right: NDArray[np.bool_]


def residues(ring: Ring, numbers: Numbers) -> Residues:
    """[copies, slots, ...] as the steps take them: all copies' slots one after the other."""
    flat = numbers.reshape(1, -1, *numbers.shape[2:])
    return np.ascontiguousarray(flat % ring.primes[0]).astype(ring.dtype)


def play(world: World, draw: Draw, monkeypatch: pytest.MonkeyPatch) -> Round:
    """All clients and the server, with the given randomness in the place of key streams."""
    ring, copies, slots, dim = insecure_ring(world.p), *draw.rho.shape, world.dim
    faults = world.faults

    def drawn(*name: Any) -> Residues:
        return residues(ring, draw.of(*name))

    rho = residues(ring, np.ones_like(draw.rho) if "no rho" in faults else draw.rho)
    pads = {w: ring.zeros(copies * slots) if "no H" in faults else drawn("H", w) for w in world.noisy}
    H = ring.zeros(copies * slots)
    for pad in pads.values():
        ring.add_into(H, pad)
    J = ring.zeros(copies * slots) if "no J" in faults else drawn("J")
    theta = ring.zeros(copies * slots) if "no theta" in faults else drawn("theta")
    alpha = (ring.constant(draw.alpha.tolist()),)
    secrets = means.Secrets(rho, alpha, (J,), (H,), theta, residues(ring, draw.beta))
    G = np.stack([draw.of("G", j) for j in range(dim)], axis=-1)
    G = np.zeros_like(G) if "no G" in faults else G

    keys: dict[bytes, Residues] = {}

    def add(ring: Ring, acc: Residues, names: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
        for key, sign in zip(names, signs, strict=True):
            (ring.add_into if sign > 0 else ring.subtract_into)(acc, keys[key])

    total, uploads = ring.zeros(copies * slots, dim + 3), {}
    for n, own in enumerate(world.rows):
        places = np.array([c * slots + i for c in range(copies) for i in sorted(own)], np.int64)
        numbers = np.array([own[i] for i in sorted(own)], np.int64).reshape(-1, dim)
        y = (SCALE * numbers[None] + G[:, sorted(own)]) if own else np.zeros((copies, 0, dim), np.int64)
        rows = means.contribution(ring, residues(ring, y), places, secrets)
        near = [v for v in range(world.N) if tuple(sorted((n, v))) in set(world.edges) - world.unmasked and v != n]
        for v in near:
            edge = (min(n, v), max(n, v))
            mask = np.stack([draw.of("mask", *edge, c) for c in range(dim + 3)], axis=-1)
            keys[bytes(edge)] = residues(ring, mask)
        with monkeypatch.context() as patch:
            patch.setattr(streams, "add_streams", add)
            masks.add_masks(ring, rows, n, {v: bytes((min(n, v), max(n, v))) for v in near}, 0)
        ring.add_into(total, rows)
        uploads[n] = rows[0].astype(np.int64).reshape(copies, slots, -1)

    e, summed, columns = ring.zeros(copies * slots, dim), ring.zeros(copies * slots, 1), {}
    for w in world.noisy:
        noise = residues(ring, np.stack([draw.of("e", w, j) for j in range(dim)], axis=-1))
        column = means.noise_columns(ring, noise, alpha, (pads[w],))
        ring.add_into(e, noise)
        ring.add_into(summed, np.ascontiguousarray(column))
        columns[w] = column[0].astype(np.int64).reshape(copies, slots)
    found, empty = means.divide(ring, total, e, summed)
    right = means.right(ring, found, empty, secrets, world.N)
    shape = copies, slots
    return Round(
        uploads, columns, found[0].astype(np.int64).reshape(*shape, -1), empty.reshape(shape), right.reshape(shape)
    )


def view(
    world: World, draw: Draw, clients: Iterable[int], monkeypatch: pytest.MonkeyPatch, *, server: bool, alpha: bool
) -> Numbers:
    """[copies, coordinates]: what the clients see together, with or without the server. `alpha`: it is looked at."""
    inside, done, copies = set(clients), play(world, draw, monkeypatch), len(draw.rho)
    parts: list[Numbers] = []
    if alpha:
        parts.append(np.broadcast_to(draw.alpha, (copies, world.dim)))
    if server:
        parts += [upload.reshape(copies, -1) for n, upload in done.uploads.items() if n not in inside]
        parts += [done.columns[w] for w in world.noisy]
        parts += [draw.of("e", w, j) for w in world.noisy for j in range(world.dim)]
    else:
        parts += [done.means.reshape(copies, -1), done.empty.astype(np.int64)]
    if inside:
        parts += [draw.rho, draw.beta, np.broadcast_to(draw.alpha, (copies, world.dim))]
        parts += [draw.of("J"), draw.of("theta"), *(draw.of("H", w) for w in world.noisy)]
        parts += [draw.of("e", w, j) for w in world.noisy if w in inside for j in range(world.dim)]
        near = [edge for edge in world.edges if inside & set(edge)]
        parts += [draw.of("mask", *edge, c) for edge in near for c in range(world.dim + 3)]
        owned = sorted(set().union(*(world.rows[n] for n in inside)))
        parts += [draw.of("G", j)[:, owned] for j in range(world.dim)]
    return np.concatenate(parts, axis=1)


# --------------------------------------------------------------------------------------------------------------- laws


def reduced(basis: Numbers, points: Numbers, p: int) -> tuple[Numbers, Numbers]:
    """Of many spans at once the reduced basis, and the points modulo them: [batch, rows, n] and [batch, n]."""
    basis, points = basis % p, points % p
    batch, rows, size = basis.shape
    every, rank = np.arange(batch), np.zeros(batch, np.int64)
    inverse = np.array([0, *(pow(x, -1, p) for x in range(1, p))])
    for column in range(size):
        below = (np.arange(rows) >= rank[:, None]) & (basis[:, :, column] != 0)
        has = below.any(axis=1)
        if not has.any():
            continue
        at, top = below.argmax(axis=1)[has], rank[has]
        some = every[has]
        basis[some, at], basis[some, top] = basis[some, top].copy(), basis[some, at].copy()
        pivot = basis[some, top] * inverse[basis[some, top, column]][:, None] % p
        factors = basis[some, :, column].copy()
        basis[some] = (basis[some] - factors[:, :, None] * pivot[:, None]) % p
        basis[some, top] = pivot
        points[some] = (points[some] - points[some, column][:, None] * pivot) % p
        rank[has] += 1
    return basis, points


@dataclass(frozen=True)
class Mixture:
    """A view's law: for each equally likely choice of rho, alpha and beta a uniform coset."""

    p: int
    spans: Numbers
    points: Numbers

    @property
    def law(self) -> Law:
        """Canonical forms with their multiplicities: where these agree, the laws do."""
        return Counter(a.tobytes() + b.tobytes() for a, b in zip(self.spans, self.points, strict=True))


def differ(one: Mixture, two: Mixture) -> bool:
    """Whether two laws differ for certain.

    Coordinates that no draw moves tell the cosets apart; among those that agree in them, modulo all their directions,
    each coset is a single point.
    """
    fixed = ~(one.spans.any(axis=(0, 1)) | two.spans.any(axis=(0, 1)))
    groups: dict[bytes, list[list[int]]] = {}
    for which, mixture in enumerate((one, two)):
        for k, point in enumerate(mixture.points[:, fixed]):
            groups.setdefault(point.tobytes(), [[], []])[which].append(k)

    def seen(mixture: Mixture, some: list[int], whole: Numbers) -> Law:
        _, points = reduced(np.repeat(whole, len(some), axis=0), mixture.points[some], one.p)
        return Counter(point.tobytes() for point in points)

    for mine, theirs in groups.values():
        if len(mine) != len(theirs):
            return True
        size = one.spans.shape[2]
        every = np.concatenate([one.spans[mine], two.spans[theirs]]).reshape(-1, size)
        basis = np.unique(every, axis=0)[None]
        whole, _ = reduced(basis, np.zeros((1, size), np.int64), one.p)
        if seen(one, mine, whole) != seen(two, theirs, whole):
            return True
    return False


def known_to_clients(world: World) -> Iterator[tuple[Numbers, Numbers, Numbers]]:
    """For each alpha all choices of rho and beta: alpha [dim], rho and beta [choices, slots]."""
    p, slots = world.p, world.slots
    of_slots = np.array(list(product(product(range(1, p), repeat=slots), product(range(p), repeat=slots))))
    for alpha in product(range(p), repeat=world.dim):
        yield np.array(alpha), of_slots[:, 0], of_slots[:, 1]


def law_of(
    world: World,
    clients: Iterable[int],
    monkeypatch: pytest.MonkeyPatch,
    *,
    server: bool = True,
    alpha: bool = False,
) -> Mixture:
    """The exact law of a coalition's view."""
    names, clients = coordinates(world), tuple(clients)
    probes = np.concatenate([np.zeros((1, len(names)), np.int64), np.eye(len(names), dtype=np.int64)])
    spans, points = [], []
    for weights, rho, beta in known_to_clients(world):
        many, each = len(rho), len(probes)
        draw = Draw(
            np.repeat(rho, each, axis=0), np.repeat(beta, each, axis=0), weights, np.tile(probes, (many, 1)), names
        )
        seen = view(world, draw, clients, monkeypatch, server=server, alpha=alpha).reshape(many, each, -1)
        basis, point = reduced(seen[:, 1:] - seen[:, :1], seen[:, 0], world.p)
        spans.append(basis[:, : basis.shape[2]])
        points.append(point)
    return Mixture(world.p, np.concatenate(spans), np.concatenate(points))


# --------------------------------------------------------------------------------------------------- what is admitted


def admitted(world: World, clients: Sequence[int], *, server: bool) -> tuple[object, ...]:
    """What sections 7 and 8 let a coalition know of the honest clients' rows."""
    honest = [n for n in range(world.N) if n not in clients]
    everyone = range(world.N)
    known: list[object] = []
    for slot in range(world.slots):
        owned = any(slot in world.rows[n] for n in clients)
        if server and clients:
            known.append((world.count(slot, honest), world.total(slot, honest) if owned else ()))
        else:
            known.append(world.count(slot, everyone) > 0)
    return tuple(known)


def worlds(N: int, slots: int, dim: int, inside: Sequence[int], own: Sequence[int], **more: Any) -> list[World]:
    """All ownerships of honest clients, with a few numbers each; the coalition owns some slots."""
    rng = np.random.default_rng(19 * N + 7 * slots + dim)
    seen = []
    numbers = [tuple(int(x) for x in rng.integers(0, 5, dim)) for _ in range(N * slots)]
    others = [tuple((x + 1 + j) % 5 for j, x in enumerate(row)) for row in numbers]
    for owners in product(*(range(1 << N) for _ in range(slots))):
        rows: list[dict[int, tuple[int, ...]]] = [{} for _ in range(N)]
        for slot, mask in enumerate(owners):
            for n in range(N):
                if (slot in own) if n in inside else mask >> n & 1:
                    rows[n][slot] = numbers[n * slots + slot]
        if any(mask >> n & 1 for mask in owners for n in inside) or not any(rows):
            continue
        changed = [dict(each) for each in rows]
        for n in set(range(N)) - set(inside):
            changed[n] = {slot: others[n * slots + slot] for slot in rows[n]}
        seen += [World(tuple(rows), slots, **more), World(tuple(changed), slots, **more)]
    return seen


CASES = [
    # clients, slots, dim, the coalition's clients, slots that they own, with the server
    pytest.param(2, 1, 1, (), (), True, id="server alone, N=2"),
    pytest.param(3, 1, 1, (), (), True, id="server alone, N=3"),
    pytest.param(2, 1, 2, (), (), True, id="server alone, two columns"),
    pytest.param(2, 2, 1, (), (), True, id="server alone, two slots", marks=pytest.mark.slow),
    pytest.param(2, 1, 1, (1,), (), True, id="server and the other client, which owns nothing"),
    pytest.param(2, 1, 1, (1,), (0,), True, id="server and the other client, an owner"),
    pytest.param(3, 1, 1, (2,), (), True, id="server and one that owns nothing"),
    pytest.param(3, 1, 1, (2,), (0,), True, id="server and an owner"),
    pytest.param(3, 1, 2, (1,), (0,), True, id="server and an owner, two columns"),
    pytest.param(2, 2, 1, (1,), (1,), True, id="server and an owner of one of two slots", marks=pytest.mark.slow),
    pytest.param(3, 1, 1, (0, 2), (0,), True, id="server and all but one"),
    pytest.param(4, 1, 1, (1,), (), True, id="server and one of four, a ring of masks"),
    pytest.param(4, 1, 1, (0, 2), (0,), True, id="server and two of four"),
    pytest.param(3, 1, 1, (1,), (), False, id="a client"),
    pytest.param(3, 1, 1, (1,), (0,), False, id="an owner"),
    pytest.param(3, 1, 2, (0, 2), (0,), False, id="two owners"),
]


@pytest.mark.parametrize(("N", "slots", "dim", "inside", "own", "server"), CASES)
def test_a_view_tells_what_is_admitted_and_no_more(
    N: int,
    slots: int,
    dim: int,
    inside: tuple[int, ...],
    own: tuple[int, ...],
    server: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_leak: dict[object, list[Mixture]] = {}
    T = max(1, len(inside))
    for world in worlds(N, slots, dim, inside, own, noisy=tuple(range(T + 1)), degree=T + 1):
        law = law_of(world, inside, monkeypatch, server=server)
        by_leak.setdefault(admitted(world, inside, server=server), []).append(law)
    firsts = [laws[0] for laws in by_leak.values()]
    assert all(each.law == laws[0].law for laws in by_leak.values() for each in laws)
    assert sum(len(laws) > 1 for laws in by_leak.values())  # something was compared
    # The test can see: what is admitted does show.
    assert all(differ(one, two) for one, two in combinations(firsts, 2))


def test_the_server_alone_learns_nothing_of_alpha_and_with_bare_noise_columns_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who knows alpha can forge: the law of the server's view must be the same for each alpha."""
    world = World(({0: (1, 2)}, {0: (3, 1)}), 1, noisy=(0, 1))
    bare = World(world.rows, 1, noisy=(0, 1), faults=frozenset({"no H"}))

    def given_alpha(each: World) -> list[Law]:
        mixture = law_of(each, (), monkeypatch)
        some = len(mixture.points) // 25
        return [
            Mixture(5, mixture.spans[k : k + some], mixture.points[k : k + some]).law
            for k in range(0, len(mixture.points), some)
        ]

    first, *others = given_alpha(world)
    assert all(other == first for other in others)
    first, *others = given_alpha(bare)
    assert all(other != first for other in others)


# Pairs of worlds that a coalition must not tell apart, and the fault that lets it.
ONE: Rows = {0: (1,)}
TWO: Rows = {0: (2,)}
THREE: Rows = {0: (3,)}
NONE: Rows = {}
MUTANTS = [
    pytest.param("no G", (), (ONE, ONE), (TWO, ONE), id="rows without their key"),
    pytest.param("no G", (2,), (ONE, ONE, NONE), (TWO, ONE, NONE), id="rows without their key, and a client"),
    pytest.param("no rho", (), (ONE, ONE), (ONE, NONE), id="counts without blinding"),
]


@pytest.mark.parametrize(("fault", "inside", "rows", "others"), MUTANTS)
def test_without_its_blinding_a_round_tells_more(
    fault: str,
    inside: tuple[int, ...],
    rows: tuple[Rows, ...],
    others: tuple[Rows, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def law(own: tuple[Rows, ...], *faults: str) -> Mixture:
        return law_of(World(own, 1, faults=frozenset(faults)), inside, monkeypatch)

    assert law(rows).law == law(others).law
    assert differ(law(rows, fault), law(others, fault))


@pytest.mark.parametrize("edge", [(0, 1), (0, 2), (1, 2)])
def test_one_edge_without_masks_tells_a_coalition_who_owns_a_slot(
    edge: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = next(n for n in range(3) if n not in edge)

    def law(owner: int, *unmasked: tuple[int, int]) -> Mixture:
        rows = tuple(ONE if n == owner else NONE for n in range(3))
        return law_of(World(rows, 1, unmasked=frozenset(unmasked)), (inside,), monkeypatch)

    one, two = edge
    assert law(one).law == law(two).law
    assert differ(law(one, edge), law(two, edge))


def test_an_owner_sees_the_mean_under_honest_noise_and_without_it_the_mean_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With all noise known, two clients see S/c: worlds of equal means look the same, others do not."""

    def law(*rows: Rows, noisy: tuple[int, ...]) -> Mixture:
        return law_of(World(rows, 1, noisy=noisy), (0,), monkeypatch, server=False)

    equal, other, same_mean = (TWO, TWO, TWO), (TWO, THREE, NONE), (TWO, TWO, NONE)
    assert law(*equal, noisy=(0, 1)).law == law(*other, noisy=(0, 1)).law
    assert law(*equal, noisy=(0,)).law == law(*same_mean, noisy=(0,)).law
    assert differ(law(*equal, noisy=(0,)), law(*other, noisy=(0,)))


# ------------------------------------------------------------------------------------------------------------- checks


def drawn(world: World, seed: int, copies: int) -> Draw:
    rng, names = np.random.default_rng(seed), coordinates(world)
    shape = copies, world.slots
    return Draw(
        rng.integers(1, world.p, shape),
        rng.integers(0, world.p, shape),
        rng.integers(0, world.p, world.dim),
        rng.integers(0, world.p, (copies, len(names))),
        names,
    )


def forged(world: World, change: Callable[[Numbers, Numbers], None], monkeypatch: pytest.MonkeyPatch) -> float:
    """The part of all draws of one slot in which a server's lie passes; `change` gets its sums, and alpha."""
    passed, divide = [], means.divide
    for seed in range(25):
        draw = drawn(world, seed, 400)
        assert play(world, draw, monkeypatch).right.all()

        def lying(ring: Ring, total: Residues, *rest: Any, alpha: Numbers = draw.alpha) -> Any:
            sums = total[0].astype(np.int64)
            change(sums, alpha)
            return divide(ring, (sums % world.p).astype(ring.dtype)[None], *rest)

        with monkeypatch.context() as patch:
            patch.setattr(means, "divide", lying)
            passed.append(play(world, draw, monkeypatch).right.mean())
    return float(np.mean(passed))


def test_a_scaled_sum_passes_by_chance_alone_and_always_without_j(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(sums: Numbers, _: Numbers) -> None:
        sums[:, :3] *= 2  # two columns and the check; the count stays

    rows = {0: (1, 4)}, {0: (3, 1)}
    by_chance = forged(World(rows, 1, p=7), scaled, monkeypatch)
    assert 0.08 < by_chance < 0.21  # 1/7
    assert forged(World(rows, 1, p=7, faults=frozenset({"no J"})), scaled, monkeypatch) == 1.0


def test_a_shifted_sum_passes_by_chance_alone_and_always_if_alpha_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(sums: Numbers, _: Numbers) -> None:
        sums[:, 0] += sums[:, 3]  # one more in the mean: the count is rho * c

    def informed(sums: Numbers, alpha: Numbers) -> None:
        shifted(sums, alpha)
        sums[:, 2] += alpha[0] * sums[:, 3]

    world = World(({0: (1, 4)}, {0: (3, 1)}), 1, p=7)
    assert forged(world, shifted, monkeypatch) < 0.3  # alpha is one number in all slots of a round: 25 draws of it
    assert forged(world, informed, monkeypatch) == 1.0


# -------------------------------------------------------------------------------------------------- full enumeration


@pytest.mark.parametrize("clients", [(), (1,)])
def test_enumerating_all_draws_gives_the_same_law_as_linear_algebra(
    clients: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N = 2, one slot, one column, modulo 3, one noise client: every draw is played."""
    world = World(({0: (1,)}, {0: (2,)}), 1, p=3, noisy=(0,))
    names = coordinates(world)
    every = np.array(list(product(range(3), repeat=len(names))))
    mixture = law_of(world, clients, monkeypatch)
    size = mixture.points.shape[1]
    place = 3 ** np.arange(size, dtype=np.int64)
    played: Counter[int] = Counter()
    expected: Counter[int] = Counter()
    for weights, rho, beta in known_to_clients(world):
        for r, b in zip(rho, beta, strict=True):
            shape = len(every), 1
            draw = Draw(np.broadcast_to(r, shape), np.broadcast_to(b, shape), weights, every, names)
            seen = view(world, draw, clients, monkeypatch, server=True, alpha=False)
            values, counts = np.unique(seen @ place, return_counts=True)
            played.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    for span, point in zip(mixture.spans, mixture.points, strict=True):
        basis = span[span.any(axis=1)]
        choices = np.array(list(product(range(3), repeat=len(basis))), np.int64).reshape(-1, len(basis))
        inside = (point + choices @ basis) % 3
        weight = 3 ** (len(names) - len(basis))
        expected.update(dict.fromkeys((inside @ place).tolist(), weight))
    assert played == expected


# ---------------------------------------------------------------------------------------------------------- mask graphs


def mask_rank(graph: Iterable[tuple[int, int]], honest: Sequence[int], p: int = 5) -> int:
    """The rank of honest clients' masks, as far as nobody else knows them."""
    matrix = [[1 if n == a else -1 if n == b else 0 for n in honest] for a, b in graph if a in honest and b in honest]
    basis = np.array(matrix, np.int64).reshape(1, len(matrix), len(honest))
    span, _ = reduced(basis, np.zeros((1, len(honest)), np.int64), p)
    return int(span[0].any(axis=1).sum())


def graph_of(members: Sequence[int], degree: int) -> set[tuple[int, int]]:
    near = {n: masks.neighbours(members, degree, n) for n in members}
    assert all(n in near[v] for n in members for v in near[n])  # both sides of an edge know of it
    return {(n, v) for n in members for v in near[n] if n < v}


@pytest.mark.parametrize("N", range(2, 8))
def test_of_what_honest_clients_upload_only_the_sum_opens(N: int) -> None:
    """Every T, every set of at least T + 2 members (or 2), every coalition of T of all clients."""
    for T in range(1, N):
        fewest = 2 if T == N - 1 else T + 2
        sizes = chain.from_iterable(combinations(range(N), size) for size in range(fewest, N + 1))
        for members in sizes:
            graph = graph_of(members, T + 1)
            for coalition in combinations(range(N), T):
                honest = [n for n in members if n not in coalition]
                assert mask_rank(graph, honest) == max(0, len(honest) - 1), (members, T, coalition)


@pytest.mark.parametrize("N", range(4, 8))
def test_a_graph_of_fewer_masks_opens_more_than_the_sum(N: int) -> None:
    for T in range(1, N - 2):
        graph = graph_of(range(N), T)
        honest_sets = [[n for n in range(N) if n not in bad] for bad in combinations(range(N), T)]
        assert any(mask_rank(graph, honest) < len(honest) - 1 for honest in honest_sets)
