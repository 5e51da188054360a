"""The paper, literally: textbook Paillier, one query for each entity, plain integers. Slow, and the ground truth.

One function for each equation of arXiv 2206.09097, in the paper's order and letters; `aggregate` is the whole protocol.
Indices count from 0: client 0 is the paper's client 1. `sigma_` is sigma'. Two repairs of eq. 13 are in `draw_r` and
`mask`; `repaired=False` takes them out. The private union and the one-time pads between clients are left out.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Protocol, TypeVar

from secea.errors import FederationError, ParamsError, TableError
from secea.params import Params

P61 = (1 << 61) - 1
"""The prime p of the field F, unless another is asked for."""

Vector = tuple[int, ...]
"""Elements of F_p in [0, p); also ciphertexts, one for each element."""

Name = TypeVar("Name", bound=str | int)
"""An entity's name, of one spelling at all clients: oracles do not normalise."""


class Rng(Protocol):
    """A source of randomness: `secrets.SystemRandom`, or a `random.Random` in tests."""

    def randrange(self, n: int, /) -> int:
        """Uniform in [0, n)."""


SYSTEM: Rng = secrets.SystemRandom()


def uniform(length: int, p: int, rng: Rng) -> Vector:
    """Draw a uniform vector over F_p."""
    return tuple(rng.randrange(p) for _ in range(length))


# Paillier's cryptosystem, with g = n + 1. The public key is the modulus n; ciphertexts are units mod n^2.


@dataclass(frozen=True, slots=True)
class SecretKey:
    """lam = lcm(p-1, q-1) for the modulus n = p*q, and mu = 1/lam mod n."""

    n: int
    lam: int = field(repr=False)
    mu: int = field(repr=False)


def is_prime(m: int, rng: Rng) -> bool:
    """Miller-Rabin with 40 random bases, for m = 3 mod 4: there m-1 is twice an odd number, so one power decides."""
    return all(pow(1 + rng.randrange(m - 1), (m - 1) // 2, m) in (1, m - 1) for _ in range(40))


def draw_prime(bits: int, rng: Rng) -> int:
    """Draw a prime that is 3 mod 4 and has its two highest bits set."""
    while True:
        m = 3 << (bits - 2) | rng.randrange(1 << (bits - 2)) | 3
        if is_prime(m, rng):
            return m


def keygen(bits: int, rng: Rng) -> SecretKey:
    """Client n: a key pair whose modulus has exactly `bits` bits (p and q are the key's primes here)."""
    if bits < 16:
        raise ParamsError(f"a Paillier key needs at least 16 bits to have two primes, got {bits}")
    while True:
        p, q = draw_prime(bits // 2, rng), draw_prime(bits - bits // 2, rng)
        if math.gcd(p * q, (p - 1) * (q - 1)) == 1 and p != q:
            lam = math.lcm(p - 1, q - 1)
            return SecretKey(p * q, lam, pow(lam, -1, p * q))


def encrypt(m: int, n: int, rng: Rng) -> int:
    """Enc(m) = (n+1)^m * s^n mod n^2, with s uniform among the units mod n; m counts mod n."""
    s = rng.randrange(n)
    while math.gcd(s, n) != 1:
        s = rng.randrange(n)
    return (1 + m * n) * pow(s, n, n * n) % (n * n)


def decrypt(c: int, key: SecretKey) -> int:
    """Dec(c) = ((c^lam mod n^2) - 1) / n * mu mod n."""
    n = key.n
    return (pow(c, key.lam, n * n) - 1) // n * key.mu % n


def add(c1: int, c2: int, n: int) -> int:
    """Enc(m1) and Enc(m2) give Enc(m1 + m2)."""
    return c1 * c2 % (n * n)


def times(c: int, k: int, n: int) -> int:
    """Enc(m) gives Enc(k * m)."""
    return pow(c, k, n * n)


# Real numbers as field elements.


def fixed(x: float, f: int) -> int:
    """Round x * 2^f half to even."""
    return round(Fraction(x) * Fraction(2) ** f)


def largest(params: Params) -> int:
    """Q, the largest fixed-point value."""
    return fixed(params.max_abs, params.fraction_bits)


def encode(e: object, h: Sequence[float], params: Params, p: int) -> Vector:
    """Client n: the embedding h_{n,e} as a vector over F_p; negative values count down from p."""
    if len(h) != params.dim:
        raise TableError(f"entity {e!r} has {len(h)} coordinates, and dim is {params.dim}")
    for i, x in enumerate(h):
        if not abs(x) <= params.max_abs:  # NaN too
            raise TableError(f"entity {e!r}, coordinate {i}: {x} is not within max_abs = {params.max_abs} of 0")
    return tuple(fixed(x, params.fraction_bits) % p for x in h)


def centred(x: int, p: int) -> int:
    """Find the integer nearest to 0 that is x mod p."""
    x %= p
    return x - p if x > p // 2 else x


def rational(h: Sequence[int], N: int, Q: int, p: int) -> tuple[tuple[int, ...], int]:
    """Find the sums S and the smallest c <= N with h = S/c mod p and |S| <= c*Q.

    All pairs that fit are the same rational number: two of them differ by less than 2*N^2*Q < p when cross-multiplied.
    """
    for c in range(1, N + 1):
        S = tuple(centred(c * x, p) for x in h)
        if all(abs(s) <= c * Q for s in S):
            return S, c
    raise FederationError(f"no count up to {N} explains what was decoded: an answer was wrong")


def decode(S: Sequence[int], c: int, f: int) -> list[float]:
    """Client n: the mean S / (c * 2^f), rounded once."""
    return [float(Fraction(s, c) / Fraction(2) ** f) for s in S]


# Polynomials over F_p with vectors for values.


def combine(coefficients: Vector, rows: Sequence[Vector], p: int) -> Vector:
    """Add up the rows, each times its coefficient."""
    return tuple(
        sum(a * x for a, x in zip(coefficients, column, strict=True)) % p for column in zip(*rows, strict=True)
    )


@lru_cache(maxsize=4096)
def lagrange(xs: Vector, x: int, p: int) -> Vector:
    """Find the coefficients l_i with f(x) = sum_i l_i * f(xs_i), for every f of degree below len(xs)."""

    def coefficient(i: int) -> int:
        others = [xj for j, xj in enumerate(xs) if j != i]
        return math.prod(x - xj for xj in others) * pow(math.prod(xs[i] - xj for xj in others), -1, p) % p

    return tuple(coefficient(i) for i in range(len(xs)))


@dataclass(frozen=True, slots=True)
class Polynomial:
    """The polynomial of degree below len(xs) that takes the value ys_i, a vector, at the point xs_i."""

    xs: Vector
    ys: tuple[Vector, ...] = field(repr=False)
    p: int

    def __call__(self, x: int) -> Vector:
        """Interpolate at x."""
        return combine(lagrange(self.xs, x, self.p), self.ys, self.p)


# The aim, and private embedding sharing.


def mean(tables: Sequence[Mapping[Name, Sequence[float]] | None]) -> dict[Name, list[float]]:
    """Eq. 2, without any secrecy: for each entity the exact mean over its owners, rounded once."""
    owned: dict[Name, list[Sequence[float]]] = {}
    for table in tables:
        for e, h in (table or {}).items():
            owned.setdefault(e, []).append(h)
    return {
        e: [float(sum(map(Fraction, column), Fraction()) / len(hs)) for column in zip(*hs, strict=True)]
        for e, hs in owned.items()
    }


def union(tables: Sequence[Mapping[Name, Sequence[float]] | None]) -> list[Name]:
    """List the entities e_1, ..., e_M of all clients; the paper has a private union protocol for this."""
    return sorted({e for table in tables for e in table or {}}, key=lambda e: (type(e).__name__, e))


def expand(h: Vector | None, d: int) -> Vector:
    """Eq. 3: (h, 1) for an entity of the client's own, zeros for another."""
    return (0,) * (d + 1) if h is None else (*h, 1)


def block_length(params: Params) -> int:
    """L = ceil((d+1)/K), with K of eq. 4 (`Params.K`)."""
    return -(-(params.dim + 1) // params.K)


def blocks(h_tilde: Vector, K: int) -> tuple[Vector, ...]:
    """Eq. 5: K blocks of L elements; zeros fill the last ones."""
    L = -(-len(h_tilde) // K)
    padded = h_tilde + (0,) * (K * L - len(h_tilde))
    return tuple(padded[k * L : (k + 1) * L] for k in range(K))


def phi(h_tilde: Vector, z: Sequence[Vector], params: Params, p: int) -> Polynomial:
    """Eq. 6: block k at beta_k for k <= K, the T noise vectors z at the other beta."""
    return Polynomial(params.beta, (*blocks(h_tilde, params.K), *z), p)


def share(phis: Sequence[Polynomial], alpha_v: int) -> list[Vector]:
    """Eq. 7: y_{n,v}, what client n sends to client v: phi_{n,e_m}(alpha_v) for every m."""
    return [phi_m(alpha_v) for phi_m in phis]


def add_shares(shares: Sequence[Sequence[Vector]], p: int) -> list[Vector]:
    """Eq. 8: y_v, the sum over n of the y_{n,v} that client v received."""
    return [tuple(sum(column) % p for column in zip(*rows, strict=True)) for rows in zip(*shares, strict=True)]


# Private embedding aggregation retrieval.


def rho(e: Name, E: Sequence[Name], z: Sequence[Vector], params: Params, p: int) -> Polynomial:
    """Eq. 9-10: (rho^1, ..., rho^M) side by side; at beta_k for k <= K 1 for e and 0 for the others, then noise."""
    wanted = tuple(int(e_m == e) for e_m in E)
    return Polynomial(params.beta, (*[wanted] * params.K, *z), p)


def query(rho_e: Polynomial, alpha_v: int) -> Vector:
    """Eq. 11: q_{n,v,e}, what client n sends to client v: rho^m(alpha_v) for every m."""
    return rho_e(alpha_v)


def answer(q: Vector, y_v: Sequence[Vector], p: int) -> Vector:
    """Client v: A_{v,n,e} = <q_{n,v,e}, y_v>."""
    return combine(q, y_v, p)


def psi(z: Sequence[Vector], params: Params, p: int) -> Polynomial:
    """Eq. 12: zero at beta_1..beta_K, the noise vectors z at alpha_1..alpha_{K+2T-1}; degree 2(K+T-1)."""
    K, K_tilde = params.K, params.K + 2 * params.T - 1
    return Polynomial(params.beta[:K] + params.alpha[:K_tilde], (*[(0,) * len(z[0])] * K, *z), p)


def draw_r(p: int, rng: Rng, *, repaired: bool = True) -> int:
    """Draw the server's r_{n,e}: the paper takes any of F_p, the repair leaves out 0, which destroys the result."""
    return 1 + rng.randrange(p - 1) if repaired else rng.randrange(p)


def sigma_prime(params: Params, queries: int) -> int:
    """Add ceil(log2 x) bits to sigma: T clients see x masked elements in all rounds, N*L for each query."""
    x = params.T * queries * params.N * block_length(params) * params.rounds
    return params.sigma + max(0, x - 1).bit_length()


def mask(
    A_tilde: Vector, psi_v: Vector, r: int, n: int, sigma_: int, p: int, rng: Rng, *, repaired: bool = True
) -> Vector:
    """Eq. 13: A~^r * Enc(psi(alpha_v) + p*R), where R = 0 in the paper.

    Paillier adds integers: without p*R the plaintext is r*A + psi, not reduced, and whoever knows A divides and has r.
    """
    R = [rng.randrange(p << sigma_) if repaired else 0 for _ in psi_v]
    return tuple(
        add(times(a, r, n), encrypt(s + p * R_i, n, rng), n) for a, s, R_i in zip(A_tilde, psi_v, R, strict=True)
    )


def response(Y: Mapping[int, Vector], params: Params, p: int) -> Polynomial:
    """Eq. 14: client n interpolates Y_{n,e}(x) through Y_{v,n,e} at alpha_v, from any `need` clients v."""
    check_enough(Y, params)
    used = sorted(Y)[: params.need]
    return Polynomial(tuple(params.alpha[v] for v in used), tuple(Y[v] for v in used), p)


def response_blocks(Y: Polynomial, params: Params) -> list[Vector]:
    """Eq. 15: Y_{n,e}(beta_k) = r * sum_v h~_{v,e}^k for k <= K."""
    return [Y(beta_k) for beta_k in params.beta[: params.K]]


def join(Y_blocks: Sequence[Vector], d: int) -> tuple[Vector, int]:
    """Eq. 16: (r*sum, r*count) from the K blocks. What filled the last block must have stayed 0."""
    flat = [x for block in Y_blocks for x in block]
    if any(flat[d + 1 :]):
        raise FederationError("the padding behind the count did not decode to 0: an answer was wrong")
    return tuple(flat[:d]), flat[d]


def divide(rS: Vector, rc: int, p: int) -> Vector:
    """Client n: S/c in F_p. What blinds the count, r, cancels."""
    if rc == 0:
        raise FederationError("r times the count decoded to 0: without the repair the server may draw r = 0")
    inverse = pow(rc, -1, p)
    return tuple(x * inverse % p for x in rS)


# What each party does with these, and the whole protocol.


def client_shares(
    table: Mapping[Name, Sequence[float]], E: Sequence[Name], params: Params, p: int, rng: Rng
) -> list[list[Vector]]:
    """Client n: y_{n,v} for every client v, from its own embeddings (eq. 3-7)."""
    own = {e: encode(e, h, params, p) for e, h in table.items()}
    L = block_length(params)
    phis = [phi(expand(own.get(e), params.dim), [uniform(L, p, rng) for _ in range(params.T)], params, p) for e in E]
    return [share(phis, alpha_v) for alpha_v in params.alpha]


def serve(
    A_tilde: Mapping[int, Vector], n: int, sigma_: int, params: Params, p: int, rng: Rng, *, repaired: bool = True
) -> dict[int, Vector]:
    """Mask, as the server, the answers A~_v to one query under the public key n: Y~_v of eq. 12-13."""
    r = draw_r(p, rng, repaired=repaired)
    psi_ne = psi([uniform(block_length(params), p, rng) for _ in range(params.K + 2 * params.T - 1)], params, p)
    return {v: mask(a, psi_ne(params.alpha[v]), r, n, sigma_, p, rng, repaired=repaired) for v, a in A_tilde.items()}


def recover(Y_tilde: Mapping[int, Vector], key: SecretKey, params: Params, p: int) -> list[float]:
    """Client n: the mean of one entity from the masked answers of any `need` clients (eq. 14-16)."""
    Y = {v: tuple(decrypt(c, key) % p for c in row) for v, row in Y_tilde.items()}
    rS, rc = join(response_blocks(response(Y, params, p), params), params.dim)
    S, c = rational(divide(rS, rc, p), params.N, largest(params), p)
    return decode(S, c, params.fraction_bits)


def check_enough(answering: Collection[int], params: Params) -> None:
    """Refuse to continue with fewer answers than decoding needs."""
    if len(answering) < params.need:
        raise FederationError(f"{len(answering)} clients answered, and {params.need} are needed")


def check_sizes(params: Params, sigma_: int, p: int, key_bits: int) -> None:
    """Refuse a field too small for the means, or a key too small for r*A + psi + p*R."""
    bound = 2 * params.N**2 * largest(params)
    if bound >= p:
        raise ParamsError(f"these means need a prime above 2*N^2*Q = {bound}, got {p}: ask for less precision")
    fewest = (p * (p + (p << sigma_))).bit_length() + 1  # n has its highest bit set
    if key_bits < fewest:
        raise ParamsError(f"key_bits must be at least {fewest} to hold a masked answer, got {key_bits}")


def aggregate(
    tables: Sequence[Mapping[Name, Sequence[float]] | None],
    params: Params,
    *,
    answering: Collection[int] | None = None,
    p: int = P61,
    rng: Rng = SYSTEM,
    key_bits: int | None = None,
    repaired: bool = True,
) -> list[dict[Name, list[float]] | None]:
    """Run the whole protocol: each client gets the mean over all owners of each of its entities.

    A client whose table is None is absent: it neither contributes nor answers, and gets None. Only the answers of the
    clients in `answering` are used (default: all that are present). `key_bits` defaults to that of `params`.
    """
    if len(tables) != params.N:
        raise ParamsError(f"the parameters are for {params.N} clients, got {len(tables)} tables")
    present = {n for n, table in enumerate(tables) if table is not None}
    answering = present if answering is None else set(answering)
    if not answering <= present:
        raise FederationError(f"clients {sorted(answering - present)} are absent or unknown, and cannot answer")
    check_enough(answering, params)
    sigma_ = sigma_prime(params, params.max_entities or max(len(table or {}) for table in tables))
    bits = params.key_bits if key_bits is None else key_bits
    check_sizes(params, sigma_, p, bits)

    E = union(tables)
    sent = [client_shares(table, E, params, p, rng) for table in tables if table is not None]
    y = [add_shares([y_n[v] for y_n in sent], p) for v in range(params.N)]

    def mean_of(e: Name, key: SecretKey) -> list[float]:
        rho_e = rho(e, E, [uniform(len(E), p, rng) for _ in range(params.T)], params, p)
        A = {v: answer(query(rho_e, params.alpha[v]), y[v], p) for v in answering}
        A_tilde = {v: tuple(encrypt(a, key.n, rng) for a in row) for v, row in A.items()}
        return recover(serve(A_tilde, key.n, sigma_, params, p, rng, repaired=repaired), key, params, p)

    def retrieve(table: Mapping[Name, Sequence[float]]) -> dict[Name, list[float]]:
        key = keygen(bits, rng)
        return {e: mean_of(e, key) for e in table}

    return [None if table is None else retrieve(table) for table in tables]
