"""The server of the keyed form by itself: where it keeps what waits, and what it forgets."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from secea.errors import FaultyPeer, FederationError, ProtocolError
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed import form as form_module
from secea.forms.keyed import server as server_module
from secea.forms.keyed.server import KeyedServer
from secea.party.form import Held, Retry, Room
from secea.party.phases import Agreement
from secea.steps import oprf, union
from secea.testing import Parties
from secea.wire import messages
from secea.wire.messages import NO_CONTEXT

NAMES: Final = tuple("abcdefgh")
TABLES: Final = [{name: [1.0, float(n)] for name in NAMES} for n in range(4)]


class Counted(Room):
    """A room that counts what is left in it."""

    def __init__(self) -> None:
        self.made: list[tuple[int, ...]] = []
        self.rested = 0

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        self.made.append(shape)
        return super().zeros(shape, dtype)

    def rest(self, what: Any) -> None:
        self.rested += 1


class Noted(Held):
    """Parts of a message, and whether they were given back."""

    every: Final[list[Noted]] = []

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size, self.got, self.closed = size, 0, False
        self.every.append(self)

    def put(self, chunk: memoryview) -> None:
        self.got += 1
        super().put(bytes(chunk))  # type: ignore[arg-type]  # as in a file: what came may be overwritten

    def close(self) -> None:
        self.closed = True
        super().close()


def brought(
    dropouts: int = 0, *, chunk: int | None = None, patch: pytest.MonkeyPatch | None = None, **more: Any
) -> Any:
    """A federation with a union, and the server's part; `chunk`: of so many bytes."""
    if patch and chunk:
        for module in (form_module, messages):
            patch.setattr(module, "CHUNK_BYTES", chunk)
    parties = Parties.of(TABLES, Keyed(), collusion=1, dropouts=dropouts, **more)
    parties.setup()
    part = parties.server.part
    assert isinstance(part, KeyedServer)
    return parties, part


def chunks_of(parties: Parties, part: KeyedServer) -> int:
    return part.form.layout(Kind.UPLOAD, part.params, parties.server.at, 0).chunks


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("held", [0, 1, 3])
def test_sums_beyond_a_bound_wait_in_the_room_and_rest_after_every_upload(
    dropouts: int, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, part = brought(dropouts, chunk=60, patch=monkeypatch)
    chunks, n = chunks_of(parties, part), part.numbers
    assert chunks > 4
    span = part.form.layout(Kind.UPLOAD, part.params, parties.server.at, 0).span(0)
    shape = (n.ring.size, span.stop - span.start, part.form.width(part.params))
    size = int(np.prod(shape)) * n.ring.dtype.itemsize
    monkeypatch.setattr(server_module, "HELD_BYTES", held * size)
    room = part.room = Counted()
    means = parties.round(TABLES)
    assert means[0][0] == pytest.approx([1.0, 1.5], abs=1e-5)
    if dropouts:  # a whole upload is added at once: all sums are there before one of them is a mean
        assert len(room.made) == chunks - 1 - held
    assert all(made[::2] == shape[::2] for made in room.made)
    assert room.rested == chunks * (4 + bool(dropouts))


def test_an_upload_that_breaks_off_is_given_back_when_something_else_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    parties, part = brought(1, chunk=60, patch=monkeypatch)
    monkeypatch.setattr(part, "held", Noted)
    Noted.every.clear()
    parties.contribute(TABLES)
    parties.server.begin("upload", range(4))
    parties.exchange.deliver()
    wire = [part.form.layout(Kind.UPLOAD, part.params, parties.server.at, n).wire_bytes for n in range(2)]
    for n, some in ((0, None), (1, 2)):
        for message in list(parties.clients[n].outbox())[:some]:
            parties.server.receive(n, message)
    whole, broken = Noted.every
    assert (whole.size, whole.got, whole.closed) == (wire[0], chunks_of(parties, part), True)
    assert (broken.size, broken.got, broken.closed) == (wire[1], 2, False)
    assert all(chunk.senders == {0} for chunk in part._chunks.values())
    parties.server.begin("secret", range(4))
    assert broken.closed
    assert not part._parts
    assert not part._chunks


def test_without_drop_outs_a_chunk_is_in_the_sum_when_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    parties, part = brought(chunk=60, patch=monkeypatch)
    parties.contribute(TABLES)
    parties.server.begin("upload", range(4))
    parties.exchange.deliver()
    for number, message in enumerate(list(parties.clients[2].outbox())[:3]):
        parties.server.receive(2, message)
        assert [chunk.senders for chunk in part._chunks.values()] == [{2}] * (number + 1)
    assert not part._parts


@pytest.mark.parametrize("dropouts", [0, 1])
def test_what_is_no_upload_is_refused_before_anything_of_it_is_kept(dropouts: int) -> None:
    parties, part = brought(dropouts)
    parties.contribute(TABLES)
    parties.server.begin("upload", range(4))
    at = parties.server.at
    layout = part.form.layout(Kind.UPLOAD, part.params, at, 1)
    garbage = memoryview(b"\xff" * layout.payload_bytes(0))
    with pytest.raises(ValueError, match=r"element|field|modul|canonical|range"):
        part.stream(Kind.UPLOAD, 1, 0, garbage, at)
    assert not part._chunks
    assert not part._parts


@pytest.mark.parametrize(("most", "fits"), [(8, True), (7, False)])
def test_a_union_up_to_its_public_bound_is_one(most: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    parties, part = brought()
    monkeypatch.setattr(union, "peel", lambda *_: np.arange(8, dtype=np.uint64))
    monkeypatch.setattr(part, "params", replace(part.params, max_entities=7, max_union=most))
    part._table = np.zeros(0, np.uint64)
    if fits:
        after = part._peeled(parties.server.at)
        assert (after.size, part.tags.tolist()) == (8, list(range(8)))
        assert part.anchor("ready", after) == parties.server.at.context
    else:
        with pytest.raises(FederationError, match="the union has 8 entities, more than the public bound max_union=7"):
            part._peeled(parties.server.at)


def test_without_a_union_there_is_another_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    parties, part = brought()
    monkeypatch.setattr(union, "peel", lambda *_: None)
    part._table = np.zeros(0, np.uint64)
    with pytest.raises(Retry, match="begin a new session with a larger max_union"):
        part._peeled(parties.server.at)


def test_an_entity_with_fewer_owners_than_the_minimum_has_no_mean() -> None:
    parties = Parties.of(
        [{"a": [1.0], "b": [1.0], "c": [3.0]}, {"a": [2.0], "b": [3.0]}, {"a": [6.0]}], Keyed(), min_owners=2
    )
    parties.setup()
    means = parties.round([{"a": [1.0], "b": [1.0], "c": [3.0]}, {"a": [2.0], "b": [3.0]}, {"a": [6.0]}])
    assert [mean[0] for mean in means[0]] == pytest.approx([3.0, 2.0, 3.0], abs=1e-5)
    assert parties.clients[0].part.below_minimum == ("c",)


@pytest.mark.parametrize("dropouts", [0, 1])
def test_between_rounds_everybody_is_at_the_union(dropouts: int) -> None:
    _, part = brought(dropouts)
    part._before_round = b"union"
    said: Any = SimpleNamespace(got_batch=lambda *_: None, votes=lambda *_: b"votes", recover=lambda *_: [(b"seed", 1)])
    part.opening = said
    at = Agreement("", (0, 1), (0, 1), names=1, context=b"now")
    found = {
        phase: part.finish(replace(at, phase=phase), {}).context
        for phase in ("batch", "agree", "open", "end", "upload")
    }
    between = {"batch": b"union", "agree": b"now", "open": b"union", "end": b"union"}
    assert found == between | {"upload": b"now" if dropouts else b"union"}
    assert (part._votes, part._over) == (b"votes", [(b"seed", 1)])


def test_an_epoch_of_names_is_over_when_it_was_answered_and_a_later_one_stays() -> None:
    _, part = brought()
    at = Agreement("evaluate", (0, 1, 2, 3), (0, 1, 2, 3))
    for named, names in ((1, 3), (3, 1), (2, 2)):
        assert part.finish(replace(at, named=named, names=names), {}).named == max(named, names)


def test_what_names_build_on_is_bound_to_every_dealing() -> None:
    _, part = brought()
    at = Agreement("deal", (0, 1, 2, 3), (0, 1, 2, 3), names=1, named=0)
    dealings = {v: bytes([v]) * 5 for v in range(4)}
    after = part.finish(at, {(Kind.DEALING, v): said for v, said in dealings.items()})
    assert after.base == after.context == at.bound(*dealings.values()).context
    assert after.named == 0
    other = part.finish(at, {(Kind.DEALING, v): said for v, said in (dealings | {3: b"other"}).items()})
    assert other.base != after.base
    at = replace(at, phase="commit")
    hashed = part.finish(at, {(Kind.COMMITMENT, v): said for v, said in dealings.items()})
    assert hashed.context == at.bound(*dealings.values()).context


def test_a_phase_builds_on_what_was_agreed_on_before_it() -> None:
    parties, part = brought(1)
    at = replace(parties.server.at, context=b"now", base=b"key")
    fresh = KeyedServer(part.form, part.params, b"session")
    for phase in ("batch", "ready", "end", "upload"):
        assert fresh.anchor(phase, at) == NO_CONTEXT
    assert not fresh.renamed
    part._before_round, part._L = b"union", b"L"
    found = {
        phase: part.anchor(phase, at) for phase in ("commit", "list", "secret", "agree", "batch", "ready", "upload")
    }
    assert found == {
        "commit": NO_CONTEXT, "list": b"key", "secret": b"key", "agree": b"now", "batch": b"union", "ready": b"union",
        "upload": b"L",
    }  # fmt: skip


def test_lists_are_kept_until_they_are_answered_and_sums_until_they_are_opened() -> None:
    _, part = brought(1)
    kept = {
        "list": (False, False), "confirm": (True, False), "evaluate": (True, False), "upload": (False, False),
        "agree": (False, True), "open": (False, True), "batch": (False, False), "ready": (False, False),
    }  # fmt: skip
    for phase, (lists, sums) in kept.items():
        part._lists, part._chunks, part._over = {0: b"list"}, {0: None}, [(b"seed", 1)]
        part._table, part._divided = np.zeros(1, np.uint64), 3
        part.enter(Agreement(phase, (0, 1, 2, 3), (0, 1, 2, 3), names=1))
        assert (part._lists, part._chunks, part._over, part._divided) == (
            {0: b"list"} if lists else {}, {0: None} if sums else {}, [(b"seed", 1)] if sums else [], 3 if sums else 0,
        )  # fmt: skip
        assert (part._table is None) == (not sums)


def test_mask_keys_of_a_batch_are_forgotten_when_another_begins() -> None:
    parties, part = brought(1)
    at = parties.server.at
    assert part.prepared(at)
    assert part.prepared(replace(at, round=at.round + part.form.batch - 1))
    assert not part.prepared(replace(at, round=at.round + part.form.batch))
    assert not part.prepared(replace(at, participants=(0, 1, 2)))
    part.enter(replace(at, phase="upload"))
    assert part.prepared(at)
    part.enter(replace(at, phase="batch"))
    assert not part.prepared(at)
    assert KeyedServer(Keyed(), replace(part.params, dropouts=0), b"session").prepared(at)


@pytest.mark.parametrize("changed", [0, 1, 2**61 - 2])
def test_the_server_hears_whether_somebody_changed_from_all_words_together(changed: int) -> None:
    parties, part = brought()
    words = [5, 2**61 - 1 - 5, changed, 0]

    def got(*L: bytes) -> Any:
        return {(Kind.READY, v): L[v] + words[v].to_bytes(8, "little") for v in range(4)}

    after = part._ready(replace(parties.server.at, context=b"now"), got(*[b"L" * 16] * 4))
    assert part.renamed == (changed != 0)
    assert part._L == b"L" * 16
    assert after.context == part._before_round
    for other in range(4):
        told = [b"L" * 16] * 4
        told[other] = b"M" * 16
        with pytest.raises(ProtocolError, match="do not agree on the union") as caught:
            part._ready(parties.server.at, got(*told))
        assert set(caught.value.suspects) == {0, 1, 2, 3}


def test_a_list_that_is_not_the_one_that_was_signed_is_its_senders_fault() -> None:
    parties, part = brought()
    lists = {v: np.full((9, 32), v, np.uint8) for v in range(4)}
    marks = {v: oprf.list_hash(rows) for v, rows in lists.items()}
    got: Any = {(Kind.LIST, v): rows.tobytes() for v, rows in lists.items()}
    got |= {(Kind.MARK, v): mark for v, mark in marks.items()}
    at = replace(parties.server.at, phase="list", names=1)
    part._got_lists(at, got)
    assert part._lists == {v: rows.tobytes() for v, rows in lists.items()}
    with pytest.raises(FaultyPeer, match="signs another list of blinded names than it sends") as caught:
        part._got_lists(at, got | {(Kind.LIST, 2): lists[1].tobytes()})
    assert caught.value.suspects == (2,)
