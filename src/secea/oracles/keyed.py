"""The keyed form in plain integers on one page: read this first.

Each function is a line of docs/protocol-keyed.md, sections K1 to K6, in its letters; section K5 works modulo one prime
p at a time. Randomness is passed in, and a key stream is a list of uniform numbers that all who have its key know.
Channels, signatures, votes, the blinding of names and the private union are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from secea.arithmetic.ristretto import ORDER, multiply, scalar_rows
from secea.errors import FederationError
from secea.forms.keyed.numbers import WIDE, Numbers
from secea.steps.oprf import finalize, hash_to_group, input_of
from secea.table import Name, name_bytes

Vector = tuple[int, ...]
Rows = Sequence[Vector]
Draw = Callable[[int], int]
"""`draw(n)`: uniform in [0, n)."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What all clients share in a round, and the server does not know: modulo one prime."""

    rho: Vector = field(repr=False)  # for each slot, not 0
    alpha: Rows = field(repr=False)  # for each check and coordinate
    J: Rows = field(repr=False)  # for each check and slot
    H: Mapping[int, Rows] = field(repr=False)  # of each noise client, for each check and slot
    theta: Vector = field(repr=False)
    beta: Vector = field(repr=False)


def uniform(draw: Draw, below: int, count: int) -> Vector:
    """So many numbers of a key stream."""
    return tuple(draw(below) for _ in range(count))


def dot(a: Iterable[int], b: Iterable[int]) -> int:
    """The sum of a_j * b_j."""
    return sum(x * y for x, y in zip(a, b, strict=True))


# Who works with whom (K1), and the key of an entity (K2).


def edges(members: Sequence[int], degree: int) -> set[frozenset[int]]:
    """K1: the pairs that share masks. Harary's graph: without any degree-1 members it stays connected."""
    M, half = len(members), (len(members) + 1) // 2
    near = range(1, M) if degree >= M - 1 else range(1, degree // 2 + 1)
    pairs = {(i, i + step) for i in range(M) for step in near}
    pairs |= {(i, i + half) for i in range(half)} if degree % 2 else set()
    return {frozenset((members[i], members[j % M])) for i, j in pairs}


def noise_clients(members: Sequence[int], T: int, q: int, D: int = 0) -> list[int]:
    """K1: T+D+1 of the members in their order, beginning at q."""
    return [members[(q + i) % len(members)] for i in range(min(len(members), T + D + 1))]


def share(polynomials: Sequence[Sequence[int]], j: int) -> int:
    """K2.1: k_j, the sum of all dealers' polynomials at j+1. At 0 it is k, which nobody holds."""
    return sum(dot(polynomial, (pow(j + 1, e) for e in range(len(polynomial)))) for polynomial in polynomials) % ORDER


def joined(shares: Mapping[int, int]) -> int:
    """K4, K5.2: the value at 0 of the polynomial through these shares; client v's is its value at v+1."""
    total = 0
    for v, value in shares.items():
        others = [u for u in shares if u != v]
        total += value * math.prod(u + 1 for u in others) * pow(math.prod(u - v for u in others), -1, ORDER)
    return total % ORDER


def F(name: Name, k: int) -> bytes:
    """K2: Hash(name, k * HashToGroup(name)). The tag and kappa, the key of G, are hashes of it."""
    x = [input_of(name_bytes(name))]
    return finalize(x, multiply(hash_to_group(x), scalar_rows([k])))[0]


# What an input becomes, and what hides its count (K6).


def grid(x: float, used: int, step: float, cap: float) -> float:
    """K6: numbers like x, with `used` bits below the leading one or on a common step (0: none), lie so far apart."""
    return min(max(math.ldexp(1.0, math.frexp(x)[1] - 1 - used) if x else 0.0, step), cap)


def encode(x: float, fields: Sequence[int], step: float, n: Numbers) -> int:
    """K6: v = x * 2^f, rounded, and its fill: s numbers below w, and one as wide as the grid if that is above w.

    `fields` are s words of 32 bits, and two more from the block of the grid's number.
    """
    narrow = sum(field * n.w >> 32 for field in fields[: n.s]) - n.s * (n.w - 1) // 2
    units = math.floor(Fraction(step) * (1 << n.f))
    wide = (fields[n.s] + (fields[n.s + 1] << 32)) * units >> 64
    return round(Fraction(x) * (1 << n.f)) + narrow + (wide - units // 2 if units > n.w else 0)


def wide(W: int, n: Numbers) -> int:
    """K6: the wide number of each of W noise clients is below this; together they span 1.7 resolutions."""
    return int(WIDE * math.ldexp(n.resolution, n.f)) // W


def noise(words: Sequence[int], W: int, n: Numbers) -> int:
    """K6: e, the sum of s numbers below C, each made of its digits, and of C times one below `wide`."""
    base, place = n.noise.digits, [math.prod(n.noise.digits[:i]) for i in range(len(n.noise.digits))]
    narrow = dot((word * digit >> 32 for word, digit in zip(words[:-2], base * n.s, strict=True)), place * n.s)
    return narrow + n.C * ((words[-2] + (words[-1] << 32)) * wide(W, n) >> 64)


# A round (K5).


def upload(y: Mapping[int, Vector], d: int, s: Secrets, p: int) -> list[Vector]:
    """K5.1, client n: data, checks, count and mark of each slot. `y` has its own slots: y_j = C*v_j + G_{i,j}."""
    rows = []
    for i in range(len(s.rho)):
        y_i, rho = (y[i], s.rho[i]) if i in y else ((0,) * d, 0)
        checks = [dot(alpha, y_i) + J[i] for alpha, J in zip(s.alpha, s.J, strict=True)]
        rows.append((*(rho * x % p for x in (*y_i, *checks)), rho, (s.theta[i] + s.beta[i] * rho) % p))
    return rows


def mask(rows: Rows, n: int, prg: Mapping[int, Rows], p: int) -> list[Vector]:
    """K5.1, client n: the key stream of its pair with each neighbour v, plus where n < v."""
    return add([rows, *(prg[v] if n < v else minus(prg[v]) for v in prg)], p)


def minus(rows: Rows) -> list[Vector]:
    """The negative of all rows."""
    return [tuple(-x for x in row) for row in rows]


def noise_column(e: Rows, H: Rows, s: Secrets, p: int) -> list[Vector]:
    """K5.1, a noise client: sum_j alpha_j*e_{i,j} + H_i for each check; the server learns e, and no alpha."""
    return [tuple((dot(s.alpha[k], e_i) + H[k][i]) % p for k in range(len(H))) for i, e_i in enumerate(e)]


def add(parts: Sequence[Rows], p: int) -> list[Vector]:
    """The server: what all sent, slot by slot; masks cancel."""
    return [tuple(sum(column) % p for column in zip(*rows, strict=True)) for rows in zip(*parts, strict=True)]


def opened(hidden: Mapping[int, tuple[int, int]], U: Sequence[int], t: int, draw: Draw) -> dict[int, int]:
    """K5.2: each member m shares its (a, b). t clients of U give out shares of b if m is in U, and of a if not."""
    found = {}
    for m, pair in hidden.items():
        polynomial = (pair[m in U], *uniform(draw, ORDER, t - 1))
        found[m] = joined({u: share([polynomial], u) for u in U[:t]})
    return found


def unmask(
    total: Rows, found: Mapping[int, int], own: Mapping[int, Rows], prg: Mapping[int, Mapping[int, Rows]], p: int
) -> list[Vector]:
    """K5.2, the server: off the sum of U come the own masks of U, and those of its pairs with whoever vanished.

    `own` is the key stream of each b; `prg` has, for each a, the key streams of its client's pairs.
    """
    U = [m for m, secret in found.items() if secret in own]
    gone = {m: prg[secret] for m, secret in found.items() if m not in U}
    over = [mask(own[found[n]], n, {v: prg_v[n] for v, prg_v in gone.items() if n in prg_v}, p) for n in U]
    return add([total, *map(minus, over)], p)


def divide(total: Rows, e: Rows, columns: Rows, p: int) -> tuple[list[Vector], list[bool]]:
    """K5.3, the server: R = Y/K + e, with the checks; where K = 0 the slot is empty, and its mark is sent."""
    R: list[Vector] = []
    for (*Y, K, mark), e_i, column in zip(total, e, columns, strict=True):
        scaled = tuple(x * pow(K, -1, p) for x in Y) if K else ()
        R.append(add([[scaled], [(*e_i, *column)]], p)[0] if K else (mark, *[0] * len(Y[1:])))
    return R, [row[-2] == 0 for row in total]


def right(R_i: Vector, empty: bool, i: int, uploads: int, s: Secrets, p: int) -> bool:
    """K5.4, everybody, for every slot: sum_j alpha_j*R_{i,j} + J_i + sum_w H_{w,i} = R_check; or |U| * theta_i."""
    if empty:
        return R_i == (uploads * s.theta[i] % p, *[0] * len(R_i[1:]))
    data, sent = R_i[: -len(s.J)], R_i[-len(s.J) :]
    pads = [J[i] + sum(H[k][i] for H in s.H.values()) for k, J in enumerate(s.J)]
    return sent == tuple((dot(alpha, data) + pad) % p for alpha, pad in zip(s.alpha, pads, strict=True))


def read(R: Vector, G: Vector, W: int, n: Numbers, left: int | None = None) -> Fraction:
    """K5.4, an owner: subtract G, join the primes, subtract the mean of the noise, centre, and divide by C * 2^f.

    W noise clients began the round; `left` of them are in its sum.
    """
    noisy = W if left is None else left
    Q, mean = math.prod(n.ring.primes), noisy * (n.s * (n.C - 1) + n.C * (wide(W, n) - 1)) // 2
    x = sum((r - g) * (Q // p) * pow(Q // p, -1, p) for r, g, p in zip(R, G, n.ring.primes, strict=True))
    return Fraction((x - mean + Q // 2) % Q - Q // 2, n.C << n.f)


def one_round(
    v: Sequence[Mapping[int, Vector]],
    e: Mapping[int, Rows],
    G: Rows,
    T: int,
    n: Numbers,
    p: int,
    draw: Draw,
    D: int,
    U: Sequence[int],
) -> list[Vector]:
    """K5, all parties, modulo one prime: R from everybody's encoded rows v, by slot, and the noise e of those in U."""
    M, d, checks, width = len(G), len(G[0]), range(n.checks), len(G[0]) + n.checks + 2
    rho, theta, beta = tuple(1 + x for x in uniform(draw, p - 1, M)), uniform(draw, p, M), uniform(draw, p, M)
    alpha, J = ([uniform(draw, p, size) for _ in checks] for size in (d, M))
    s = Secrets(rho, alpha, J, {w: [uniform(draw, p, M) for _ in checks] for w in e}, theta, beta)
    prg = {pair: [uniform(draw, p, width) for _ in G] for pair in edges(range(len(v)), T + D + 1)}
    near = [{u: stream for pair, stream in prg.items() if m in pair for u in pair - {m}} for m in range(len(v))]
    hidden = {m: (draw(ORDER), draw(ORDER)) for m in range(len(v))} if D else {}  # a and b of each
    own = {b: [uniform(draw, p, width) for _ in G] for _, b in hidden.values()}
    uploads = []
    for m, rows in enumerate(v):
        y = {i: tuple(n.C * x + g for x, g in zip(row, G[i], strict=True)) for i, row in rows.items()}
        masked = mask(upload(y, d, s, p), m, near[m], p)
        uploads.append(add([masked, own[hidden[m][1]]], p) if D else masked)
    total = add([uploads[m] for m in U], p)
    if D:
        found = opened(hidden, U, len(v) - D, draw)
        total = unmask(total, found, own, {a: near[m] for m, (a, _) in hidden.items()}, p)
    columns = add([noise_column(e[w], s.H[w], s, p) for w in e], p)
    R, empty = divide(total, add(list(e.values()), p), columns, p)
    if not all(right(R[i], empty[i], i, len(U), s, p) for i in range(M)):
        raise FederationError("a slot is not what the uploads add up to: there is no result")
    return R


def aggregate(
    tables: Sequence[Mapping[Name, Sequence[float]]],
    T: int,
    q: int,
    n: Numbers,
    draw: Draw,
    D: int = 0,
    lost: Collection[int] = (),
) -> list[dict[Name, list[Fraction]]]:
    """All of round q, for inputs of double precision: each client gets the mean of each of its entities.

    Up to D clients are `lost` in the middle of their upload. They get nothing, and nobody gets their rows.
    """
    U = [m for m in range(len(tables)) if m not in lost]
    noisy = noise_clients(range(len(tables)), T, q, D)
    polynomials = [uniform(draw, ORDER, T + 1) for _ in tables]
    key = {name: F(name, share(polynomials, -1)) for table in tables for name in table}
    slot = {name: i for i, name in enumerate(sorted(key, key=key.__getitem__))}  # the protocol sorts tags
    d = max((len(row) for table in tables for row in table.values()), default=0)
    v = [
        {
            slot[name]: tuple(encode(x, uniform(draw, 1 << 32, n.s + 2), grid(x, 52, 0.0, 1.0), n) for x in row)
            for name, row in table.items()
        }
        for table in tables
    ]
    words = n.s * len(n.noise.digits) + 2
    e = {
        w: [tuple(noise(uniform(draw, 1 << 32, words), len(noisy), n) for _ in range(d)) for _ in slot]
        for w in noisy
        if w in U
    }
    G = [[uniform(draw, p, d) for _ in slot] for p in n.ring.primes]
    R = [one_round(v, e, G_p, T, n, p, draw, D, U) for G_p, p in zip(G, n.ring.primes, strict=True)] if slot else []

    def mean(i: int, j: int) -> Fraction:
        return read(tuple(rows[i][j] for rows in R), tuple(rows[i][j] for rows in G), len(noisy), n, len(e))

    return [
        {name: [mean(slot[name], j) for j in range(d)] for name in table} if m in U else {}
        for m, table in enumerate(tables)
    ]
