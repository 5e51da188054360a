"""Laws of names: which spellings are one entity, and that nobody sees another spelling than his own."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loopback import N, World
from secea import Federation, Params, aggregate
from secea.engines.files import read_session, write_session
from secea.errors import ParamsError, TableError
from secea.forms import FormName, form_of
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.names import Spelling, joining, keys_of, near, spellings, text_of
from secea.params import STEPS, Step
from secea.party.form import Form
from secea.party.session import Session
from secea.table import Name
from secea.wire.keys import Roster

law = settings(deadline=None)
few = settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
ALL = "nfc,strip,casefold"
COMPOSED, APART = "\u00c5spirin", "A\u030aspirin"
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
rules = st.sets(st.sampled_from(STEPS)).map(lambda steps: tuple(step for step in STEPS if step in steps))
forms = pytest.mark.parametrize("form", ["keyed", "paillier"])


def means(tables: Sequence[dict[Any, list[float]]], **params: Any) -> list[dict[Any, list[float]]]:
    more = SMALL if params.get("form") == "paillier" else {}
    found = aggregate(tables, **params, **more)
    return [{name: row.round(3).tolist() for name, row in mine.items()} for mine in found]


# ------------------------------------------------------------------------------------------------------------ the rule


@law
@given(text, rules)
@example("\u03aa\u0301", STEPS)
@example("\u1fc3\u0345 ", STEPS)
def test_each_step_does_what_it_says(name: str, rule: tuple[str, ...]) -> None:
    if "strip" in rule and not unicodedata.normalize("NFC", name).strip():
        with pytest.raises(TableError, match=r"is blank: nothing is left of it after normalize=.*strip"):
            text_of(name, rule)
        return
    made = text_of(name, rule)
    if "nfc" in rule:
        assert all(text_of(unicodedata.normalize(form, name), rule) == made for form in ("NFC", "NFD"))
        assert unicodedata.is_normalized("NFC", made)
    if "strip" in rule:
        assert text_of(f" \t{name}\u00a0\n", rule) == made == made.strip()
    if "casefold" in rule and "nfc" not in rule:
        assert made == made.casefold()
    if not rule:
        assert made == name


def test_capitals_of_letters_that_folding_takes_apart_are_the_same() -> None:
    small, capital = "\u0390", "\u0390".upper()
    assert text_of(small, "casefold") != text_of(unicodedata.normalize("NFC", capital), "casefold")
    assert text_of(small, ("nfc", "casefold")) == text_of(capital, ("nfc", "casefold"))


@law
@given(st.integers(), rules)
def test_an_integer_is_its_decimal_text_under_every_rule(number: int, rule: tuple[str, ...]) -> None:
    assert text_of(number, rule) == text_of(str(number), rule) == str(number)


@law
@given(st.permutations(STEPS), st.integers(0, 3))
def test_steps_are_taken_in_their_order_however_they_are_written(steps: list[Step], count: int) -> None:
    wanted = tuple(step for step in STEPS if step in steps[:count])
    for given_ in (",".join(steps[:count]), " , ".join(steps[:count]), steps[:count], {*steps[:count]}, wanted):
        params: Any = Params(3, 1, normalize=given_)  # type: ignore[arg-type]
        assert params.normalize == wanted
    assert Params(3, 1, normalize=wanted).canonical() == Params(3, 1, normalize=steps[:count]).canonical()


@pytest.mark.parametrize("rule", ["nfkc", "nfc;strip", ["NFC"], "nfc,,strip", 7, None, [7], True])
def test_a_step_that_does_not_exist_is_refused(rule: Any) -> None:
    with pytest.raises(ParamsError, match=r"normalize .* nfc, strip, casefold"):
        Params(3, 1, normalize=rule)


@law
@given(st.lists(text, unique=True, max_size=8), rules)
def test_two_names_of_one_client_that_become_one_are_refused_by_both_names(
    some: list[str], rule: tuple[str, ...]
) -> None:
    some = [name for name in some if name.strip()]
    groups: dict[str, list[str]] = {}
    for name in some:
        groups.setdefault(text_of(name, rule), []).append(name)
    double = [group for group in groups.values() if len(group) > 1]
    if not double:
        assert len(keys_of(tuple(some), rule)) == len(some)
        return
    with pytest.raises(TableError, match="join their rows under one of the names, or rename one") as refusal:
        keys_of(tuple(some), rule)
    assert any(f"{group[0]!r} and {group[1]!r} are one after" in str(refusal.value) for group in double)


@law
@given(st.lists(st.lists(text | st.integers(-9, 9), max_size=5, unique_by=str), min_size=1, max_size=4), rules)
def test_a_client_reads_its_last_spelling_of_every_text(lists: list[list[Name]], rule: tuple[str, ...]) -> None:
    spelling = Spelling(rule, "client 0")
    last: dict[Name, Name] = {}
    for names in lists:
        try:
            texts = spelling.keys(names)
        except TableError:
            continue
        last |= dict(zip(texts, names, strict=True))
        assert spelling.names(texts) == tuple(names)
        assert [type(name) for name in spelling.names(texts)] == [type(name) for name in names]
    assert spelling.names(last) == tuple(last.values())
    again = Spelling(rule, "client 0")
    again.restore(spelling.own)
    assert again.names(last) == tuple(last.values())


# --------------------------------------------------------------------------------------------------------- federations


@forms
def test_integers_and_their_decimal_texts_are_averaged_and_come_back_as_they_were(form: str) -> None:
    tables: list[dict[Any, list[float]]] = [{7: [1.0], "01": [5.0]}, {"7": [3.0], 1: [7.0]}, {np.int64(7): [5.0]}]
    found = means(tables, form=form)
    assert found == [{7: [3.0], "01": [5.0]}, {"7": [3.0], 1: [7.0]}, {7: [3.0]}]
    assert [[type(name) for name in mine] for mine in found] == [[type(name) for name in table] for table in tables]


@forms
def test_without_normalize_spellings_are_different_entities(form: str) -> None:
    tables = [{COMPOSED: [1.0], "aspirin": [2.0]}, {APART: [3.0], " aspirin ": [4.0]}, {"Aspirin": [5.0]}]
    assert means(tables, form=form) == tables


@forms
@pytest.mark.parametrize("rule", [ALL, lambda name: unicodedata.normalize("NFC", name).strip().lower()])
def test_with_normalize_each_client_gets_means_under_its_own_spelling(form: str, rule: Any) -> None:
    tables = [{COMPOSED: [1.0], "aspirin": [2.0]}, {APART: [3.0], " aspirin ": [4.0]}, {"ASPIRIN": [6.0], "01": [0.5]}]
    expected = [
        {COMPOSED: [2.0], "aspirin": [4.0]},
        {APART: [2.0], " aspirin ": [4.0]},
        {"ASPIRIN": [4.0], "01": [0.5]},
    ]
    assert means(tables, form=form, normalize=rule) == expected


@few
@given(st.data(), rules, st.integers(3, 4))
def test_means_are_numpys_for_any_spellings_and_steps(
    data: st.DataObject, rule: tuple[Step, ...], clients: int
) -> None:
    pool: list[Name] = ["a", "A", " a", "\u00e9", "e\u0301", "E\u0301 ", "1", 1, "01", "x" * 65_536, "X" * 65_536]
    owned = st.lists(st.sampled_from(pool), max_size=6, unique_by=lambda name: text_of(name, rule))
    sets = data.draw(st.lists(owned, min_size=clients, max_size=clients))
    rng = np.random.Generator(np.random.PCG64(data.draw(st.integers(0, 2**32 - 1))))
    tables: list[dict[Name, Any]] = [{name: rng.normal(size=2) for name in own} for own in sets]
    rows: dict[str, list[Any]] = {}
    for table in tables:
        for name, row in table.items():
            rows.setdefault(text_of(name, rule), []).append(row)
    fed = Federation(Params(clients=clients, dim=2, collusion=1, normalize=rule))
    fed.setup([table.keys() for table in tables])
    assert len(rows) == fed.server.M
    for table, found in zip(tables, fed.round(tables), strict=True):
        assert list(found) == list(table)
        for name, mean in found.items():
            assert np.abs(mean - np.mean(rows[text_of(name, rule)], axis=0)).max() < fed.params.resolution


def rounded(tables: Sequence[Any]) -> list[dict[Name, float]]:
    return [{name: round(row.item(), 3) for name, row in table.items()} for table in tables]


def test_update_join_leave_and_restart_know_an_entity_by_any_spelling() -> None:
    fed = Federation(Params(clients=3, dim=1, collusion=1, normalize=ALL, max_entities=4, max_union=8))
    fed.setup([["Aspirin"], ["aspirin", 7], []])
    assert rounded(fed.round([{" ASPIRIN": [1.0]}, {"aspirin": [3.0], "7": [5.0]}, {}]))[0] == {" ASPIRIN": 2.0}
    fed.update(0, ["ASPIRIN ", " 7"])
    fed.restart()
    found = fed.round([{"aspirin": [1.0], 7: [1.0]}, {"Aspirin": [3.0], " 7 ": [5.0]}, {}])
    assert rounded(found) == [{"aspirin": 2.0, 7: 3.0}, {"Aspirin": 2.0, " 7 ": 3.0}, {}]
    assert fed.join(["aSpIrIn"]) == 3
    found = fed.round([{"aspirin": [1.0], 7: [1.0]}, {"Aspirin": [3.0], " 7 ": [5.0]}, {}, {"aSpIrIn": [5.0]}])
    assert rounded(found)[3] == {"aSpIrIn": 3.0}
    fed.leave(0)
    assert rounded(fed.round([{"Aspirin": [3.0], 7: [5.0]}, {}, {"ASPIRIN": [5.0]}]))[0] == {"Aspirin": 4.0, 7: 5.0}


def test_entities_without_a_mean_have_the_clients_own_spelling_also_after_a_restart() -> None:
    fed = Federation(Params(clients=3, dim=1, min_owners=2, normalize=ALL))
    fed.setup([["Aspirin", 7], ["aspirin"], [" Codeine", "aspirin"]])
    fed.round([{"Aspirin": [1.0], 7: [1.0]}, {"ASPIRIN": [1.0]}, {"CODEINE ": [1.0], "aspirin": [1.0]}])
    assert fed.without_mean == fed.below_minimum == [(7,), (), ("CODEINE ",)]
    assert isinstance(fed.below_minimum[0][0], int)


@forms
def test_errors_have_the_clients_own_spelling_and_name_the_client(form: FormName) -> None:
    fed = Federation(Params(clients=3, dim=1, normalize=ALL, **(SMALL if form == "paillier" else {})), form)
    with pytest.raises(
        TableError, match="client 1: the entities 'a' and ' A' are one after normalize=nfc,strip,casefold"
    ):
        fed.setup([["a"], ["a", " A"], ["a"]])
    with pytest.raises(TableError, match="client 2: the entity name ' ' is blank"):
        fed.setup([["a"], ["a"], [" "]])
    fed.setup([["A", 7], ["a"], ["a"]])
    with pytest.raises(TableError, match="client 0: entity 7 is in the set-up, but not in the table"):
        fed.round([{"A ": [1.0]}, {"a": [1.0]}, {"a": [1.0]}])
    with pytest.raises(TableError, match="client 1: entity 'B ' is in the table, but not in the set-up"):
        fed.round([{"A": [1.0], 7: [1.0]}, {"a": [1.0], "B ": [1.0]}, {"a": [1.0]}])
    with pytest.raises(TableError, match="client 1: the entities 'a' and 'A' are one after"):
        fed.round([{"A": [1.0], 7: [1.0]}, {"a": [1.0], "A": [1.0]}, {"a": [1.0]}])
    with pytest.raises(TableError, match="client 2: entity 'A ', coordinate 0: 65"):
        fed.round([{"A": [1.0], 7: [1.0]}, {"a": [1.0]}, {"A ": [65.0]}])
    found = fed.round([{"A": [1.0], 7: [1.0]}, {"a": [2.0]}, {"A ": [3.0]}])
    assert found[2]["A "].round(3) == 2.0


@pytest.mark.parametrize(
    ("function", "fault"),
    [(lambda _: "", "makes '' of the entity name 'a'"), (lambda _: 7, "must give a text"),
     (lambda _: "\ud800", "lone surrogate")],
)  # fmt: skip
def test_a_function_that_gives_no_name_is_refused(function: Any, fault: str) -> None:
    with pytest.raises(TableError, match=fault):
        aggregate([{"a": [1.0]}, {"a": [1.0]}, {"a": [1.0]}], normalize=function)


# ----------------------------------------------------------------------------------------- all clients have one rule


def lowered(name: str) -> str:
    return name.lower()


@law
@given(rules | st.just(lowered), rules)
def test_a_session_is_bound_to_its_rule_and_none_leaves_no_trace(rule: Any, other: tuple[Step, ...]) -> None:
    roster = Roster(tuple(bytes([n]) * 32 for n in range(3)), b"\xff" * 32)
    hashes = [
        Session(Params(3, 1, max_entities=1, max_union=1, normalize=each), roster, form_of("keyed")).hash
        for each in (rule, other)
    ]
    assert (hashes[0] == hashes[1]) == (rule == other)
    assert ("normalize" in Params(3, 1, normalize=rule).canonical()) == bool(rule)


def test_a_function_is_bound_by_its_name_alone() -> None:
    assert Params(3, 1, normalize=lowered).canonical().endswith("normalize='function test_names.lowered'")


def test_a_federation_file_keeps_the_rule(tmp_path: Path) -> None:
    roster = Roster(tuple(bytes([n]) * 32 for n in range(3)), b"\xff" * 32, ("a", "b", "c"))
    session = Session(Params(3, 1, max_entities=1, max_union=1, normalize=ALL), roster, form_of("keyed"))
    write_session(session, tmp_path / "federation.json")
    assert read_session(tmp_path / "federation.json").params == session.params


@pytest.mark.parametrize("form", [Keyed(), Paillier()], ids=lambda form: form.name)
def test_hosts_know_an_entity_by_any_spelling_and_see_their_own(tmp_path: Path, form: Form) -> None:
    more: dict[str, Any] = SMALL if form.name == "paillier" else {}
    world = World(tmp_path, form, collusion=1, normalize="strip,casefold", **more)
    world.driver.setup()
    world.round()
    union = world.driver.server.at.union
    for n in range(N):  # every client has another spelling from now on, and nobody a new entity
        world.sets[n] = [f"{' ' * n}{name.upper()}" for name in world.sets[n]]
    world.round()
    assert world.driver.server.at.union == union
    for n, host in world.hosts.items():
        table = host.means()
        assert table is not None
        assert list(table.names) == world.sets[n]
        world.restart(n)
    world.round()
    world.sets[1] = ["E0", *world.sets[1][1:]]
    world.round()


# --------------------------------------------------------------------------------------------------------- near misses


def test_names_that_nearly_match_are_found_in_every_way() -> None:
    ours = ["aspirin", COMPOSED, "01", 7, "x"]
    theirs = ["Aspirin ", APART, 1, "007", "x", "y", "aspirin"]
    assert near(ours, theirs) == [("aspirin", "Aspirin "), (COMPOSED, APART), ("01", 1), (7, "007")]
    assert near(ours, theirs, ALL.split(",")) == [("01", 1), (7, "007")]


@law
@given(st.lists(text.filter(str.strip), unique=True), rules)
def test_what_a_rule_makes_one_entity_is_no_near_miss(some: list[str], rule: tuple[str, ...]) -> None:
    for name, other in near(some, [f" {name}" for name in some], rule):
        assert text_of(name, rule) != text_of(other, rule)
    for name, other in near(some, some):
        steps = joining([name, other])
        assert bool(near([name], [other], STEPS)) == (steps is None)
        assert steps is None or text_of(name, steps) == text_of(other, steps)


@law
@given(st.lists(text, unique=True))
def test_groups_of_spellings_are_the_pairs_that_nearly_match(some: list[str]) -> None:
    grouped = {frozenset((one, other)) for group in spellings(some) for one in group for other in group if one != other}
    assert grouped == {frozenset(pair) for pair in near(some, some)}


@pytest.mark.parametrize(
    ("names", "steps"),
    [
        ((COMPOSED, APART), ("nfc",)),
        (("a", " a "), ("strip",)),
        (("A", "a"), ("casefold",)),
        (("A ", "a"), ("strip", "casefold")),
        ((COMPOSED, APART.upper() + " ", APART), ("nfc", "strip", "casefold")),
        ((7, "7"), ()),
        (("01", "1"), None),
        (("7.0", 7), None),
        (("beta  blocker", "beta blocker"), None),
        (("\uff21", "A"), None),
    ],
)
def test_the_fewest_steps_that_join_spellings_are_named(
    names: tuple[Name, Name], steps: tuple[str, ...] | None
) -> None:
    assert joining(names) == steps
    assert len(spellings(names)) == (steps != ())
