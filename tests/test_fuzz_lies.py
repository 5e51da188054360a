"""The fuzzer's places are everywhere, its lies are refused or taken like any bytes, and its coverage counts lines."""

from __future__ import annotations

import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.forms.keyed.form import ROWS, TOLERANT
from secea.forms.keyed.form import Kind as KeyedKind
from secea.forms.paillier.form import ROWS as PAILLIER_ROWS
from secea.forms.paillier.form import Kind as PaillierKind
from secea.party.phases import GREETING, Route, Row
from secea.wire.messages import Header

FOLDER = Path(__file__).parent.parent / "fuzz"
sys.path.insert(0, str(FOLDER))

from covered import Covered  # noqa: E402
from lies import lies, payloads  # noqa: E402
from places import FEDERATIONS, Place, every_place, places, taken  # noqa: E402

KEYED = [place for form in FEDERATIONS if form.startswith("keyed") for place in places(form)]
PAILLIER = [place for form in FEDERATIONS if form.startswith("paillier") for place in places(form)]


# --------------------------------------------------------------------------------------------------------------- places


@pytest.mark.parametrize(("known", "kinds"), [(KEYED, KeyedKind), (PAILLIER, PaillierKind)], ids=["keyed", "paillier"])
def test_every_kind_of_message_has_a_place(known: list[Place], kinds: type[KeyedKind | PaillierKind]) -> None:
    assert {place.hop.header.kind for place in known} == set(kinds)


@pytest.mark.parametrize(
    ("known", "rows"), [(KEYED, (*ROWS, *TOLERANT)), (PAILLIER, PAILLIER_ROWS)], ids=["keyed", "paillier"]
)
def test_every_phase_has_a_place_for_whatever_is_sent_in_it(known: list[Place], rows: tuple[Row, ...]) -> None:
    there = {
        (place.party.at.phase, place.hop.header.kind, place.hop.header.sender == place.hop.sender) for place in known
    }
    for row in rows:
        for kind in (*row.sends, *row.answers, *([row.instead] if row.instead else [])):
            assert (row.phase, kind, True) in there, (row.phase, kind)  # at the server, or from it
            if known[0].parties.session.form.routes.get(kind) in (Route.EACH, Route.ALL):
                assert (row.phase, kind, False) in there, (row.phase, kind)  # passed on to a client
        if row.announced:
            begun = [place for place in known if place.hop.header.kind.name == "BEGIN"]
            assert any(place.payload()[0] == _number(place, row.phase) for place in begun), row.phase
    assert any(phase == GREETING for phase, _, _ in there)


def _number(place: Place, phase: str) -> int:
    phases = [row.phase for row in place.parties.session.rows]
    return phases.index(phase) if phase in phases else -1


CUT = {"LIST", "LISTS", "EVALUATION", "TABLE", "TAGS", "UPLOAD", "MEANS"}
"""Messages that may be long."""


def test_long_messages_have_places_at_their_first_and_their_last_chunk() -> None:
    several = [place.hop.header for place in places("keyed, in chunks") if place.hop.header.chunks > 1]
    assert {header.kind.name for header in several if header.chunk == 0} == CUT
    assert {header.kind.name for header in several if header.chunk == header.chunks - 1} == CUT


def test_later_epochs_of_names_newcomers_and_rounds_with_a_loss_have_places() -> None:
    def has(form: str, kind: KeyedKind | PaillierKind, **numbers: int) -> bool:
        found = (place.hop.header for place in places(form) if place.hop.header.kind is kind)
        return any(all(getattr(each, name) == value for name, value in numbers.items()) for each in found)

    assert has("keyed", KeyedKind.LIST, weights=2)
    assert has("keyed", KeyedKind.EVALUATION, weights=2)
    assert has("keyed", KeyedKind.UPLOAD, weights=2)
    assert has("keyed, with drop-outs", KeyedKind.OPENING, round=1)
    assert has("keyed, in a session that follows", KeyedKind.LIST, sender=1)  # the newcomer
    assert has("keyed, in a session that follows", KeyedKind.SHARE, sender=0)
    assert has("paillier, with drop-outs", PaillierKind.ANSWER, round=1)


def test_the_rest_of_a_phase_comes_after_each_place() -> None:
    for place in places("keyed"):
        assert all(hop.receiver == place.hop.receiver for hop in place.rest)
    dealing = next(place for place in places("keyed") if "dealing of a client to a client" in place.name)
    assert {hop.header.kind for hop in dealing.rest} == {KeyedKind.DEALING, KeyedKind.SHARE}


# ----------------------------------------------------------------------------------------------------------------- lies


@given(st.data())
def test_a_lie_with_a_shape_is_taken_or_refused_like_any_other(data: st.DataObject) -> None:
    place = data.draw(st.sampled_from([place for place in every_place() if place.sealed]))
    _, message = data.draw(st.sampled_from(list(lies(place))))
    taken(place, message)


@pytest.mark.slow
@pytest.mark.parametrize("form", FEDERATIONS)
def test_every_third_lie_at_every_place_is_taken_or_refused(form: str) -> None:
    """`fuzz_messages.py --lies` tries all."""
    for number, place in enumerate(place for place in places(form) if place.sealed):
        for name, message in islice(lies(place), number % 3, None, 3):
            try:
                taken(place, message)
            except Exception as error:
                raise AssertionError(f"{place.name}: {name}") from error


@settings(max_examples=30)
@given(st.binary(max_size=300))
def test_lies_have_names_of_their_own(said: bytes) -> None:
    names = [name for name, _ in payloads(said)]
    assert len(names) == len(set(names))


# ------------------------------------------------------------------------------------------------------------- coverage


def test_coverage_counts_the_lines_of_functions_that_ran() -> None:
    covered = Covered()
    with covered.watching():
        Header.parse(places("keyed")[0].hop.message, 0, KeyedKind)
    name = next(name for name in covered.reached if name.endswith("wire/messages.py"))
    assert len(covered.reached[name]) > 3
    lines = list(covered.report())
    wire = next(line for line in lines if line.startswith("wire: "))
    assert wire.endswith(" refusals")
    assert 0 < int(wire.split()[1]) < int(wire.split()[3])
    assert any("raise ProtocolError((carrier,), f'a message of the unknown kind" in line for line in lines)


@pytest.mark.slow
def test_the_program_says_what_it_reached() -> None:
    command = [sys.executable, str(FOLDER / "fuzz_messages.py"), "--coverage", "--random", "50", "3"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)  # noqa: S603 - our own
    assert ran.returncode == 0, ran.stderr
    assert "50 inputs" in ran.stdout
    assert "forms/keyed: " in ran.stdout
    assert "refusals that nothing reached:" in ran.stdout
