"""Laws of signatures: an editor and `help()` show every parameter with its type, its default and what it means."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, assert_type, get_args, get_type_hints

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray

import secea
from secea import Federation, Keyed, Params, Table, aggregate
from secea.engines.once import Options
from secea.forms import NAMES, FormName, QueriesName
from secea.forms.paillier.form import QUERIES
from secea.params import STEPS, Step

OWN = ("weights", "form", "queries")
"""What `aggregate` takes beside the fields of `Params`."""
PUBLIC = [getattr(secea, name) for name in secea.__all__]


def test_aggregate_has_every_field_of_params_with_its_type_and_default() -> None:
    parameters = inspect.signature(aggregate).parameters
    kinds = {each.kind for each in list(parameters.values())[1:]}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert [*parameters][1:] == [*OWN, *(field.name for field in fields(Params))]
    types, of_params = get_type_hints(aggregate), get_type_hints(Params)
    for field in fields(Params):
        if field.name in ("clients", "dim"):  # of the tables
            assert (types[field.name], parameters[field.name].default) == (int | None, None)
        else:
            assert (types[field.name], parameters[field.name].default) == (of_params[field.name], field.default)


def test_the_overloads_of_aggregate_take_what_it_takes() -> None:
    types = get_type_hints(aggregate)
    assert list(Options.__annotations__) == list(inspect.signature(aggregate).parameters)[1:]
    assert get_type_hints(Options) == {name: types[name] for name in Options.__annotations__}


def test_every_field_of_params_is_passed_on() -> None:
    other: dict[str, Any] = {
        "collusion": 1, "dropouts": 1, "max_abs": 8.0, "precision": 20, "sigma": 30, "rounds": 7, "key_bits": 4096,
        "max_entities": 5, "max_union": 9, "insecure_small_keys": True, "min_owners": 2, "max_weight": 3,
        "partial": True, "noise": 0.5, "normalize": "strip", "clients": 5, "dim": 2,
    }  # fmt: skip
    assert other.keys() == {field.name for field in fields(Params)}
    seen: list[Params] = []

    class Stop(Exception):
        pass

    class Seeing(Keyed):
        def checked(self, params: Params) -> Params:
            seen.append(params)
            raise Stop

    for name, value in other.items():
        with pytest.raises(Stop):
            aggregate([{"a": [1.0, 2.0]}] * 5, form=Seeing(), **{name: value})
        assert getattr(seen[-1], name) == getattr(Params(**{"clients": 5, "dim": 2} | {name: value}), name)


@pytest.mark.parametrize("public", PUBLIC, ids=lambda each: getattr(each, "__name__", repr(each)))
def test_nothing_public_takes_keywords_that_it_does_not_name(public: Any) -> None:
    calls = [public] if inspect.isfunction(public) else []
    if inspect.isclass(public):
        calls = [each for name, each in vars(public).items() if inspect.isfunction(each) and name[0] != "_"]
    for call in calls:
        kinds = [each.kind for each in inspect.signature(call).parameters.values()]
        assert inspect.Parameter.VAR_KEYWORD not in kinds, call


def test_help_explains_every_field_of_params() -> None:
    said = inspect.getdoc(Params) or ""
    _, _, explained = said.partition("Attributes:\n")
    lines = dict(
        line.strip().split(": ", 1) for line in explained.splitlines() if line.startswith("    ") and line[4] != " "
    )
    assert list(lines) == [field.name for field in fields(Params)]
    assert all(len(text) > 3 for text in lines.values())


def test_literals_are_what_there_is_to_choose_from() -> None:
    assert get_args(FormName) == NAMES
    assert get_args(QueriesName) == QUERIES
    assert get_args(Step) == STEPS


def test_means_have_the_type_of_their_tables() -> None:
    """mypy checks the types, and the test that they are so."""
    table = Table(["a"], np.ones((1, 1)))
    frame = pl.DataFrame({"name": ["a"], "x": [1.0]})
    assert_type(aggregate([table] * 3), list[Table])
    assert_type(aggregate([frame] * 3), list[pl.DataFrame])
    assert_type(aggregate({"a": table, "b": table, "c": table}, collusion=1), dict[str, Table])
    assert_type(aggregate([{"a": [1.0]}] * 3), list[dict[Any, NDArray[Any]]])
    named = {"a": {"a": [1.0]}, "b": {"a": [1.0]}, "c": {"a": [1.0]}}
    assert_type(aggregate(named), dict[str, dict[Any, NDArray[Any]]])
    assert isinstance(aggregate([table] * 3)[0], Table)
    assert isinstance(aggregate([frame] * 3)[0], pl.DataFrame)
    assert isinstance(aggregate([pd.DataFrame({"x": [1.0]}, index=["a"])] * 3)[0], pd.DataFrame)
    assert isinstance(aggregate(named)["a"]["a"], np.ndarray)
    fed = Federation(Params(clients=3, dim=1))
    fed.setup(named)
    assert_type(fed.round(named), dict[str, Any])
    assert_type(fed.round([table] * 3), list[Any])
    assert isinstance(fed.round(named), dict)
    assert isinstance(fed.round([table] * 3), list)


def test_a_keyword_that_does_not_exist_is_refused_with_its_name() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colusion'"):
        aggregate([{"a": [1.0]}] * 3, colusion=1)  # type: ignore[call-overload]
