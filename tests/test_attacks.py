"""Every attack and every statistic fails on the product, and succeeds where a protection is taken away."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from secea.audit import Claim, Mutant, Objection, attacks, statistics
from secea.audit.attacks import bribe, counts
from secea.audit.recorded import Recorded, random_tables
from secea.audit.tails import FALSE_ALARM, binomial_tail, chi_square_tail, kolmogorov_tail
from secea.params import Params

CLAIMS: Sequence[Claim] = (*attacks.CLAIMS, *statistics.CLAIMS)
MUTANTS: Sequence[Mutant] = (*attacks.MUTANTS, *statistics.MUTANTS)
BY_NAME = {claim.name: claim for claim in CLAIMS}
CAUGHT = [(mutant, name) for mutant in MUTANTS for name in mutant.caught_by]


# -------------------------------------------------------------------------------------------------- documented limits


@pytest.mark.parametrize("kind", counts.GRIDS, ids=lambda kind: kind.name)
def test_exact_means_of_the_paillier_form_show_their_counts(kind: counts.Grid) -> None:
    assert counts.limit_of_exact_means(kind) >= 0.75


@pytest.mark.parametrize("kind", counts.GRIDS[:3], ids=lambda kind: kind.name)
def test_tables_too_small_to_find_their_grid_show_counts(kind: counts.Grid) -> None:
    assert counts.limit_of_small_tables(kind) >= 0.9


@pytest.mark.parametrize("form", ["reciprocal", "paillier"])
def test_a_bribed_client_and_the_server_learn_counts_and_sums_but_no_single_embedding(form: str) -> None:
    spoils = bribe.bribed(form)
    truth, sums = bribe.true_counts(spoils), bribe.true_sums(spoils)
    assert spoils.counts == {query: truth[query] for query in spoils.counts}
    assert {n for n, _ in spoils.counts} == ({0, 1, 2, 3} if form == "reciprocal" else {0})
    assert spoils.sums.keys() <= set(range(6)) - set(spoils.run.clients[0].rows.tolist())
    assert spoils.sums, "now and then two entities share all their buckets; not all of them"
    for row, found in spoils.sums.items():
        assert np.abs(found - sums[row]).max() < 4 * spoils.run.params.resolution
        shared = [table[name] for table in spoils.tables[1:] for name in table]  # all but "a" and "b" have two owners
        assert all(np.abs(found - h).max() > 2.0**-10 for h in shared), "a sum is nobody's embedding"


@pytest.mark.parametrize(("clients", "collusion"), [(3, 1), (4, 1), (5, 1), (5, 2), (7, 2), (9, 4)])
def test_single_embeddings_are_independent_of_what_t_bribed_clients_and_the_server_have(
    clients: int, collusion: int
) -> None:
    params = Params(clients, dim=3, collusion=collusion)
    assert bribe.embeddings_stay_free(params, collusion)
    assert not bribe.embeddings_stay_free(params, collusion + 1)


# --------------------------------------------------------------------------------------------- the attacks' own tools


def test_the_search_guesses_no_better_than_chance_where_means_have_no_grid() -> None:
    rng = np.random.default_rng(13)
    truth = rng.integers(2, counts.CLIENTS + 1, size=2000)
    found = counts.guesses(rng.normal(size=(2000, 4)), rng.normal(size=(2000, 4)), [2.0**-8], 2.0**-20, 0.0)
    assert abs(counts.judge("nothing to see", found, truth) - counts.CHANCE) < 0.07
    with pytest.raises(Objection, match="100% of counts guessed right, 20% are chance"):
        counts.judge("everything to see", truth, truth)


def test_the_worlds_of_the_search_have_means_whose_size_does_not_tell_the_count() -> None:
    made = counts.world(counts.GRIDS[1])
    means = [np.mean([made.rows[n][e] for n in own], axis=0) for e, own in enumerate(made.owners)]
    sizes = np.square(means).mean(axis=1)
    for c in range(2, counts.CLIENTS + 1):
        few = sizes[made.counts == c]
        assert abs(few.mean() - 0.25) < 6 * few.std() / math.sqrt(few.size)


@pytest.mark.parametrize(
    ("statistic", "freedom", "tail"),
    [(3.841459, 1, 0.05), (15.0, 15, 0.4514172), (30.57791, 15, 0.01), (100.0, 15, 3.4e-15), (59.0, 59, 0.4755)],
)
def test_the_tail_of_chi_square_is_that_of_the_tables(statistic: float, freedom: int, tail: float) -> None:
    assert chi_square_tail(statistic, freedom) == pytest.approx(tail, rel=0.2 if tail < 1e-9 else 1e-3)


@pytest.mark.parametrize(
    ("hits", "trials", "chance"), [(30, 100, 0.2), (250, 1000, 0.2), (100, 100, 0.5), (3, 100, 0.2)]
)
def test_the_bound_on_a_binomial_tail_is_above_it_and_not_far(hits: int, trials: int, chance: float) -> None:
    terms = (math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(hits, trials + 1))
    exact = math.fsum(terms)
    assert exact <= binomial_tail(hits, trials, chance) * (1 + 1e-9) <= max(1.0, 20 * math.sqrt(trials) * exact)


def test_the_bound_on_kolmogorovs_distance_is_small_only_where_the_distance_is_large() -> None:
    assert kolmogorov_tail(0.01, 100) == 1.0
    assert kolmogorov_tail(0.5, 432) < FALSE_ALARM < kolmogorov_tail(0.1, 432)


def test_a_recorded_federation_gives_the_means() -> None:
    sets = [{"a", "b"}, {"a"}, {"b", "c"}]
    tables = random_tables(sets, 4, np.random.default_rng(14))
    run = Recorded(sets, dim=4).setup().round(tables)
    means = run.clients[0].means
    assert means is not None
    expected = {"a": (tables[0]["a"] + tables[1]["a"]) / 2, "b": (tables[0]["b"] + tables[2]["b"]) / 2}
    for name, mean in zip(run.clients[0].names, means, strict=True):
        assert np.abs(mean - expected[str(name)]).max() < run.params.resolution
