"""The user's module of the engines' tests: tables that follow from site and round, and deaths at a chosen point."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import numpy as np

from secea.engines.host import Host, Participant
from secea.engines.port import Order, Reply
from secea.keys import Identity
from secea.table import Table


def names_of(number: int, entities: int) -> list[str]:
    """Client n has two entities of every three, and so each entity has several owners."""
    return [f"entity {e}" for e in range(entities) if (e + number) % 3]


def table_of(number: int, round: int, entities: int, dim: int) -> Table:
    """What client n contributes when it last trained in that round."""
    names = names_of(number, entities)
    return Table(names, np.random.default_rng([number, round]).normal(size=(len(names), dim)))


def participant(
    number: int, entities: int, dim: int, record: str, die: list[list[object]], seconds: float, claims: str = ""
) -> Participant:
    """Client n, which writes down what it is given. `die`: tasks and rounds at which it is killed, once each.

    `claims`: the public key of somebody else, which it says is its own.
    """
    if claims:
        Identity.public = property(lambda self: bytes.fromhex(claims))  # type: ignore[assignment,method-assign]
    _dies(die, Path(record))

    def train(means: Table | None, round: int) -> Table:
        time.sleep(seconds)
        _write(Path(record), round, means)
        return table_of(number, round, entities, dim)

    return Participant(
        names=lambda: names_of(number, entities), train=train, done=lambda means: _write(Path(record), 0, means)
    )


def _write(record: Path, round: int, means: Table | None) -> None:
    given = None if means is None else dict(zip(means.names, means.matrix.tolist(), strict=True))
    with record.open("a") as file:
        file.write(json.dumps({"round": round, "means": given}) + "\n")


def _dies(when: list[list[object]], record: Path) -> None:
    """`[task, round, "before"]`: as the order comes; `"after"`: when it is done and saved, and nothing was sent."""
    obey = Host.obey

    def dying(self: Host, order: Order) -> Reply:
        _die(when, record, order, "before")
        reply = obey(self, order)
        _die(when, record, order, "after")
        return reply

    Host.obey = dying  # type: ignore[method-assign]


def _die(when: list[list[object]], record: Path, order: Order, point: str) -> None:
    for death in when:
        mark = record.with_suffix(".".join(map(str, ["", *death])))
        if [order.task.name, order.round, point] == death and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
