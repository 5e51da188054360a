"""Find wrong answers among those of several clients, and correct them. The paillier form uses it to decode a round.

`need` answers determine a polynomial. Further answers turn them into a Reed-Solomon code word: the amount by which a
further answer is off the polynomial is its *syndrome*. With x further answers, and whatever the wrong clients agree on:

* up to x // 2 wrong answers are found, and the data are decoded from the others;
* up to (x + 1) // 2 wrong answers never lead to wrong data or wrong blame: they are found, or decoding is refused;
* up to x wrong answers are noticed, since a syndrome is not 0. But more than (x + 1) // 2 of them can make x // 2
  honest clients look wrong. Then those clients are blamed, and the data are wrong.

Right answers have syndromes of 0, which reveal nothing. A wrong answer is one that does not fit the others. It need not
be its client's fault: the client may have computed it from wrong shares that someone else dealt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TypeAlias

import numpy as np

from secea.arithmetic.field import Residues
from secea.arithmetic.lagrange import Code, interpolation

Polynomial: TypeAlias = list[int]
"""Coefficients, the constant first. The last one is not 0."""


class ContradictionError(ValueError):
    """Some answers are wrong, and it is impossible to tell which."""


def interpolate(code: Code, clients: Sequence[int], answers: Sequence[Residues]) -> Residues:
    """The data from the first `need` answers, then the syndromes of the others: [P, K + clients - need, ...].

    A syndrome is the difference between a further answer and what the first `need` predict. Each answer is [P, ...].
    """
    if len(set(clients)) != len(clients) or len(clients) < code.need:
        raise ValueError(f"decoding needs the answers of {code.need} different clients, got {list(clients)}")
    matrix = _data_and_checks(code.ring.primes, code.at(clients), code.data_points, code.need)
    return code.ring.combine(matrix, answers)


@lru_cache(maxsize=1024)
def _data_and_checks(
    primes: tuple[int, ...], points: tuple[int, ...], data_points: tuple[int, ...], need: int
) -> Residues:
    """The matrix of `interpolate`."""
    data = interpolation(primes, points[:need], data_points)
    unused = np.zeros((*data.shape[:2], len(points) - need), data.dtype)
    matrix = np.concatenate([np.concatenate([data, unused], axis=2), _checks(primes, points, need)], axis=1)
    matrix.setflags(write=False)
    return matrix


@lru_cache(maxsize=1024)
def _checks(primes: tuple[int, ...], points: tuple[int, ...], need: int) -> Residues:
    """The matrix of the syndromes: each further answer minus what the first `need` predict for it."""
    predicted = interpolation(primes, points[:need], points[need:])
    own = np.broadcast_to(np.eye(len(points) - need, dtype=object), (len(primes), *2 * (len(points) - need,)))
    matrix = np.concatenate([_negated(primes, predicted), own], axis=2).astype(predicted.dtype)
    matrix.setflags(write=False)
    return matrix


def _negated(primes: tuple[int, ...], matrix: Residues) -> Residues:
    rows = [(p - row.astype(object)) % p for p, row in zip(primes, matrix, strict=True)]
    return np.stack(rows).astype(matrix.dtype)


def decode(code: Code, clients: Sequence[int], answers: Sequence[Residues]) -> tuple[Residues, tuple[int, ...]]:
    """Decode the answers [P, ...] of these clients: the data [P, K, ...], and the clients whose answers are wrong."""
    found = interpolate(code, clients, answers)
    return _corrected(code, clients, found[:, : code.K], found[:, code.K :])


def _corrected(
    code: Code, clients: Sequence[int], blocks: Residues, found: Residues
) -> tuple[Residues, tuple[int, ...]]:
    """The blocks, corrected for wrong answers, and the clients whose answers are wrong.

    `blocks` [P, K, ...] were interpolated from the first `need` clients; `found` [P, x, ...] are the syndromes.
    """
    if not found.any():
        return blocks, ()
    primes, need = code.ring.primes, code.need
    flat = found.reshape(*found.shape[:2], -1)
    wrong: tuple[int, ...] = ()
    while True:
        # Take the word that is 0 for the first `need` clients and the syndrome for the others. It differs from the
        # errors by the values of some polynomial. So its errors are the same, and without them it is a polynomial.
        rest = [v for v in clients if v not in wrong]
        beyond = [i for i, v in enumerate(rest) if v in clients[need:]]
        columns = [np.ascontiguousarray(flat[:, clients.index(rest[i]) - need]) for i in beyond]
        left = _checks(primes, code.at(rest), need)[:, :, beyond]
        unexplained = code.ring.combine(np.ascontiguousarray(left), columns)
        if not unexplained.any():
            break
        prime, _, element = map(int, np.argwhere(unexplained)[0])
        word = [0] * need + [int(x) for x in flat[prime, :, element]]
        places = errors_of(primes[prime], code.at(clients), word, need)
        wrong = tuple(sorted({*wrong, *(clients[i] for i in places)}))
        if not places or len(wrong) > found.shape[1] // 2:
            raise ContradictionError(f"more than {found.shape[1] // 2} of {len(clients)} answers are wrong")
    used = [i for i in beyond if i < need]
    if not used:
        return blocks, wrong
    matrix = np.ascontiguousarray(code.matrix(code.at(rest[:need]), code.data_points)[:, :, used])
    change = code.ring.combine(matrix, [found[:, clients.index(rest[i]) - need] for i in used])
    return code.ring.add(np.ascontiguousarray(blocks), change), wrong


def errors_of(p: int, points: Sequence[int], word: Sequence[int], need: int) -> tuple[int, ...]:
    """The positions where the word differs from the nearest polynomial of degree < need (Gao, 2003).

    Empty if no polynomial is within half of the code's distance.
    """
    node: Polynomial = [1]
    for x in points:
        node = _multiply(node, [-x % p, 1], p)
    through = _through(points, word, node, p)
    before, remainder = node, through
    cofactor_before, cofactor = [0], [1]
    while 2 * (len(remainder) - 1) >= len(points) + need:
        quotient, rest = _divide(before, remainder, p)
        before, remainder = remainder, rest
        cofactor_before, cofactor = cofactor, _subtract(cofactor_before, _multiply(quotient, cofactor, p), p)
    nearest, rest = _divide(remainder, cofactor, p)
    if rest or len(nearest) > need:
        return ()
    places = tuple(i for i, (x, y) in enumerate(zip(points, word, strict=True)) if _at(nearest, x, p) != y % p)
    return places if 2 * len(places) <= len(points) - need else ()


def _through(points: Sequence[int], values: Sequence[int], node: Polynomial, p: int) -> Polynomial:
    """The polynomial through all points. `node` is the polynomial that is 0 at all of them."""
    total: Polynomial = []
    for x, y in zip(points, values, strict=True):
        basis, _ = _divide(node, [-x % p, 1], p)
        scale = y * pow(_at(basis, x, p), -1, p) % p
        total = _subtract(total, [-scale * c for c in basis], p)
    return total


def _trim(a: Sequence[int], p: int) -> Polynomial:
    reduced = [x % p for x in a]
    while reduced and not reduced[-1]:
        reduced.pop()
    return reduced


def _subtract(a: Polynomial, b: Polynomial, p: int) -> Polynomial:
    return _trim([x - y for x, y in zip_longest(a, b, fillvalue=0)], p)


def _multiply(a: Polynomial, b: Polynomial, p: int) -> Polynomial:
    product = [0] * (len(a) + len(b))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            product[i + j] += x * y
    return _trim(product, p)


def _divide(a: Polynomial, b: Polynomial, p: int) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder."""
    rest, lead = list(a), pow(b[-1], -1, p)
    quotient = [0] * max(len(a) - len(b) + 1, 0)
    for i in reversed(range(len(quotient))):
        quotient[i] = rest[i + len(b) - 1] * lead % p
        for j, y in enumerate(b):
            rest[i + j] = (rest[i + j] - quotient[i] * y) % p
    return _trim(quotient, p), _trim(rest, p)


def _at(a: Polynomial, x: int, p: int) -> int:
    value = 0
    for c in reversed(a):
        value = (value * x + c) % p
    return value
