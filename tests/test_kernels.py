"""The inner loops compiled for this processor, compiled from plain C, and in numpy give the same bits."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import compiled
from secea.arithmetic import _kernels, portable, ristretto, streams
from secea.arithmetic._kernels import build, native, twin
from secea.arithmetic.field import M61, P56, PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from strategies import vectors

# Primes that fold, light ones, the last of each and the next ones that do not, and any others.
RINGS = (
    Ring(PRIMES30[:4]), insecure_ring(1073740807, 4294966297),
    insecure_ring(1073740793, 4294966243), insecure_ring(2, 3), insecure_ring(7, 2**31 - 1, 3), insecure_ring(65537),
)  # fmt: skip
SINGLE = (RING61, RING56)
LENGTHS = (0, 1, 7, 8, 9, 16, 65, 511, 512, 513, 1025)


@dataclass(frozen=True)
class Form:
    """One form of the loops; `ffi` makes what they take."""

    lib: Any
    ffi: Any

    def at(self, array: NDArray[Any]) -> Any:
        """Where an array begins."""
        kinds = {"float64": "double", "int32": "int", "bool": "uint8_t"}
        return self.ffi.from_buffer(f"{kinds.get(array.dtype.name, f'{array.dtype.name}_t')}[]", array)

    def pointers(self, arrays: list[Residues]) -> Any:
        """Where several arrays begin."""
        return self.ffi.new(f"{arrays[0].dtype.name}_t *[]" if arrays else "uint32_t *[]", [*map(self.at, arrays)])

    def primes(self, ring: Ring) -> tuple[Any, ...]:
        """As the loops take them."""
        if ring in SINGLE:
            return (ring.modulus.bit_length(),)
        return self.ffi.new("uint32_t[]", ring.primes), ring.size

    def group(self) -> Any:
        """libsodium's functions."""
        found, made = ristretto.load()._group, self.ffi.new("group *")
        for name in ristretto._SYMBOLS:
            address = int(_kernels.ffi.cast("uintptr_t", getattr(found, name)))
            setattr(made, name, self.ffi.cast(self.ffi.typeof(getattr(made, name)), address))
        return made


SPECIAL, TWIN = Form(native.lib, native.ffi), Form(twin, build.ffi)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Form:
    """As any compiler for any processor has it: standard C, and nothing that only some have."""
    path = tmp_path_factory.mktemp("plain") / "plain.so"
    flags = ("-O2", "-std=c11", "-ffp-contract=off", "-DSECEA_PLAIN", f"-I{build.here}")
    return Form(build.ffi.dlopen(str(compiled.library(build.SOURCE, path, *flags))), build.ffi)


Call = Callable[[Form], tuple[object, ...]]
"""A call with what was drawn for it, and all that it returns or changes."""
CASES: dict[str, Callable[[st.DataObject], Call]] = {}


def case(draw: Callable[[st.DataObject], Call]) -> Callable[[st.DataObject], Call]:
    """How to call the loop of this name."""
    CASES[draw.__name__] = draw
    return draw


def changed(call: Callable[..., object], *arrays: NDArray[Any]) -> tuple[object, ...]:
    """What a call returns, and what it leaves in copies of these arrays."""
    copies = [array.copy() for array in arrays]
    return call(*copies), *(copy.tobytes() for copy in copies)


def a_ring(data: st.DataObject) -> Ring:
    return data.draw(st.sampled_from(RINGS))


def a_single(data: st.DataObject) -> Ring:
    return data.draw(st.sampled_from(SINGLE))


def a_length(data: st.DataObject) -> int:
    return data.draw(st.sampled_from(LENGTHS))


# --------------------------------------------------------------------------------------------------- element by element


def in_place32(name: str) -> None:
    def draw(data: st.DataObject) -> Call:
        ring, n, gap, other = a_ring(data), a_length(data), data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
        acc, x = data.draw(vectors(ring, n + gap)), data.draw(vectors(ring, n + other))

        def call(form: Form) -> tuple[object, ...]:
            loop = getattr(form.lib, name)
            return changed(lambda a: loop(*form.primes(ring), form.at(a), n + gap, form.at(x), n + other, n), acc)

        return call

    CASES[name] = draw


def in_place64(name: str) -> None:
    def draw(data: st.DataObject) -> Call:
        ring, n = a_single(data), a_length(data)
        acc, x = data.draw(vectors(ring, n)), data.draw(vectors(ring, n))
        return lambda form: changed(
            lambda a: getattr(form.lib, name)(*form.primes(ring), form.at(a), form.at(x), n), acc
        )

    CASES[name] = draw


for name in ("add32", "sub32"):
    in_place32(name)
for name in ("add64", "sub64"):
    in_place64(name)


@case
def mul32(data: st.DataObject) -> Call:
    ring, n = a_ring(data), a_length(data)
    a, b = data.draw(vectors(ring, n)), data.draw(vectors(ring, n))
    return lambda form: changed(
        lambda out: form.lib.mul32(*form.primes(ring), form.at(out), form.at(a), form.at(b), n), a
    )


@case
def mul64(data: st.DataObject) -> Call:
    ring, n = a_single(data), a_length(data)
    a, b = data.draw(vectors(ring, n)), data.draw(vectors(ring, n))
    return lambda form: changed(
        lambda out: form.lib.mul64(*form.primes(ring), form.at(out), form.at(a), form.at(b), n), a
    )


@case
def inverse32(data: st.DataObject) -> Call:
    ring, n = a_ring(data), a_length(data)
    x = data.draw(vectors(ring, n))
    return lambda form: changed(lambda out: form.lib.inverse32(*form.primes(ring), form.at(out), form.at(x), n), x)


@case
def inverse64(data: st.DataObject) -> Call:
    ring, n = a_single(data), a_length(data)
    x = data.draw(vectors(ring, n))
    return lambda form: changed(lambda out: form.lib.inverse64(*form.primes(ring), form.at(out), form.at(x), n), x)


def signed(data: st.DataObject, n: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    ends = np.array([-(2**63), 2**63 - 1, M61, -M61, 2**61, P56, -P56, 0, -1, 2**32, -(2**32)], np.int64)
    x: NDArray[np.int64] = rng.integers(-(2**63), 2**63, n, np.int64, endpoint=False)
    return np.where(rng.random(n) < 0.3, rng.choice(ends, n), x)


@case
def reduce32(data: st.DataObject) -> Call:
    ring, n = a_ring(data), a_length(data)
    x, out = signed(data, n), ring.zeros(n)
    return lambda form: changed(lambda to: form.lib.reduce32(*form.primes(ring), form.at(to), form.at(x), n), out)


@case
def reduce64(data: st.DataObject) -> Call:
    ring, n = a_single(data), a_length(data)
    x, out = signed(data, n), ring.zeros(n)
    return lambda form: changed(lambda to: form.lib.reduce64(*form.primes(ring), form.at(to), form.at(x), n), out)


# --------------------------------------------------------------------------------------------------- checks, rejection


def perhaps_too_large(data: st.DataObject, ring: Ring, n: int) -> Residues:
    """Elements, but for a few, or none, that are not below their prime."""
    x = data.draw(vectors(ring, n))
    for at in data.draw(st.lists(st.integers(0, max(n - 1, 0)), max_size=2)) if n else ():
        row = data.draw(st.integers(0, ring.size - 1))
        x[row, at] = data.draw(st.integers(ring.primes[row], int(np.iinfo(ring.dtype).max)))
    return x


@case
def valid32(data: st.DataObject) -> Call:
    ring, n = a_ring(data), a_length(data)
    x = perhaps_too_large(data, ring, n)
    return lambda form: (bool(form.lib.valid32(*form.primes(ring), form.at(x), n)),)


@case
def valid64(data: st.DataObject) -> Call:
    ring, n = a_single(data), a_length(data)
    x = perhaps_too_large(data, ring, n)
    return lambda form: (bool(form.lib.valid64(*form.primes(ring), form.at(x), n)),)


def some_bytes(data: st.DataObject, n: int) -> NDArray[np.uint8]:
    """Elements of seven bytes, of which some may not be below 2^56 - 5."""
    x = data.draw(vectors(RING56, n))[0]
    for at in data.draw(st.lists(st.integers(0, n - 1), max_size=2)) if n else ():
        x[at] = data.draw(st.integers(P56, 2**56 - 1))
    return np.ascontiguousarray(x.astype("<u8").view(np.uint8).reshape(n, 8)[:, :7])


@case
def pack56(data: st.DataObject) -> Call:
    n = data.draw(st.sampled_from((*range(12), *LENGTHS[6:])))
    x = data.draw(vectors(RING56, n))
    return lambda form: changed(lambda out: form.lib.pack56(form.at(out), form.at(x), n), np.zeros(7 * n, np.uint8))


@case
def unpack56(data: st.DataObject) -> Call:
    n = data.draw(st.sampled_from((*range(12), *LENGTHS[6:])))
    packed = some_bytes(data, n)
    return lambda form: changed(
        lambda out: bool(form.lib.unpack56(form.at(out), form.at(packed), n)), np.zeros(n, np.uint64)
    )


def random_words(data: st.DataObject, ring: Ring, n: int) -> Residues:
    """Of which all, or all but a few, are below their prime when they are cut."""
    spare = [8 * ring.dtype.itemsize - p.bit_length() for p in ring.primes]
    x = perhaps_too_large(data, ring, n)
    return np.stack([row << ring.dtype.type(each) for row, each in zip(x, spare, strict=True)])


@case
def usable32(data: st.DataObject) -> Call:
    ring, n = a_ring(data), a_length(data)
    words = random_words(data, ring, n)
    return lambda form: changed(lambda x: form.lib.usable32(*form.primes(ring), form.at(x), n), words)


def accepted(count: int, words: Residues) -> tuple[object, ...]:
    return count, words[:count].tobytes()  # what is left behind is of no use


@case
def accept32(data: st.DataObject) -> Call:
    p, n = data.draw(st.sampled_from([p for ring in RINGS for p in ring.primes])), a_length(data)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    words = rng.integers(0, 2**32, n, np.uint32, endpoint=False)

    def call(form: Form) -> tuple[object, ...]:
        x = words.copy()
        return accepted(form.lib.accept32(p, form.at(x), n), x)

    return call


@case
def accept64(data: st.DataObject) -> Call:
    ring, n = a_single(data), a_length(data)
    words = random_words(data, ring, n)[0]

    def call(form: Form) -> tuple[object, ...]:
        x = words.copy()
        return accepted(form.lib.accept64(*form.primes(ring), form.at(x), n), x)

    return call


# ---------------------------------------------------------------------------------------------------- sums of products


COLUMNS = (0, 1, 2, 3, 14, 15, 16, 17, 32, 33, 64, 65, 70)


@case
def combine32(data: st.DataObject) -> Call:
    ring, n, rows = a_ring(data), data.draw(st.sampled_from(LENGTHS[1:8])), data.draw(st.integers(1, 5))
    columns, gap, apart = data.draw(st.sampled_from(COLUMNS)), data.draw(st.integers(0, 3)), data.draw(st.booleans())
    words = data.draw(st.booleans())
    matrix, out = data.draw(vectors(ring, rows, columns)), ring.zeros(rows, n)
    x = [data.draw(vectors(ring, n + gap)) for _ in range(columns)]
    if words:
        x = [np.bitwise_not(each) for each in x]
    steps = [0 if words else n + gap] * columns
    places = (n, ring.size * n) if apart else (rows * n, n)

    def call(form: Form) -> tuple[object, ...]:
        return changed(
            lambda to: form.lib.combine32(
                *form.primes(ring), words, form.at(to), *places, form.at(matrix), form.pointers(x),
                form.ffi.new("size_t[]", steps), rows, columns, n,
            ),
            out,
        )  # fmt: skip

    return call


@case
def combine64(data: st.DataObject) -> Call:
    ring = a_single(data)
    n, rows, columns = (data.draw(st.sampled_from(some)) for some in (LENGTHS[1:8], range(1, 5), COLUMNS[1:]))
    matrix, out = data.draw(vectors(ring, rows, columns)), ring.zeros(rows, n)
    x = [data.draw(vectors(ring, n)) for _ in range(columns)]
    return lambda form: changed(
        lambda to: form.lib.combine64(
            *form.primes(ring), form.at(to), form.at(matrix), form.pointers(x), rows, columns, n
        ),
        out,
    )


@dataclass(frozen=True)
class Gathered:
    starts: NDArray[np.int64]
    members: NDArray[np.int64] | None
    height: int

    @classmethod
    def draw(cls, data: st.DataObject) -> Gathered:
        counts = data.draw(st.lists(st.sampled_from((0, 1, 5, 16, 33, 66)), min_size=1, max_size=4))
        starts, height = np.cumsum([0, *counts]), data.draw(st.integers(66, 70))
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        members = rng.integers(0, height, int(starts[-1]), np.int64) if data.draw(st.booleans()) else None
        return cls(starts, members, height)

    @property
    def shape(self) -> tuple[int, int]:
        return self.starts.size - 1, int(self.starts[-1])

    def of(self, form: Form) -> tuple[Any, Any]:
        return form.at(self.starts), form.ffi.NULL if self.members is None else form.at(self.members)


@case
def gather61(data: st.DataObject) -> Call:
    length, shape = data.draw(st.sampled_from((1, 7, 8, 9))), Gathered.draw(data)
    rows, total = shape.shape
    y, weights = data.draw(vectors(RING61, shape.height, length)), data.draw(vectors(RING61, total))
    begun = data.draw(vectors(RING61, rows, length))
    return lambda form: changed(
        lambda out: form.lib.gather61(
            form.at(out), *shape.of(form), form.at(weights), form.at(y), rows, length
        ),
        begun,
    )  # fmt: skip


@case
def weighted_sums32(data: st.DataObject) -> Call:
    ring, rows, gap = a_ring(data), data.draw(st.integers(1, 5)), data.draw(st.integers(0, 3))
    length = data.draw(st.sampled_from((1, 15, 16, 17, 31, 130, 241, 515)))
    x, weights, out = data.draw(vectors(ring, rows, length + gap)), data.draw(vectors(ring, length)), ring.zeros(rows)
    steps = rows * (length + gap), length + gap
    return lambda form: changed(
        lambda to: form.lib.weighted_sums32(
            *form.primes(ring), form.at(to), form.at(x), *steps, form.at(weights), rows, length
        ),
        out,
    )


@case
def weighted_sums64(data: st.DataObject) -> Call:
    ring, rows, gap = a_single(data), data.draw(st.integers(1, 5)), data.draw(st.integers(0, 3))
    length = data.draw(st.integers(1, 70) | st.sampled_from((2031, 2032, 2033, 2048, 4100)))
    x, weights = data.draw(vectors(ring, rows, length + gap)), data.draw(vectors(ring, length))
    return lambda form: changed(
        lambda to: form.lib.weighted_sums64(
            *form.primes(ring), form.at(to), form.at(x), length + gap, form.at(weights), rows, length
        ),
        ring.zeros(rows),
    )


@case
def scaled_rows32(data: st.DataObject) -> Call:
    ring, rows, gap, length = a_ring(data), *(data.draw(st.integers(low, 40)) for low in (1, 0, 1))
    x, factors = data.draw(vectors(ring, rows, length + gap)), data.draw(vectors(ring, rows))
    added, places = data.draw(vectors(ring, rows, length)), np.array(data.draw(st.permutations(range(rows))), np.int64)
    steps = rows * (length + gap), length + gap
    extra, moved, same = (data.draw(st.booleans()) for _ in range(3))

    def call(form: Form) -> tuple[object, ...]:
        at, more = (
            (form.at(places) if moved and not same else form.ffi.NULL),
            (form.at(added) if extra else form.ffi.NULL),
        )
        return changed(
            lambda to: form.lib.scaled_rows32(
                *form.primes(ring), form.at(to), *steps, at, form.at(to if same else x), *steps, form.at(factors), more,
                rows, length,
            ),
            x if same else ring.zeros(rows, length + gap),
        )  # fmt: skip

    return call


@case
def scaled_rows64(data: st.DataObject) -> Call:
    ring = a_single(data)
    rows, gap, length = (data.draw(st.integers(low, 40)) for low in (1, 0, 1))
    x, factors = data.draw(vectors(ring, rows, length + gap)), data.draw(vectors(ring, rows))
    added = data.draw(vectors(ring, rows, length))
    places = np.array(data.draw(st.permutations(range(rows))), np.int64)
    extra, moved, same = (data.draw(st.booleans()) for _ in range(3))

    def call(form: Form) -> tuple[object, ...]:
        at, more = (
            (form.at(places) if moved and not same else form.ffi.NULL),
            (form.at(added) if extra else form.ffi.NULL),
        )
        return changed(
            lambda to: form.lib.scaled_rows64(
                *form.primes(ring), form.at(to), length + gap, at, form.at(to if same else x), length + gap,
                form.at(factors), more, rows, length,
            ),
            x if same else ring.zeros(rows, length + gap),
        )  # fmt: skip

    return call


@case
def add_scaled32(data: st.DataObject) -> Call:
    ring, n = a_ring(data), a_length(data)
    acc, factors = data.draw(vectors(ring, n)), data.draw(vectors(ring, 1))
    x = signed(data, n)
    return lambda form: changed(
        lambda to: form.lib.add_scaled32(*form.primes(ring), form.at(to), n, form.at(x), form.at(factors), n), acc
    )


@case
def add_scaled64(data: st.DataObject) -> Call:
    ring, n = a_single(data), a_length(data)
    acc, factor = data.draw(vectors(ring, n)), data.draw(st.integers(0, ring.modulus - 1))
    x = signed(data, n)
    return lambda form: changed(
        lambda to: form.lib.add_scaled64(*form.primes(ring), form.at(to), form.at(x), factor, n), acc
    )


# --------------------------------------------------------------------------------------------------------------- floats


scales = st.sampled_from((1.0, 2.0**-70, 0.3))


def sums(data: st.DataObject, ring: Ring, less: int, n: int) -> Residues:
    """Elements of which some, less a number, are about as far from 0 as they can be."""
    far = [ring.modulus // 2 + less + data.draw(st.integers(-1, 2)) for _ in range(min(n, 3))]
    x = data.draw(vectors(ring, n))
    x[:, : len(far)] = ring.constant(far)
    return x


@case
def join32(data: st.DataObject) -> Call:
    rings = (*RINGS, Ring(PRIMES30))
    ring, n, gap = data.draw(st.sampled_from(rings)), a_length(data), data.draw(st.integers(0, 3))
    less, scale = data.draw(st.integers(0, ring.modulus - 1)), data.draw(scales)
    x, away = sums(data, ring, less, n + gap), ring.constant([less])
    inverses = np.array([pow(a, -1, b) if a != b else 0 for a in ring.primes for b in ring.primes], np.uint32)
    return lambda form: changed(
        lambda out: form.lib.join32(
            *form.primes(ring), form.at(inverses), form.at(away), form.at(x), n + gap, form.at(out), n, scale
        ),
        np.zeros(n),
    )


@case
def join64(data: st.DataObject) -> Call:
    ring, n = a_single(data), a_length(data)
    less, scale = data.draw(st.integers(0, ring.modulus - 1)), data.draw(scales)
    x = sums(data, ring, less, n)
    return lambda form: changed(
        lambda out: form.lib.join64(*form.primes(ring), less, form.at(x), form.at(out), n, scale), np.zeros(n)
    )


some_floats = (
    st.floats(-64, 64) | st.floats(-64, 64, width=16) | st.integers(-9, 9).map(float)
    | st.sampled_from((0.0, -0.0, 5e-324, -(2.0**-1022), 1e300))
)  # fmt: skip


def tables(data: st.DataObject) -> NDArray[np.float64]:
    rows, dim = data.draw(st.integers(1, 4)), data.draw(st.sampled_from((1, 9, 12, 70)))
    few = data.draw(st.lists(some_floats, min_size=1, max_size=12))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    return np.where(rng.random((rows, dim)) < 0.9, rng.choice(few, (rows, dim)), rng.normal(size=(rows, dim)))


@case
def significance(data: st.DataObject) -> Call:
    x = tables(data)
    return lambda form: changed(
        lambda used, step: form.lib.significance(form.at(x), x.size, form.at(used), form.at(step)),
        *np.zeros((2, 1), np.int32),
    )


@case
def significance_rows(data: st.DataObject) -> Call:
    x, most = tables(data), data.draw(st.sampled_from((1, 8, 64)))
    return lambda form: changed(
        lambda *found: form.lib.significance_rows(form.at(x), *x.shape, most, *map(form.at, found)),
        *np.zeros((3, len(x)), np.int32),
    )


# --------------------------------------------------------------------------------------------------------------- points


def points(data: st.DataObject, n: int) -> ristretto.Rows:
    """Among which there may be the identity, and what is no point."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    found = ristretto.from_uniform(rng.integers(0, 256, (n, 64), np.uint8))
    for at in data.draw(st.lists(st.integers(0, max(0, n - 1)), max_size=2)) if n else ():
        found[at] = data.draw(st.sampled_from((0, 255)))
    return found


def of_the_group(name: str, inputs: int, width: int = 32) -> None:
    def draw(data: st.DataObject) -> Call:
        n = data.draw(st.integers(0, 5))
        given = [points(data, n) for _ in range(inputs)]
        if "multiply" in name:
            given[-1] = ristretto.scalar_rows(data.draw(st.lists(st.integers(0, 2**252), min_size=n, max_size=n)))

        def call(form: Form) -> tuple[object, ...]:
            out = np.zeros((max(n, 1), width), np.uint8)
            done = getattr(form.lib, name)(form.group(), form.at(out), *map(form.at, given), n)
            return done, out[:done].tobytes() if name != "group_total" else out.tobytes()

        return call

    CASES[name] = draw


for name, inputs in (("group_multiply", 2), ("group_multiply_base", 1), ("group_add", 2), ("group_total", 1)):
    of_the_group(name, inputs)
of_the_group("group_valid", 1, 1)


@case
def group_from_uniform(data: st.DataObject) -> Call:
    n = data.draw(st.integers(0, 5))
    uniform = np.frombuffer(data.draw(st.binary(min_size=64 * n, max_size=64 * n)), np.uint8)
    return lambda form: changed(
        lambda out: form.lib.group_from_uniform(form.group(), form.at(out), form.at(uniform), n),
        np.zeros((n, 32), np.uint8),
    )


# ----------------------------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("name", sorted(CASES))
@settings(deadline=None)
@given(data=st.data())
def test_all_forms_of_a_loop_give_the_same_bits(name: str, plain: Form, data: st.DataObject) -> None:
    call = CASES[name](data)
    expected = call(TWIN)
    assert call(SPECIAL) == expected
    assert call(plain) == expected


WITH_AES = {"add_streams", "row_streams", "add_noise", "encode"}
"""Loops that take a level of AES, which plain C has not: test_streams.py compares all levels and `portable`."""
OF_THE_MACHINE = {"aes_level", "keep_freed_memory", "give_back_freed_memory"}


@pytest.mark.parametrize("name", dir(native.lib))
def test_every_loop_has_a_twin_that_takes_as_much(name: str) -> None:
    arguments = native.ffi.typeof(getattr(native.lib, name)).args
    if arguments and arguments[0].cname == "int":
        stem = name.removesuffix("32").removesuffix("64").removesuffix("_filled")
        assert stem in WITH_AES
        assert inspect.isfunction(getattr(portable, stem))
    else:
        assert len(inspect.signature(getattr(twin, name)).parameters) == len(arguments)
        assert name in CASES.keys() | OF_THE_MACHINE


def test_every_twin_is_that_of_a_loop() -> None:
    functions = {name for name, each in vars(twin).items() if inspect.isfunction(each) and not name.startswith("_")}
    assert functions <= set(dir(native.lib))


def test_the_compiled_loops_are_in_use_and_plain_c_has_no_aes(plain: Form) -> None:
    assert _kernels.lib is native.lib
    assert not _kernels.MISSING
    assert native.lib.aes_level() == streams.BEST
    assert plain.lib.aes_level() == twin.aes_level() == 0


WITHOUT = """
import runpy, sys
sys.modules["secea.arithmetic._kernels.native"] = None
import secea, secea.cli, secea.engines.core
assert secea.arithmetic.field.lib is secea.arithmetic._kernels.twin
sys.argv[1:] = ["--check"]
sys.path.insert(0, "vectors")
runpy.run_path("vectors/make.py", run_name="__main__")
"""


def test_without_compiled_loops_all_vectors_are_the_same_and_one_warning_says_what_to_install() -> None:
    command = [sys.executable, "-W", "always", "-c", WITHOUT]
    root = Path(__file__).parent.parent
    ran = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=120, check=False)  # noqa: S603 - our own script
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("SlowKernels") == 1
    assert "<string>:4: SlowKernels: secea runs without its compiled loops" in ran.stderr  # where it was imported
    assert "Install a wheel for this system, or install a C compiler" in ran.stderr
