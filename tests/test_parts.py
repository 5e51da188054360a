"""Orders and replies in parts: nobody has all messages at once, and nothing else is different."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopback import N, World
from secea.engines import port as port_module
from secea.engines.host import Host
from secea.engines.port import Order, Reply, Task, asked, gathered
from secea.engines.store import Store
from secea.errors import SnapshotError
from secea.forms.keyed import form as form_module
from secea.party.phases import STOPPED
from secea.table import Table
from secea.wire import snapshot
from secea.wire.keys import Identity

CHUNK, PART = 400, 1000


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of many chunks, a few in each part."""
    monkeypatch.setattr(form_module, "CHUNK_BYTES", CHUNK)
    monkeypatch.setattr(port_module, "PART_BYTES", PART)


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 60))
def test_messages_in_parts_are_the_same_messages_and_each_part_is_small_or_one_message(
    messages: list[bytes], limit: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(port_module, "PART_BYTES", limit)
        groups = list(gathered(messages))
        parts = list(Order(Task.STEP, 3, [*messages]).parts())
    assert [message for some, _ in groups for message in some] == messages
    assert [more for _, more in groups] == [True] * (len(groups) - 1) + [False]
    assert all(len(some) == 1 or sum(map(len, some)) <= limit for some, _ in groups)
    assert [part.messages for part in parts] == [some for some, _ in groups]
    assert [(part.task, part.round) for part in parts] == [(Task.TAKE, 3)] * (len(parts) - 1) + [(Task.STEP, 3)]


@given(st.booleans(), st.text(max_size=9), st.binary(max_size=9))
def test_a_reply_says_whether_more_follows(more: bool, fault: str, standing: bytes) -> None:
    reply = Reply([b"message"], fault, more, standing)
    again = Reply.parse(reply.to_bytes(), 0)
    assert (again.more, again.fault, again.standing) == (more, fault, standing)


@pytest.mark.parametrize("dropouts", [0, 1])
def test_rounds_in_parts_give_the_plain_means(tmp_path: Path, small: None, dropouts: int) -> None:
    world = World(tmp_path, entities=60, dropouts=dropouts)
    world.driver.setup()
    for _ in range(3):
        assert world.round() == [0, 1, 2, 3]
    world.driver.finish()
    assert len(world.over) == N
    replies = [reply for _, _, reply in world.port.seen]
    assert sum(reply.more for reply in replies) > 3 * N
    assert all(len(reply.messages) == 1 or sum(map(len, reply.messages)) <= PART for reply in replies)


def uploading(tmp_path: Path) -> tuple[World, Host]:
    """A client that has the order to upload, and has given the first part of its reply."""
    world = World(tmp_path, entities=60)
    world.driver.setup()
    taken: list[Reply] = []
    port, exchange = world.port, world.port.exchange

    def stopped(*args: Any) -> Iterator[Any]:
        for n, reply in exchange(*args):
            if n == 1 and isinstance(reply, Reply) and reply.more:
                taken.append(reply)
                raise KeyboardInterrupt
            yield n, reply

    port.exchange = stopped  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.driver.round()
    return world, world.hosts[1]


def whole(host: Host) -> list[bytes]:
    return [bytes(message) for message in host.client.outbox()]


def test_a_part_that_is_asked_for_again_is_the_same_and_the_others_are_not_disturbed(
    tmp_path: Path, small: None
) -> None:
    _, host = uploading(tmp_path)
    sent, before = whole(host), host.client.save()
    parts = [[bytes(message) for message in some] for some, _ in gathered(sent)]
    assert len(parts) > 3
    order = [1, 1, 2, 0, 3, 3, 1, len(parts) - 1]
    for number in order:
        host.obey(Order(Task.HELLO))  # whoever calls it meanwhile changes nothing
        reply = host.obey(Order(Task.MORE, number))
        assert [bytes(message) for message in reply.messages] == parts[number]
        assert reply.more == (number + 1 < len(parts))
    for number in (len(parts), 2**32 - 1):
        reply = host.obey(Order(Task.MORE, number))
        assert (reply.messages, reply.fault, reply.more) == ([], "", False)
    assert host.client.save() == before
    assert [bytes(m) for part in asked(Order(Task.STEP), host.obey) for m in part.messages] == sent


def test_a_part_is_made_when_it_is_asked_for(tmp_path: Path, small: None) -> None:
    _, host = uploading(tmp_path)
    made = count()
    outbox = host.client.outbox

    def counted() -> Iterator[Any]:
        for message in outbox():
            next(made)
            yield message

    host.client.outbox = counted  # type: ignore[method-assign]
    first = host.obey(Order(Task.STEP))
    assert first.more
    assert next(made) <= len(first.messages) + 1  # one was too much


def test_nothing_of_a_new_state_leaves_before_it_is_saved(tmp_path: Path, small: None) -> None:
    """A host that only takes says nothing; whatever part is asked for afterwards, it saves first."""
    _, host = uploading(tmp_path)
    saved: list[str] = []
    host._save = lambda: saved.append(host.client.at.phase)  # type: ignore[method-assign]
    assert host.obey(Order(Task.TAKE)) == Reply()
    assert saved == []
    assert host.obey(Order(Task.MORE, 1)).messages
    assert saved == [host.client.at.phase]
    assert host.obey(Order(Task.MORE, 2)).messages
    assert len(saved) == 1


def test_when_its_state_cannot_be_saved_no_further_part_leaves(tmp_path: Path, small: None) -> None:
    _, host = uploading(tmp_path)

    def full() -> None:
        raise SnapshotError("no space")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "_save", full)
        assert host.obey(Order(Task.HELLO)).fault == "no space"
    assert host.client.at.phase == STOPPED
    reply = host.obey(Order(Task.MORE, 1))
    assert reply.messages == []


def test_a_part_that_is_refused_loses_its_client_and_what_follows_of_it_is_ignored(tmp_path: Path, small: None) -> None:
    world = World(tmp_path, entities=60, dropouts=1)
    world.driver.setup()
    world.round()
    obey, damaged = world.hosts[2].obey, count()

    def damage(order: Order) -> Reply:
        reply = obey(order)
        if reply.more and not next(damaged):
            reply.messages[-1] = bytes(len(reply.messages[-1]))
        return reply

    world.hosts[2].obey = damage  # type: ignore[method-assign]
    world.driver.round()
    assert next(damaged) > 1
    assert 2 not in world.driver.server.at.members or 2 not in world.driver.present
    world.round()  # it is called meanwhile
    assert world.round() == [0, 1, 2, 3]


def test_a_table_is_saved_without_being_copied_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secea.engines.store._PART_BYTES", 1 << 18)
    store = Store(tmp_path, Identity.generate(), b"session")
    rng = np.random.default_rng(7)
    for matrix in (rng.normal(size=(40_000, 32)), rng.normal(size=(32, 40_000)).T):
        table = Table(range(len(matrix)), matrix)
        content = {"names": tuple(table.names), "matrix": table.matrix, "round": 3}
        store.save("table", snapshot.pieces(content))  # what is loaded on first use is loaded now
        tracemalloc.start()
        try:
            store.save("table", snapshot.pieces(content))
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert most < matrix.nbytes / 2, most / matrix.nbytes
        loaded = store.load("table")
        assert loaded == snapshot.dumps(content)
        assert np.array_equal(snapshot.loads(loaded)["matrix"], matrix)


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(1, 25))
def test_state_that_comes_in_pieces_is_the_state_that_comes_whole(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], part: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secea.engines.store._PART_BYTES", part)
        store = Store(tmp_path_factory.mktemp("state"), Identity(bytes(32)), b"session", entropy=bytes)
        store.save("client", b"".join(pieces))
        (path,) = store.folder.iterdir()
        content = path.read_bytes()
        store.save("client", iter(pieces))
        assert path.read_bytes() == content
        assert store.load("client") == b"".join(pieces)
