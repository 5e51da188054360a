"""Both forms with a generator that is a little wrong: it stands in for the real one while a claim is checked.

Forms do not choose their generators, so these mutants replace functions of `arithmetic.streams`, `KeyStream.elements`
and the like (`Subject.within`). Clients and server get the same, so that masks still cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import paillier, streams
from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.ristretto import ORDER, scalar_of
from secea.arithmetic.streams import Noise
from secea.audit import KEYED, PAILLIER, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.standing import Within
from secea.forms.keyed.client import KeyedClient
from secea.forms.paillier import Paillier
from secea.party.phases import Agreement
from secea.steps import masks, oprf
from secea.wire.randomness import Entropy, KeyStream

Draw: TypeAlias = Callable[..., Residues]
Change: TypeAlias = Callable[[Ring, Residues, Callable[[int], Residues]], None]
"""Changes elements [P, n] in place. It may draw the same places of another lane."""

HALF_A_PER_CENT: Final = 200

_stream, _row_streams, _add_noise, _encode = streams.stream, streams.row_streams, streams.add_noise, streams.encode
_elements, _blind, _uniform = KeyStream.elements, oprf.blind, paillier._uniform


def generators(change: Change) -> tuple[Within, ...]:
    """All key streams, with their elements changed."""

    def changed(x: Residues, ring: Ring, again: Callable[[int], Residues]) -> Residues:
        flat = x.reshape(ring.size, -1)
        change(ring, flat, lambda lane: again(lane).reshape(ring.size, -1))
        return flat.reshape(x.shape)

    def stream(ring: Ring, key: bytes, lane: int, *shape: int, nonzero: bool = False) -> Residues:
        drawn = _stream(ring, key, lane, *shape, nonzero=nonzero)
        return changed(drawn, ring, lambda other: _stream(ring, key, other, *shape, nonzero=nonzero))

    def row_streams(ring: Ring, keys: NDArray[np.uint8], lane: int, length: int) -> Residues:
        drawn = _row_streams(ring, keys, lane, length)
        return changed(drawn, ring, lambda other: _row_streams(ring, keys, other, length))

    def add_streams(ring: Ring, acc: Residues, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
        for key, sign in zip(keys, signs, strict=True):
            x = stream(ring, key, lane, *acc.shape[1:])
            (ring.add_into if sign > 0 else ring.subtract_into)(acc, x)

    def elements(self: KeyStream, ring: Ring, *shape: int) -> Residues:
        drawn = _elements(self, ring, *shape)
        return changed(drawn, ring, lambda other: _elements(self.lane(other), ring, *shape))

    made = (("stream", stream), ("row_streams", row_streams), ("add_streams", add_streams))
    return (*((streams, name, other) for name, other in made), (KeyStream, "elements", elements))


def of_keyed(name: str, missing: str, *within: Within) -> Mutant:
    """A mutant of the form "keyed" whose parts stay as they are."""
    return Mutant(name, missing, {KEYED: Subject(Overheard(), within=within)})


def of_both(name: str, missing: str, change: Change) -> Mutant:
    """A mutant of both forms, with changed key streams."""
    within = generators(change)
    return Mutant(
        name,
        missing,
        {KEYED: Subject(Overheard(), within=within), PAILLIER: Subject(Paillier(), within=within)},
    )


# ------------------------------------------------------------------------------------------------------------- elements


def below_the_top(ring: Ring, x: Residues, _: Any) -> None:
    """The top half per cent comes down by as much."""
    for p, row in zip(ring.primes, x, strict=True):
        row[row >= p - p // HALF_A_PER_CENT] -= row.dtype.type(p // HALF_A_PER_CENT)


def biased(ring: Ring, x: Residues, _: Any) -> None:
    """Of odd elements a hundredth loses its lowest bit."""
    for p, row in zip(ring.primes, x, strict=True):
        row[(row & 1 == 1) & (row // 2 % 100 == 0) & (row < p)] -= row.dtype.type(1)


def no_sevens(ring: Ring, x: Residues, _: Any) -> None:
    """Multiples of seven are one more."""
    for row in x:
        row[(row % 7 == 0) & (row > 0)] -= row.dtype.type(1)


def repeats(ring: Ring, x: Residues, _: Any) -> None:
    """Each 200th element is the one before."""
    x[:, HALF_A_PER_CENT::HALF_A_PER_CENT] = x[:, HALF_A_PER_CENT - 1 : -1 : HALF_A_PER_CENT]


def other_lanes(ring: Ring, x: Residues, again: Callable[[int], Residues]) -> None:
    """Each 200th element of any lane is that of lane 0."""
    x[:, ::HALF_A_PER_CENT] = again(0)[:, ::HALF_A_PER_CENT]


def never_zero(ring: Ring, x: Residues, _: Any) -> None:
    """A 0 becomes 1."""
    x[x == 0] = 1


def with_zeros(ring: Ring, key: bytes, lane: int, *shape: int, nonzero: bool = False) -> Residues:
    """What may not be 0 may be 0."""
    return _stream(ring, key, lane, *shape)


TOP_MISSING = of_both("top-never-drawn", "The top half per cent of a field is never drawn.", below_the_top)
BIASED_BIT = of_both("biased-bit", "The lowest bit of an element is 1 in 49.5 % of the cases.", biased)
CLASS_MISSING = of_both("class-never-drawn", "No element but 0 is a multiple of seven.", no_sevens)
REPEATED_WORDS = of_both("repeated-words", "Each 200th word of a key stream is the one before.", repeats)
LANES_ALIKE = of_both("lanes-alike", "Each 200th word is the same in all lanes of a key.", other_lanes)
NEVER_ZERO = of_both("never-zero", "No element of a key stream is 0.", never_zero)
WITH_ZEROS = Mutant(
    "zeros-for-nonzero",
    "Elements that may not be 0 may be 0.",
    {
        KEYED: Subject(Overheard(), within=((streams, "stream", with_zeros),)),
        PAILLIER: Subject(Paillier(), within=((KeyStream, "nonzero", _elements),)),
    },
)


# ------------------------------------------------------------------------------------------------------- noise and fill


def fewer_digits(ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
    """The largest digit of a narrow number is never drawn."""
    digits = tuple(max(1, digit - 1) for digit in noise.digits)
    _add_noise(ring, acc, seed, lane, Noise(noise.s, digits, noise.wide))


def narrower(ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
    """The top half per cent of the wide number is never drawn."""
    wide = noise.wide - noise.wide // HALF_A_PER_CENT
    _add_noise(ring, acc, seed, lane, Noise(noise.s, noise.digits, wide))


def one_number(ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
    """The s narrow numbers of an element are one, counted s times."""
    one, C = ring.zeros(*acc.shape[1:]), noise.scale
    _add_noise(ring, one, seed, lane, Noise(1, noise.digits, 1))
    for _ in range(noise.s):
        ring.add_into(acc, one)
    wide = ring.zeros(*acc.shape[1:])
    _add_noise(ring, wide, seed, lane, Noise(noise.s, (1,), noise.wide))
    factor = ring.constant(np.full(acc.shape[1:], C).tolist())
    ring.add_into(acc, ring.multiply(wide, factor))


def less_fill(*args: Any) -> NDArray[np.int64]:
    """The top half per cent of each number of the fill is never drawn: all of it is as much narrower."""
    matrix, entities, keys, f, s, w, used, step, cap = args
    narrow = max(1, w - max(1, w // HALF_A_PER_CENT))
    return _encode(matrix, entities, keys, f, s, narrow, used, step * (1 - 1 / HALF_A_PER_CENT), cap)


def by_columns(*args: Any) -> NDArray[np.int64]:
    """The fill of a value is the same in all columns."""
    matrix, *rest = args
    each = [_encode(np.ascontiguousarray(matrix[:, j : j + 1]), *rest) for j in range(matrix.shape[1])]
    return np.concatenate(each, axis=1)


def by_rows(*args: Any) -> NDArray[np.int64]:
    """The fill of a value is the same under all names."""
    matrix, entities, *rest = args
    return _encode(matrix, np.zeros_like(entities), *rest)


DIGIT_MISSING = of_keyed("digit-never-drawn", "The largest digit of the narrow noise is never drawn.",
    (streams, "add_noise", fewer_digits))  # fmt: skip
WIDE_TOP_MISSING = of_keyed("wide-top-never-drawn", "The top half per cent of the wide noise is never drawn.",
    (streams, "add_noise", narrower))  # fmt: skip
ONE_NUMBER = of_keyed("one-narrow-number", "The s narrow numbers of a noise are one, counted s times.",
    (streams, "add_noise", one_number))  # fmt: skip
FILL_TOP_MISSING = of_keyed("fill-top-never-drawn", "The top half per cent of each number of a fill is never drawn.",
    (streams, "encode", less_fill))  # fmt: skip
FILL_OF_COLUMNS = of_keyed("fill-without-column", "The fill of a value is the same in all columns.",
    (streams, "encode", by_columns))  # fmt: skip
FILL_OF_ROWS = of_keyed("fill-without-name", "The fill of a value is the same under all names.",
    (streams, "encode", by_rows))  # fmt: skip


# ----------------------------------------------------------------------------------------------------- scalars, places


def short_scalars(stream: KeyStream, count: int) -> list[int]:
    """The top half per cent of the scalars is never drawn."""
    return [scalar_of(stream.bytes(64)) % (ORDER - ORDER // HALF_A_PER_CENT) for _ in range(count)]


def short_nonzero(stream: KeyStream, count: int) -> list[int]:
    """The same, and never 0."""
    return [each or 1 for each in short_scalars(stream, count)]


def unshuffled(inputs: Sequence[bytes], size: int, seed: bytes) -> oprf.Blinding:
    """The check point is never the first of its list."""
    made = _blind(inputs, size, seed)
    while made._places[-1] == 0:
        seed = seed[1:] + seed[:1]
        made = _blind(inputs, size, seed)
    return made


SHORT_SCALARS = of_keyed("short-scalars", "The top half per cent of the scalars is never drawn.",
    (masks, "scalars", short_scalars), (oprf, "_nonzero", short_nonzero))  # fmt: skip
CHECK_POINT = of_keyed("check-point-never-first", "The check point is never the first of its list.",
    (oprf, "blind", unshuffled))  # fmt: skip
SHORT_WEIGHTS = of_keyed("short-weights", "The weights of a check point have 64 bits in place of 128.",
    (oprf, "WEIGHT_BYTES", 8))  # fmt: skip


# ----------------------------------------------------------------------------------------------------- the paper's form


def short_noise(p: int, entropy: Entropy, shape: tuple[int, ...]) -> NDArray[np.uint64]:
    """The top half per cent of a field is never drawn for noise."""
    return np.asarray(_uniform(p - p // HALF_A_PER_CENT, entropy, shape), np.uint64)


NOISE_TOP_MISSING = Mutant(
    "noise-top-never-drawn",
    "The top half per cent of the noise of an answer is never drawn.",
    {PAILLIER: Subject(Paillier(), within=((paillier, "_uniform", short_noise),))},
)


# -------------------------------------------------------------------------------------------------------------- its own

_say, _enter = KeyedClient._say, KeyedClient.enter


def _says_what_all_know(self: KeyedClient, at: Agreement) -> None:
    """The word comes from the union's secret."""
    own, self._entropy = self._entropy, lambda count: (self.union.secret if self.union else b"")[:count]
    try:
        _say(self, at)
    finally:
        self._entropy = own


def _noise_that_all_know(self: KeyedClient, at: Agreement) -> None:
    _enter(self, at)
    if at.phase == self.form.round_phase and self.round is not None and self.round.noise_seed:
        self.round = replace(self.round, noise_seed=self.secrets(at).key("noise", self.number))


SHARED_WORD = of_keyed("shared-word", "What a client says if its entities changed comes from the shared secret.",
    (KeyedClient, "_say", _says_what_all_know))  # fmt: skip
SHARED_NOISE = of_keyed("shared-noise", "The seed of a client's noise comes from the shared secret.",
    (KeyedClient, "enter", _noise_that_all_know))  # fmt: skip
