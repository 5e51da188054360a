"""Noise as large as the accountant asks for, on changes as small as the clip says: each client's, or all together."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import chi2, kstest, norm

import secea
from secea import Federation, Params
from secea.errors import MissingExtra, ParamsError, TableError
from secea.privacy import (
    Mechanism,
    Private,
    assumptions,
    clipped,
    epsilon_of,
    gaussian,
    honest,
    sensitivity,
    with_noise,
)  # fmt: skip
from secea.testing import insecure_seeded
from secea.wire.randomness import KeyStream

KEY = bytes(range(32))
NEVER = 1e-12
"""The probability with which a law of these tests fails by chance. Seeds are fixed as well."""


def stream(number: int = 0) -> KeyStream:
    return KeyStream(KEY, number)


def varies(noise: Any, variance: float) -> None:
    """Independent normal numbers with mean 0 and this variance."""
    flat = np.asarray(noise).ravel()
    low, high = chi2.ppf([NEVER, 1 - NEVER], flat.size)
    assert low < (flat**2).sum() / variance < high
    assert abs(flat.sum()) < math.sqrt(flat.size * variance) * norm.isf(NEVER)


# ---------------------------------------------------------------------------------------------------- the accountant


def exact_epsilon(multiplier: float, delta: float, rounds: int) -> float:
    """Of the Gaussian mechanism in closed form (Balle and Wang 2018, theorem 8); rounds add up as 1/multiplier^2."""
    mu = math.sqrt(rounds) / multiplier

    def excess(eps: float) -> float:
        return float(norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)) - delta

    return float(brentq(excess, 0.0, 200.0))


def epsilon_by_hand(rho: float, delta: float) -> float:
    """Of rho-zero-concentrated privacy, over all real orders (Canonne, Kamath, Steinke 2020, corollary 13)."""
    orders = 1 + np.geomspace(1e-3, 1e5, 200_001)
    found = rho * orders + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    return float(found.min())


@pytest.mark.parametrize(("multiplier", "rounds"), [(10.0, 1), (20.0, 40), (8.0, 100)])
def test_the_epsilon_is_just_above_that_of_the_closed_form(multiplier: float, rounds: int) -> None:
    for rows in (1, 4):
        found = Mechanism(0.1, multiplier).epsilon(1e-5, rounds, rows)
        exact = exact_epsilon(multiplier / math.sqrt(rows), 1e-5, rounds)
        assert exact <= found <= 1.15 * exact


@pytest.mark.parametrize("multiplier", [0.5, 2.0, 20.0])
@pytest.mark.parametrize(("rounds", "rows"), [(1, 1), (30, 1), (30, 50)])
def test_the_epsilon_is_what_concentrated_privacy_gives_by_hand(multiplier: float, rounds: int, rows: int) -> None:
    # dp-accounting tries some orders, so its bound is a little above the best one.
    by_hand = epsilon_by_hand(rounds * rows / (2 * multiplier**2), 1e-5)
    assert by_hand * (1 - 1e-6) <= Mechanism(0.1, multiplier).epsilon(1e-5, rounds, rows) <= by_hand * 1.1


def test_the_epsilon_is_the_accountants_known_value() -> None:
    # 40 rounds with 20 times the sensitivity: Renyi divergence alpha * 40 / (2 * 400), turned into epsilon at 1e-5.
    assert Mechanism(0.1, 20.0).epsilon(1e-5, 40) == pytest.approx(1.3085, abs=1e-3)


@pytest.mark.parametrize("target", [1.0, 8.0])
@pytest.mark.parametrize("rows", [1, 100])
def test_calibrated_noise_spends_the_epsilon_and_not_more(target: float, rows: int) -> None:
    mechanism = Mechanism.calibrated(target, 1e-5, clip=0.5, rounds=20, rows=rows)
    spent = mechanism.epsilon(1e-5, 20, rows)
    assert 0.98 * target <= spent <= target * 1.0001
    assert mechanism.deviation == pytest.approx(2 * 0.5 * mechanism.multiplier)


def test_without_the_accountant_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    for asked in (
        lambda: Mechanism(0.1, 2.0).epsilon(1e-5, 3),
        lambda: Mechanism.calibrated(8.0, 1e-5, 0.1, 3),
        lambda: with_noise(Params(clients=3, dim=2), 8.0, 1e-5, 0.1),
    ):
        with pytest.raises(MissingExtra, match=re.escape("pip install 'dp-accounting>=0.4.4'")):
            asked()
    rows = np.zeros((2, 3))
    assert Private(Mechanism(0.1, 2.0), 1e-5, 3).release(rows, rows).shape == (2, 3), "noise needs no accountant"


@pytest.mark.parametrize(
    ("epsilon", "delta", "clip", "rounds", "rule"),
    [
        (0.0, 1e-5, 1.0, 3, "epsilon > 0"), (math.nan, 1e-5, 1.0, 3, "epsilon > 0"), (1.0, 0.0, 1.0, 3, "0 < delta"),
        (1.0, 1e-5, 0.0, 3, "clip must be"), (1.0, 1e-5, math.inf, 3, "clip must be"), (1.0, 1e-5, 1.0, 0, "one round"),
    ],
)  # fmt: skip
def test_settings_without_meaning_are_refused(
    epsilon: float, delta: float, clip: float, rounds: int, rule: str
) -> None:
    with pytest.raises(ParamsError, match=rule):
        Mechanism.calibrated(epsilon, delta, clip, rounds)


def test_a_clip_or_a_number_of_rows_that_is_not_positive_is_refused() -> None:
    rows = np.zeros((2, 3))
    for clip in (0.0, -1.0, math.nan):
        with pytest.raises(ParamsError, match="clip must be a positive number"):
            clipped(rows, rows + 1, clip)
    with pytest.raises(ParamsError, match="rows must be at least 1, got 0"):
        Mechanism.calibrated(8.0, 1e-5, 1.0, 3, rows=0)
    with pytest.raises(ParamsError, match="rows must be at least 1, got -1"):
        Mechanism(1.0, 1.0).epsilon(1e-5, 3, rows=-1)


@pytest.mark.parametrize("epsilon", [1e-7, 1e7])
def test_an_epsilon_that_no_noise_has_is_refused_in_words(epsilon: float) -> None:
    with pytest.raises(ParamsError, match="is out of reach: choose one nearer to 1"):
        Mechanism.calibrated(epsilon, 1e-5, 1.0, 3)


# ----------------------------------------------------------------------------------------------- clipping, noise


@given(seed=st.integers(0, 2**32 - 1), clip=st.sampled_from([1e-3, 0.1, 7.0]), size=st.sampled_from([1e-6, 1.0, 1e200]))
def test_no_change_is_longer_than_the_clip_and_short_ones_stay(seed: int, clip: float, size: float) -> None:
    rng = np.random.default_rng(seed)
    before, change = rng.normal(size=(6, 5)), size * rng.normal(size=(6, 5))
    after = before + change
    moved = clipped(np.zeros((6, 5)), after - before, clip)
    assert (np.linalg.norm(moved, axis=1) <= clip).all()
    short = np.abs(after - before).max(axis=1) * math.sqrt(5) <= clip
    assert np.array_equal(moved[short], (after - before)[short])
    assert np.array_equal(clipped(before, after, clip)[short], (before + (after - before))[short])


def test_long_changes_keep_their_direction() -> None:
    after = np.array([[3.0, 4.0, 0, 0], [0.3, 0, 0, 0], [0, 0, 0, 0]])
    out = clipped(np.zeros((3, 4)), after, 0.5)
    assert out.ravel().tolist() == pytest.approx([0.3, 0.4, 0, 0, 0.3, 0, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("discrete", [True, False])
def test_noise_is_as_large_as_said_normal_and_independent_on_every_coordinate(discrete: bool) -> None:
    mechanism = Mechanism(clip=0.1, multiplier=3.0, discrete=discrete)
    before = np.ones((500, 40))
    noise = mechanism.noised(before, before, stream()) - before
    varies(noise, 0.36)
    assert kstest(noise.ravel() / 0.6, "norm").pvalue > NEVER
    assert np.abs(np.corrcoef(noise.T) - np.eye(40)).max() < norm.isf(NEVER) / math.sqrt(500)
    assert len(np.unique(noise)) > 19_000
    assert kstest(gaussian(stream(1), 20_001), "norm").pvalue > NEVER


def test_discrete_noise_is_on_its_grid_whatever_the_change() -> None:
    mechanism, rng = Mechanism(clip=0.1, multiplier=3.0), np.random.default_rng(5)
    out = mechanism.noised(np.zeros((50, 8)), rng.normal(size=(50, 8)), stream()) / mechanism.step
    assert np.array_equal(out, np.rint(out))
    assert 2**32 <= mechanism.deviation / mechanism.step < 2**33
    other = mechanism.noised(np.zeros((50, 8)), -rng.normal(size=(50, 8)), stream()) / mechanism.step
    apart = mechanism.step * np.linalg.norm(out - other, axis=1)  # the same noise: what is left are the changes
    assert apart.max() <= 2 * mechanism.clip, "towards zero, no change becomes longer"


def test_noise_differs_from_release_to_release_and_is_drawn_from_the_system() -> None:
    rows, drawn = np.zeros((2, 2)), []

    def entropy(count: int) -> bytes:
        drawn.append(count)
        return bytes([len(drawn)]) * count

    mine = Private(Mechanism(1.0, 1.0), 1e-5, 5, entropy=entropy)
    fresh = [Private(Mechanism(1.0, 1.0), 1e-5, 5) for _ in range(3)]
    seen = [each.release(rows, rows).tobytes() for each in (mine, mine, mine, fresh[0], fresh[0], *fresh[1:])]
    assert len(set(seen)) == len(seen)
    assert drawn == [32] * 3, "one seed for each release"


def test_a_client_counts_what_it_released_and_refuses_more_than_agreed() -> None:
    rows, mechanism = np.zeros((2, 2)), Mechanism.calibrated(8.0, 1e-5, 0.1, rounds=3)
    private = Private(mechanism, 1e-5, 3, releases=1)
    assert private.epsilon() == mechanism.epsilon(1e-5, 1)
    with pytest.raises(TableError, match="row 1 is no finite number"):
        private.release(rows, np.array([[0, 0], [0, np.nan]]))
    with pytest.raises(TableError, match="matrices of one shape"):
        private.release(rows, rows[:1])
    private.release(rows, rows)
    private.release(rows, rows)
    with pytest.raises(ParamsError, match=r"all 3 releases are spent, that is epsilon 8 at delta 1e-05"):
        private.release(rows, rows)
    assert private.releases == 3
    assert private.epsilon() <= 8.001
    assert private.epsilon(rows=2) > private.epsilon()
    assert Private(mechanism, 1e-5, 3).epsilon() == 0.0


def test_no_repr_shows_a_secret() -> None:
    private = Private(Mechanism(0.25, 2.0), 1e-5, 3, entropy=lambda count: b"\xab" * count)
    private.release(np.zeros((1, 1)), np.zeros((1, 1)))
    assert repr(private) == "Private(1 of 3 releases, clip 0.25, deviation 1)"
    assert repr(private.mechanism) == "Mechanism(clip=0.25, multiplier=2.0, discrete=True)"
    assert b"\xab" * 8 not in repr(vars(private)).encode("latin1", "replace")


# ------------------------------------------------------------------------------------------------ noise of all together

FIVE = Params(clients=5, dim=64, collusion=2, dropouts=1, rounds=20)


@pytest.mark.parametrize("target", [1.0, 8.0])
@pytest.mark.parametrize("rows", [1, 400])
def test_shared_noise_spends_the_epsilon_and_not_more_and_the_reverse(target: float, rows: int) -> None:
    params = with_noise(FIVE, target, 1e-5, 0.1, rows=rows)
    assert 0.98 * target <= epsilon_of(params, 1e-5, 0.1, rows=rows) <= 1.0001 * target
    assert params == replace(FIVE, noise=params.noise)
    rho = 20 * rows * (sensitivity(FIVE, 0.1) / params.noise) ** 2 / 2
    by_hand = epsilon_by_hand(rho, 1e-5)
    assert by_hand * (1 - 1e-6) <= epsilon_of(params, 1e-5, 0.1, rows=rows) <= by_hand * 1.1
    assert epsilon_of(params, 1e-5, 0.1, rows=rows, rounds=10) < epsilon_of(params, 1e-5, 0.1, rows=rows)


def test_a_replaced_row_moves_a_sum_by_twice_the_clip_or_the_range_and_by_what_rounding_and_fill_add() -> None:
    grid = 8 * (FIVE.resolution + 64 * 2.0**-23)
    assert sensitivity(FIVE, 0.1) == pytest.approx(0.2 + grid, rel=1e-12)
    assert sensitivity(FIVE) == pytest.approx(2 * 64 * 8 + grid, rel=1e-12)
    assert sensitivity(FIVE, 1e9) == sensitivity(FIVE)
    rng = np.random.default_rng(11)
    for dtype in (np.float32, np.float64):
        apart = _encoded_apart(rng, dtype)
        assert 0 < apart.max() <= sensitivity(replace(FIVE, dim=16), 0.1)


def _encoded_apart(rng: np.random.Generator, dtype: Any) -> Any:
    """How far apart two neighbouring tables are when they are encoded and filled, row by row, in the Euclidean norm."""
    fed = Federation(replace(FIVE, dim=16, noise=1.0), entropy=insecure_seeded(11)(0))
    names = tuple(range(30))
    fed.setup([names] * 5)
    part: Any = fed.clients[0].part
    before = rng.normal(size=(30, 16))
    way = rng.normal(size=(30, 16))
    way *= 10 / np.linalg.norm(way, axis=1, keepdims=True)
    one, other = (
        part.tables.encoded(secea.Table(names, clipped(before, before + sign * way, 0.1).astype(dtype)), names)
        for sign in (1, -1)
    )
    return np.linalg.norm(np.ldexp((one - other).astype(np.float64), -part.numbers.f), axis=1)


def test_what_a_sum_of_discrete_gaussians_lacks_is_counted() -> None:
    # So coarse that it can be seen: precision of 1 bit, and noise of half a unit or so.
    coarse = Params(clients=4, dim=4, collusion=1, max_abs=1.0, precision=1, rounds=1, noise=0.9)
    parties, sigma = 3, 2 * 0.9 / math.sqrt(3)
    tau = 10 * sum(math.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)) for k in range(1, parties))
    assert 1e-5 < tau < 1e-2
    worth = sensitivity(coarse) / 0.9 + tau * 2
    assert epsilon_of(coarse, 1e-5) == pytest.approx(Mechanism(0.1, 1 / worth).epsilon(1e-5, 1), rel=1e-9)
    with pytest.raises(ParamsError, match="too small for precision=1"):
        epsilon_of(replace(coarse, noise=0.1), 1e-5)
    fine = with_noise(FIVE, 8.0, 1e-5, 0.1)
    assert epsilon_of(fine, 1e-5, 0.1) == Mechanism(0.1, fine.noise / sensitivity(fine, 0.1)).epsilon(1e-5, 20)


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
def test_the_bound_for_sums_holds_where_it_can_be_computed(parties: int, shift: int, sigma: float) -> None:
    """Renyi divergences of the sum of discrete Gaussians from its shift, summed up term by term."""
    reach = np.arange(-40, 41)
    single = np.exp(-(reach**2) / (2 * sigma**2))
    total = single
    for _ in range(parties - 1):
        total = np.convolve(total, single)
    total /= total.sum()
    tau = 10 * sum(math.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)) for k in range(1, parties))
    for order in (1.5, 2.0, 8.0):
        p, q = total[shift:], total[:-shift]
        there = (p > 1e-250) & (q > 1e-250)
        divergence = math.log(np.exp(order * np.log(p[there]) + (1 - order) * np.log(q[there])).sum()) / (order - 1)
        assert divergence <= order / 2 * (shift / (math.sqrt(parties) * sigma) + tau) ** 2


def test_there_is_no_epsilon_without_noise() -> None:
    with pytest.raises(ParamsError, match="there is no noise"):
        epsilon_of(FIVE, 1e-5, 0.1)
    with pytest.raises(ParamsError, match="there is no noise"):
        assumptions(FIVE, 0.1)
    with pytest.raises(ParamsError, match="clip must be a positive number"):
        with_noise(FIVE, 8.0, 1e-5, -1.0)


def test_the_assumptions_say_who_must_be_honest_and_what_is_added() -> None:
    said = " ".join(assumptions(with_noise(FIVE, 8.0, 1e-5, 0.1), 0.1))
    assert honest(FIVE) == 2
    for words in ("all but 2 are honest", "2 may conspire with the server, and 1 more may drop out: 2 of 5 are left",
                  "smaller the more owners", "change by at most 0.1", "refuse more than the 20"):  # fmt: skip
        assert words in said
    more = "The fewer take part, the more each of them adds"
    assert more not in said, "with drop-outs each adds as much as the fewest would have to"
    assert more in " ".join(assumptions(Params(clients=5, dim=2, collusion=2, noise=1.0)))
    alone = " ".join(assumptions(Params(clients=5, dim=2, noise=1.0)))
    assert "nobody else's noise: your own is enough" in alone
    assert more not in alone


def owners_of(seed: int, clients: int, entities: int) -> list[list[int]]:
    """Names of each client; every entity has an owner among the first three."""
    rng = np.random.default_rng(seed)
    owned = rng.random((clients, entities)) < 0.5
    owned[rng.integers(0, 3, entities), np.arange(entities)] = True
    return [np.flatnonzero(own).tolist() for own in owned]


@pytest.mark.parametrize("losses", [{}, {4: "upload"}, {3: "open"}], ids=["nobody", "before the sum", "after it"])
def test_the_noise_on_a_sum_is_that_of_all_contributors_whoever_drops_out(losses: dict[int, str]) -> None:
    seed, noise, dim = 1234, 0.75, 32
    params = Params(clients=5, dim=dim, collusion=2, dropouts=1, rounds=4, noise=noise)
    names = owners_of(seed, 5, 300)
    rng = np.random.default_rng(seed)
    tables = [dict(zip(own, rng.normal(size=(len(own), dim)), strict=True)) for own in names]
    fed = Federation(params, entropy=insecure_seeded(seed)(0))
    fed.setup(names)
    means = fed.round(tables, vanish=losses)
    inside = [n for n in range(5) if losses.get(n) != "upload"]
    off = []
    for entity, mean in {name: row for each in means if each is not None for name, row in each.items()}.items():
        rows = [tables[n][entity] for n in inside if entity in tables[n]]
        off.append(len(rows) * mean - np.sum(rows, axis=0))
    varies(off, noise**2 * len(inside) / honest(params))
    assert noise**2 * len(inside) / honest(params) >= noise**2 * (honest(params) + 2) / honest(params)


def test_the_honest_noise_alone_is_as_large_as_agreed_on() -> None:
    """Whoever conspires knows its own part and subtracts it: what is left is that of N-D-T clients at least."""
    seed, noise = 99, 0.5
    params = Params(clients=5, dim=32, collusion=2, dropouts=1, rounds=4, noise=noise)
    fed = Federation(params, entropy=insecure_seeded(seed)(0))
    names = [list(range(200))] * 5
    fed.setup(names)
    parts: dict[int, Any] = {}
    for n, client in fed.clients.items():
        inner: Any = client.part
        spread = inner._spread

        def kept(chunk: int, count: int, at: Any, n: int = n, spread: Any = spread) -> Any:
            parts[n] = spread(chunk, count, at)
            return parts[n]

        inner._spread = kept
    fed.round([np_table(own, 32) for own in names], vanish={4: "upload"})
    numbers: Any = fed.clients[0].part.numbers
    read = {n: numbers.ring.join(z, math.ldexp(1.0 / numbers.C, -numbers.f), 0) for n, z in parts.items()}
    for n in range(4):
        varies(read[n], noise**2 / honest(params))
    varies(read[2] + read[3], noise**2)  # 0 and 1 conspire, 4 dropped out
    assert len({each.tobytes() for each in read.values()}) == len(read), "nobody draws what another one draws"


def np_table(names: list[int], dim: int) -> dict[int, Any]:
    return {name: np.zeros(dim) for name in names}


def test_where_fewer_take_part_each_adds_more() -> None:
    params, names = Params(clients=5, dim=32, collusion=2, rounds=4, noise=0.5), [list(range(200))] * 5
    fed = Federation(params, entropy=insecure_seeded(5)(0))
    fed.setup(names)
    tables: list[Any] = [np_table(own, 32) for own in names]
    for absent, left in ((0, 3), (1, 2)):
        means = fed.round([*tables[: 5 - absent], *[None] * absent])
        varies([mean * (5 - absent) for mean in means[0].values()], 0.25 * (5 - absent) / left)


def test_every_round_has_noise_of_its_own() -> None:
    params = Params(clients=3, dim=32, collusion=1, rounds=4, noise=0.5)
    fed = Federation(params, entropy=insecure_seeded(7)(0))
    names = [list(range(100))] * 3
    fed.setup(names)
    one, two = (np.array(list(fed.round([np_table(own, 32) for own in names])[0].values())) for _ in range(2))
    varies((one - two) * 3, 2 * 0.25 * 3 / 2)
