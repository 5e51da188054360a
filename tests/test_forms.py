"""A form by its name, with its options; and the values that the keyed form keeps of names."""

from __future__ import annotations

from typing import Any

import pytest

from secea.errors import ParamsError
from secea.forms import DEFAULT, FORMS, NAMES, form_of, options_of
from secea.forms.keyed import Keyed
from secea.forms.keyed.values import Values, each
from secea.forms.paillier import Paillier


def test_a_name_stands_for_a_form_and_what_is_none_leaves_its_default() -> None:
    assert {name: type(form_of(name)) for name in NAMES} == FORMS == {"keyed": Keyed, "paillier": Paillier}
    assert DEFAULT == "keyed"
    assert form_of("keyed", batch=7, max_updates=None) == Keyed(batch=7)
    assert form_of("keyed", queries=None) == Keyed()
    assert set(options_of("keyed")) >= {"min_participants", "max_new_entities", "max_updates", "batch"}


@pytest.mark.parametrize(
    ("name", "options", "unknown"),
    [("keyed", {"queries": "full"}, "queries"), ("paillier", {"batch": 3, "queries": "full"}, "batch"),
     ("paillier", {"max_updates": 3, "batch": 3}, "batch")],
)  # fmt: skip
def test_an_option_that_a_form_does_not_have_is_refused_by_its_name(
    name: str, options: dict[str, Any], unknown: str
) -> None:
    with pytest.raises(ParamsError, match=f"the form '{name}' has no option '{unknown}'"):
        form_of(name, **options)


def test_a_form_that_was_made_is_taken_as_it_is_and_takes_no_more_options() -> None:
    form = Keyed(batch=9)
    assert form_of(form) is form
    assert form_of(form, batch=None) is form
    with pytest.raises(ParamsError, match=r"give the option 'batch' to the form itself: Keyed\(batch=...\)"):
        form_of(form, max_updates=3, batch=8)


@pytest.mark.parametrize("choice", ["", "Keyed", Keyed, Paillier, None, 7, ["keyed"]])
def test_what_is_no_form_is_refused_and_the_forms_are_named(choice: Any) -> None:
    with pytest.raises(ParamsError, match="form must be one of keyed, paillier, or a form such as"):
        form_of(choice)


def test_values_are_a_mapping_that_grows() -> None:
    one = Values().plus(["a", 7], [b"A" * 64, b"7" * 64])
    both = one.plus(["b"], [b"B" * 64])
    known = {"a": b"A" * 64, 7: b"7" * 64, "b": b"B" * 64}
    assert (dict(both), len(both)) == (known, 3)
    assert dict(one) == {name: known[name] for name in ("a", 7)}
    assert dict(Values.made(both.names, both.rows.tobytes())) == known
    for names in (("a", 7, "b"), ("b", "a"), ()):
        assert [bytes(row) for row in both.of(names)] == list(each(both.of(names))) == [known[name] for name in names]
    with pytest.raises(KeyError, match="c"):
        both["c"]
