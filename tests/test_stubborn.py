"""Who lies, repeats, or comes back at the wrong time stops nobody else; and no key covers two things. Both forms."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopback
from loopback import Killed, World, obeying
from secea.arithmetic.paillier import PublicKey
from secea.engines.port import Order, Reply, Task
from secea.errors import FaultyPeer, FederationError
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.forms.paillier.client import PaillierClient
from secea.party.client import Client
from secea.party.form import Form, Retry
from secea.party.phases import STOPPED, Begin
from secea.testing import Parties
from secea.wire import messages
from secea.wire.messages import Buffer
from tiers import slow

SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
both = pytest.mark.parametrize("form", [Keyed(), slow(Paillier())], ids=["keyed", "paillier"])


def world_of(folder: Path, form: Form, **params: Any) -> World:
    return World(folder, form, entities=6, collusion=1, **SMALL, **params)


# ------------------------------------------------------------------------------------------------------------- numbers


@both
@pytest.mark.parametrize("lie", [{"round": 7}, {"round": 0}, {"settled": 0}, {"union": 50, "settled": 50}], ids=str)
def test_who_lies_about_where_it_stands_is_left_out_and_the_others_go_on(
    tmp_path: Path, form: Form, lie: dict[str, Any]
) -> None:
    world = world_of(tmp_path, form)
    world.driver.setup()
    world.round()
    world.round()
    obeying(
        world,
        2,
        lambda _, reply: replace(reply, standing=replace(world.hosts[2].client.standing, **lie).to_bytes()),
    )
    assert [world.round(), world.round(), world.round()][1:] == [[0, 1, 3]] * 2


@both
@pytest.mark.parametrize("numbers", [{"round": 2**32 - 1}, {"round": 1001}, {"weights": 5}], ids=str)
def test_no_announcement_has_numbers_that_the_session_does_not_have(
    tmp_path: Path, form: Form, numbers: dict[str, int]
) -> None:
    world = world_of(tmp_path, form)
    world.driver.setup()
    world.round()
    server, phase, saved = world.driver.server, form.union_phase, world.driver.server.save()
    rows = [row.phase for row in world.session.rows]
    begin = Begin(rows.index(phase), tuple((n, server.link.incarnation(n)) for n in range(4)))
    server._say(begin, form.next_numbers(phase, server.at, again=False) | numbers, server.part.anchor(phase, server.at))
    before = world.hosts[1].client.save()
    assert world.hosts[1].obey(Order(Task.STEP, 0, server.drain()[1])).fault == "it refuses what came from the server"
    assert world.hosts[1].client.save() == before
    world.restart(1)
    world.store.save("server", saved)
    world.restarted(forgets=False).setup()
    assert world.round() == [0, 1, 2, 3]


@pytest.mark.parametrize("forged", [False, True])
def test_a_client_that_began_a_round_alone_is_taken_back_by_a_server_that_knows_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: bool
) -> None:
    """An order to train that only one client got, be it forged or not, and then a server without its memory of it."""
    monkeypatch.setattr(loopback, "N", 3)
    world = world_of(tmp_path, Paillier())
    world.driver.setup()
    world.round()
    if forged:
        world.hosts[0].obey(Order(Task.ROUND, world.hosts[0].client.at.round + 1, []))
    else:

        def kill(n: int, order: Order) -> str:
            if order.task is Task.ROUND and n == 1:
                raise Killed
            return ""

        world.port.kill = kill
        with pytest.raises(Killed):
            world.driver.round()
        world.port.kill = loopback.unharmed
    for forgets in (not forged, False):
        world.restarted(forgets=forgets).setup()
        assert world.round() == [0, 1, 2]


def test_who_never_can_go_on_is_left_out(tmp_path: Path) -> None:
    world = world_of(tmp_path, Paillier())

    def unplaced() -> None:
        raise Retry

    part = world.hosts[2].client.part
    assert isinstance(part, PaillierClient)
    part._place = unplaced  # type: ignore[method-assign]
    world.driver.setup()
    assert world.round() == [0, 1, 3]


# ---------------------------------------------------------------------------------------------------------------- lives


@pytest.mark.parametrize(
    ("form", "phase"), [(Keyed(), "table"), (Keyed(), "upload"), (Paillier(), "table"), (Paillier(), "answer")], ids=str
)
def test_asked_again_a_client_says_the_same_whoever_came_back_meanwhile(tmp_path: Path, form: Form, phase: str) -> None:
    """Under one header there is one plaintext, also if a new life of another client is introduced in between."""
    world = world_of(tmp_path, form)
    world.driver.setup()
    stranger, host, looked = world.host(0), world.hosts[1], list[int]()
    obey = host.obey

    def again(order: Order) -> Reply:
        reply = obey(order)
        if reply.messages and order.task is not Task.HELLO and host.client.at.phase == phase:
            repeated = obey(Order(Task.STEP, 0, [stranger.client.link.hello_message()]))
            assert [bytes(x) for x in repeated.messages] == [bytes(x) for x in reply.messages]
            looked.append(len(reply.messages))
        return reply

    host.obey = again  # type: ignore[method-assign]
    with suppress(FederationError):  # it knows another life of client 0 than the server does
        (world.driver.renew if phase == "table" else world.driver.round)()
    assert looked


def test_a_hello_with_another_key_in_the_middle_of_a_round_spoils_no_answer_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "N", 5)
    world = world_of(tmp_path, Paillier(), dropouts=1)
    world.driver.setup()
    other = Client(world.session, 0, world.identities[0], world.sets[0])  # another life: another Paillier key

    def changed(order: Order, reply: Reply) -> Reply:
        if world.hosts[0].client.at.phase == "answer" and order.task is Task.STEP:
            return replace(reply, messages=[other.link.hello_message()])
        return reply

    obeying(world, 0, changed)
    world.driver.round()
    assert set(world.driver.failures) <= {0}


def test_what_is_read_as_it_comes_is_not_begun_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a server reads a mean by trying: each variant that is accepted costs it nothing."""
    monkeypatch.setattr(messages, "CHUNK_BYTES", 1300)
    tables = [{f"e{i}": np.array([3.0 + n, 2.0]) for i in range(9) if (i + n) % 3} for n in range(3)]
    parties = Parties.of(tables, Paillier(), **SMALL)
    parties.setup()
    held: list[Buffer] = []

    def tap(sender: int, receiver: int, message: Buffer) -> list[Buffer]:
        if receiver == 0 and parties.clients[0].at.phase == "answer":
            held.append(message)
            return []
        return [message]

    parties.exchange.tap = tap
    parties.contribute(tables)
    while parties.server.at.phase == "answer":
        parties.exchange.step()
    client, server, kind = parties.clients[0], parties.server, parties.session.form.kinds["MEAN"]
    first = client.link.parse(held[0], 65535)
    assert (first.kind, first.chunks > 1) == (kind, True)
    payload = bytes(client.link.open(first, held[0]).payload)
    client.receive(held[0])
    label = server.link.label(kind, parties.session.form.label(kind, client.at), client.at.context)
    with pytest.raises(FaultyPeer, match="begun a second time"):
        client.receive(server.link.sealer(label, 0, first.chunks).seal(0, payload))
    assert client.at.phase == STOPPED


def test_what_is_made_ahead_serves_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    encrypt = PublicKey.encrypt

    def watched(key: PublicKey, plain: Any, blinds: Any) -> Any:
        used.extend(int(blind) for blind in blinds)
        return encrypt(key, plain, blinds)

    monkeypatch.setattr(PublicKey, "encrypt", watched)
    tables = [{"a": np.array([1.0 + n, 2.0])} for n in range(3)]
    parties = Parties.of(tables, Paillier(), **SMALL)
    parties.setup()
    for client in parties.clients.values():
        client.part.prepare()
    parties.server.part.prepare(parties.server.at)
    for _ in range(2):
        parties.round(tables)
    assert len(set(used)) == len(used) > 0
