"""Laws of DataFrames: what in them is a name, a number, a weight; and that what comes back is what was given."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from polars.testing import assert_frame_equal as assert_polars_equal

from secea import Federation, Params, Table, aggregate
from secea.errors import NothingShared, SecEAError, TableError, TableTypeError
from secea.table import as_table, like

law = settings(deadline=None)
names = st.lists(st.text("abcdefgh \u00e9'\"", min_size=1, max_size=5), min_size=1, max_size=8, unique=True)
SEED = 20261118
FLOATS = {"float16": pl.Float16, "float32": pl.Float32, "float64": pl.Float64}
LIBRARIES = ("pandas index", "pandas column", "polars", "arrow")


def numbers(rows: int, columns: int, seed: int = SEED) -> Any:
    return np.random.default_rng(seed).normal(size=(rows, columns))


def made(kind: str, own: list[Any], columns: dict[str, Any]) -> Any:
    """A frame of one of the libraries."""
    match kind:
        case "pandas index":
            return pd.DataFrame(columns, index=pd.Index(own, name="entity"))
        case "pandas column":
            return pd.DataFrame({"entity": own, **columns})
        case "polars":
            return pl.DataFrame({"entity": own, **columns})
        case _:
            return pa.table({"entity": own, **columns})


def same(one: Any, other: Any) -> bool:
    """Type, index, columns, types of columns and values."""
    assert type(one) is type(other)
    if isinstance(one, pd.DataFrame):
        assert_frame_equal(one, other)
    elif isinstance(one, pl.DataFrame):
        assert_polars_equal(one, other)
    else:
        assert one.equals(other)
        assert one.schema == other.schema
    return True


def back(frame: Any, weights: str | None = None) -> Any:
    table = as_table(frame, weights=weights)
    return like(frame, table, table.matrix, weights)


# --------------------------------------------------------------------------------------------------- the same as tables


@law
@given(names, st.lists(st.sampled_from(sorted(FLOATS)), min_size=1, max_size=4), st.integers(0, 99))
def test_a_frame_is_the_table_of_its_names_and_numbers_and_comes_back_as_it_was(
    own: list[str], types: list[str], seed: int
) -> None:
    values = numbers(len(own), len(types), seed)
    columns = {f"x{i}": values[:, i].astype(each) for i, each in enumerate(types)}
    exact = np.stack([*columns.values()], axis=1)
    for kind in LIBRARIES:
        frame = made(kind, own, columns)
        table = as_table(frame)
        assert table.names == tuple(own)
        assert table.dtype == (np.float64 if "float64" in types else np.float32)
        assert np.array_equal(table.matrix, exact)
        assert same(back(frame), frame)


@settings(deadline=None, max_examples=8)
@given(st.lists(names, min_size=3, max_size=3), st.integers(0, 99))
def test_means_are_the_same_from_frames_of_any_library_from_mappings_and_from_tables(
    sets: list[list[str]], seed: int
) -> None:
    matrices = [numbers(len(own), 2, seed + n) for n, own in enumerate(sets)]
    given_ = [Table(own, matrix) for own, matrix in zip(sets, matrices, strict=True)]
    expected = aggregate(given_)
    for kind in (*LIBRARIES, "mapping", "mixed"):
        tables: list[Any] = [
            table.as_dict()
            if kind == "mapping"
            else made(
                LIBRARIES[n] if kind == "mixed" else kind, own, {"x": table.matrix[:, 0], "y": table.matrix[:, 1]}
            )
            for n, (own, table) in enumerate(zip(sets, given_, strict=True))
        ]
        for mean, right, own in zip(aggregate(tables), expected, sets, strict=True):
            table = as_table(mean)
            assert table.names == tuple(own)
            assert np.abs(table.matrix - right.matrix).max() < 2 * Params(clients=3, dim=2).resolution


@pytest.mark.parametrize("kind", LIBRARIES)
def test_means_come_back_beside_the_names_where_the_numbers_were(kind: str) -> None:
    sets = [["a", "b"], ["b"], ["b", "c"]]
    values: list[list[float]] = [[1.0, 2.0], [4.0], [6.0, 8.0]]
    frames = [
        made(kind, own, {"y": each, "x": np.array(each, np.float32)}) for own, each in zip(sets, values, strict=True)
    ]
    means = aggregate(frames)
    for frame, mean, expected in zip(frames, means, ([1.0, 4.0], [4.0], [4.0, 8.0]), strict=True):
        assert type(mean) is type(frame)
        assert list(mean.columns if kind != "arrow" else mean.schema) == list(
            frame.columns if kind != "arrow" else frame.schema
        )
        table = as_table(mean)
        assert table.names == as_table(frame).names
        assert np.allclose(table.matrix, np.stack([expected, expected], axis=1), atol=1e-5)


def test_importing_secea_and_averaging_mappings_loads_no_library_of_frames() -> None:
    loaded = "print({'pandas', 'polars', 'pyarrow'} & {*sys.modules})"
    script = f"import sys, secea; secea.aggregate([{{'a': [1.0]}}] * 3); {loaded}"
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)  # noqa: S603  # our own script
    assert ran.stdout.strip() == "set()"


def test_an_int_index_of_pandas_and_a_text_column_of_polars_are_the_same_entities() -> None:
    tables = [
        pd.DataFrame({"x": [1.0, 2.0]}, index=[7, 12]),
        pl.DataFrame({"entity": ["7"], "x": [3.0]}),
        {np.int32(7): [5.0]},
    ]
    first, second, third = aggregate(tables)
    assert first.loc[7, "x"] == pytest.approx(3, abs=1e-5)
    assert first.index.tolist() == [7, 12]
    assert second["x"][0] == pytest.approx(3, abs=1e-5)
    assert second["entity"][0] == "7"
    assert third[7] == pytest.approx(3, abs=1e-5)


# ------------------------------------------------------------------------------------------------------ where names are


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(["a", "b"], name="drug"),
        pd.Index(["a", "b"], dtype="string", name=("two", "parts")),
        pd.Index(["a", "b"], dtype=object),
        pd.CategoricalIndex(["a", "b"], name="drug"),
        pd.Index([7, -8], dtype=np.int32),
        pd.Index([7, 8], dtype="Int64"),
        pd.RangeIndex(2, name="item"),
    ],
    ids=str,
)
def test_an_index_comes_back_with_its_name_and_type(index: Any) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}, index=index)
    frame.attrs["source"] = "north"
    found = back(frame)
    assert same(found, frame)
    assert found.attrs == frame.attrs
    assert tuple(as_table(frame).names) == tuple(index.tolist())


@pytest.mark.parametrize(
    "column",
    [pd.Series(["a", "b"]), pd.Series(["a", "b"], dtype="string"), pd.Series(["a", "b"], dtype=object),
     pd.Series(["a", "b"], dtype="category"), pd.Series(["a", "b"], dtype="string[pyarrow]")],
    ids=lambda each: str(each.dtype),
)  # fmt: skip
def test_a_column_of_names_comes_back_in_its_place(column: Any) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0], "drug": column, "y": [3.0, 4.0]})
    assert as_table(frame).names == ("a", "b")
    assert same(back(frame), frame)
    assert same(back(frame[1:]), frame[1:]), "a slice counts rows too"


@pytest.mark.parametrize(
    "names",
    [
        pl.Series(["a", "b"]),
        pl.Series(["a", "b"], dtype=pl.Categorical),
        pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
    ],
)
def test_a_text_column_of_polars_has_the_names_wherever_it_is(names: Any) -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0], "drug": names, "y": [3.0, 4.0]})
    assert as_table(frame).names == ("a", "b")
    assert same(back(frame), frame)


@pytest.mark.parametrize("values", [pa.array(["a", "b"], pa.large_string()), pa.array(["a", "b"]).dictionary_encode()])
def test_a_text_column_of_arrow_has_the_names_wherever_it_is(values: Any) -> None:
    frame = pa.table({"x": [1.0, 2.0], "drug": values}).replace_schema_metadata({"made": "by hand"})
    assert as_table(frame).names == ("a", "b")
    assert same(back(frame), frame)
    assert back(frame).schema.metadata == {b"made": b"by hand"}
    assert same(back(frame.slice(1)), frame.slice(1))


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table])
def test_without_text_the_first_column_has_the_names_if_it_alone_has_integers(make: Any) -> None:
    assert as_table(make({"id": [7, 3], "x": [1.0, 2.0]})).names == (7, 3)
    for columns in ({"id": [7, 3], "x": [1, 2]}, {"x": [1.0, 2.0], "id": [7, 3]}, {"x": [1.0, 2.0]}):
        with pytest.raises(TableError, match="the table has no names: put them in a column of text, or of integers"):
            as_table(make(columns))
    with pytest.raises(TableError, match=r"column 'id' counts the rows from 0 on.* make the column text"):
        as_table(make({"id": [0, 1], "x": [1.0, 2.0]}))


@pytest.mark.parametrize("frame", [pd.DataFrame({"x": [1.0, 2.0]}), pd.DataFrame({"id": [7, 8], "x": [1.0, 2.0]}),
                                   pd.DataFrame({"x": [1.0, 2.0, 3.0]})[1:]])  # fmt: skip
def test_rows_that_are_only_counted_have_no_names_and_the_error_says_what_to_do(frame: Any) -> None:
    with pytest.raises(TableError, match=r"where a row is and not what it is.*frame\.set_index\('name'\).*rename_axis"):
        as_table(frame)
    assert as_table(frame.rename_axis("item")).names == tuple(frame.index)


BAD_NAMES: list[tuple[Any, str]] = [
    ([1.0, 2.0], r"the entity name 1\.0 is of type float.*write 1 \(of a pandas index: index\.astype\(int\)\)"),
    ([1.5, 2.0], r"the entity name 1\.5 is of type float.*str\(name\)"),
    ([b"a", b"b"], r"the entity name b'a' is of type bytes.*name\.decode\(\)"),
    (pd.to_datetime(["2026-01-01", "2026-01-02"]), r"the entity name Timestamp\(.* write it as text"),
    (["a", None], "row 1 has no name in the index; drop the row"),
    ([1.0, np.nan], "row 1 has no name in the index"),
    (pd.Index([7, None], dtype="Int64"), "row 1 has no name in the index"),
    (["a", "a"], "the entity 'a' occurs more than once"),
    ([7, "7"], "the entities 7 and '7' are one"),
    (["", "a"], "an entity name is empty"),
    ([True, False], "the entity name True is a truth value"),
    (pd.MultiIndex.from_tuples([("a", 1), ("b", 2)]), r"the index has 2 levels.*frame\.index\.map\('/'\.join\)"),
]


@pytest.mark.parametrize(("index", "error"), BAD_NAMES, ids=[error[:30] for _, error in BAD_NAMES])
def test_an_index_that_has_no_names_is_refused_and_the_error_says_what_to_do(index: Any, error: str) -> None:
    with pytest.raises(TableError, match=error):
        as_table(pd.DataFrame({"x": [1.0, 2.0]}, index=index))


@pytest.mark.parametrize("name", [None, float("nan"), pd.NA, pd.NaT, np.float64("nan")])
def test_a_missing_name_in_a_list_is_said_to_be_missing(name: Any) -> None:
    with pytest.raises(TableTypeError, match="it is missing, so drop the row, or give it a name"):
        Table([name], np.zeros((1, 1)))


# ------------------------------------------------------------------------------------------------------ what is refused

AB = ["a", "b"]
BAD_COLUMNS: list[tuple[dict[str, Any], str]] = [
    ({"x": [1.0, None]}, "the entity 'b' has no value in column 'x'; fill it, or drop the row"),
    ({"x": [True, False]}, "column 'x' is of type [Bb]ool(ean)?, and an embedding has only numbers"),
    (
        {"x": np.array(["2026-01-01", "2026-01-02"], "datetime64[ms]")},
        "column 'x' is of type .*([Dd]atetime|timestamp).*",
    ),
    ({"v": [[1.0, 2.0], [3.0]]}, "the embedding of entity 'b' has length 1, others have 2"),
    ({"v": [[1.0, 2.0, 3.0], [4.0]]}, "the embedding of entity 'b' has length 1, others have 3"),
    ({"v": [[1.0, 2.0], [3.0, 4.0]], "x": [1.0, 2.0]}, "column 'v' holds lists, and other columns are beside it"),
    ({"v": [[1.0], None]}, "the entity 'b' has no value in column 'v'"),
    ({"v": [[], []]}, "(the embedding of entity 'a' is empty|column 'v' is of type .*ull)"),
    ({}, "the table has no columns with numbers"),
]


@pytest.mark.parametrize("kind", LIBRARIES)
@pytest.mark.parametrize(("columns", "error"), BAD_COLUMNS, ids=[error[:40] for _, error in BAD_COLUMNS])
def test_a_column_that_is_no_embedding_is_refused_with_its_name_and_the_entitys(
    kind: str, columns: dict[str, Any], error: str
) -> None:
    with pytest.raises(TableError, match=error):
        as_table(made(kind, AB, columns))


@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_nan_is_missing_where_a_library_takes_it_for_a_number(kind: str) -> None:
    with pytest.raises(TableError, match="the entity 'b' has NaN in column 'y'"):
        as_table(made(kind, AB, {"x": [1.0, 2.0], "y": [1.0, float("nan")]}))


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_missing_number_within_a_list_is_refused_with_the_entitys_name(kind: str) -> None:
    frame = made(kind, AB, {"v": [[1.0, 2.0], [3.0, float("nan")]]})
    with pytest.raises(TableError, match="client 1: entity 'b', coordinate 1: nan is not a number"):
        aggregate([made(kind, AB, {"v": [[1.0, 2.0], [3.0, 4.0]]}), frame, {}])


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table])
def test_two_columns_of_text_are_refused_and_so_is_a_row_without_a_name(make: Any) -> None:
    with pytest.raises(TableError, match="the columns 'a', 'b' hold text: keep the one with the names"):
        as_table(make({"a": AB, "x": [1.0, 2.0], "b": AB}))
    with pytest.raises(TableError, match="row 1 has no name in column 'a'; drop the row"):
        as_table(make({"a": ["u", None], "x": [1.0, 2.0]}))


def test_text_beside_an_index_of_names_is_refused_with_both_ways_out() -> None:
    with pytest.raises(TableTypeError, match=r"column 'city' holds text.*frame\.set_index\('city'\), and if not, drop"):
        as_table(pd.DataFrame({"city": AB, "x": [1.0, 2.0]}, index=[4, 7]))


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        (pd.Series([1.0], index=["a"]), "to_frame"),
        (pl.Series([1.0]), "DataFrame beside its names"),
        (pl.DataFrame({"a": ["b"]}).lazy(), "collect"),
        (pa.record_batch({"a": ["b"]}), "from_batches"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_almost_a_frame_is_refused_with_a_hint(source: Any, hint: str) -> None:
    with pytest.raises(TableTypeError, match=rf"or a DataFrame, got .*{hint}"):
        as_table(source)


def test_a_mean_that_its_column_cannot_hold_is_refused_with_the_entitys_name() -> None:
    small = pd.DataFrame({"x": [1.0]}, index=["a"]).astype(np.float16)
    with pytest.raises(
        TableError, match="client north: the mean of 'a' is too large for the type of its column, float16"
    ):
        aggregate({"north": small, "south": {"a": [3e5]}, "west": {"a": [3e5]}}, max_abs=2.0**20)


# ----------------------------------------------------------------------------------------------------- types of numbers


def test_integers_become_float64_and_nullable_types_stay_nullable() -> None:
    frame = pd.DataFrame(
        {
            "int": [1, 2],
            "Int64": pd.array([1, 2], "Int64"),
            "Float32": pd.array([1, 2], "Float32"),
            "arrow int": pd.array([1, 2], "int32[pyarrow]"),
            "arrow float": pd.array([1, 2], "float[pyarrow]"),
            "sparse": pd.arrays.SparseArray([0.0, 1.0]),
            "half": np.array([1, 2], np.float16),
        },
        index=AB,
    )
    types = ["float64", "Float64", "Float32", "double[pyarrow]", "float[pyarrow]", "Sparse[float64, nan]", "float16"]
    assert list(map(str, back(frame).dtypes)) == types
    assert same(back(frame), frame.astype(dict(zip(frame.columns, types, strict=True))))
    assert back(pl.DataFrame({"n": AB, "x": [1, 2]})).schema == {"n": pl.String, "x": pl.Float64}
    assert back(pa.table({"n": AB, "x": [1, 2]})).schema.field("x").type == pa.float64()


@pytest.mark.parametrize("inner", [pa.float16(), pa.float32(), pa.float64(), pa.int64()])
@pytest.mark.parametrize("outer", [pa.list_, pa.large_list, lambda inner: pa.list_(inner, 2)])
def test_a_column_of_lists_of_arrow_comes_back_as_one(outer: Any, inner: Any) -> None:
    column = pa.array([[1, 2], [3, 4]], outer(inner))
    frame = pa.concat_tables([pa.table({"n": [name], "v": column[i : i + 1]}) for i, name in enumerate(AB)])
    assert as_table(frame).matrix.tolist() == [[1, 2], [3, 4]]
    expected = outer(pa.float64()) if inner == pa.int64() else column.type
    assert same(back(frame).combine_chunks(), pa.table({"n": AB, "v": column.cast(expected)}).combine_chunks())


@pytest.mark.parametrize("inner", [pl.Float16, pl.Float32, pl.Float64, pl.Int16])
@pytest.mark.parametrize("outer", [pl.List, lambda inner: pl.Array(inner, 2)])
def test_a_column_of_lists_of_polars_comes_back_as_one(outer: Any, inner: Any) -> None:
    frame = pl.DataFrame({"n": AB, "v": [[1, 2], [3, 4]]}, schema={"n": pl.String, "v": outer(inner)})
    assert as_table(frame).matrix.tolist() == [[1, 2], [3, 4]]
    assert same(back(frame), frame.cast({"v": outer(pl.Float64 if inner == pl.Int16 else inner)}))


@pytest.mark.parametrize(
    "kind", [list, tuple, *(partial(np.array, dtype=dtype) for dtype in (np.float16, np.float32, np.int64))], ids=str
)
def test_a_column_of_lists_or_arrays_of_pandas_comes_back_as_one(kind: Any) -> None:
    frame = pd.DataFrame({"v": [kind([1, 2]), kind([3, 4])]}, index=AB)
    assert as_table(frame).matrix.tolist() == [[1, 2], [3, 4]]
    for found, row in zip(back(frame)["v"], frame["v"], strict=True):
        assert type(found) is type(row)
        assert list(found) == list(row)
        if isinstance(row, np.ndarray):
            assert found.dtype == (np.float64 if row.dtype == np.int64 else row.dtype)
    arrow = pd.DataFrame({"v": pd.array([[1, 2], [3, 4]], pd.ArrowDtype(pa.list_(pa.float32())))}, index=AB)
    assert same(back(arrow), arrow)


def test_columns_of_one_name_stay_apart() -> None:
    frame = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], index=AB, columns=["x", "x"])
    assert as_table(frame).matrix.tolist() == [[1, 2], [3, 4]]
    assert same(back(frame), frame)


# ------------------------------------------------------------------------------------------------------- empty, weights


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_frame_without_rows_is_a_client_without_entities(kind: str) -> None:
    empty = made(kind, AB, {"x": [1.0, 2.0], "y": [1, 2]})[:0]
    full = made(kind, AB, {"x": [1.0, 2.0], "y": [1.0, 2.0]})
    means = aggregate([empty, full, full])
    assert same(means[0], empty)
    assert len(means[1]) == 2


@pytest.mark.parametrize("kind", LIBRARIES)
@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint8])
def test_a_column_of_weights_is_no_part_of_the_embedding_and_comes_back_as_it_was(kind: str, dtype: Any) -> None:
    def frame(own: list[str], x: list[float], samples: list[int]) -> Any:
        return made(kind, own, {"samples": np.array(samples, dtype), "x": x})

    frames = [frame(["a", "b"], [1.0, 5.0], [100, 200]), frame(["a"], [4.0], [200]), frame(["b"], [7.0], [0])]
    one, two, three = aggregate(frames, weights="samples")
    expected = aggregate([as_table(each, weights="samples") for each in frames], max_weight=200)
    for mean, source, right in zip((one, two, three), frames, expected, strict=True):
        table = as_table(mean, weights="samples")
        assert table.weights is not None
        assert table.weights.tolist() == np.asarray(source["samples"]).tolist()
        assert np.allclose(table.matrix, right.matrix, atol=0.05)
    assert as_table(one, weights="samples").matrix[0, 0] == pytest.approx(3, abs=0.02)


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_column_of_weights_that_cannot_be_one_is_refused(kind: str) -> None:
    for columns, label, error in (
        (
            {"x": [1.0, 2.0]},
            "samples",
            "there is no column 'samples', and weights='samples' names one; the columns are",
        ),
        ({"x": [1.0, 2.0], "w": [0.5, 1.0]}, "w", "the entity 'a' has the weight 0.5; weights are whole numbers"),
        ({"x": [1.0, 2.0], "w": [None, 1]}, "w", "the entity 'a' has no value in column 'w'"),
        ({"x": [1.0, 2.0], "w": ["u", "v"]}, "w", "the weights in column 'w' are of type text; they are whole numbers"),
    ):
        with pytest.raises(TableError, match=error):
            as_table(made(kind, AB, columns), weights=label)


def test_a_column_of_weights_needs_a_frame() -> None:
    with pytest.raises(TableTypeError, match="client 1: weights='samples' names a column, and this is a dict without"):
        aggregate([pd.DataFrame({"x": [1.0], "samples": [3]}, index=["a"]), {"a": [1.0]}, {}], weights="samples")


def test_a_series_weighs_by_name_unless_its_index_only_counts_rows() -> None:
    table = Table(["a", "b"], np.zeros((2, 1)))
    for weights, expected in (
        (pd.Series({"b": 3, "a": 1}), [1, 3]),
        (pd.Series([1, 3]), [1, 3]),
        (pl.Series([1, 3]), [1, 3]),
        (pa.array([1, 3]), [1, 3]),
    ):
        found = table.weighing(weights).weights
        assert found is not None
        assert found.tolist() == expected
    with pytest.raises(TableError, match="the entity 'b' has no weight"):
        table.weighing(pd.Series({"a": 1}))
    with pytest.raises(TableError, match="the entity 'a' has more than one weight"):
        table.weighing(pd.Series([1, 2, 3], index=["a", "a", "b"]))
    with pytest.raises(TableError, match="the weight in row 1 is missing"):
        table.weighing(pd.Series({"a": 1, "b": None}))


# ------------------------------------------------------------------------------------------------------- in federations


def test_a_federation_takes_names_and_tables_from_frames_and_gives_frames_back_in_every_round() -> None:
    frames = [made(kind, [f"e{n}", "shared"], {"x": [1.0, n]}) for n, kind in enumerate(LIBRARIES)]
    fed = Federation(Params(clients=4, dim=1))
    fed.setup(frames)
    for _ in range(2):
        for mean, frame in zip(fed.round(frames), frames, strict=True):
            assert type(mean) is type(frame)
            assert as_table(mean)["shared"] == pytest.approx(1.5, abs=1e-5)
    fed.update(2, pl.DataFrame({"entity": ["new"], "x": [9.0]}))
    assert fed.clients[2].part.next_names == ("new",)
    assert fed.join(pd.DataFrame({"x": [9.0]}, index=["shared"])) == 4
    fed.update(4, pa.array(["e0"]))
    assert fed.clients[4].part.next_names == ("e0",)


def test_a_list_of_tables_is_not_one_frame() -> None:
    for call in (aggregate, Federation(Params(clients=3, dim=1)).setup):
        with pytest.raises(TableTypeError, match=r"expected a list of .*, got DataFrame"):
            call(pd.DataFrame({"x": [1.0, 2.0]}, index=AB))


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_big_frame_is_copied_about_once_each_way(kind: str) -> None:
    rows, width = 20_000, 64
    matrix = numbers(rows, width).astype(np.float32)
    frame = made(kind, [f"e{i}" for i in range(rows)], {f"x{i}": matrix[:, i] for i in range(width)})
    as_table(frame[:10])  # what is imported on the way does not count
    tracemalloc.start()
    try:
        table = as_table(frame)
        inside = tracemalloc.get_traced_memory()[1] / matrix.nbytes
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        like(frame, table, table.matrix)
        outside = (tracemalloc.get_traced_memory()[1] - before) / matrix.nbytes
    finally:
        tracemalloc.stop()
    assert inside < 2.2
    assert outside < 1.5


ODD: list[Any] = [
    pd.DataFrame({"x": [1j]}, index=["a"]),
    pd.DataFrame({"x": [object()]}, index=["a"]),
    pd.DataFrame({"x": [{"b": 1}]}, index=["a"]),
    pd.DataFrame({"x": [[["b"]]]}, index=["a"]),
    pd.DataFrame({"x": [[1.0], 2.0]}, index=AB),
    pd.DataFrame({("p", "q"): ["u"]}, index=["a"]),
    pl.DataFrame({"n": ["a"], "s": [{"b": 1}]}),
    pa.table({"n": ["a"], "s": [{"b": 1}]}),
]


@pytest.mark.parametrize("frame", ODD)
def test_whatever_is_in_a_frame_the_error_is_ours(frame: Any) -> None:
    with pytest.raises(SecEAError):
        as_table(frame)


# ------------------------------------------------------------------------------------------- what hardly anybody means


@pytest.mark.parametrize("kind", LIBRARIES)
def test_columns_in_another_order_are_refused_since_numbers_are_averaged_by_place(kind: str) -> None:
    one, other = made(kind, ["a"], {"x": [1.0], "y": [2.0]}), made(kind, ["a"], {"y": [2.0], "x": [1.0]})
    says = "client 1: the columns are those of client 0 in another order: 'y' is where 'x' is there"
    fed = Federation(Params(clients=3, dim=2))
    fed.setup([one, other, one])
    for call in (aggregate, fed.round):
        with pytest.raises(TableError, match=says):
            call([one, other, one])
    with pytest.raises(TableError, match="client south: the columns are those of client north"):
        aggregate({"north": one, "south": other, "west": one})
    for mean in fed.round([one, one, {"a": [2.0, 1.0]}])[:2]:
        assert np.allclose(as_table(mean).matrix, [[4 / 3, 5 / 3]], atol=1e-5)


def test_columns_of_other_names_are_averaged_by_place() -> None:
    frames = [pd.DataFrame({labels[0]: [1.0], labels[1]: [2.0]}, index=["a"]) for labels in ("xy", "uv", (0, 1))]
    assert np.allclose(aggregate(frames)[0].to_numpy(), [[1.0, 2.0]], atol=1e-5)


def test_tables_that_share_nothing_are_averaged_with_a_warning() -> None:
    with pytest.warns(NothingShared, match="no entity is in two tables"):
        aggregate([{"a": [1.0]}, {"A": [2.0]}, {"b": [3.0]}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aggregate([{"a": [1.0]}, {"A": [2.0]}, {"b": [3.0]}], normalize="casefold")
        aggregate([{"a": [1.0]}, {}, {}])


@pytest.mark.parametrize("source", [np.ones((2, 2)), torch.ones(2, 2), torch.nn.Parameter(torch.ones(2, 2))])
def test_a_matrix_without_names_is_refused_with_what_to_do(source: Any) -> None:
    with pytest.raises(TableTypeError, match=r"give the names of its rows too: secea.Table\(names, matrix\)"):
        aggregate([source, source, source])
