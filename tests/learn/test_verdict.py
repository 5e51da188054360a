"""What a run says about sharing: no more than its numbers hold, and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.learn.verdict import STUDENT, About, Seen, Verdict, interval, judged, nobody

ABOUT = About("mrr", higher=True, methods=("local", "secea", "plain", "central"), rounds=40)
ERRORS = replace(ABOUT, metric="rmse", higher=False)


def one(seed: int = 0, *, round: int | None = None, **finals: float) -> Seen:
    """A seed with these metrics in the end, or in a round."""
    return gave(finals, seed, round)


def gave(finals: dict[str, float], seed: int = 0, round: int | None = None) -> Seen:
    """Three clients lie below, at and above the metric of all."""
    clients = {method: {"a": value - 0.01, "b": value, "c": value + 0.01} for method, value in finals.items() if value}
    return Seen(seed, finals, clients, round)


def several(alone: Sequence[float], shared: Sequence[float], about: About = ABOUT) -> Verdict:
    pairs = enumerate(zip(alone, shared, strict=True))
    return judged(about, [one(seed, local=a, secea=b, plain=b) for seed, (a, b) in pairs])


# ------------------------------------------------------------------------------------------------------ the statistics


def test_students_t_is_that_of_95_percent() -> None:
    """The area of the density between -t and t, by the trapezoid rule over 200,000 steps."""
    for degrees, t in enumerate(STUDENT, 1):
        x = np.tan(np.linspace(-np.arctan(t), np.arctan(t), 200_001))
        density = (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
        y = np.tan(np.linspace(-np.pi / 2 + 1e-6, np.pi / 2 - 1e-6, 2_000_001))
        whole = np.trapezoid((1 + y**2 / degrees) ** (-(degrees + 1) / 2), y)
        assert np.trapezoid(density, x) / whole == pytest.approx(0.95, abs=2e-4)


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_an_interval_holds_the_truth_in_19_of_20_cases(count: int, seed: int) -> None:
    draws = np.random.default_rng(seed).normal(0.3, 1.0, (400, count))
    held = sum(abs(mean - 0.3) <= (margin or 0.0) for mean, margin in map(interval, draws.tolist()))
    assert 0.95 * 400 - held < 6 * (400 * 0.95 * 0.05) ** 0.5


def test_differences_are_taken_seed_by_seed() -> None:
    """Seeds that differ much among themselves, and all of which gain the same, leave no doubt."""
    found = several([0.2, 0.5, 0.8], [0.25, 0.551, 0.849])
    assert found.outcome == "gain"
    assert found.gain == pytest.approx(0.05)
    assert found.margin == pytest.approx(STUDENT[1] * 0.001 / 3**0.5)
    assert found.headline == "Sharing gains 10 % (3 seeds, +-0.5 %)."
    assert found.by_seed == pytest.approx({"0": 0.05, "1": 0.051, "2": 0.049})


def test_what_lies_within_the_interval_is_called_chance() -> None:
    found = several([0.50, 0.52, 0.51], [0.51, 0.51, 0.52])
    assert found.outcome == "chance"
    assert found.headline.startswith("Sharing makes no difference that 3 seeds can tell from chance (+0.7 %, +-")
    assert "More seeds may tell." in found.detail
    assert several([0.50, 0.52], [0.51, 0.525]).outcome == "chance", "two seeds say little"


def test_one_seed_says_that_it_is_one() -> None:
    found = several([0.5], [0.58])
    assert found.headline == "Sharing gains 16 % (one seed; --seeds 3 tells chance from gain)."
    assert found.margin is None
    assert found.relative == pytest.approx(0.16)


def test_the_same_seed_twice_is_one_seed() -> None:
    twice = [one(3, local=0.5, secea=0.6), one(3, local=0.5, secea=0.6)]
    assert judged(ABOUT, twice).seeds == (3,)
    assert "one seed" in judged(ABOUT, twice).headline


@pytest.mark.parametrize(("about", "shared"), [(ABOUT, [0.49, 0.491, 0.489]), (ERRORS, [0.51, 0.509, 0.511])])
def test_a_loss_is_said_to_be_one_whichever_way_the_metric_goes(about: About, shared: Sequence[float]) -> None:
    found = several([0.5, 0.5, 0.5], shared, about)
    assert found.outcome == "loss"
    assert found.gain == pytest.approx(-0.01)
    assert found.headline.startswith("Sharing did not help here: 2.0 % worse (3 seeds, +-")
    assert ("lower is better" in found.detail) == (about is ERRORS)
    assert several([0.5] * 3, [1 - each for each in shared], about).outcome == "gain"


@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=1, max_size=6))
def test_a_metric_and_its_complement_give_the_same_verdict(pairs: list[tuple[float, float]]) -> None:
    there = several([a for a, _ in pairs], [b for _, b in pairs])
    back = several([2 - a for a, _ in pairs], [2 - b for _, b in pairs], ERRORS)
    assert back.gain == pytest.approx(there.gain, abs=1e-12)
    clear = abs(abs(there.gain or 0.0) - (there.margin or 0.0)) > 1e-9
    assert back.outcome == there.outcome or not clear


def test_numbers_that_are_the_same_are_no_gain() -> None:
    assert several([0.5, 0.6], [0.5, 0.6]).headline == (
        "Sharing changes nothing: all numbers are as without it (2 seeds)."
    )


# ------------------------------------------------------------------------------------------------------- how it is said


def test_a_percentage_of_next_to_nothing_is_not_given() -> None:
    found = several([0.01], [0.10])
    assert found.headline.startswith("Sharing gains 0.090 MRR (")
    assert found.relative is None
    assert several([0.0], [0.10]).relative is None


def test_an_auc_is_compared_in_its_own_units() -> None:
    assert several([0.6], [0.7], replace(ABOUT, metric="auc")).headline.startswith("Sharing gains 0.100 AUC (")


def test_the_price_of_privacy_is_named() -> None:
    found = several([0.42], [0.027], replace(ABOUT, epsilon=8.0))
    assert found.headline.startswith("With epsilon 8, sharing does not help: 94 % worse")
    assert several([0.42], [0.5], replace(ABOUT, epsilon=0.5)).headline.startswith("With epsilon 0.5, sharing gains")


def test_pooled_data_is_a_number_beside_the_verdict() -> None:
    found = judged(ABOUT, [one(local=0.5, secea=0.6, central=0.7)])
    assert found.detail.startswith("MRR rises from 0.500 alone to 0.600 with secea; with all data in one place it is")
    assert found.pooled == 0.7


# ------------------------------------------------------------------------------------------------------ what is missing


@pytest.mark.parametrize(
    ("methods", "says"),
    [
        (("plain", "central"), "compares local with plain, and this run has only plain, central. Add local to"),
        (("local", "common"), "compares local with secea, and this run has only local, common. Add secea to"),
        (("central",), "this run has only central. Add local and secea to --methods."),
    ],
)
def test_methods_that_are_missing_are_named(methods: tuple[str, ...], says: str) -> None:
    found = judged(replace(ABOUT, methods=methods), [gave(dict.fromkeys(methods, 0.5))])
    assert (found.outcome, found.measured) == ("none", True)
    assert says in found.headline


def test_plain_stands_for_secea_and_says_so() -> None:
    found = judged(replace(ABOUT, methods=("local", "plain")), [one(local=0.5, plain=0.6)])
    assert (found.outcome, found.method) == ("gain", "plain")
    assert "plain stands for secea, which was not run." in found.detail


def test_where_nothing_was_measured_the_reason_is_the_first_word() -> None:
    found = judged(ABOUT, [Seen(0, {}, {}, why=nobody("no test triples"))])
    assert (found.headline, found.measured) == ("Nothing could be measured: no client has test triples.", False)
    assert "not finite" in judged(ABOUT, [Seen(0, {}, {})]).headline
    partly = judged(ABOUT, [Seen(0, {"local": 0.5}, {})])
    assert partly.headline == "No verdict about sharing: secea has no number for MRR in the end."


def test_an_unfinished_run_says_how_far_it_is() -> None:
    found = judged(ABOUT, [one(round=10, local=0.5, secea=0.6)])
    assert found.headline.startswith("So far, in round 10 of 40, sharing gains 20 %")
    assert judged(ABOUT, [one(round=0, local=0.5)]).headline.endswith("yet: secea was not evaluated so far.")
    assert judged(ABOUT, [one(round=0, local=0.5, secea=0.1)]).outcome == "none", "methods stand in different rounds"
    assert judged(ABOUT, [Seen(0, {}, {}, 0)]).headline == "Nothing was evaluated yet."


def test_unfinished_seeds_do_not_count_beside_finished_ones() -> None:
    seeds = [one(seed, local=0.5, secea=0.6 + seed / 1000) for seed in range(3)]
    found = judged(ABOUT, [*seeds, one(7, round=10, local=0.5, secea=0.1)])
    assert found.seeds == (0, 1, 2)
    assert found.detail.endswith("Not counted, because unfinished: seed 7.")


# --------------------------------------------------------------------------------------------------- what is suspicious


def test_secea_and_plain_that_differ_are_the_first_thing_to_be_said() -> None:
    found = judged(ABOUT, [one(5, local=0.5, secea=0.6, plain=0.62)])
    (warning,) = found.warnings
    assert warning.startswith("SECEA AND PLAIN DIFFER, AND SHOULD NOT: MRR 0.600 and 0.620 with seed 5.")
    assert found.sentence.startswith(warning)
    assert found.to_json()["warnings"] == [warning]


@pytest.mark.parametrize(
    ("about", "finals"),
    [
        (ABOUT, {"secea": 0.558, "plain": 0.5567}),  # what jumps in a gradient do: docs/learning.md
        (ABOUT, {"secea": 0.010, "plain": 0.014}),
        (ERRORS, {"secea": 0.958, "plain": 0.960}),
        (replace(ABOUT, alike=False), {"secea": 0.5, "plain": 0.6}),
    ],
)
def test_what_training_makes_of_the_resolution_is_no_alarm(about: About, finals: dict[str, float]) -> None:
    assert judged(about, [gave({"local": 0.5, **finals})]).warnings == ()


def test_weights_and_shared_noise_may_set_secea_and_plain_apart() -> None:
    for config in ({"weights": True}, {"dp": {"epsilon": 8.0, "shared": True}}):
        assert not About.of(config, "mrr", (), higher=True).alike
    about = About.of({"dp": {"epsilon": 8.0, "shared": False}, "split": "files"}, "mrr", (), higher=True)
    assert (about.alike, about.epsilon, about.same_clients) == (True, 8.0, True)


# --------------------------------------------------------------------------------------------------- does it help *me*?


def clients(alone: dict[str, float], shared: dict[str, float], seed: int = 0) -> Seen:
    return Seen(seed, {"local": 0.5, "secea": 0.6}, {"local": alone, "secea": shared})


def test_it_is_said_how_many_clients_gain_and_who_loses_the_most() -> None:
    found = judged(ABOUT, [clients({"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5}, {"a": 0.6, "b": 0.45, "c": 0.49})])
    assert (found.clients.gain, found.clients.lose, found.clients.most_lost) == (1, 2, "b")
    assert found.detail.endswith("1 of 3 clients gains; 2 lose, b the most, 10 %: 0.500 to 0.450.")
    found = judged(ABOUT, [clients({"a": 0.5, "b": 0.5, "c": 0.5}, {"a": 0.6, "b": 0.45, "c": 0.7})])
    assert found.detail.endswith("2 of 3 clients gain; b loses 10 %: 0.500 to 0.450.")
    every = judged(ABOUT, [clients({"a": 0.5, "b": 0.5, "c": 0.5}, {"a": 0.6, "b": 0.55, "c": 0.7})])
    assert every.detail.endswith("All 3 clients with test data gain.")
    assert every.clients.most_lost is None


def test_clients_are_the_same_in_all_seeds_only_if_the_data_came_split() -> None:
    seeds = [clients({"a": 0.5, "b": 0.5}, {"a": 0.6, "b": 0.45 + seed / 20}, seed) for seed in range(3)]
    dealt, came = (judged(replace(ABOUT, same_clients=same), seeds) for same in (False, True))
    assert (dealt.clients.gain, dealt.clients.lose, dealt.clients.same) == (4, 1, 1)
    assert dealt.clients.most_lost == "b of seed 0"
    assert "4 of 6 clients gain (all 3 seeds together)" in dealt.detail
    assert (came.clients.gain, came.clients.lose, came.clients.same) == (1, 0, 1)
