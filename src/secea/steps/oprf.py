"""A threshold oblivious PRF. It gives the key of an entity to everybody who has its name and asks (section K2).

F(name) = Hash(name, k * HashToGroup(name)) in the suite ristretto255-SHA512 of RFC 9497. Nobody holds k: it is the
value at 0 of a polynomial of degree T, of which each client has one other value. A client sends blinded names, any T+1
holders answer, and the client checks the sum of their answers.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.ristretto import (
    ORDER,
    POINT_BYTES,
    SCALAR_BYTES,
    PointError,
    Rows,
    Tick,
    add,
    from_uniform,
    inverses,
    multiply,
    multiply_base,
    read_scalar,
    scalar_bytes,
    scalar_of,
    scalar_rows,
    total,
    valid,
)
from secea.errors import SecEAError, party
from secea.wire.randomness import SEED_BYTES, KeyStream

OUTPUT_BYTES: Final = 64
MOST_INPUT_BYTES: Final = 0xFFFF
"""The length of an input is written in two bytes (RFC 9497, section 1.2)."""
WEIGHT_BYTES: Final = 16
"""A wrong answer passes the check with 2^-128."""

_SUITE: Final = b"OPRFV1-\x00-ristretto255-SHA512"  # mode 0: the answers are checked by the check point
_LONG_NAME: Final = b"secea long name\n"


class WrongAnswer(SecEAError):
    """Answers that do not fit the holders' public keys. `holders` says whose, if that can be determined."""

    def __init__(self, holders: Iterable[int]) -> None:
        self.holders: tuple[int, ...] = tuple(holders)
        whose = " and ".join(map(party, self.holders)) or "nobody in particular"
        super().__init__(f"wrong answers to blinded names, from {whose}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.holders,)


def _hashed(domain: str, *parts: bytes) -> bytes:
    """64 bytes that no other domain, and no other division into parts, gives."""
    state = hashlib.sha512(f"secea oprf {domain}\n".encode())
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.digest()


def _number(n: int) -> bytes:
    return n.to_bytes(8, "big")


def _nonzero(stream: KeyStream, count: int) -> list[int]:
    """Uniform scalars other than 0."""
    data = stream.bytes(64 * count)
    return [int.from_bytes(data[64 * i : 64 * i + 64], "little") % (ORDER - 1) + 1 for i in range(count)]


def _row(element: bytes) -> Rows:
    return np.frombuffer(element, np.uint8)


# ------------------------------------------------------------------------------------------------- dealing the key


def polynomial(degree: int, stream: KeyStream, constant: int | None = None) -> tuple[int, ...]:
    """Dealer: a random polynomial, its constant term first (step 1). Where a key is handed over, that term is given."""
    drawn = tuple(_nonzero(stream, degree + 1))
    return drawn if constant is None else (constant, *drawn[1:])


def commit(polynomial: Sequence[int]) -> bytes:
    """Dealer: the Feldman commitments, one point for each coefficient."""
    return multiply_base(scalar_rows(polynomial)).tobytes()


def commitments_hash(commitments: bytes) -> bytes:
    """What a dealer sends before anybody's commitments are known."""
    return _hashed("commitments", commitments)[:32]


def _commitments(encoded: bytes) -> Rows:
    """The points of commitments; ValueError unless all are points other than the identity."""
    if not encoded or len(encoded) % POINT_BYTES:
        raise ValueError(f"commitments are points of {POINT_BYTES} bytes each, got {len(encoded)} bytes")
    points = _row(encoded).reshape(-1, POINT_BYTES)
    if len(wrong := np.flatnonzero(~valid(points))):
        raise ValueError(f"commitment {wrong[0]} is not a point, or the identity")
    return points


def prove(polynomial: Sequence[int], commitments: bytes, session: bytes, dealer: int, stream: KeyStream) -> bytes:
    """Dealer: that it knows the constant term of what it committed to (Schnorr)."""
    secret = polynomial[0]
    # The statement is in the nonce too: a stream that is used twice gives no two challenges for one nonce.
    nonce = scalar_of(
        _hashed("nonce", stream.bytes(SEED_BYTES), scalar_bytes(secret), session, _number(dealer), commitments)
    )
    point = multiply_base(scalar_rows([nonce])).tobytes()
    challenge = _challenge(point, commitments, session, dealer)
    return point + scalar_bytes(nonce + challenge * secret)


def _challenge(point: bytes, commitments: bytes, session: bytes, dealer: int) -> int:
    return scalar_of(_hashed("proof of knowledge", session, _number(dealer), commitments, point))


def proven(proof: bytes, commitments: bytes, session: bytes, dealer: int) -> bool:
    """Whether the commitments are points and the proof is this dealer's for them, in this session."""
    point = proof[:POINT_BYTES]
    try:
        constant = _commitments(commitments)[:1]
        response = multiply_base(scalar_rows([read_scalar(proof[POINT_BYTES:])]))
        challenge = _challenge(point, commitments, session, dealer)
        expected = add(_commitments(point), multiply(constant, scalar_rows([challenge])))
    except ValueError:
        return False
    return hmac.compare_digest(response.tobytes(), expected.tobytes())


def share_for(polynomial: Sequence[int], client: int) -> bytes:
    """Dealer: the polynomial's value at the point of a client. It is only for this client."""
    return scalar_bytes(reduce(lambda value, c: value * (client + 1) + c, reversed(polynomial), 0))


def key_share(shares: Sequence[bytes]) -> bytes:
    """Client j: k_j, the sum of what all dealers gave it."""
    return scalar_bytes(sum(map(read_scalar, shares)))


def fits(share: bytes, commitments: bytes, client: int) -> bool:
    """Whether a share lies on the polynomial that was committed to: one dealer's, or the joint one."""
    try:
        given = multiply_base(scalar_rows([read_scalar(share)])).tobytes()
        expected = public_share(commitments, client)
    except ValueError:
        return False
    return hmac.compare_digest(given, expected)


def joint(commitments: Sequence[bytes]) -> bytes:
    """The commitments to the sum of all dealers' polynomials; ValueError where one is not right, or they cancel."""
    points = [_commitments(each) for each in commitments]
    if len({len(each) for each in points}) != 1:
        raise ValueError(f"dealers commit to polynomials of one degree, got {[len(each) - 1 for each in points]}")
    out = reduce(add, points).tobytes()
    _commitments(out)
    return out


def public_key(joint: bytes) -> bytes:
    """pk = k * G."""
    return joint[:POINT_BYTES]


def public_share(joint: bytes, client: int) -> bytes:
    """pk_j = k_j * G of a client, from the joint commitments."""
    points = _commitments(joint)
    return total(multiply(points, scalar_rows(pow(client + 1, e, ORDER) for e in range(len(points))))).tobytes()


def holder_weight(holders: Iterable[int], j: int) -> int:
    """lambda_j: what a holder's share counts for in the value at 0, among these holders."""
    others = list(holders)
    if len(set(others)) != len(others) or j not in others:
        raise ValueError(f"holders are different clients and {j} is one of them, got {others}")
    above, below = 1, 1
    for m in others:
        if m != j:
            above *= m + 1
            below *= m - j
    return above * pow(below, -1, ORDER) % ORDER


def part_of_key(key_share: bytes, holders: Sequence[int], me: int) -> int:
    """Holder j: lambda_j * k_j. The parts of T+1 holders add up to k."""
    return holder_weight(holders, me) * read_scalar(key_share) % ORDER


def public_part(joint: bytes, holders: Sequence[int], j: int) -> bytes:
    """lambda_j * pk_j: the commitment to that part, which everybody can compute."""
    return multiply(_row(public_share(joint, j))[None], scalar_rows([holder_weight(holders, j)])).tobytes()


def signatures_needed(clients: int, collusion: int) -> int:
    """The least Z with 2Z > N + T: two lists signed so often have an honest signer in common."""
    if not 0 < collusion < clients:
        raise ValueError(f"collusion must be from 1 to {clients - 1} for {clients} clients, got {collusion}")
    return (clients + collusion) // 2 + 1


# ------------------------------------------------------------------------------------------------------------ names


def input_of(name: bytes) -> bytes:
    """A name as the PRF takes it: itself, or its hash if it has more than 65,535 bytes."""
    # A short name that looks like the hash of another is hashed as well: no two names have the same input.
    if len(name) <= MOST_INPUT_BYTES and not name.startswith(_LONG_NAME):
        return name
    return _LONG_NAME + hashlib.sha512(name).digest()


def _uniform(message: bytes) -> bytes:
    """expand_message_xmd with SHA-512 for 64 bytes (RFC 9380, section 5.3.1): one block is enough."""
    domain = b"HashToGroup-" + _SUITE
    domain += bytes([len(domain)])
    first = hashlib.sha512(bytes(128) + message + b"\x00\x40\x00" + domain).digest()
    return hashlib.sha512(first + b"\x01" + domain).digest()


def hash_to_group(inputs: Sequence[bytes]) -> Rows:
    """HashToGroup of RFC 9497 for many inputs: [n, 32]."""
    return from_uniform(_row(b"".join(map(_uniform, inputs))).reshape(-1, 64))


def finalize(inputs: Sequence[bytes], elements: Rows) -> list[bytes]:
    """F of each input, given k * HashToGroup(input): Finalize of RFC 9497, section 3.3.1."""
    length = POINT_BYTES.to_bytes(2, "big")
    return [
        hashlib.sha512(len(x).to_bytes(2, "big") + x + length + element.tobytes() + b"Finalize").digest()
        for x, element in zip(inputs, elements, strict=True)
    ]


# --------------------------------------------------------------------------------------------- asking and answering


@dataclass(frozen=True, slots=True, eq=False)
class Blinding:
    """A client's list for the holders, and what it needs to read their answers. Only `points` leaves the client."""

    points: Rows
    """[size + 1, 32]: blinded names, random points and the check point, shuffled."""
    _inputs: tuple[bytes, ...]
    _blinds: tuple[int, ...]
    _offset: int  # b0
    _weights: Rows  # d_i
    _places: NDArray[np.int64]  # of the names, the random points, the check point: in the list

    def __repr__(self) -> str:
        return f"Blinding({len(self.points)} points)"


def blind(inputs: Sequence[bytes], size: int, seed: bytes) -> Blinding:
    """Client n: blinds its names, pads them to `size` and adds the check point (step 2). The same for the same seed."""
    if len(inputs) > size:
        raise ValueError(f"more names than the list has room for ({size}): raise max_entities, or send fewer")
    if any(len(each) > MOST_INPUT_BYTES for each in inputs):
        raise ValueError(f"an input has more than {MOST_INPUT_BYTES} bytes: take input_of(name)")
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a seed has {SEED_BYTES} bytes, got {len(seed)}")
    # The names are in the key: a seed that is used for two lists does not blind two names alike.
    stream = KeyStream(_hashed("blinding", seed, _number(size), *inputs)[:SEED_BYTES])
    names = len(inputs)
    scalars = _nonzero(stream.lane(0), size + 1)
    weights = np.zeros((size, SCALAR_BYTES), np.uint8)
    weights[:, :WEIGHT_BYTES] = _row(stream.lane(1).bytes(size * WEIGHT_BYTES)).reshape(size, WEIGHT_BYTES)

    blinded = multiply(hash_to_group(inputs), scalar_rows(scalars[:names]))
    padding = multiply_base(scalar_rows(scalars[names:size]))
    # Q = b0*G + sum d_i*B_i; a random point is a known multiple of G, and so is its part of the sum.
    known = scalars[size]
    for weight, scalar in zip(weights[names:], scalars[names:size], strict=True):
        known += int.from_bytes(weight.tobytes(), "little") * scalar
    parts = [multiply_base(scalar_rows([known])), multiply(blinded, weights[:names])]
    check = total(np.concatenate(parts))

    random = _row(stream.lane(2).bytes((size + 1) * 16)).view("<u8").reshape(2, size + 1)
    order = np.lexsort(random)
    points = np.concatenate([blinded, padding, check[None]])[order]
    points.flags.writeable = False
    return Blinding(points, tuple(inputs), tuple(scalars[:names]), scalars[size], weights, np.argsort(order))


def list_hash(points: Rows) -> bytes:
    """What a client signs of its list."""
    return _hashed("list", points.tobytes())[:32]


def repeated(points: Rows) -> tuple[int, int] | None:
    """Holder j: the places of two equal points; None if all are different."""
    if not len(points):
        return None
    words = np.ascontiguousarray(points).view("<u8")
    some = np.argsort(words[:, 0], kind="stable")
    tied = words[some[1:], 0] == words[some[:-1], 0]
    some = some[np.r_[tied, False] | np.r_[False, tied]]  # chance ties no points, but whoever chooses them can
    rows = words[some]
    order = np.lexsort(rows.T)
    equal = np.flatnonzero((rows[order[1:]] == rows[order[:-1]]).all(axis=1))
    if not equal.size:
        return None
    first = int(equal[0])
    return int(some[order[first]]), int(some[order[first + 1]])


def evaluate(points: Rows, key_share: bytes, holders: Sequence[int], me: int, *, tick: Tick | None = None) -> Rows:
    """Holder j: lambda_j * k_j * B for each point; PointError names the first that is not a valid one (step 3)."""
    return multiply(points, _row(scalar_bytes(part_of_key(key_share, holders, me))), tick=tick)


def _checked(blinding: Blinding, answers: Rows, factor: int, public: bytes, tick: Tick | None = None) -> bool:
    """Whether the answer to Q is factor * b0 * public + sum d_i * (answer to B_i)."""
    answers = answers[blinding._places]
    try:
        own = multiply(_row(public)[None], scalar_rows([factor * blinding._offset]))
        rest = multiply(answers[:-1], blinding._weights, tick=tick)
    except PointError:
        return False
    expected = total(np.concatenate([own, rest]))
    return hmac.compare_digest(expected.tobytes(), answers[-1].tobytes())


def finish(blinding: Blinding, answers: Mapping[int, Rows], joint: bytes, *, tick: Tick | None = None) -> list[bytes]:
    """Client n: F of each input, in order; WrongAnswer names the holders that answered wrongly (step 4).

    Ticks count the points checked and the names unblinded: `size` and as many as there are inputs.
    """
    if len(answers) != len(_commitments(joint)):
        raise ValueError(f"{len(joint) // POINT_BYTES} holders answer, T+1 of them, got {len(answers)}")
    shape = blinding.points.shape
    if odd := [j for j, each in sorted(answers.items()) if each.shape != shape or each.dtype != np.uint8]:
        raise WrongAnswer(odd)
    try:
        summed = reduce(add, answers.values())
    except PointError:
        right = False
    else:
        right = _checked(blinding, summed, 1, public_key(joint), tick)
    if not right:
        raise WrongAnswer(
            j
            for j, each in sorted(answers.items())
            if not _checked(blinding, each, holder_weight(answers, j), public_share(joint, j))
        )
    own = summed[blinding._places[: len(blinding._inputs)]]
    return finalize(blinding._inputs, multiply(own, scalar_rows(inverses(blinding._blinds)), tick=tick))
