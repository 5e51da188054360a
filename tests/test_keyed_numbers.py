"""Laws of the keyed form's numbers: everything fits, means are as exact as promised, and no lattice is left."""

from __future__ import annotations

import json
import math
import runpy
from dataclasses import replace
from fractions import Fraction
from functools import cache, reduce
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import secea
from secea.arithmetic.discrete import farthest
from secea.arithmetic.field import M61, P56, PRIMES30, RING61
from secea.errors import ParamsError
from secea.forms.keyed import Keyed
from secea.forms.keyed.numbers import Numbers, honest, numbers_of
from secea.params import Params

Floats = NDArray[np.float64]

GRID = Fraction(1, 2**6)
"""The coarsest grid of an input, as a part of max_abs."""


def params_of(
    N: int, T: int, precision: int = 24, sigma: int = 40, max_abs: float = 64.0, entities: int = 14541
) -> Params:
    return Params(
        clients=N, dim=128, collusion=T, precision=precision, sigma=sigma, max_abs=max_abs, max_entities=entities,
        max_union=entities,
    )  # fmt: skip


def chosen(params: Params) -> tuple[Numbers, int]:
    """The numbers, and W, the noise clients of a round with everybody."""
    W = min(params.clients, params.T + 1)
    return numbers_of(params, W), W


@cache
def everything() -> list[tuple[Params, Numbers, int]]:
    """All N up to 60, one colluder or all others, precisions and sigmas."""
    cases = product(range(2, 61), (False, True), (8, 24, 40), (20, 40, 80))
    params = [params_of(N, N - 1 if all_others else 1, *bits) for N, all_others, *bits in cases]
    return [(each, *chosen(each)) for each in (*params, *small_ones())]


def small_ones() -> list[Params]:
    """Little to hide from many: the noise is so narrow that rounding and the number of noise clients count."""
    return [
        Params(
            clients=N, dim=1, collusion=N - 1, precision=precision, sigma=1, max_abs=64.0, rounds=1, max_entities=1,
            max_union=1,
        )
        for N, precision in product((80, 100), (1, 24, 32))
    ]  # fmt: skip


def largest_input(n: Numbers) -> int:
    """No encoded input is larger: rounded up, s narrow numbers and half of the coarsest grid above it."""
    narrow = n.s * (n.w - 1) - n.s * (n.w - 1) // 2
    grid = Fraction(math.ldexp(1.0, math.floor(math.log2(n.max_abs)))) * GRID * (1 << n.f) / 2
    return math.ceil(Fraction(n.max_abs) * (1 << n.f)) + narrow + math.ceil(grid)


def largest_noise(n: Numbers, W: int) -> int:
    return W * (n.s * (n.C - 1) + n.C * (n.noise_of(W).wide - 1))


# ------------------------------------------------------------------------------------------------------------ what fits


@pytest.mark.slow
def test_the_largest_mean_with_all_noise_stays_below_half_of_the_modulus_however_few_add_noise() -> None:
    for _, n, W in everything():
        for noisy in range(1, W + 1):
            assert largest_noise(n, noisy) == n.reach(noisy)
            assert 2 * (n.C * largest_input(n) + n.reach(noisy)) < math.prod(n.ring.primes)


def test_the_wide_numbers_of_a_round_span_as_much_together_however_few_there_are() -> None:
    for params, n, W in everything():
        all_of_it = int(1.7 * params.resolution * 2**n.f)
        assert n.noise_of(W) == n.noise
        for noisy in range(1, W + 1):
            assert all_of_it - noisy < noisy * n.noise_of(noisy).wide <= all_of_it


def test_an_encoded_input_stays_below_what_the_encoder_takes() -> None:
    for _, n, _ in everything():
        assert largest_input(n) < 2**61
        assert n.cap == 2.0 ** (math.floor(math.log2(n.max_abs)) - 6) < 2.0 ** (59 - n.f)


@pytest.mark.parametrize(
    ("N", "p", "f"), [(2, P56, 47), (5, P56, 43), (8, P56, 39), (9, M61, 42), (10, M61, 42), (12, M61, 39)]
)
@pytest.mark.parametrize("everybody", [False, True])
def test_one_prime_does_for_twelve_clients_with_the_bits_of_the_specification(
    N: int, p: int, f: int, everybody: bool
) -> None:
    n, _ = chosen(params_of(N, N - 1 if everybody else 1))
    assert n.ring.primes == (p,)
    assert n.f == f
    assert n.checks == 1


def test_ten_clients_do_with_seven_bytes_at_a_bit_less_of_precision() -> None:
    n, _ = chosen(params_of(10, 2, precision=23))
    assert (n.ring.primes, n.ring.element_bytes, n.f) == ((P56,), 7, 37)


def test_an_element_has_eight_bytes_only_where_seven_are_too_few() -> None:
    longer = [each for each in everything() if each[1].ring == RING61]
    assert longer
    for params, n, W in longer:
        for f in range(params.fraction_bits + 1, n.f + 1):
            unit, few = Fraction(params.resolution) * 2**f, n.s * n.w
            fine = 64 * few <= unit and Fraction(W * n.s + few, 2) + 2 <= Fraction(15, 100) * unit
            most = largest_input(replace(n, f=f)) + few + 4  # with a little room, as in the choice
            assert not fine or 2 * (n.C * (most + int(1.7 * unit)) + W * n.s * (n.C - 1)) >= P56


@pytest.mark.parametrize(("N", "primes"), [(13, 3), (15, 3), (30, 3), (40, 4), (52, 4), (60, 5)])
@pytest.mark.parametrize("everybody", [False, True])
def test_more_clients_take_light_primes_and_two_checks(N: int, primes: int, everybody: bool) -> None:
    n, _ = chosen(params_of(N, N - 1 if everybody else 1))
    assert n.ring.size == primes
    assert all(p < 2**30 for p in n.ring.primes)
    assert n.checks == 2


def test_a_wide_number_has_at_least_two_values() -> None:
    many = params_of(300, 299, 8, sigma=1)
    assert all(n.noise.wide >= 2 for n in (*(n for _, n, _ in everything()), chosen(many)[0]))


def test_the_largest_federations_take_all_primes_and_more_clients_do_not_fit() -> None:
    n, _ = chosen(params_of(300, 1, 8))
    assert n.ring.primes == PRIMES30
    with pytest.raises(ParamsError, match="lower precision or sigma"):
        chosen(params_of(330, 1, 8))


def test_the_numbers_of_many_federations_are_those_that_are_written_down() -> None:
    vectors = Path(__file__).parent.parent / "vectors"
    known = json.loads((vectors / "scales.json").read_text(encoding="utf-8"))["scales"]
    made = runpy.run_path(str(vectors / "scales.py"))["scales"]()["scales"]
    made = runpy.run_path(str(vectors / "plain.py"))["plain"](made)
    assert len(made) == len(known) > 600
    for one, other in zip(made, known, strict=True):
        assert one == other


def test_no_further_bit_fits() -> None:
    for _, n, W in everything()[: -len(small_ones())]:  # there the noise leaves no room, not the primes
        wide = 2 * n.noise.wide + 1  # with one more bit, or one more than that
        more = 2 * (n.C * 2 * (largest_input(n) + 2) + W * (n.s * (n.C - 1) + n.C * wide))
        assert more > math.prod(n.ring.primes) or n.f + 1 + math.frexp(n.max_abs)[1] > 60


def test_digits_are_short_and_make_the_least_common_multiple() -> None:
    for params, n, _ in everything():
        assert math.prod(n.noise.digits) == n.C == reduce(math.lcm, range(1, params.clients + 1))
        assert max(n.noise.digits) < 2**16


# ---------------------------------------------------------------------------------------------------------------- error


def test_a_mean_is_off_by_less_than_the_resolution_at_the_extremes_of_fill_and_noise() -> None:
    for params, n, noisy in ((params, n, noisy) for params, n, W in everything() for noisy in range(1, W + 1)):
        noise = largest_noise(n, noisy)
        low, high = -n.s * (n.w - 1) // 2 - 1, n.s * (n.w - 1) - n.s * (n.w - 1) // 2
        for fill, e in ((Fraction(low), 0), (Fraction(high), noise)):
            rounding = Fraction(1, 2) if e else Fraction(-1, 2)
            off = rounding + fill + Fraction(e - noise // 2, n.C)  # of the mean of owners that are all so unlucky
            assert abs(off) < Fraction(params.resolution) * 2**n.f


@given(
    N=st.integers(2, 60),
    data=st.data(),
    precision=st.integers(4, 44),
    max_abs=st.sampled_from((0.001, 1.0, 3.0, 64.0, 1e6)),
    share=st.floats(-1, 1),
)
def test_what_is_read_at_the_extremes_is_the_mean_within_the_resolution(
    N: int, data: st.DataObject, precision: int, max_abs: float, share: float
) -> None:
    params = params_of(N, data.draw(st.integers(1, N - 1)), precision, max_abs=max_abs)
    n, W = chosen(params)
    c, x, noisy = data.draw(st.integers(1, N)), share * max_abs, data.draw(st.integers(1, W))
    for fill, e in ((-(n.s * (n.w - 1) // 2), 0), (n.s * (n.w - 1) - n.s * (n.w - 1) // 2, largest_noise(n, noisy))):
        S = c * (round(Fraction(x) * 2**n.f) + fill)
        read = n.read(n.ring.constant([n.C * S // c + e]), noisy)
        assert abs(Fraction(float(read[0])) - Fraction(x)) < Fraction(params.resolution)


@given(N=st.integers(2, 30), data=st.data(), share=st.floats(-1, 1))
def test_a_mean_is_read_without_bias_where_noise_clients_dropped_out(N: int, data: st.DataObject, share: float) -> None:
    n, W = chosen(params_of(N, data.draw(st.integers(1, N - 1))))
    planned = data.draw(st.integers(1, W))
    noisy = data.draw(st.integers(1, planned))
    v = round(Fraction(64 * share) * 2**n.f)
    least, most = (n.read(n.ring.constant([n.C * v + e]), noisy, planned) for e in (0, n.reach(noisy, planned)))
    assert n.reach(noisy, planned) == noisy * n.noise_of(planned).largest <= n.reach(planned)
    assert abs((least[0] + most[0]) / 2 - v / 2**n.f) <= 2.0**-n.f + 64 * 2.0**-51


@pytest.mark.parametrize("sigma", [100, 128])
def test_what_needs_too_much_is_refused_and_the_reason_is_said(sigma: int) -> None:
    with pytest.raises(ParamsError, match="lower precision or sigma"):
        chosen(params_of(1000, 999, 52, sigma))


# ---------------------------------------------------------------------------------------------------- what is left over


def sigma_of(params: Params) -> int:
    """sigma': so that all elements which T clients see in a session tell less than 2^-sigma."""
    assert params.max_entities is not None
    return params.sigma + (params.T * params.max_entities * params.dim * params.rounds - 1).bit_length()


def bias(digit: int) -> float:
    """How far a digit made of a word of 32 bits is from uniform: the sum of |P(v) - 1/digit|."""
    more = 2**32 % digit  # so many values are hit once more than the others
    return 2 * more * (digit - more) / digit / 2**32


def leftover(n: Numbers) -> float:
    """zeta(s) * (1/(pi*w) + bias)^s."""
    zeta = sum(m**-n.s for m in range(1, 10_000)) + 10_000.0 ** (1 - n.s) / (n.s - 1)
    return float(zeta * (1 / (math.pi * n.w) + sum(map(bias, n.noise.digits))) ** n.s)


def test_what_is_left_of_the_lattice_is_below_two_to_the_minus_sigma() -> None:
    for params, n, _ in everything():
        assert n.sigma == sigma_of(params)
        assert math.log2(leftover(n)) <= -n.sigma


@pytest.mark.parametrize("digit", [2, 3, 60, 2520, 27720, 51480, 65231, 2**16 - 1])
def test_a_digit_is_as_uniform_as_words_of_32_bits_allow(digit: int) -> None:
    edges = [-(-(v << 32) // digit) for v in range(digit + 1)]  # word * digit >> 32 is v from the v-th edge on
    hits = np.diff(np.array(edges))
    assert np.abs(hits / 2**32 - 1 / digit).sum() == pytest.approx(bias(digit), rel=1e-9)
    spectrum = np.abs(np.fft.fft(hits - 2**32 // digit)[1:]) / 2**32
    assert spectrum.max(initial=0.0) <= bias(digit) * (1 + 1e-9) <= digit / 2**32


def images(n: Numbers, c: int, wide_number: int) -> float:
    """The lattice of count c in the spectrum, beside one honest owner and one honest noise client: a bound.

    It is the largest coefficient around each harmonic m*c/C, summed over m.
    """
    L, near = n.C // c, 60
    d = np.concatenate([[0.0], np.geomspace(1e-9, 0.5, 300)])
    low, high = d[:-1], d[1:]  # at a distance from low to high: what falls with it is taken at low, what grows at high
    with np.errstate(divide="ignore"):
        fill = np.minimum(1.0, 1 / (n.w * np.sin(np.pi * low)))
    zero = np.minimum(np.sin(np.pi * np.minimum(c * high, 0.5)), c * np.sin(np.pi * high))
    wide = np.minimum(1.0, 1 / (wide_number * zero))
    total = 0.0
    for m in range(1, min(L // 2, near) + 1):
        narrow = np.minimum(1.0, zero / (n.C * np.sin(np.pi * np.minimum((m - high) * c / n.C, 0.5))))
        total += 2 * float(((fill * narrow) ** n.s * wide).max())
    if near < L // 2:
        total += 2 * (2 * n.w) ** -n.s * (near - 1.0) ** (1 - n.s) / (n.s - 1)
    return total


@pytest.mark.slow
def test_with_the_wide_number_every_harmonic_of_every_count_together_is_below_two_to_the_minus_sigma() -> None:
    for params, n, W in everything():
        if params.precision == 24:
            for c in {2, 3, params.clients // 2, params.clients - 1, params.clients} - {0, 1}:
                for noisy in {1, W}:
                    assert images(n, c, n.noise_of(noisy).wide) < 2.0**-n.sigma


# ---------------------------------------------------------------------------------- small lattices, by full convolution

SMALL = [(3, 6), (4, 12), (5, 60)]


def convolved(parts: list[tuple[int, int]]) -> list[int]:
    """In how many ways each number is a sum: for each (count, step) one of 0, step, .., (count-1)*step."""
    ways = [1]
    for count, step in parts:
        out = [0] * (len(ways) + (count - 1) * step)
        for at, many in enumerate(ways):
            for k in range(count):
                out[at + k * step] += many
        ways = out
    return ways


@pytest.mark.parametrize(("N", "C"), SMALL)
@given(data=st.data())
def test_with_noise_below_c_every_residue_is_equally_likely_whatever_the_count(
    N: int, C: int, data: st.DataObject
) -> None:
    """All harmonics k/C vanish, exactly: X modulo C is uniform, and so is X modulo the step C/c of any count."""
    c, w, S = data.draw(st.integers(1, N)), data.draw(st.integers(1, 8)), data.draw(st.integers(0, 1000))
    s = data.draw(st.integers(1, 3))

    def by_residue(top: int) -> list[int]:
        found = [0] * C
        for at, many in enumerate(convolved([(w, C // c)] * s + [(top, 1)] * s + [(3, C)])):
            found[(C * S // c + at) % C] += many
        return found

    assert len(set(by_residue(C))) == 1
    assert len(set(by_residue(C - 1))) > 1  # numbers on 0..C-2 leave the lattice visible


def spectrum(
    C: int, c: int, w: int, s: int, wide: int, top: int | None = None
) -> tuple[Floats, NDArray[np.complex128]]:
    """Frequencies, and the coefficients of the fill of one owner on the lattice of count c with one client's noise."""
    parts = [(w, C // c)] * s + [(top or C, 1)] * s + [(wide, C)]
    size = -(-(1 + sum((count - 1) * step for count, step in parts)) // (2 * C)) * 2 * C
    found: NDArray[np.complex128] = np.ones(size // 2 + 1, np.complex128)
    for count, step in parts:
        uniform = np.zeros(size)
        uniform[: count * step : step] = 1 / count
        found = found * np.fft.rfft(uniform)
    return np.arange(found.size) / size, found


def deviation(C: int, c: int, w: int, s: int, wide: int, top: int | None = None) -> float:
    """The total variation between this distribution and the one without the lattice's images in its spectrum."""
    t, found = spectrum(C, c, w, s, wide, top)
    found[t <= 0.5 * c / C] = 0
    return float(np.abs(np.fft.irfft(found)).sum() / 2)


def predicted(w: int, s: int) -> float:
    return float(sum(m**-s for m in range(1, 10_000)) * (math.pi * w) ** -s)


def small_wide(N: int, w: int, s: int) -> int:
    """The least wide number that the rules allow: the fill spans at most 1/64 of the resolution."""
    return math.floor(1.7 * 64 * s * w / N)


@pytest.mark.parametrize(("N", "C"), SMALL)
@pytest.mark.parametrize(("w", "s"), [(4, 2), (8, 2), (4, 4), (8, 4), (4, 6)])
def test_no_count_is_told_by_more_than_the_predicted_leftover(N: int, C: int, w: int, s: int) -> None:
    for c in range(2, N + 1):
        off, narrow = deviation(C, c, w, s, small_wide(N, w, s)), deviation(C, c, w, s, 1)
        print(f"N={N} c={c} w={w} s={s}: {off / predicted(w, s):.4f} of the prediction, {narrow / predicted(w, s):.2f}"
              " without the wide number")  # fmt: skip
        assert off < predicted(w, s) / 30
        assert narrow < 4 * predicted(w, s)  # of the order of the prediction, and not below it where C/c is 2


@pytest.mark.parametrize(("N", "C"), SMALL)
def test_the_harmonics_come_back_with_one_number_or_with_numbers_that_miss_one_value(N: int, C: int) -> None:
    w, s = 4, 6
    wide = small_wide(N, w, s)
    for c in range(2, N + 1):
        assert deviation(C, c, w, 1, wide) > 1000 * deviation(C, c, w, s, wide)
        for top, seen in ((C, False), (C - 1, True)):
            t, found = spectrum(C, c, w, s, wide, top)
            harmonics = found[(t.size - 1) * 2 // C * c :: (t.size - 1) * 2 // C * c]
            assert (np.abs(harmonics) > 1e-12).any() == seen
            assert (np.abs(harmonics) < 1e-60).all() != seen


# ----------------------------------------------------------------------------------------------- noise on every slot


@pytest.mark.parametrize(
    ("N", "T", "D"), [(2, 1, 0), (5, 1, 0), (5, 4, 0), (7, 3, 0), (7, 2, 2), (10, 5, 2), (13, 3, 1)]
)
def test_honest_clients_add_the_noise_that_was_agreed_on_whoever_is_absent_or_drops_out(N: int, T: int, D: int) -> None:
    params = Params(N, 4, collusion=T, dropouts=D, noise=0.5, max_entities=10, max_union=20)
    numbers = Keyed().numbers(params)
    fewest = Keyed().fewest(params)
    for participants in range(fewest, N + 1):
        in_the_sum = range(N - D, participants + 1) if D else [participants]
        each = numbers.spread_of(honest(params, participants))
        for size in in_the_sum:
            together = each * math.sqrt(max(1, size - T))
            assert together >= 0.5 * 2**numbers.f * (1 - 1e-12)
            assert size * farthest(each) <= numbers.farthest
    assert 2 * numbers.C * numbers.farthest < numbers.ring.modulus


def test_without_noise_on_every_slot_nothing_changes() -> None:
    plain = Keyed().numbers(Params(5, 4, collusion=4, max_entities=10, max_union=20))
    assert (plain.spread, plain.farthest) == (0.0, 0)


@pytest.mark.parametrize(("bits", "noise"), [(40, 2.0**50), (50, 2.0**60), (60, 0.0), (63, 0.0)])
@pytest.mark.parametrize("precision", [1, 4, 10])
def test_a_range_that_leaves_no_unit_of_1_or_less_is_refused_and_any_other_works(
    precision: int, bits: int, noise: float
) -> None:
    params = Params(
        3, dim=1, max_abs=2.0**bits, precision=precision, rounds=2, max_entities=1, max_union=3, noise=noise
    )
    try:
        assert Keyed().numbers(Keyed().checked(params)).f >= 0
    except ParamsError:
        assert bits >= 50
        return
    federation = secea.Federation(params)
    federation.setup([["a"], ["a"], []])
    federation.round([{"a": [2.0**bits]}, {"a": [0.0]}, {}])
    assert federation.without_mean == [(), (), ()]
