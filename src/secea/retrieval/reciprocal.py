"""Retrieval by shared reciprocals: no homomorphic encryption, and the count stays hidden (section 7b).

Once for each set of contributors the clients turn shares of the counts into shares of C/count, C = lcm(1..N), and
weight the queries with them. A round's answer is then a share of C * mean, an integer whatever the count is; the
server interpolates it under pads that only the clients know, and adds noise that drowns the grid on which it lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secea import correction
from secea.arithmetic import grid
from secea.arithmetic.field import PRIMES30, PRIMES32, Residues, Ring
from secea.arithmetic.lagrange import Code
from secea.errors import ParamsError
from secea.params import Params
from secea.sharing import block_length
from secea.wire.keys import expand
from secea.wire.messages import Buffer
from secea.wire.randomness import KeyStream, Source

if TYPE_CHECKING:
    from secea.retrieval import Floats64
    from secea.wire.endpoint import Endpoint, Stage

MOST_BITS = 124  # of an encoded input: the kernels work on 128-bit integers


class Reciprocal:
    """The public side of the form for one set of parameters; `queries` is the number that each client sends."""

    name = "reciprocal"
    weighted = True
    paillier_bytes = 0

    def __init__(self, params: Params, queries: int) -> None:
        self.params, self.queries = params, queries
        self.block_length = block_length(params, params.dim)
        seen = params.T * queries * params.K * self.block_length * params.rounds
        self.sigma_prime = params.sigma + math.ceil(math.log2(seen))
        # The noise is uniform over 2^noise_bits >= C * 2^sigma' integers, and stays within half the resolution.
        self.noise_bits = (params.C - 1).bit_length() + self.sigma_prime
        self.f = math.ceil(self.noise_bits - math.log2(params.C) - math.log2(params.resolution))
        top = math.ceil(math.ldexp(params.max_abs, self.f)) * 65 // 64 + 1  # room for the fill below the grid
        if top.bit_length() > MOST_BITS:
            raise ParamsError(
                f"precision {params.precision} and sigma {params.sigma} need {top.bit_length()} bits per input,"
                f" {MOST_BITS} is the most; lower one of them by {top.bit_length() - MOST_BITS}"
            )
        self.ring = fewest_primes(2 * (params.C * top + (1 << self.noise_bits)))
        self.code = Code(params, self.ring)
        self.answer_row_bytes = self.block_length * self.ring.element_bytes
        self.tolerance = params.resolution

    def mean_row_bytes(self, answering: int) -> int:
        """K blocks, and a syndrome for each answer beyond `need`."""
        return (self.params.K + answering - self.params.need) * self.answer_row_bytes

    def rows(self, matrix: NDArray[np.floating[Any]], entity: NDArray[np.uint64], key: bytes) -> Residues:
        """Client n: fixed point with the bits below the input's own grid filled."""
        return grid.encode(self.ring, matrix, entity, key, self.f, self.params)

    def check_key(self, key: bytes) -> None:
        """There is none."""

    def check_answer(self, wire: Endpoint, n: int, payload: Buffer) -> None:
        """Every element is below its prime."""
        self.ring.from_bytes(payload, len(payload) // self.ring.element_bytes)

    def answerer(self, wire: Endpoint, stage: Stage, n: int) -> _Padder:
        """Client v: the pad that it shares with client n."""
        return _Padder(self, pad(wire, stage, wire.number, n))

    def masker(self, wire: Endpoint, stage: Stage, n: int) -> _Drowner:
        """The server: noise for client n."""
        return _Drowner(self, KeyStream(expand(stage.seed, "noise", b"%d" % n)))

    def reader(self, wire: Endpoint, stage: Stage, contributors: Sequence[int], secret: bytes) -> _Unpadder:
        """Client n: the pads that it shares with everyone who may have answered."""
        return _Unpadder(self, {v: pad(wire, stage, v, wire.number) for v in contributors})


def fewest_primes(bound: int) -> Ring:
    """The ring of the fewest primes whose product exceeds the bound; light ones if as few of them are enough."""
    for count in range(1, len(PRIMES32) + 1):
        for primes in (PRIMES30[:count], PRIMES32[:count]):
            if math.prod(primes) > bound:
                return Ring(primes)
    raise ParamsError(f"the parameters need {bound.bit_length()} bits; {len(PRIMES32)} primes of 32 bits are the most")


def pad(wire: Endpoint, stage: Stage, answering: int, asking: int) -> KeyStream:
    """The pad of one client's answers to another's queries in one round, the same at both ends.

    The context is bound to every contributor's salt, so it never repeats, and with it the pad. The pad of one's own
    answer comes from the stage's seed.
    """
    if answering == asking:
        return KeyStream(expand(stage.seed, "pad", stage.context))
    peer = asking if answering == wire.number else answering
    return wire.channels[peer].stream("pad", stage.context, b"from %d to %d" % (answering, asking))


# --------------------------------------------------------------------------------------------- weights (steps 1 to 3)


def open_masked(code: Code, counts: Residues, rho: Residues, zeta: Source, v: int) -> Residues:
    """Client v: rho * [count] + zeta(alpha_v), for each query (step 1)."""
    ring, free = code.ring, code.need - code.K
    values = zeta.elements(ring, free, *counts.shape[1:])
    points = code.data_points + code.alpha[:free]
    at = code.matrix(points, code.at([v]))[:, :, code.K :]  # zeta is 0 at beta_1..beta_K
    hidden = ring.combine(np.ascontiguousarray(at), values)[:, 0]
    return ring.add(ring.multiply(rho, counts), hidden)


def opened_masked(code: Code, openings: Mapping[int, Residues]) -> tuple[Residues, tuple[int, ...]]:
    """The server: o = rho * count from the openings of at least `need` clients, and whose are wrong (step 2).

    Each count stands at all of beta_1..beta_K, so that K > 1 points are a check of their own.
    """
    clients = sorted(openings)
    values = [openings[v] for v in clients]
    blocks, wrong = correction.decode(code, clients, values)
    o = np.ascontiguousarray(blocks[:, 0])
    if (blocks != o[:, None]).any():
        raise correction.ContradictionError("the openings are no shares of one count")
    return o, wrong


def reciprocals(ring: Ring, o: Residues, C: int) -> Residues:
    """The server: t = C / o; 0 where o is 0 (step 2)."""
    numerators = np.broadcast_to(ring.constant(C).reshape((-1,) + (1,) * (o.ndim - 1)), o.shape)
    return ring.multiply(np.ascontiguousarray(numerators), ring.inverse(o))


def reshare_factors(code: Code, clients: Sequence[int], v: int) -> Residues:
    """lambda_{k,v}, [P, K]: client v shares its product times these at beta_k, of degree K+T-1 again (step 3)."""
    lambdas = code.matrix(code.at(clients), code.data_points)  # [P, K, clients]
    return np.ascontiguousarray(lambdas[:, :, list(clients).index(v)])


# ----------------------------------------------------------------------------------------------- rounds (steps 4 to 6)


class _Padder:
    stored_bytes = 0

    def __init__(self, form: Reciprocal, stream: KeyStream) -> None:
        self._form, self._stream = form, stream

    def prepare(self, chunk: int, rows: int) -> None:
        """Nothing takes long enough."""

    def begin(self, chunk: int, rows: int) -> Residues:
        """s_v (step 4)."""
        return self._stream.lane(chunk).elements(self._form.ring, rows, self._form.block_length)

    def cover(self, chunk: int, answers: Residues) -> memoryview:
        """A_v + s_v, as it travels."""
        return self._form.ring.to_bytes(answers)


class _Drowner:
    stored_bytes = 0

    def __init__(self, form: Reciprocal, stream: KeyStream) -> None:
        self._form, self._stream = form, stream

    def prepare(self, chunk: int, rows: int, clients: Sequence[int]) -> None:
        """Nothing takes long enough."""

    def mask(self, chunk: int, answers: Mapping[int, Buffer], rows: int) -> list[Buffer]:
        """X_k + s*_k + eta for each block, interpolated under the pads from `need` answers; syndromes (step 5)."""
        form, code, ring = self._form, self._form.code, self._form.ring
        clients = sorted(answers)
        values = [ring.view(answers[v], rows, form.block_length) for v in clients]  # each was checked when it came
        found = correction.interpolate(code, clients, values)
        ring.add_into(found[:, : code.K], self._noise(chunk, code.K, rows, form.block_length))
        return [ring.to_bytes(found)]

    def _noise(self, chunk: int, *shape: int) -> Residues:
        """Uniform integers of noise_bits bits, as residues: words of 32 bits, weighted by powers of 2^32."""
        ring, bits = self._form.ring, self._form.noise_bits
        count = -(-bits // 32)
        words = np.empty((count, *shape), np.uint32)  # random: the order of bytes within a word does not matter
        self._stream.lane(chunk).fill(words.reshape(-1).view(np.uint8).data)
        words[-1] >>= np.uint32(32 * count - bits)
        powers = ring.constant([[1 << 32 * i for i in range(count)]])
        return ring.combine_words(powers, words)[:, 0]


class _Unpadder:
    def __init__(self, form: Reciprocal, pads: dict[int, KeyStream]) -> None:
        self._form, self._pads = form, pads
        params = form.params
        self._scale = math.ldexp(1.0, -form.f) / params.C

    def read(
        self, chunk: int, answering: Sequence[int], body: memoryview, rows: int
    ) -> tuple[Floats64, tuple[int, ...]]:
        """Subtract the pads' part, join the primes, take off the noise's mean, divide by C * 2^f (step 6)."""
        form, code, ring = self._form, self._form.code, self._form.ring
        K, L, clients = code.K, form.block_length, sorted(answering)
        found = ring.from_bytes(body, K + len(clients) - code.need, rows, L)
        pads = [self._pads[v].lane(chunk).elements(ring, rows, L) for v in clients]
        plain = ring.add_into(correction.interpolate(code, clients, pads, negated=True), found)
        blocks, wrong = correction.correct(code, clients, plain[:, :K], plain[:, K:])
        joined = ring.join(blocks, self._scale, less=(1 << form.noise_bits) // 2)
        return joined.transpose(1, 0, 2).reshape(rows, K * L), wrong
