"""Laws of the parameters: what cannot work is refused before anything begins, and all else follows from them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import secea
from secea.errors import ParamsError, SecEAError
from secea.forms import form_of
from secea.forms.paillier import Paillier
from secea.params import MAX_PRECISION, Params, span
from secea.wire.keys import Roster
from strategies import federations

law = settings(deadline=None)
federation = federations(most=60)
PAPER = Paillier()


@law
@given(federation)
def test_the_answers_needed_survive_the_drop_outs_and_no_more_blocks_would_fit(params: Params) -> None:
    left = params.N - params.dropouts
    assert params.K >= 1
    assert params.need == 2 * (params.K + params.T) - 1 <= left
    assert left < 2 * (params.K + 1 + params.T) - 1


@law
@given(federation)
def test_without_drop_outs_k_is_the_papers(params: Params) -> None:
    assert replace(params, dropouts=0).K == (params.N + 1) // 2 - params.T  # eq. (4)


@law
@given(federation)
def test_all_points_differ_and_each_has_its_owner(params: Params) -> None:
    assert (len(params.beta), len(params.alpha)) == (params.K + params.T, params.N)
    assert len({*params.beta, *params.alpha, 0}) == params.K + params.T + params.N + 1


def test_the_papers_example_has_the_papers_points() -> None:
    params = Params(3, 1, collusion=1)
    assert (params.beta, params.alpha) == ((1, 2), (3, 4, 5))


@law
@given(federation)
def test_the_smallest_set_of_contributors_leaves_two_beside_the_colluders(params: Params) -> None:
    assert params.fewest_contributors - params.T == 2
    assert params.fewest_contributors <= params.N


@law
@given(st.floats(2.0**-64, 2.0**64), st.integers(1, MAX_PRECISION))
def test_one_fixed_point_step_is_within_the_resolution_and_a_value_fits_a_float(max_abs: float, precision: int) -> None:
    params = Params(3, 1, max_abs=max_abs, precision=precision)
    step = Fraction(2) ** -params.fraction_bits
    assert Fraction(params.resolution) == Fraction(max_abs) / 2**precision
    assert step <= params.resolution < 2 * step
    assert Fraction(max_abs) / step <= 2**53


@law
@given(federation)
def test_c_is_the_least_multiple_of_every_count(params: Params) -> None:
    primes = [p for p in range(2, params.N + 1) if all(p % d for d in range(2, p))]
    assert all(params.C % count == 0 for count in range(1, params.N + 1))
    assert all((params.C // p) % count for p in primes for count in [max(p**k for k in range(7) if p**k <= params.N)])


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("clients", {"clients": 1}),
    ("clients", {"clients": 3.0}),
    ("clients", {"clients": True}),
    ("clients", {"clients": 1025}),
    ("collusion", {"collusion": 0}),
    ("collusion", {"collusion": 6}),
    ("collusion", {"collusion": True}),
    ("collusion", {"collusion": 1.0}),
    ("dropouts", {"dropouts": -1}),
    ("dropouts", {"dropouts": 6}),
    ("dim", {"dim": 0}),
    ("dim", {"dim": "4"}),
    ("precision", {"precision": 0}),
    ("precision", {"precision": MAX_PRECISION + 1}),
    ("sigma", {"sigma": 0}),
    ("rounds", {"rounds": 0}),
    ("max_abs", {"max_abs": 0}),
    ("max_abs", {"max_abs": -1.0}),
    ("max_abs", {"max_abs": float("nan")}),
    ("max_abs", {"max_abs": float("inf")}),
    ("max_abs", {"max_abs": "wide"}),
    ("max_abs", {"max_abs": None}),
    ("max_abs", {"max_abs": 10**400}),
    ("key_bits", {"key_bits": 1024}),
    ("key_bits", {"key_bits": 3000}),
    ("max_entities", {"max_entities": 0}),
    ("max_union", {"max_union": 2**31}),
    ("max_union", {"max_entities": 10, "max_union": 9}),
    ("max_union", {"max_entities": 10, "max_union": 61}),
]


@pytest.mark.parametrize(("name", "wrong"), REFUSED, ids=lambda x: str(x)[:40])
def test_a_parameter_that_cannot_work_is_refused_by_name(name: str, wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"clients": 6, "dim": 4, "collusion": 1}
    assert Params(**good).N == 6
    with pytest.raises(ParamsError, match=f"^{name} ") as refusal:
        Params(**(good | wrong))
    assert isinstance(refusal.value, SecEAError)
    assert isinstance(refusal.value, ValueError)


@law
@given(st.integers(-1, 40), st.none() | st.integers(-2, 45), st.integers(-2, 45))
def test_parameters_are_accepted_exactly_where_somebody_is_left(
    clients: int, collusion: int | None, dropouts: int
) -> None:
    given: dict[str, Any] = {"collusion": collusion, "dropouts": dropouts}
    if clients >= 2 and (collusion is None or 1 <= collusion < clients) and 0 <= dropouts < clients:
        assert asdict(Params(clients, 1, **given)).items() >= given.items()
    else:
        with pytest.raises(ParamsError):
            Params(clients, 1, **given)


def test_a_range_of_one_number_is_that_number() -> None:
    assert (span(1, 1), span(1, 3)) == ("1", "from 1 to 3")
    with pytest.raises(ParamsError, match=r"^collusion must be 1 for 2 clients, got 2$"):
        Params(2, 1, collusion=2)
    with pytest.raises(ParamsError, match=r"^dim must be from 1 to 16777216, got 0$"):
        Params(2, 0)


@law
@given(st.integers(2, 40), st.data())
def test_the_papers_form_takes_parameters_exactly_where_a_block_fits(clients: int, data: st.DataObject) -> None:
    collusion = data.draw(st.none() | st.integers(1, clients - 1))
    dropouts = data.draw(st.integers(0, clients - 1))
    params, T = Params(clients, 1, collusion=collusion, dropouts=dropouts), collusion or 1
    if clients >= 3 and clients - dropouts >= 2 * T + 1:
        assert PAPER.checked(params) == replace(params, collusion=T)
        assert PAPER.checked(params).K >= 1
    else:
        with pytest.raises(ParamsError, match=r"^(clients|collusion|dropouts) must be "):
            PAPER.checked(params)


def test_until_a_form_has_chosen_nothing_follows_from_collusion() -> None:
    params = Params(5, 1)
    for name in ("T", "K", "need", "quorum", "fewest_contributors", "alpha", "beta"):
        with pytest.raises(ParamsError, match=r"^collusion is not chosen yet: "):
            getattr(params, name)
        assert getattr(PAPER.checked(params), name) == getattr(Params(5, 1, collusion=1), name)


def test_two_clients_are_told_which_form_they_need() -> None:
    table, params = {"a": [1.0]}, Params(2, 1, max_entities=1, max_union=1)
    roster = Roster((bytes(32), b"\1" * 32), b"\2" * 32)
    for refused in (
        lambda: secea.aggregate([table, table], form="paillier"),
        lambda: secea.Federation(params, form="paillier"),
        lambda: secea.plan(params, entities=1, form="paillier"),
        lambda: secea.Session(params, roster, PAPER),
    ):
        with pytest.raises(ParamsError, match=r"^clients must be from 3 to 1024 .*; two clients need form=\"keyed\"$"):
            refused()


@law
@given(st.integers(3, 12), st.sampled_from(("keyed", "paillier")))
def test_a_session_knows_the_collusion_that_was_chosen_for_it(clients: int, name: str) -> None:
    form, chosen = form_of(name), 1 if name == "paillier" else clients - 1
    open_, told = (Params(clients, 1, collusion=T, max_entities=1, max_union=1) for T in (None, chosen))
    roster = Roster(tuple(bytes([n]) * 32 for n in range(clients)), b"\xff" * 32)
    assert secea.Session(open_, roster, form).params == told
    assert secea.Session(open_, roster, form).hash == secea.Session(told, roster, form).hash
    assert secea.Federation(open_, form).params == told


def test_small_keys_are_allowed_only_by_their_insecure_name() -> None:
    assert Params(3, 1, key_bits=512, insecure_small_keys=True).key_bits == 512
    with pytest.raises(ParamsError, match="insecure_small_keys=True"):
        Params(3, 1, key_bits=512)


CHANGES: dict[str, Any] = {
    "clients": 8, "dim": 5, "collusion": 3, "dropouts": 1, "max_abs": 64.5, "precision": 23, "sigma": 41, "rounds": 2,
    "key_bits": 2048, "max_entities": 11, "max_union": 31, "insecure_small_keys": True,
    "min_owners": 2, "max_weight": 9, "partial": True, "noise": 0.5, "normalize": "nfc",
}  # fmt: skip


@pytest.mark.parametrize("name", [f.name for f in fields(Params)])
def test_the_canonical_text_changes_with_each_field(name: str) -> None:
    params = Params(7, 4, collusion=2, max_entities=10, max_union=30)
    changed = replace(params, **{name: CHANGES[name]})
    assert changed.canonical() != params.canonical()
    assert Params(**asdict(params)).canonical() == params.canonical()


def test_numbers_of_other_types_give_the_same_canonical_text() -> None:
    numbers: dict[str, Any] = {"clients": np.int64(7), "dim": np.uint8(4), "max_abs": 64, "max_union": np.int32(9)}
    assert Params(**numbers).canonical() == Params(7, 4, max_abs=64.0, max_union=9).canonical()


@law
@given(st.integers(0, 7), st.integers(1, 3), st.sampled_from((None, 7)), st.sampled_from((None, 20)))
def test_filling_in_bounds_keeps_those_that_are_set(entities: int, factor: int, e: int | None, u: int | None) -> None:
    params, union = Params(3, 1, max_entities=e, max_union=u), min(20, factor * entities)
    assert params.bounded == (e is not None and u is not None)
    filled = params.with_bounds(max_entities=entities, max_union=union)
    assert filled.bounded
    assert filled.max_entities is not None
    assert filled.max_union is not None
    assert filled.max_entities == e if e else filled.max_entities >= entities
    assert filled.max_union == u if u else filled.max_union >= union


def test_parameters_do_not_change() -> None:
    params = Params(3, 1)
    with pytest.raises(FrozenInstanceError):
        params.clients = 4  # type: ignore[misc]
