"""The federation file: a policy in plain words, bound into the session, and refused when a line was edited."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.engines.agreement import ABOUT, from_toml
from secea.engines.files import key_fingerprint, read_session, session_json, session_toml, write_session
from secea.errors import ParamsError
from secea.forms import NAMES, form_of, options_of
from secea.params import Params
from secea.party.session import Session
from secea.wire.keys import Identity, Roster

KEYS = [Identity(hashlib.sha256(b"%d" % i).digest()).public for i in range(5)]
PARAMS = Params(4, dim=4, collusion=1, dropouts=1, max_entities=40, max_union=90, key_bits=2048)
NAMED = ("north", "south", "west", "east")


def session(form: str = "keyed", params: Params = PARAMS, names: tuple[str, ...] = NAMED, **options: Any) -> Session:
    return Session(params, Roster(tuple(KEYS[1:]), KEYS[0], names), form_of(form, **options))


OTHER: dict[str, Any] = {
    "dim": 5, "collusion": 2, "dropouts": 0, "max_abs": 32.0, "precision": 23, "sigma": 41, "rounds": 999,
    "key_bits": 3072, "max_entities": 41, "max_union": 91, "insecure_small_keys": True, "min_owners": 2,
    "max_weight": 9, "partial": True, "noise": 0.5, "normalize": ("nfc",),
}  # fmt: skip
"""Another value for each field."""
OTHER_OPTIONS: dict[str, Any] = {"min_participants": 4, "max_new_entities": 3, "max_updates": 5, "batch": 8}


@pytest.mark.parametrize("name", [each.name for each in fields(Params) if each.name != "clients"])
def test_every_field_of_the_policy_is_in_the_fingerprint(name: str, tmp_path: Path) -> None:
    before, after = session(), session(params=replace(PARAMS, **{name: OTHER[name]}))
    assert before.fingerprint != after.fingerprint
    write_session(after, tmp_path / "federation.toml")
    assert read_session(tmp_path / "federation.toml").hash == after.hash


@pytest.mark.parametrize("name", options_of("keyed"))
def test_every_option_of_the_form_is_in_the_fingerprint(name: str) -> None:
    assert session().fingerprint != session(**{name: OTHER_OPTIONS[name]}).fingerprint


def test_the_form_and_the_roster_are_in_the_fingerprint() -> None:
    plain, paper = session(), session("paillier")
    swapped = replace(plain, roster=replace(plain.roster, clients=(*KEYS[2:], KEYS[1])))
    renamed = session(names=("north", "south", "west", "least"))
    queries = session("paillier", queries="full")
    assert len({each.fingerprint for each in (plain, paper, swapped, renamed, queries)}) == 5


@pytest.mark.parametrize("form", NAMES)
@pytest.mark.parametrize("name", ["federation.toml", "federation.json", "federation"])
def test_a_file_is_read_as_it_was_written_whatever_its_name(tmp_path: Path, form: str, name: str) -> None:
    written, path = session(form), tmp_path / name
    write_session(written, path)
    assert path.read_text().startswith("{" if name.endswith("json") else "# The federation file")
    again = read_session(path)
    assert (again.params, again.roster, again.form) == (written.params, written.roster, written.form)
    path.rename(tmp_path / "other.txt")
    assert read_session(tmp_path / "other.txt").hash == written.hash


def test_every_line_of_the_file_is_explained() -> None:
    said = session_toml(session())
    policy = tomllib.loads(said)["policy"]
    expected = {"form": "keyed"} | asdict(PARAMS) | asdict(session().form)  # type: ignore[call-overload]
    expected = {name: value for name, value in expected.items() if value is not None and name != "clients"}
    assert policy == json.loads(json.dumps(expected))
    lines = said[said.index("[policy]") : said.index("[server]")].splitlines()[1:-1]
    assert all("#" in line for line in lines)
    assert {*policy, "max_weight", "min_participants", "max_new_entities"} <= ABOUT.keys()
    assert max(map(len, said.splitlines())) <= 120
    for key in KEYS:
        assert key_fingerprint(key) in said


def _edited(text: str, name: str) -> str:
    """The file with another value in one line of its policy."""
    lines = text.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith(f"{name} = "))
    lines[place] = f"{name} = {json.dumps((OTHER | OTHER_OPTIONS)[name])}"
    return "\n".join(lines)


@pytest.mark.parametrize(
    "name", [*sorted(asdict(PARAMS).keys() & OTHER.keys() - {"max_weight"}), "max_updates", "batch"]
)
def test_a_file_whose_policy_was_edited_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(_edited(session_toml(session()), name))
    with pytest.raises(ParamsError, match="was changed after it was made: take the file that") as caught:
        read_session(path)
    assert session().fingerprint in str(caught.value)
    assert "or let all compare a new one of `secea roster`" in str(caught.value)


def test_a_line_that_was_added_or_a_key_that_was_swapped_is_refused_too(tmp_path: Path) -> None:
    path, text = tmp_path / "federation.toml", session_toml(session())
    for other in (
        text.replace("[policy]", "[policy]\nmax_weight = 7"),
        text.replace(KEYS[0].hex(), Identity(bytes(32)).public.hex()),
        text.replace('"west"', '"least"'),
        text.replace(session().fingerprint, "0000 " * 9 + "0000"),
    ):
        assert other != text
        path.write_text(other)
        with pytest.raises(ParamsError, match="was changed after it was made"):
            read_session(path)
    path.write_text(text.replace("compared byte by byte", "not compared"))
    assert read_session(path).hash == session().hash, "comments do not count"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("dim = 4", "dims = 4", "the policy has no line 'dims'; it may have dim, collusion"),
        ("max_union = 90", "", "the policy lacks max_union"),
        ("max_union = 90", "max_union = 30", "max_union must be from max_entities"),
        ("dim = 4", 'dim = "four"', "dim must be an integer, got 'four'"),
        ("[server]\n", "[server]\nname = 'x'\n", "the server has no line 'name'; it may have key"),
        ('name = "west"\n', "", "a client lacks name"),
        ("secea = 1\n", "", "the file lacks secea"),
        ("secea = 1\n", "secea = 2\n", "it is of version 2, and this secea reads version 1"),
        ("[policy]", "[police]", "the file has no line 'police'"),
        ('form = "keyed"', 'form = "reciprocal"', "the form 'reciprocal', which this version does not have"),
        ("dim = 4", "dim = ", "is no federation file: Invalid value"),
        ('form = "keyed"', "", "'form' is missing"),
    ],
)
def test_a_file_that_is_not_whole_is_refused_with_what_is_wrong(tmp_path: Path, old: str, new: str, says: str) -> None:
    path, text = tmp_path / "federation.toml", session_toml(session())
    assert old in text
    path.write_text("\n".join(line for line in text.replace(old, new).splitlines()))
    with pytest.raises(ParamsError) as caught:
        read_session(path)
    assert says in str(caught.value)
    assert "make" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"min_owners": 3', '"min_owners": 3, "min_owners": 3', "it has the line 'min_owners' twice"),
        ('"min_owners": 3', '"min_owners": 5, "min_owners": 3', "it has the line 'min_owners' twice"),
        ('"form": "keyed"', '"form": "paillier", "form": "keyed"', "it has the line 'form' twice"),
        ('"form": "keyed"', '"form": "paillier", "retrieval": "keyed"', "it has both form and retrieval"),
        ('"secea": 1', '"secea": 1, "policy": {"min_owners": 5}', "the file has no line 'policy'"),
        ('"name": "west"', '"name": "west", "owner": "north"', "a client has no line 'owner'"),
    ],
)
def test_in_json_no_line_comes_twice_or_says_what_does_not_count(tmp_path: Path, old: str, new: str, says: str) -> None:
    path, text = tmp_path / "federation.json", session_json(session(params=replace(PARAMS, min_owners=3)))
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ParamsError, match="is no federation file") as caught:
        read_session(path)
    assert says in str(caught.value)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 2.5, True, "3"])
@pytest.mark.parametrize("name", options_of("keyed"))
def test_options_of_the_form_are_whole_numbers(name: str, value: Any) -> None:
    with pytest.raises(ParamsError, match=f"{name} must be an integer"):
        session(**{name: value})


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_name_can_be_written_and_read(name: str) -> None:
    names = (name, *(each for each in ("north", "south", "west", "x") if each != name))[:4]
    written = session_toml(session(names=names))
    assert from_toml(written.encode())["clients"][0]["name"] == name
    assert all(c.isprintable() or c == "\n" for c in written)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(ParamsError, match="lone surrogate"):
        session_toml(session(names=("\ud800", "b", "c", "d")))


OLD = {
    "keyed": "cfb6 5476 bc85 2584 3364 9811 1a12 31d1 0ae9 939f",
    "paillier": "1a0a fa78 f11a 0c1a 3955 697b 2ade 0878 7a27 a93e",
}
"""The fingerprints of files that were made before there were options."""


@pytest.mark.parametrize("form", NAMES)
def test_a_file_from_before_there_were_options_has_the_fingerprint_that_it_says(tmp_path: Path, form: str) -> None:
    now = Session(
        Params(3, dim=4, max_entities=5, max_union=9),
        Roster(tuple(KEYS[1:4]), KEYS[0], ("north", "south", "west")),
        form_of(form),
    )
    text = json.loads(session_json(now))
    for name in ("min_owners", "max_weight", "partial", "noise"):
        del text["params"][name]
    path = tmp_path / "federation.json"
    path.write_text(json.dumps(text | {"fingerprint": OLD[form]}))
    assert read_session(path).hash == now.hash


def test_a_rule_for_names_is_a_parameter_like_others_and_a_function_is_none(tmp_path: Path) -> None:
    file = tmp_path / "federation.toml"
    write_session(session(params=replace(PARAMS, normalize=("nfc", "strip"))), file)
    assert read_session(file).params.normalize == ("nfc", "strip")
    for name in ("other.toml", "other.json"):
        with pytest.raises(ParamsError, match="normalize is a function, which no file can hold"):
            write_session(session(params=replace(PARAMS, normalize=str.lower)), tmp_path / name)
        assert not (tmp_path / name).exists()
