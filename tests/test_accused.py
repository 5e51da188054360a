"""Whom more clients accuse than may conspire is called no more: it stops nobody else, and nobody is framed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from loopback import World, obeying
from secea.audit.attacks.names import corrupt
from secea.engines.driver import ACCUSED
from secea.engines.host import told
from secea.engines.port import Order, Reply, Task, refusal
from secea.errors import SERVER, FaultyPeer, FaultyPeerOrRelay, FederationError
from secea.forms.keyed import Kind

ROGUE = 2


def spoiling(world: World) -> None:
    """A key for masks that everybody refuses, in every union."""
    corrupt(world.hosts[ROGUE].client, lambda kind, _, said: said[:32] + bytes(32) if kind is Kind.PART else said)


@pytest.mark.parametrize("dropouts", [0, 1])
def test_whom_all_others_accuse_is_called_no_more_and_they_go_on(tmp_path: Path, dropouts: int) -> None:
    world = World(tmp_path, collusion=1, dropouts=dropouts)
    world.driver.setup()
    assert world.round() == [0, 1, 2, 3]
    spoiling(world)
    world.driver.renew()
    for _ in range(2):
        assert world.round() == [0, 1, 3]
        assert world.driver.failures == {ROGUE: ACCUSED}
    world.restart(ROGUE)
    world.restarted().setup()
    assert world.round() == [0, 1, 2, 3]
    assert world.driver.failures == {}


def test_in_a_set_up_that_needs_everybody_the_reason_is_given(tmp_path: Path) -> None:
    world = World(tmp_path, collusion=1)
    corrupt(world.hosts[ROGUE].client, lambda kind, _, said: bytes(len(said)) if kind is Kind.DEALING else said)
    with pytest.raises(FederationError, match="the set-up needs 4 clients, and only 3 are here"):
        world.driver.setup()
    assert world.driver.failures[ROGUE] == ACCUSED


@pytest.mark.parametrize("accused", [0, 1, 3])
def test_as_many_as_may_conspire_accuse_nobody_out_of_a_federation(tmp_path: Path, accused: int) -> None:
    world = World(tmp_path, collusion=1)
    world.driver.setup()

    def framing(order: Order, reply: Reply) -> Reply:
        return reply if order.task is Task.HELLO else replace(reply, messages=[], fault=refusal((accused,)))

    obeying(world, ROGUE, framing)
    for _ in range(3):
        assert world.round() == [0, 1, 3]
    assert ACCUSED not in world.driver.failures.values()


def test_only_who_alone_can_have_sent_it_is_accused() -> None:
    assert told(FaultyPeer(1, "wrong")) == refusal((1,)) == "it refuses what came from client 1"
    assert told(FaultyPeerOrRelay(1, "wrong")) == refusal((1, SERVER)) != refusal((1,))
