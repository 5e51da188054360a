"""The parts of the paper's form by themselves: what a client may be told, what it keeps, checks and blames."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from secea.errors import SERVER, FaultyPeer, FederationError, ParamsError, ProtocolError, TableError
from secea.forms.paillier import Paillier
from secea.forms.paillier import client as client_module
from secea.forms.paillier.buckets import EMPTY
from secea.forms.paillier.client import Ahead, PaillierClient, Round
from secea.forms.paillier.server import PaillierServer
from secea.params import Params
from secea.party.form import Retry
from secea.party.phases import Agreement
from secea.table import as_table
from secea.testing import Parties
from secea.wire.messages import NO_CONTEXT

TABLES: Final = [
    {"a": [1.0, 2.0], "b": [0.0, 1.0]},
    {"a": [3.0, 4.0]},
    {"b": [1.0, 1.0]},
    {"a": [0.5, 0.0], "c": [9.0, 9.0]},
]
ROW: Final = [1.0, 2.0]


def brought(*, trained: bool = False, **more: Any) -> tuple[Parties, PaillierClient, Agreement]:
    """A federation with a union, the part of client 0, and what it agreed on; `trained`: it waits for means."""
    parties = Parties.of(TABLES, Paillier(), key_bits=256, insecure_small_keys=True, **more)
    parties.setup()
    if trained:
        parties.number += 1
        parties.server.begin("share", range(4))
        for n in range(4):
            parties.clients[n].contribute(TABLES[n], parties.number)
        while parties.server.at.phase != "answer":
            parties.exchange.step()
    part = parties.clients[0].part
    assert isinstance(part, PaillierClient)
    return parties, part, parties.clients[0].at


# ------------------------------------------------------------------------------------------------------------- entities


def test_entities_change_with_the_next_epoch_and_what_was_known_of_the_others_is_forgotten() -> None:
    parties, part, at = brought()
    parties.round(TABLES)
    assert part.has_means
    assert not part.renamed
    part.update(["b", "z"])
    assert (part.renamed, part.unsettled, sorted(map(str, part.names))) == (True, True, ["a", "b"])
    assert part.next_names == ("b", "z")
    assert part.has(["z", "b"])
    assert not part.has(["a", "b"])
    assert part.has_means
    part.enter(replace(at, phase="secret"))
    assert (part.renamed, part.names, part.has_means, part.round) == (False, ("b", "z"), False, None)
    with pytest.raises(
        TableError, match="client 0 has 3 entities, more than the public bound max_entities=2: raise it"
    ):
        part.update(["a", "b", "c"])


def test_an_epoch_without_changes_keeps_the_means() -> None:
    parties, part, at = brought()
    parties.round(TABLES)
    part.enter(replace(at, phase="secret"))
    assert part.has_means
    assert set(part.names) == {"a", "b"}


def test_means_are_those_of_a_round_that_was_finished() -> None:
    parties, part, at = brought()
    with pytest.raises(FederationError, match="client 0 has no means: no round was finished"):
        parties.means(0, TABLES[0])
    parties.round(TABLES)
    part._faults = [FaultyPeer(1, "was wrong")]
    assert parties.means(0, {"b": ROW, "a": ROW}) == pytest.approx(np.array([[0.5, 1.0], [1.5, 2.0]]), abs=1e-5)
    part.contribute(TABLES[0], 2, at)
    assert (part.trained, part.has_means, part.faults) == (True, False, [])


def test_a_client_contributes_to_as_many_rounds_as_the_session_has() -> None:
    _, part, at = brought(rounds=5)
    part.contribute(TABLES[0], 5, replace(at, round=4))
    with pytest.raises(FederationError, match="all 5 rounds of this session are used"):
        part.contribute(TABLES[0], 6, replace(at, round=5))


def test_a_restart_keeps_names_key_and_means_and_nothing_of_an_epoch() -> None:
    parties, part, _ = brought()
    parties.round(TABLES)
    part.update(["b"])
    other = PaillierClient(part.form, part.params, 0, [], os.urandom)
    other.restore(part.plain())
    assert other.introduction == part.introduction
    assert (other.names, other.coming, other.next_names) == (part.names, ("b",), ("b",))
    assert other.means_like(_table(TABLES[0])).tolist() == part.means_like(_table(TABLES[0])).tolist()
    assert (other.epoch, other.round) == (None, None)


def test_names_that_the_last_round_had_not_keep_their_own_rows() -> None:
    parties, part, _ = brought()
    parties.round(TABLES)
    (mean,) = part.means_like(_table({"a": TABLES[0]["a"]}))
    found = part.means_like(_table({"came since": [7.0, -7.0], "a": [0.0, 0.0], "far off": [1e9, 0.0]}))
    assert found.tolist() == [[7.0, -7.0], mean.tolist(), [part.params.max_abs, 0.0]]


def _table(given: Any) -> Any:
    return as_table(given, 2)


# ------------------------------------------------------------------------------------------------------ announcements


def test_what_begins_builds_on_the_epoch_and_an_epoch_on_nothing() -> None:
    _, part, at = brought()
    assert part.epoch is not None
    found = {phase: part.anchor(phase, at) for phase in ("secret", "share", "end")}
    assert found == {"secret": NO_CONTEXT, "share": part.epoch.context, "end": part.epoch.context}
    assert part.epoch.context == at.context != NO_CONTEXT
    part.enter(replace(at, phase="end"))
    left: Any = (part.epoch, part.round, part.anchor("end", at))
    assert left == (None, None, NO_CONTEXT)


def test_colluders_face_two_others_in_every_phase_but_the_last() -> None:
    _, part, at = brought()
    for phase in ("secret", "table", "query", "share", "answer"):
        part.check_begin(replace(at, phase=phase, members=(0, 1, 2)))
        with pytest.raises(ValueError, match="announces 2 clients; fewer than 3 would expose someone"):
            part.check_begin(replace(at, phase=phase, members=(0, 1)))
    part.check_begin(replace(at, phase="end", members=(0,)))


def test_entities_that_have_no_place_in_queries_ask_for_another_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    _, part, at = brought()
    assert part.epoch is not None
    before = part.epoch
    part.enter(replace(at, phase="query"))
    assert sorted(part.epoch.placement[part.epoch.placement != EMPTY].tolist()) == before.rows.tolist()
    part.epoch = replace(before, rows=np.array([1, 1]))
    with pytest.raises(Retry):
        part.enter(replace(at, phase="query"))
    part.epoch = before
    monkeypatch.setattr(client_module, "place", lambda *_: None)
    with pytest.raises(Retry):
        part.enter(replace(at, phase="query"))


# -------------------------------------------------------------------------------------------------------------- ahead


def test_what_is_made_ahead_is_for_everybody_in_the_union_and_serves_one_round() -> None:
    _, part, at = brought()
    part.prepare()
    seed, encrypters = part._ahead.seed, part._ahead.encrypters
    assert set(encrypters) == {0, 1, 2, 3}
    count = part.numbers.count * part.numbers.plaintexts
    assert {each.stored_bytes for each in encrypters.values()} == {count * 2 * 256 // 8}
    part.contribute(TABLES[0], 1, at)
    part.enter(replace(at, phase="answer"))
    assert part._seed == seed
    part.enter(replace(at, phase="secret"))
    assert part._ahead == Ahead()
    part.prepare()
    assert part._ahead == Ahead()  # there are no queries yet
    fresh: Any = Parties.of(TABLES, Paillier(), key_bits=256, insecure_small_keys=True).clients[0].part
    fresh.prepare()
    assert not fresh._ahead.seed


def test_the_servers_noise_that_is_made_ahead_is_for_everybody_and_serves_one_round() -> None:
    parties, _, at = brought()
    part = parties.server.part
    assert isinstance(part, PaillierServer)
    assert part.prepared(at)
    assert not part.renamed
    at = replace(parties.server.at, phase="answer")
    part.prepare(at)
    seed, scramblers = part._ahead
    assert set(scramblers) == {0, 1, 2, 3}
    count = part.numbers.count * part.numbers.plaintexts
    assert {each.stored_bytes for each in scramblers.values()} == {4 * count * 2 * 256 // 8}
    part.enter(at)
    assert (part._masking.seed, part._masking.scramblers, part._ahead) == (seed, scramblers, (b"", {}))
    part.enter(at)
    assert part._masking.seed not in (b"", seed)
    assert part._masking.scramblers == {}
    again = part._masking.seed
    part.enter(at)
    assert part._masking.seed == again, "drawn once for a context"
    part.enter(replace(at, context=b"other"))
    assert part._masking.seed != again
    part.prepare(at)
    part.enter(replace(at, phase="secret"))
    assert part._ahead == (b"", {})


# -------------------------------------------------------------------------------------------------------------- means


def waiting() -> tuple[PaillierClient, Agreement, Any, slice]:
    """A client that waits for means, rows of them as they may be, and their span."""
    _, part, at = brought(trained=True)
    assert part.epoch is not None
    span = slice(0, part.epoch.placement.size)
    rows = np.zeros((part.epoch.placement.size, part.numbers.block_length * part.params.K))
    return part, at, rows, span


def test_a_result_is_possible_up_to_the_range_where_something_was_asked_and_zero_elsewhere() -> None:
    part, _, rows, span = waiting()
    assert part.epoch is not None
    real, dummy = (np.flatnonzero((part.epoch.placement != EMPTY) == asked) for asked in (True, False))
    top = part.params.max_abs * (1 + 2**-6) + part.params.resolution
    rows[real[0], :2] = top, -top
    part._keep_means(rows, span, (0, 1, 2, 3))
    beyond = np.nextafter(top, np.inf)
    cases = [
        (real[0], 1, beyond),
        (real[0], 0, -beyond),
        (real[1], 0, np.nan),
        (dummy[0], 0, 5e-324),
        (dummy[-1], 1, -5e-324),
    ]
    cases += [(place, column, 5e-324) for place in (real[0], dummy[0]) for column in range(2, rows.shape[1])]
    for place, column, value in cases:
        wrong = rows.copy()
        wrong[place, column] = value
        with pytest.raises(ProtocolError, match=f"1 of {len(rows)} results are impossible") as caught:
            part._keep_means(wrong, span, (0, 1, 3))
        assert caught.value.suspects == (SERVER, 1, 3)


def test_means_come_to_the_entities_that_were_asked_for() -> None:
    part, _, rows, span = waiting()
    assert part.epoch is not None
    assert part.round is not None
    assert np.isnan(part.round.means).all()  # type: ignore[arg-type]
    for place in np.flatnonzero(part.epoch.placement != EMPTY):
        rows[place, :2] = float(part.epoch.placement[place]), 0.5
    part._keep_means(rows, span, (0, 1, 2, 3))
    assert part.round.means is not None
    assert part.round.means.tolist() == [[float(row), 0.5] for row in part.epoch.rows]


def test_whose_answers_did_not_fit_is_remembered_once_and_for_ones_own_it_is_the_server() -> None:
    part, at, _, _ = waiting()
    at = replace(at, round=7)
    part._blame((2,), at)
    part._blame((2, 0), at)
    part._blame((0, 3), at)
    assert [fault.suspects[0] for fault in part.faults] == [2, SERVER, 3]
    assert "its answer does not fit the others' in round 7" in str(part.faults[0])
    assert "our own answer, as it has it, does not fit" in str(part.faults[1])


def test_a_client_keeps_its_rows_in_the_order_of_its_names() -> None:
    _, part, at = brought()
    part.contribute({"b": [0.0, 1.0], "a": [1.0, 2.0]}, 1, at)
    first = part.round
    part.contribute(TABLES[0], 1, at)
    assert isinstance(first, Round)
    assert isinstance(part.round, Round)
    assert np.array_equal(first.values, part.round.values)
    assert not first.sums.any()
    assert first.sums.shape == (1, at.size, part.numbers.block_length)


# ------------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("clients", [3, 50, 700])
def test_a_precision_is_accepted_where_every_mean_is_one_fraction_alone(clients: int) -> None:
    for precision in range(20, 53):
        params = Params(clients, dim=1, collusion=1, precision=precision, max_entities=2, max_union=4)
        largest = round(params.max_abs * 2**params.fraction_bits)
        if 2 * clients**2 * largest < 2**61 - 1:
            assert Paillier().checked(params) == params
        else:
            with pytest.raises(
                ParamsError, match=f"precision {precision} is too fine for {clients} clients with Paillier"
            ):
                Paillier().checked(params)
