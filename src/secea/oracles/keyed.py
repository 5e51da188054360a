"""The keyed form in plain integers on one page: read this first.

Each function is a line of docs/protocol-keyed.md, sections K1 to K6 and K11, in its letters. Section K5 works modulo
one prime p at a time. Randomness is passed in, and a key stream is a list of uniform numbers that all who have its key
know. Channels, signatures, votes, the blinding of names and the private union are left out.
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
class Least:
    """K11: what all clients share for a minimum m of owners: m-1 columns for each slot."""

    a: Rows = field(repr=False)  # 1 to m-1 in a circle that begins anywhere
    rho: Rows = field(repr=False)  # not 0
    beta: Rows = field(repr=False)
    theta: Vector = field(repr=False)  # for each slot


@dataclass(frozen=True, slots=True)
class Secrets:
    """What all clients share in a round, and the server does not know: modulo one prime."""

    rho: Vector = field(repr=False)  # for each slot, not 0
    alpha: Rows = field(repr=False)  # for each check and coordinate
    J: Rows = field(repr=False)  # for each check and slot
    H: Mapping[int, Rows] = field(repr=False)  # of each noise client, for each check and slot
    theta: Vector = field(repr=False)
    beta: Vector = field(repr=False)
    least: Least | None = field(default=None, repr=False)
    gamma: Rows = field(default=(), repr=False)  # with noise on every slot: for each check and slot, not 0

    def weigh(self, k: int, i: int, row: Iterable[int]) -> int:
        """What a row of slot i counts in check k: the sum of alpha_j times it, and gamma times that."""
        return dot(self.alpha[k], row) * (self.gamma[k][i] if self.gamma else 1)


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
        checks = [s.weigh(k, i, y_i) + J[i] for k, J in enumerate(s.J)]
        rows.append((*(rho * x % p for x in (*y_i, *checks)), rho, (s.theta[i] + s.beta[i] * rho) % p))
    return rows


def everywhere(rows: Rows, z: Rows, s: Secrets, p: int) -> list[Vector]:
    """K11, every client, in every slot: noise. rho_i*C*z_j in data, the same in checks, nothing in count and mark."""
    noise = [(*z_i, *(s.weigh(k, i, z_i) for k in range(len(s.J))), 0, 0) for i, z_i in enumerate(z)]
    return add([rows, [tuple(s.rho[i] * x for x in row) for i, row in enumerate(noise)]], p)


def least_columns(own: Collection[int], s: Least, p: int, *, designated: bool) -> list[Vector]:
    """K11: owners add rho in each column, the designated client subtracts a*rho everywhere; and marks of these."""
    rows = []
    for i, (a, rho, beta) in enumerate(zip(s.a, s.rho, s.beta, strict=True)):
        counts = [((i in own) - (a_j if designated else 0)) * rho_j for a_j, rho_j in zip(a, rho, strict=True)]
        marks = [s.theta[i] + beta_j * x for beta_j, x in zip(beta, counts, strict=True)]
        rows.append(tuple(x % p for x in (*counts, *marks)))
    return rows


def share_of_bound(w: int, words: Sequence[int], max_weight: int) -> float:
    """K11: a weight as a share of the bound, blurred by half a unit; 0 is 0. Two words of 32 bits."""
    blurred = (w << 32) + ((words[0] + (words[1] << 32)) >> 32) - (1 << 31)
    return math.ldexp(float(blurred), -32) / (max_weight + 1) if w else 0.0


def mask(rows: Rows, n: int, prg: Mapping[int, Rows], p: int) -> list[Vector]:
    """K5.1, client n: the key stream of its pair with each neighbour v, plus where n < v."""
    return add([rows, *(prg[v] if n < v else minus(prg[v]) for v in prg)], p)


def minus(rows: Rows) -> list[Vector]:
    """The negative of all rows."""
    return [tuple(-x for x in row) for row in rows]


def noise_column(e: Rows, H: Rows, s: Secrets, p: int) -> list[Vector]:
    """K5.1, a noise client: sum_j alpha_j*e_{i,j} + H_i for each check; the server learns e, and no alpha."""
    return [tuple((s.weigh(k, i, e_i) + H[k][i]) % p for k in range(len(H))) for i, e_i in enumerate(e)]


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


def divide(total: Rows, e: Rows, columns: Rows, p: int, m: int = 1) -> tuple[list[Vector], list[int]]:
    """K5.3, the server: R = Y/K + e, with the checks; 0 for each such slot.

    Where K = 0 the slot is empty: 1, and its mark is sent. Where one of m-1 further columns is 0 it has fewer than m
    owners: 2, and the mark of that column is sent (K11).
    """
    R, slots, last = list[Vector](), list[int](), 2 * (m - 1)
    for row, e_i, column in zip(total, e, columns, strict=True):
        *Y, K, mark = row[: len(row) - last]
        least = row[len(row) - last :]
        below = [least[m - 1 + k] for k in range(m - 1) if least[k] == 0]
        slots.append(1 if K == 0 else 2 if below else 0)
        scaled = tuple(x * pow(K, -1, p) for x in Y) if K else ()
        proof = mark if K == 0 else below[0] if below else 0
        R.append((proof, *[0] * len(Y[1:])) if slots[-1] else add([[scaled], [(*e_i, *column)]], p)[0])
    return R, slots


def right(R_i: Vector, slot: int, i: int, uploads: int, s: Secrets, p: int) -> bool:
    """K5.4, everybody, for every slot: sum_j alpha_j*R_{i,j} + J_i + sum_w H_{w,i} = R_check; or |U| * theta_i."""
    if slot:
        theta = s.least.theta if slot == 2 and s.least else s.theta
        return R_i == (uploads * theta[i] % p, *[0] * len(R_i[1:]))
    data, sent = R_i[: -len(s.J)], R_i[-len(s.J) :]
    pads = [J[i] + sum(H[k][i] for H in s.H.values()) for k, J in enumerate(s.J)]
    return sent == tuple((s.weigh(k, i, data) + pad) % p for k, pad in enumerate(pads))


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
    m: int = 1,
    designated: int = 0,
) -> tuple[list[Vector], list[int]]:
    """K5, all parties, modulo one prime: R from everybody's encoded rows v, by slot, and the noise e of those in U.

    With what each slot is: 0 where there is a mean. `m`: the minimum of owners, which one client subtracts.
    """
    M, d, checks, width = len(G), len(G[0]), range(n.checks), len(G[0]) + n.checks + 2 * m
    rho, theta, beta = tuple(1 + x for x in uniform(draw, p - 1, M)), uniform(draw, p, M), uniform(draw, p, M)
    alpha, J = ([uniform(draw, p, size) for _ in checks] for size in (d, M))
    begin, every = uniform(draw, m - 1, M) if m > 1 else (0,) * M, range(m - 1)
    a = [tuple(1 + (start + k) % (m - 1) for k in every) for start in begin]
    blinds = [tuple(1 + x for x in uniform(draw, p - 1, m - 1)) for _ in begin]
    least = Least(a, blinds, [uniform(draw, p, m - 1) for _ in begin], uniform(draw, p, M))
    s = Secrets(rho, alpha, J, {w: [uniform(draw, p, M) for _ in checks] for w in e}, theta, beta, least)
    prg = {pair: [uniform(draw, p, width) for _ in G] for pair in edges(range(len(v)), T + D + 1)}
    near = [{u: stream for pair, stream in prg.items() if w in pair for u in pair - {w}} for w in range(len(v))]
    hidden = {w: (draw(ORDER), draw(ORDER)) for w in range(len(v))} if D else {}  # a and b of each
    own = {b: [uniform(draw, p, width) for _ in G] for _, b in hidden.values()}
    uploads = []
    for u, rows in enumerate(v):
        y = {i: tuple(n.C * x + g for x, g in zip(row, G[i], strict=True)) for i, row in rows.items()}
        more = least_columns(rows.keys(), least, p, designated=u == designated)
        bare = [(*one, *two) for one, two in zip(upload(y, d, s, p), more, strict=True)]
        masked = mask(bare, u, near[u], p)
        uploads.append(add([masked, own[hidden[u][1]]], p) if D else masked)
    total = add([uploads[u] for u in U], p)
    if D:
        found = opened(hidden, U, len(v) - D, draw)
        total = unmask(total, found, own, {secret: near[w] for w, (secret, _) in hidden.items()}, p)
    columns = add([noise_column(e[w], s.H[w], s, p) for w in e], p)
    R, slots = divide(total, add(list(e.values()), p), columns, p, m)
    if not all(right(R[i], slots[i], i, len(U), s, p) for i in range(M)):
        raise FederationError("a slot is not what the uploads add up to: there is no result")
    return R, slots


def aggregate(
    tables: Sequence[Mapping[Name, Sequence[float]]],
    T: int,
    q: int,
    n: Numbers,
    draw: Draw,
    D: int = 0,
    lost: Collection[int] = (),
    m: int = 1,
) -> list[dict[Name, list[Fraction]]]:
    """All of round q, for inputs of double precision: each client gets the mean of each of its entities.

    Up to D clients are `lost` in the middle of their upload. They get nothing, and nobody gets their rows. With fewer
    than m owners an entity has no mean.
    """
    U = [u for u in range(len(tables)) if u not in lost]
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
    turn = q % len(tables)
    if m > 1 and turn not in U:
        raise FederationError("who subtracts the minimum of owners is not in the sum: there is no result")
    both = [one_round(v, e, G_p, T, n, p, draw, D, U, m, turn) for G_p, p in zip(G, n.ring.primes, strict=True) if slot]
    R, there = [rows for rows, _ in both], [not any(each) for each in zip(*(slots for _, slots in both), strict=True)]

    def mean(i: int, j: int) -> Fraction:
        return read(tuple(rows[i][j] for rows in R), tuple(rows[i][j] for rows in G), len(noisy), n, len(e))

    return [
        {name: [mean(slot[name], j) for j in range(d)] for name in table if there[slot[name]]} if u in U else {}
        for u, table in enumerate(tables)
    ]
