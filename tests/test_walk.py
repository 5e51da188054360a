"""docs/walk.md is what happens: its tables have the messages of a real round, in order, and its functions exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from named import resolves
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.party.form import Form
from secea.party.phases import REST, Common, Route, Row, row_of
from secea.testing import Parties, Recorder

PAGE = (Path(__file__).parent.parent / "docs" / "walk.md").read_text(encoding="utf-8")
TABLES = [{"a": [1.0, 2.0]}, {"a": [3.0, 4.0], "b": [0.5, 0.5]}, {"b": [1.5, 2.5]}, {"a": [0.0, 0.0]}]
SMALL = {"key_bits": 512, "insecure_small_keys": True}
WALKS: dict[str, tuple[Form, dict[str, Any]]] = {
    "## The keyed form": (Keyed(), {"collusion": 2}),
    "### With drop-outs": (Keyed(), {"dropouts": 1}),
    "## The paper's form": (Paillier(), SMALL),
}


def steps_of_page(heading: str) -> list[tuple[str, str, str]]:
    """(phase, kind, route) of each row of the table below a heading."""
    below = PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    rows = [re.split(r" *\| *", line.strip("| \n")) for line in below.splitlines() if line.startswith("|")]
    return [(phase, kind, route) for phase, kind, _, route, *_ in rows[2:]]


def route_of(form: Form, kind: str) -> str:
    """The route of a kind; what every form has is the server's word."""
    return "WORD" if kind in set(Common) else form.routes[form.kinds[kind]].name


def rows_of_round(form: Form, rows: tuple[Row, ...]) -> Iterator[Row]:
    for phase in dict.fromkeys((form.ready_phase, form.round_phase)):
        while phase != REST:
            yield (row := row_of(rows, phase))
            phase = row.then


def steps_of_row(form: Form, row: Row) -> Iterator[str]:
    """What passes in one phase: the server's word, what clients send, and what the server makes of it."""
    starts = row.announced and (row.decides or row.phase in (form.ready_phase, form.round_phase))
    yield from [Common.BEGIN] * starts
    yield from (kind.name for kind in row.sends)
    yield from [Common.BEGIN] * bool(row.settles)
    for kind in row.answers:
        broadcast = form.routes[kind] is Route.BROADCAST
        yield from (Common.KEY, kind.name, Common.DIGEST) if broadcast else (kind.name,)


@pytest.mark.parametrize("heading", WALKS)
def test_the_page_has_the_phases_kinds_and_routes_of_the_forms_table_in_order(heading: str) -> None:
    form, more = WALKS[heading]
    session = Parties.of(TABLES, form, **more).session
    expected = [
        (row.phase, kind.lower(), route_of(form, kind))
        for row in rows_of_round(form, session.rows)
        for kind in steps_of_row(form, row)
    ]
    assert steps_of_page(heading) == expected


@pytest.mark.parametrize("heading", WALKS)
def test_a_real_round_sends_what_the_page_says_in_that_order(heading: str) -> None:
    form, more = WALKS[heading]
    recorder = Recorder(form.kinds)
    parties = Parties.of(TABLES, form, tap=recorder, **more)
    parties.setup()
    recorder.hops.clear()
    parties.round(TABLES)
    seen = dict.fromkeys(hop.header.kind.name.lower() for hop in recorder.hops)
    assert list(seen) == list(dict.fromkeys(kind for _, kind, _ in steps_of_page(heading)))


def test_every_function_that_the_page_names_exists() -> None:
    names = set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAGE))
    assert len(names) > 50
    assert [name for name in sorted(names) if not resolves(name)] == []


def test_a_function_that_does_not_exist_is_noticed() -> None:
    assert resolves("party.client.Client.receive")
    assert not resolves("party.client.Client.deceive")
    assert not resolves("parties.client")
