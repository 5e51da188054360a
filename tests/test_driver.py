"""Laws of driver and host over any port: right means or a lost round, whoever was killed when."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopback import Killed, N, Turn, World, killed_at, unharmed
from secea.engines.driver import KEYLESS, NAMELESS
from secea.engines.port import Order, Reply, Task
from secea.errors import SERVER, FederationError, RoundLost
from secea.forms.keyed import Keyed
from secea.forms.keyed.form import Kind
from secea.forms.paillier import Paillier
from secea.party.phases import REST, STOPPED, UNKNOWN
from secea.wire.messages import Buffer, Header
from tiers import slow

PAPER: dict[str, Any] = {"form": Paillier(), "entities": 3, "key_bits": 256, "insecure_small_keys": True}
WEIGHTED: dict[str, Any] = {"dropouts": 1, "max_weight": 9, "min_owners": 2}
PARTLY: dict[str, Any] = {"partial": True, "min_owners": 3}
SHAPES: list[dict[str, Any]] = [{"dropouts": 0}, {"dropouts": 1}, {"dropouts": 0, "collusion": 1}, PAPER]
SHAPES += [WEIGHTED, PARTLY, {"noise": 0.25}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_three_rounds_give_the_plain_means_and_then_it_is_over(tmp_path: Path, shape: dict[str, Any]) -> None:
    world = World(tmp_path, **shape)
    world.driver.setup()
    for _ in range(3):
        assert world.round() == [0, 1, 2, 3]
    last = {n: world.hosts[n].means() for n in range(N)}
    world.driver.finish()
    for n in range(N):
        over, before = world.over[n], last[n]
        assert over is not None
        assert before is not None
        assert np.array_equal(over.matrix, before.matrix)


def _orders_of_a_life(folder: Path, shape: dict[str, Any]) -> int:
    """How many orders client 1 gets in a set-up and two rounds."""
    world = World(folder, **shape)
    world.driver.setup()
    world.round()
    world.round()
    return sum(n == 1 for n, _, _ in world.port.seen)


FATES = [(SHAPES[0], "after"), (SHAPES[0], "server"), (PAPER, "before"), (PAPER, "server"), (WEIGHTED, "after")]
MORE = [(SHAPES[0], "before"), (SHAPES[0], "hangs"), *((SHAPES[1], fate) for fate in ("before", "after", "server"))]
MORE += [(PAPER, "after"), (PAPER, "hangs"), (WEIGHTED, "before"), (WEIGHTED, "server"), (PARTLY, "after")]
ALL_FATES = [*FATES, *map(slow, MORE)]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "fate"), ALL_FATES, ids=str)
def test_whoever_is_killed_at_any_order_the_next_rounds_work(tmp_path: Path, shape: dict[str, Any], fate: str) -> None:
    count = _orders_of_a_life(tmp_path / "count", shape)
    assert count >= 8
    for at in range(1, count + 1):
        world = World(tmp_path / f"{at}", **shape)
        world.port.kill = partial(killed_at, Turn(1, at), fate)
        for _ in range(3):
            try:
                world.driver.setup()
                world.round()
            except Killed:
                world.restarted()
            except FederationError:
                continue
        world.driver.setup()
        assert world.round() == [0, 1, 2, 3], at
        assert world.round() == [0, 1, 2, 3], at


@pytest.mark.parametrize("shape", [WEIGHTED, PARTLY], ids=str)
def test_a_client_that_is_killed_before_its_upload_gives_the_same_rows_with_the_same_weights(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    world = World(tmp_path, **shape)
    world.driver.setup()
    world.round()
    trained, struck = len(world.got[1]), iter([True])
    world.port.kill = lambda n, order: "after" if order.task is Task.ROUND and n == 1 and next(struck, None) else ""
    assert world.round() == [0, 2, 3]
    world.driver.setup()
    assert world.round() == [0, 1, 2, 3]
    assert len(world.got[1]) == trained + 1, "it trained before it was killed, and not again"
    table, given = world.hosts[1]._table, world.given[1][world.got[1][-1][0]]
    assert table is not None
    assert table is not given, "it comes from its disk"
    assert np.array_equal(table.matrix, given.matrix)
    assert np.array_equal(np.asarray(table.weights), np.asarray(given.weights))


def test_means_that_were_read_from_the_disk_still_tell_what_is_below_the_minimum(tmp_path: Path) -> None:
    world = World(tmp_path, min_owners=4)
    world.driver.setup()
    world.round()
    before = world.hosts[2].means()
    world.restart(2)
    after = world.hosts[2].means()
    assert before is not None
    assert after is not None
    assert after.below_minimum == before.below_minimum == after.without_mean
    assert 0 < len(after.below_minimum) < len(after)


def test_what_was_uploaded_in_a_lost_round_never_goes_to_others(tmp_path: Path) -> None:
    """Client 2 is killed in the upload, and the others go on without it: they train again, or the difference is its."""
    world = World(tmp_path, collusion=1)
    world.driver.setup()
    world.round()

    def in_the_upload(n: int, order: Order) -> str:
        kinds = {Header.parse(message, 0, Kind).kind for message in order.messages}
        begun = Kind.BEGIN in kinds and world.driver.server.at.phase == "upload"
        return "before" if n == 2 and begun else ""

    world.port.kill = in_the_upload
    with pytest.raises(RoundLost, match="client 2 vanished"):
        world.driver.round()
    world.port.kill = lambda n, order: "hangs" if n == 2 else ""
    before = {n: world.hosts[n]._table for n in (0, 1, 3)}
    assert world.round() == [0, 1, 3]
    for n, table in before.items():
        now = world.hosts[n]._table
        assert table is not None
        assert now is not None
        assert not np.isclose(table.matrix, now.matrix).any(), f"client {n} uploaded the same values to others"
        assert world.got[n][-1] == (3, None)  # trained anew, with no means of the round that was lost


# --------------------------------------------------------------------------------------------------- state that is gone


def kinds(world: World, since: int = 0) -> set[Kind]:
    """The kinds of the messages that clients sent."""
    sent = [message for _, _, reply in world.port.seen[since:] for message in reply.messages]
    return {Header.parse(message, 0, Kind).kind for message in sent}


def test_a_server_without_its_state_learns_from_its_clients_which_numbers_are_used(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver.setup()
    world.round()
    world.round()
    before, since = world.driver.server.at, len(world.port.seen)
    world.restarted(forgets=True).setup()
    assert world.round() == [0, 1, 2, 3]
    at = world.driver.server.at
    assert (at.union, at.round, at.base) == (before.union + 1, before.round + 1, before.base)
    assert not kinds(world, since) & {Kind.COMMITMENT, Kind.DEALING, Kind.LIST}


def test_after_the_end_of_a_run_the_next_one_needs_no_new_key_and_no_names(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver.setup()
    world.round()
    world.driver.finish()
    for n in range(N):
        world.restart(n)
    since = len(world.port.seen)
    world.restarted().setup()
    assert world.round() == [0, 1, 2, 3]
    assert not kinds(world, since) & {Kind.COMMITMENT, Kind.DEALING, Kind.LIST}


@pytest.mark.parametrize("dropouts", [0, 1])
def test_when_it_is_over_a_client_has_no_masks_and_nothing_more_is_made_of_its_union(
    tmp_path: Path, dropouts: int
) -> None:
    world = World(tmp_path, dropouts=dropouts)
    world.driver.setup()
    world.round()
    server, stood = world.driver.server, world.driver.server.at
    world.driver.finish()
    part: Any = world.hosts[0].client.part
    assert (part.union, part.round, part.masking.batch) == (None, None, None)
    trained = len(world.got[0])
    server.at = stood  # a server that goes on all the same
    server.begin("ready", range(N))
    assert world.hosts[0].obey(Order(Task.ROUND, 0, server.drain()[0])).fault
    assert len(world.got[0]) == trained


@pytest.mark.parametrize("forgets", [False, True], ids=["server with its state", "server without"])
def test_a_client_that_lost_its_state_is_left_out_and_the_reason_is_given(tmp_path: Path, forgets: bool) -> None:
    world = World(tmp_path, collusion=1)
    world.driver.setup()
    world.round()
    shutil.rmtree(world.hosts[2]._store.folder)  # type: ignore[union-attr]
    world.restart(2)
    world.restarted(forgets=forgets).setup()
    assert world.round() == [0, 1, 3]
    assert "no share of the key of the names" in world.driver.failures[2]


def test_where_all_clients_lost_their_state_a_new_key_is_dealt(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver.setup()
    world.round()
    for n in range(N):
        shutil.rmtree(world.hosts[n]._store.folder)  # type: ignore[union-attr]
        world.restart(n)
    base = world.driver.server.at.base
    world.restarted().setup()
    assert world.round() == [0, 1, 2, 3]
    assert world.driver.server.at.base != base


def seeds(world: World) -> dict[int, bytes]:
    """What the last list of each client was made from."""
    parts: list[Any] = [world.hosts[n].client.part for n in range(N)]
    return {n: part.naming.names.seed for n, part in enumerate(parts)}


def test_an_epoch_of_names_whose_answers_did_not_come_to_all_is_repeated_with_the_same_lists(tmp_path: Path) -> None:
    world = World(tmp_path, entities=40)  # more than an update has room for
    made: dict[int, bytes] = {}
    turn = Turn(1, 7)  # everybody has sent its answers, and client 0 has got them

    def before_answers(n: int, order: Order) -> str:
        if not turn.is_it(n):
            return ""
        made.update(seeds(world))
        assert [world.hosts[n].client.at.named for n in (0, 1)] == [1, 0]
        return "before"

    world.port.kill = before_answers
    world.driver.setup()
    assert world.round() == [0, 2, 3]
    assert world.round() == [0, 1, 2, 3]
    assert seeds(world) == made
    assert world.driver.server.at.named == 1


def test_whoever_has_no_keys_when_others_change_names_is_left_out_and_costs_no_epochs(tmp_path: Path) -> None:
    world = World(tmp_path, entities=40, collusion=1)
    turn = Turn(1, 7)

    def away(n: int, order: Order) -> str:
        gone = n == 1 and turn.seen > 7 and world.driver.server.at.named < 2
        return "before" if turn.is_it(n) or gone else ""

    world.port.kill = away
    world.driver.setup()
    assert world.round() == [0, 2, 3]
    world.sets[2] = [*world.sets[2][1:], "another"]
    world.hosts[2].client.part.update(world.sets[2])
    for _ in range(4):
        assert world.round() == [0, 2, 3]
    assert world.driver.failures == {1: NAMELESS}
    assert world.driver.server.at.named == 2


# ------------------------------------------------------------------------------------------------------ forged orders


def test_no_order_does_anything_without_a_message_that_the_server_sealed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver.setup()
    world.round()
    host, trained = world.hosts[0], len(world.got[0])
    before, state = host.client.at, host.client.save()
    for task in Task:
        for number in (0, 1, 7, 2**32 - 1):
            assert not host.obey(Order(task, number)).fault
    assert (host.client.at, host.client.save()) == (before, state)
    assert (len(world.got[0]), world.over) == (trained, {})
    assert world.round() == [0, 1, 2, 3]


def test_orders_of_an_earlier_round_or_of_another_clients_are_no_orders(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver.setup()
    world.round()
    world.round()
    old = [(n, order) for n, order, _ in world.port.seen if order.messages]
    trained = {n: len(got) for n, got in world.got.items()}
    numbers = {n: world.hosts[n].client.at.numbers for n in range(N)}
    for n, order in old:
        for to in (n, (n + 1) % N):
            world.hosts[to].obey(order)
    assert {n: len(got) for n, got in world.got.items()} == trained
    assert {n: world.hosts[n].client.at.numbers for n in range(N)} == numbers
    world.driver.setup()
    assert world.round() == [0, 1, 2, 3]


def test_what_no_key_vouches_for_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, dropouts=1)
    world.driver.setup()
    server, host = world.driver.server, world.hosts[0]
    server.begin("ready", range(N))
    good = server.drain()[0]
    junk: list[list[Buffer]] = [[b"junk"], [bytes(good[-1][:-1]) + bytes([good[-1][-1] ^ 1])]]
    junk += [list(order.messages) for n, order, _ in world.port.seen if n == 1 and order.messages][:3]
    before, state = host.client.at, host.client.save()
    for messages in junk:
        host.obey(Order(Task.ROUND, 1, messages))
    assert (host.client.at, host.client.save()) == (before, state)
    assert not host.obey(Order(Task.ROUND, 1, good)).fault
    assert len(world.got[0]) == 1


def test_what_a_client_refuses_ends_its_attempt(tmp_path: Path) -> None:
    """An authentic message that is wrong, and then the right one: the client takes part again with the next union."""
    world = World(tmp_path, dropouts=1)
    world.driver.setup()
    server, host = world.driver.server, world.hosts[0]
    server.begin("ready", range(N - 1))  # sealed, and with other members than the union has
    assert "it refuses what came from the server" in host.obey(Order(Task.ROUND, 1, server.drain()[0])).fault
    assert host.client.at.phase == STOPPED
    server.begin("ready", range(N))
    assert host.obey(Order(Task.ROUND, 1, server.drain()[0])).fault
    assert world.got[0] == []
    server.give_up()
    assert world.round() == [0, 1, 2, 3]


def test_a_hello_of_an_earlier_life_is_not_taken_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver.setup()
    world.round()
    first = world.driver.server.link.hello_message()
    world.restarted().setup()
    world.round()
    life = world.hosts[0].client.link.incarnation(SERVER)
    world.hosts[0].obey(Order(Task.STEP, 0, [first]))
    assert world.hosts[0].client.link.incarnation(SERVER) == life
    assert world.round() == [0, 1, 2, 3]


@pytest.mark.parametrize("union", [2**16 + 2, 2**31 - 2, 2**32 - 2])
def test_no_announcement_uses_up_the_numbers_of_unions(tmp_path: Path, union: int) -> None:
    world = World(tmp_path, entities=4)
    world.driver.setup()
    server = world.driver.server
    saved, before = server.save(), world.hosts[0].client.at.union
    server.at = replace(server.at, union=union)
    server.begin("secret", range(N))
    assert world.hosts[0].obey(Order(Task.STEP, 0, server.drain()[0])).fault
    assert world.hosts[0].client.at.union == before
    world.store.save("server", saved)
    world.restarted().setup()
    assert world.round() == [0, 1, 2, 3]


def lying(world: World, lie: dict[str, Any]) -> Callable[[], None]:
    """Client 2 lies about where it stands, until what comes back is called."""
    host = world.hosts[2]
    obey = host.obey

    def changed(order: Order) -> Reply:
        reply = obey(order)
        return replace(reply, standing=replace(host.client.standing, **lie).to_bytes())

    host.obey = changed  # type: ignore[method-assign]
    return partial(setattr, host, "obey", obey)


ASTRAY = "it does not say where it stands"
OTHER_KEY = {"base": bytes(range(16)), "named": 1, "names": 1, "union": 9, "settled": 9}
NEW_NAMES = {"names": 3, "named": 1, "union": 3, "settled": 3}


@pytest.mark.parametrize(
    ("lie", "when", "why"),
    [
        ({"union": 2**31 - 1, "settled": 0}, "at first", ASTRAY),
        ({"union": 2**31 - 1, "settled": 0}, "later", ASTRAY),
        ({"round": 1000}, "at first", ASTRAY),
        ({"round": 1000}, "later", ASTRAY),
        ({"settled": 0}, "at first", ASTRAY),
        ({"settled": 0}, "later", ASTRAY),
        (OTHER_KEY, "later", KEYLESS),
        (NEW_NAMES, "later", ASTRAY),
    ],
    ids=lambda value: str(sorted(value)) if isinstance(value, dict) else "" if value in (ASTRAY, KEYLESS) else value,
)
def test_one_client_that_lies_about_where_it_stands_stops_nobody_else(
    tmp_path: Path, lie: dict[str, Any], when: str, why: str
) -> None:
    world = World(tmp_path, collusion=1)
    if when == "later":
        world.driver.setup()
        world.round()
        world.restarted(forgets=True)
    honest = lying(world, lie)
    world.driver.setup()
    assert world.driver.server.at.members == (0, 1, 3)
    for _ in range(2):
        assert world.driver.failures == {2: why}
        assert world.round() == [0, 1, 3]
    honest()
    world.restarted().setup()
    assert world.round() == [0, 1, 2, 3]
    assert world.driver.failures == {}


@pytest.mark.parametrize("lie", [OTHER_KEY, NEW_NAMES], ids=["another key", "new names"])
def test_who_lies_about_names_before_there_is_a_key_stops_the_set_up_for_which_it_is_needed_and_none_after(
    tmp_path: Path, lie: dict[str, Any]
) -> None:
    world = World(tmp_path, collusion=1)
    honest = lying(world, lie)
    with pytest.raises(FederationError, match=r"^16 attempts at a union failed$") as caught:
        world.driver.setup()
    assert type(caught.value) is FederationError
    at = world.driver.server.at
    assert (at.phase, at.size) == (REST, UNKNOWN)
    assert all(world.hosts[n].client.standing.named == 0 for n in range(N))
    assert all(world.got[n] == [] for n in range(N))
    honest()
    world.restarted().setup()
    assert world.round() == [0, 1, 2, 3]
    assert world.driver.failures == {}


# ------------------------------------------------------------------------------------------------------ new entities


@pytest.mark.parametrize("dropouts", [0, 1])
def test_new_entities_have_means_in_the_round_in_which_they_come(tmp_path: Path, dropouts: int) -> None:
    world = World(tmp_path, entities=12, dropouts=dropouts)
    world.driver.setup()
    world.round()
    world.sets[1] = [*world.sets[1][2:], "new"]
    world.sets[3] = [*world.sets[3], "new"]
    assert world.round() == [0, 1, 2, 3]
    assert world.driver.server.at.named == 2
    means = world.hosts[1].means()
    assert means is not None
    assert set(means.names) == set(world.sets[1])
    assert world.round() == [0, 1, 2, 3]
    assert world.driver.server.at.named == 2


def test_where_too_few_are_here_for_new_names_the_others_go_on_without_them(tmp_path: Path) -> None:
    world = World(tmp_path, Keyed(min_participants=3), entities=12)
    world.driver.setup()
    world.round()
    world.port.kill = lambda n, order: "hangs" if n == 2 else ""
    world.sets[1] = [*world.sets[1][2:], "new"]
    while world.driver.server.at.members != (0, 1, 3):
        with suppress(RoundLost):
            world.driver.round()
    world.deliver()
    means, own = world.hosts[1].means(), world.hosts[1]._table
    assert means is not None
    assert own is not None
    assert np.array_equal(means.matrix[-1], own.matrix[-1])  # "new" has no mean yet, and its row is its own
    assert world.hosts[1].client.part.renamed
    world.port.kill = unharmed
    world.round()
    assert world.round() == [0, 1, 2, 3]
    assert world.driver.server.at.named == 2


def test_where_all_changes_of_entities_are_used_up_rounds_go_on_without_new_ones(tmp_path: Path) -> None:
    world = World(tmp_path, Keyed(max_updates=1), entities=12)
    world.driver.setup()
    for new in ("first", "second"):
        world.sets[1] = [*world.sets[1][1:], new]
        world.driver.round()
    world.deliver()
    assert world.driver.server.at.named == 2
    assert world.hosts[1].client.part.without_mean == ("second",)


def waits(world: World, n: int) -> list[int]:
    """How many names wait, as a site's log has it."""
    lines = map(json.loads, (world.folder / f"{n}.log").read_text(encoding="utf-8").splitlines())
    return [line["count"] for line in lines if line.get("event") == "names wait"]


def test_new_entities_that_found_no_room_wait_for_the_next_change_of_anybody(tmp_path: Path) -> None:
    world = World(tmp_path, Keyed(max_new_entities=2), entities=12)
    world.driver.setup()
    world.round()
    world.sets[1] = [*world.sets[1][:3], *(f"new {i}" for i in range(5))]
    fates = [(2, 3, ""), (2, 3, ""), (3, 1, "another"), (3, 1, ""), (4, 0, "its own"), (4, 0, "")]
    for epoch, missing, changes in fates:
        world.restart(1)
        world.driver.setup()
        if changes == "another":
            world.sets[2] = [*world.sets[2][1:], "somebody else's"]
        elif changes == "its own":
            world.sets[1] = world.sets[1][1:]
        world.driver.round()
        world.deliver()
        part = world.hosts[1].client.part
        assert world.driver.server.at.named == epoch
        assert len(part.without_mean) == len(part.waiting) == missing
    assert [count for count, _ in groupby(waits(world, 1))] == [3, 1, 0]
    assert not any(waits(world, n) for n in (0, 2, 3))
    assert world.round() == [0, 1, 2, 3]


def test_the_server_does_not_see_how_many_new_entities_wait(tmp_path: Path) -> None:
    """Others own them, so that the union stays. Each world sees the same epochs, orders, and sizes of messages."""
    seen = []
    for new in (10, 40, 90):
        world = World(tmp_path / f"{new}", Keyed(max_new_entities=16), entities=100)
        world.sets[1:] = [[f"e{i}" for i in range(100)]] * (N - 1)
        world.sets[0] = ["e0"]
        world.hosts = {n: world.host(n) for n in range(N)}
        world.driver.setup()
        world.sets[0] = [f"e{i}" for i in range(1 + new)]
        epochs = []
        for changed in (0, 0, 0, 2, 0):
            if changed:
                world.sets[changed] = world.sets[changed][1:]
            world.driver.round()
            epochs.append((world.driver.server.at.named, world.driver.server.at.size))
        assert len(world.hosts[0].client.part.waiting) == max(0, new - 32)
        sizes = [
            (n, order.task, [*map(len, order.messages)], [*map(len, reply.messages)], reply.standing[:-32])
            for n, order, reply in world.port.seen
        ]
        seen.append((epochs, sizes))
    assert seen[0] == seen[1] == seen[2]


def ready_of(world: World, changed: int | None) -> dict[int, bytes]:
    """What each client says when it is ready: in which one client's entities changed."""
    world.driver.setup()
    if changed is not None:
        world.sets[changed] = [*world.sets[changed][1:], "new"]
    server = world.driver.server
    server.begin("ready", range(N))
    said = {}
    for n, messages in server.drain().items():
        for message in world.hosts[n].obey(Order(Task.ROUND, 1, messages)).messages:
            server.receive(n, message)
            said[n] = server.collected.got[Kind.READY, n][16:]
    server.close()
    assert server.part.renamed == (changed is not None)
    return said


@pytest.mark.slow
def test_the_server_learns_that_entities_changed_and_not_whose(tmp_path: Path) -> None:
    """A single client's element is uniform whoever changed: half of its bits are ones."""
    ones = np.zeros((N, 2))
    runs = 40
    for run in range(runs):
        said = ready_of(World(tmp_path / f"{run}", entities=4), run % 2 or None)
        for n, element in said.items():
            ones[n, run % 2] += int.from_bytes(element, "little").bit_count()
        values = [int.from_bytes(element, "little") for element in said.values()]
        assert len(set(values)) == N
        assert (sum(values) % (2**61 - 1) != 0) == bool(run % 2)
    bits = 61 * runs / 2
    assert (np.abs(ones - bits / 2) < 6 * np.sqrt(bits / 4)).all(), ones


def test_a_client_says_one_thing_under_one_mask(tmp_path: Path) -> None:
    """Asked again before the same round of the same union it repeats itself, whatever changed meanwhile."""
    world = World(tmp_path, entities=4)
    first = ready_of(world, None)
    world.sets[1] = [*world.sets[1][1:], "new"]
    server = world.driver.server
    server.begin("ready", range(N))
    for n, messages in server.drain().items():
        for message in world.hosts[n].obey(Order(Task.ROUND, 1, messages)).messages:
            server.receive(n, message)
            assert server.collected.got[Kind.READY, n][16:] == first[n]
