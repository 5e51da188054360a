"""Laws of names and tables: what is a name, which tables are accepted, and that results keep their form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from secea import aggregate
from secea.arithmetic.grid import grid_of
from secea.errors import SecEAError, TableError, TableTypeError
from secea.table import Name, Table, as_table, canonical_name, canonical_names, like, name_bytes

law = settings(deadline=None)
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
digits = st.integers(-20, 20).map(str)
names = st.integers() | text | digits | st.integers(-20, 20)
name_lists = st.lists(names, unique_by=str, max_size=12)
FLOATS: list[Any] = [np.float32, np.float64]
each_dtype = pytest.mark.parametrize("dtype", FLOATS)


# --------------------------------------------------------------------------------------------------------------- names


@law
@given(name_lists)
def test_names_stay_as_they_are_and_no_two_are_hashed_alike(some: list[Name]) -> None:
    assert canonical_names(some) == tuple(some)
    assert len({name_bytes(name) for name in some}) == len(some)


@law
@given(st.integers(), st.booleans())
def test_an_integer_and_its_decimal_text_are_one_name(number: int, swapped: bool) -> None:
    assert name_bytes(number) == name_bytes(str(number)) == b"s%d" % number
    both: list[Name] = [str(number), number] if swapped else [number, str(number)]
    with pytest.raises(TableError, match="are one: an integer and its decimal text are the same name") as refusal:
        canonical_names(["a", *both])
    assert f"{both[0]!r} and {both[1]!r}" in str(refusal.value)


@law
@given(st.integers(-999, 999), st.sampled_from(["0{}", "+{}", " {}", "{} ", "{}.0"]))
def test_no_other_text_is_the_name_of_an_integer(number: int, written: str) -> None:
    other = written.format(number)
    assert canonical_names([number, other]) == (number, other)
    assert name_bytes(number) != name_bytes(other)


def test_an_integer_that_is_too_long_to_write_is_no_name() -> None:
    assert canonical_names([10**3999, -(10**3999)]) == (10**3999, -(10**3999))
    for number in (10**4000, -(10**4000), 1 << 100_000):
        with pytest.raises(TableError, match="more than 4,000 digits; give it as a text"):
            canonical_names([number])


def test_a_row_and_its_weight_are_found_under_either_spelling_of_an_integer() -> None:
    table = Table([7, "8"], np.array([[1.0], [2.0]]))
    assert table["7"] == table[7] == 1.0
    assert table[8] == 2.0
    assert table.weighing({"7": 3, 8: 4}).weights.tolist() == [3, 4]  # type: ignore[union-attr]
    with pytest.raises(TableError, match="the entity 7 has no weight"):
        table.weighing({"8": 4})
    with pytest.raises(TableError, match="the entity 9 has a weight, but no row"):
        table.weighing({"7": 3, 8: 4, 9: 1})


def test_names_are_not_normalised() -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    assert canonical_names([composed, decomposed]) == (composed, decomposed)
    assert name_bytes(composed) != name_bytes(decomposed)


@law
@given(st.integers(-(2**63), 2**63 - 1), text)
@example(0, "a\0")
def test_names_from_numpy_become_pythons(number: int, word: str) -> None:
    for given_name, name in ((np.int64(number), number), (np.str_(word), word), (np.uint8(number % 256), number % 256)):
        canonical = canonical_name(given_name)
        assert canonical == name
        assert type(canonical) is type(name)
        assert name_bytes(canonical) == name_bytes(name)


@pytest.mark.parametrize("name", [True, False, np.True_, np.False_])
def test_a_truth_value_is_no_name(name: object) -> None:
    with pytest.raises(TableTypeError, match="is a truth value"):
        canonical_names(["a", name])


def test_an_empty_string_is_no_name() -> None:
    with pytest.raises(TableError, match="is empty"):
        canonical_names(["a", ""])


@law
@given(st.text(max_size=3), st.integers(0xD800, 0xDFFF), st.text(max_size=3))
def test_a_lone_surrogate_is_in_no_name(before: str, surrogate: int, after: str) -> None:
    with pytest.raises(TableError, match="lone surrogate"):
        canonical_name(before + chr(surrogate) + after)


@pytest.mark.parametrize("name", [None, 1.0, b"a", (1,), np.float64(1), 1j, type("Thing", (), {})], ids=repr)
def test_other_types_are_no_names(name: object) -> None:
    with pytest.raises(TableTypeError, match="names are strings or integers") as refusal:
        canonical_names([name])
    assert isinstance(refusal.value, TypeError)
    assert isinstance(refusal.value, SecEAError)


@pytest.mark.parametrize("single", ["aspirin", b"aspirin"])
def test_a_single_text_is_no_collection_of_names(single: str | bytes) -> None:
    with pytest.raises(TableTypeError, match="expected a collection of entity names"):
        canonical_names(single)


@law
@given(name_lists.filter(bool), st.data())
def test_a_name_that_occurs_twice_is_refused_by_name(some: list[Name], data: st.DataObject) -> None:
    twice = data.draw(st.sampled_from(some))
    again: object = np.str_(twice) if isinstance(twice, str) else twice
    some.insert(data.draw(st.integers(0, len(some))), again)  # type: ignore[arg-type]
    with pytest.raises(TableError) as refusal:
        Table(some, np.zeros((len(some), 2)))
    assert str(refusal.value) == f"the entity {twice!r} occurs more than once"


# -------------------------------------------------------------------------------------------------------------- tables


@st.composite
def mappings(draw: st.DrawFn, dtype: Any) -> dict[Name, Any]:
    keys, dim = draw(name_lists), draw(st.integers(1, 4))
    elements = st.floats(-64, 64, width=32)
    return {key: draw(arrays(dtype, dim, elements=elements)) for key in keys}


def same(a: dict[Name, Any], b: dict[Name, Any]) -> bool:
    return list(a) == list(b) and all(np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


@each_dtype
@law
@given(st.data())
def test_a_mapping_becomes_a_table_and_its_result_a_mapping_again(dtype: Any, data: st.DataObject) -> None:
    source = data.draw(mappings(dtype))
    table = as_table(source)
    assert list(table) == list(source) == list(table.keys())
    assert len(table) == len(source)
    assert same(table.as_dict(), source)
    result = like(source, table, table.matrix.astype(np.float64))
    assert isinstance(result, dict)
    assert same(result, source)


@each_dtype
@law
@given(st.data())
def test_the_result_for_a_table_is_a_table_of_its_dtype(dtype: Any, data: st.DataObject) -> None:
    source = as_table(data.draw(mappings(dtype)), dim=None)
    result = like(source, source, source.matrix.astype(np.float64) + 1)
    assert isinstance(result, Table)
    assert result.names == source.names
    assert result.dtype == source.dtype
    assert np.array_equal(result.matrix, (source.matrix.astype(np.float64) + 1).astype(source.dtype))


def test_the_result_for_a_mapping_has_the_callers_own_keys() -> None:
    source = {np.str_("a"): [1.0], np.int64(3): [2.0]}
    result = like(source, as_table(source), np.zeros((2, 1)))
    assert isinstance(result, dict)
    assert [type(key) for key in result] == [np.str_, np.int64]


@pytest.mark.parametrize("source", [{}, Table((), np.zeros((0, 3), np.float32)), Table((), np.zeros((0, 5)))])
def test_a_client_may_have_no_entities(source: Any) -> None:
    table = as_table(source, dim=5)
    assert (len(table), table.dim) == (0, 5)
    assert like(source, table, table.matrix).keys() == source.keys()


@each_dtype
def test_numbers_that_lie_askew_in_memory_are_numbers_like_others_and_not_copied(dtype: Any) -> None:
    plain = np.random.default_rng(5).normal(size=(16, 3)).round(2).astype(dtype)
    askew = np.frombuffer(memoryview(b"x" + plain.tobytes())[1:], dtype).reshape(16, 3)
    assert not askew.flags.aligned
    assert Table(range(16), askew).matrix is askew
    assert grid_of(askew, askew.dtype) == grid_of(plain, plain.dtype)
    assert grid_of(plain, plain.dtype)[1] == 0.01
    means = aggregate([Table(range(16), each) for each in (askew, plain + 1, plain + 2)], max_abs=8)
    assert np.abs(means[0].matrix - (plain + 1)).max() < 0.02


def test_float16_is_held_by_float32_and_its_grid_is_found() -> None:
    given = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float16)
    table = Table(range(40), given)
    assert table.dtype == as_table(dict(enumerate(given))).dtype == np.float32
    assert np.array_equal(table.matrix, given)
    bits, step = grid_of(table.matrix, table.dtype)
    assert bits == 10, "significant bits below the leading one"
    assert step == min(abs(x).as_integer_ratio()[1] ** -1 for x in given.ravel().tolist()), "and the least last place"


def test_a_mapping_of_float16_gets_float16_and_stays_within_its_range() -> None:
    source = {"a": np.array([1.0, 65504.0], np.float16), "b": [0.5, 1.0], "c": np.array([2.0, 3.0], np.float32)}
    result = like(source, as_table(source), np.array([[1.0001, 65530.0], [0.5, 1.0], [2.0, 3.0]]))
    assert [row.dtype for row in result.values()] == [np.float16, np.float64, np.float64]
    assert result["a"].tolist() == [1.0, 65504.0]


def test_integers_become_float64_and_mixed_rows_their_common_type() -> None:
    assert as_table({"a": [1, 2]}).dtype == np.float64
    assert as_table({"a": np.zeros(2, np.float32), "b": np.zeros(2)}).dtype == np.float64
    assert as_table({"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)}).dtype == np.float32


@pytest.mark.parametrize("dtype", [np.complex128, np.bool_, object, "U3", "M8[s]"], ids=str)
def test_other_dtypes_are_refused_with_the_entity(dtype: Any) -> None:
    with pytest.raises(TableTypeError, match="the embedding of entity 'b' has dtype"):
        as_table({"a": np.zeros(2), "b": np.zeros(2, np.int64).astype(dtype)})
    with pytest.raises(TableTypeError, match="the matrix of a table has dtype"):
        Table(["a"], np.zeros((1, 2), np.int64).astype(dtype))


@law
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.none() | st.integers(1, 5))
def test_all_embeddings_have_one_length_or_the_first_other_one_is_named(lengths: list[int], dim: int | None) -> None:
    source = {f"entity {i}": np.zeros(length) for i, length in enumerate(lengths)}
    wanted = lengths[0] if dim is None else dim
    wrong = [i for i, length in enumerate(lengths) if length != wanted]
    if wrong:
        with pytest.raises(TableError, match=f"the embedding of entity 'entity {wrong[0]}' has length"):
            as_table(source, dim)
    else:
        assert as_table(source, dim).dim == wanted


BAD_MATRICES: list[tuple[Sequence[Name], Any, str]] = [
    (["a", "b"], np.zeros((3, 2)), "a table of 2 names needs a matrix of 2 rows"),
    (["a", "b"], np.zeros(2), "a table of 2 names needs a matrix of 2 rows"),
    (["a"], np.zeros((1, 2, 3)), "a table of 1 names needs a matrix of 1 rows"),
    (["a", "b"], [[1.0, 2.0], [3.0]], "not a rectangular array"),
]


@pytest.mark.parametrize(("some", "matrix", "fault"), BAD_MATRICES)
def test_a_matrix_that_does_not_fit_its_names_is_refused(some: Sequence[Name], matrix: Any, fault: str) -> None:
    with pytest.raises(TableError, match=fault):
        Table(some, matrix)


def test_an_embedding_has_one_dimension() -> None:
    with pytest.raises(TableError, match=r"entity 'b' has shape \(1, 2\)"):
        as_table({"a": np.zeros(2), "b": np.zeros((1, 2))})


def test_a_table_of_another_length_than_the_federations_is_refused() -> None:
    with pytest.raises(TableError, match="length 2, the federation was set up for dim=3"):
        as_table(Table(["a"], np.zeros((1, 2))), dim=3)


@pytest.mark.parametrize("source", [[1, 2], None, np.zeros((2, 2)), "aspirin"], ids=repr)
def test_what_is_neither_table_nor_mapping_is_refused(source: Any) -> None:
    with pytest.raises(TableTypeError, match=r"expected a secea\.Table, a mapping of names to embeddings, or a Da"):
        as_table(source)


def test_a_table_does_not_show_its_embeddings() -> None:
    assert "1.5" not in repr(Table(["a"], np.full((1, 2), 1.5)))
