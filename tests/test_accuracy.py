"""The accuracy that is stated holds: a mean is off by no more, whatever the tables are, and not by much less."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import secea
from secea.accuracy import with_decimals
from secea.forms import FormName

Draw = Callable[[np.random.Generator, tuple[int, int]], NDArray[Any]]


def bf16(x: NDArray[Any]) -> NDArray[Any]:
    return (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def one_fine(x: NDArray[Any]) -> NDArray[Any]:
    x = bf16(x)
    x[0, 0] = np.float32(1 / 3)
    return x


def in_rows(x: NDArray[Any]) -> NDArray[Any]:
    """Each row in steps of its own."""
    steps = 2.0 ** -np.arange(1, len(x) + 1).clip(1, 20)[:, None]
    return np.round(x / steps) * steps


KINDS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "float64": lambda x: x,
    "float32": lambda x: x.astype(np.float32),
    "float16": lambda x: x.astype(np.float16).astype(np.float32),
    "bf16": bf16,
    "one fine number in a coarse table": one_fine,
    "three decimals": lambda x: np.round(x, 3),
    "two decimals in float32": lambda x: np.round(x, 2).astype(np.float32),
    "whole numbers": lambda x: np.round(x),
    "int8 times a scale": lambda x: np.round(x / 0.0371) * 0.0371,
    "steps of rows": in_rows,
    "large ones": lambda x: np.clip(x * 30, -64, 64),
    "zeros": lambda x: x * 0,
}


def tables(rng: np.random.Generator, kinds: list[str], rows: int = 40, dim: int = 9) -> list[secea.Table]:
    """Owners share about half of their entities."""
    found = []
    for n, kind in enumerate(kinds):
        names = [f"e{i}" for i in range(n * rows // 2, n * rows // 2 + rows)]
        found.append(secea.Table(names, KINDS[kind](rng.normal(0, 1, (rows, dim)))))
    return found


def means(given: list[secea.Table], params: secea.Params, form: FormName = "keyed") -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about two clients
        fed = secea.Federation(params, form)
        fed.setup([table.names for table in given])
        return fed.round(given)


def errors(given: list[secea.Table], found: list[Any]) -> list[NDArray[np.float64]]:
    """How far each row is off the exact mean."""
    everything: dict[Any, list[tuple[float, NDArray[np.float64]]]] = {}
    for table in given:
        weights = np.ones(len(table)) if table.weights is None else table.weights
        for name, row, weight in zip(table.names, table.matrix, weights, strict=True):
            everything.setdefault(name, []).append((float(weight), row.astype(np.float64)))
    out = []
    for table, mean in zip(given, found, strict=True):
        off = np.zeros(len(table))
        for i, name in enumerate(table.names):
            total = sum(weight for weight, _ in everything[name])
            if total:
                true = sum(weight * row for weight, row in everything[name]) / total
                off[i] = np.abs(mean.matrix[i] - true).max()
        out.append(off)
    return out


some_kinds = st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=4)


@settings(max_examples=25, deadline=None)
@given(some_kinds, st.sampled_from([16, 24, 36]), st.integers(0, 2**32 - 1))
def test_no_mean_is_off_by_more_than_its_row_is_said_to_be(kinds: list[str], precision: int, seed: int) -> None:
    given_ = tables(np.random.default_rng(seed), kinds)
    params = secea.Params(len(kinds), dim=9, precision=precision)
    said = secea.accuracy(given_, params)
    for off, bounds in zip(errors(given_, means(given_, params)), said.rows, strict=True):
        assert np.all(off <= bounds)
        assert bounds.max() <= said.bound


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_bound_is_near_the_worst_error_of_many_numbers(kind: str) -> None:
    given_ = tables(np.random.default_rng(7), [kind, kind, "float64"], rows=120)
    params = secea.Params(3, dim=9)
    worst = max(off.max() for off in errors(given_, means(given_, params)))
    assert worst <= secea.accuracy(given_, params).bound <= 4 * worst


@settings(max_examples=10, deadline=None)
@given(some_kinds, st.sampled_from([1, 5, 1000]), st.integers(0, 2**32 - 1))
def test_the_same_with_weights(kinds: list[str], most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    given_ = [table.weighing(rng.integers(0, most + 1, len(table))) for table in tables(rng, kinds)]
    params = secea.Params(len(kinds), dim=9, max_weight=most)
    said = secea.accuracy(given_, params)
    for off, bounds in zip(errors(given_, means(given_, params)), said.rows, strict=True):
        assert np.all(off <= bounds)


def test_rows_below_the_minimum_and_rows_left_out_stay_as_they_are_and_have_no_error() -> None:
    given_ = tables(np.random.default_rng(1), ["three decimals"] * 3)
    params = secea.Params(3, dim=9, min_owners=3)
    found, said = means(given_, params), secea.accuracy(given_, params)
    for table, mean, bounds in zip(given_, found, said.rows, strict=True):
        assert not bounds[np.all(table.matrix == mean.matrix, axis=1)].any()
    assert sum(int(np.count_nonzero(bounds)) for bounds in said.rows) == 0  # chains of halves: nobody has three owners
    left_out = [table.weighing(np.arange(len(table)) % 2) for table in given_]
    partial = secea.Params(3, dim=9, partial=True)
    for off, bounds in zip(
        errors(left_out, means(left_out, partial)), secea.accuracy(left_out, partial).rows, strict=True
    ):
        assert np.all(off <= bounds)


def test_the_paper_s_form_fills_nothing() -> None:
    given_ = tables(np.random.default_rng(2), ["whole numbers"] * 3, rows=4)
    params = secea.Params(3, dim=9, key_bits=512, insecure_small_keys=True)
    said = secea.accuracy(given_, params, "paillier")
    assert said.bound == pytest.approx(params.resolution)
    assert not said.coarse
    assert max(off.max() for off in errors(given_, means(given_, params, "paillier"))) <= said.bound


def test_a_result_that_is_kept_in_a_shorter_type_is_off_by_its_rounding_too() -> None:
    given_ = tables(np.random.default_rng(3), ["float64"] * 3)
    params = secea.Params(3, dim=9, precision=36)
    said = secea.accuracy(given_, params, dtypes=["f2", "f4", "f8"])
    for n, (table, dtype) in enumerate(zip(means(given_, params), ("f2", "f4", "f8"), strict=True)):
        kept = secea.Table(table.names, table.matrix.astype(dtype).astype(np.float64))
        off = errors(given_, [kept if k == n else given_[k] for k in range(3)])[n]
        assert off.max() <= said.rows[n].max() <= 8 * off.max()


def test_noise_is_told_by_its_standard_deviation() -> None:
    given_ = tables(np.random.default_rng(4), ["float64"] * 3)
    said = secea.accuracy(given_, secea.Params(3, dim=9, noise=0.5, collusion=2))
    assert said.noise == pytest.approx(0.5 * 3**0.5)
    assert "noise of standard deviation 0.87" in said.told("abc")[0]


def test_coarse_tables_are_named_with_their_step_and_what_to_do() -> None:
    rng = np.random.default_rng(5)
    given_ = tables(rng, ["three decimals", "float64", "three decimals", "bf16"])
    given_[1].matrix[3] = np.arange(9) / 4
    first, *lines = secea.accuracy(given_, secea.Params(4, dim=9)).told(["a", "b", "c", "d"])
    assert first.startswith("means exact to within ")
    assert lines[0] == (
        "a and c have numbers with 3 decimals, in steps of 0.001, and what is below a step is filled: write all digits"
        " for means exact to within 3.8e-06"
    )
    assert lines[1].startswith("b has numbers in steps of up to 0.25 in 1 of 40 rows")
    assert lines[2].startswith("d has numbers in steps of up to 0.0")
    assert "give numbers that were not rounded" in lines[2]
    assert len(secea.accuracy(tables(rng, ["float64"] * 3), secea.Params(3, dim=9)).told("abc")) == 1


@pytest.mark.parametrize("decimals", [1, 2, 3, 5])
def test_the_bound_for_decimals_is_the_one_of_tables_that_have_them(decimals: int) -> None:
    rng, params = np.random.default_rng(decimals), secea.Params(3, dim=16)
    given_ = [
        secea.Table([f"{n} {i}" for i in range(50)], np.round(rng.uniform(-20, 20, (50, 16)), decimals))
        for n in range(3)
    ]
    said = with_decimals(params, decimals)
    assert secea.accuracy(given_, params).bound == pytest.approx(said, rel=1e-2)
    assert said == pytest.approx(params.resolution + 10.0**-decimals / 2, rel=1e-2)
    assert with_decimals(params, decimals, "paillier") == params.resolution


def test_tables_and_clients_are_equally_many() -> None:
    with pytest.raises(secea.TableError, match="3 clients need as many tables, got 1"):
        secea.accuracy([{"a": [1.0]}], secea.Params(3, dim=1))
