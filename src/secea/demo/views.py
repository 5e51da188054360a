"""What each party sees of one entity, where every message is kept; and what an attacker makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import RING61, Residues
from secea.audit.mutants import MUTANTS
from secea.audit.recorded import Hop, Recorded
from secea.demo.data import Tables
from secea.params import Params
from secea.retrieval.reciprocal import Reciprocal
from secea.steps import union
from secea.steps.union import COLUMNS
from secea.table import Table
from secea.wire.messages import Kind

Floats = NDArray[np.float64]
WIDTH: Final = 24
"""Hexadecimal digits that are shown."""
CLOSE: Final = 1e-3
"""So near to the true mean an attacker has read it."""


@dataclass(frozen=True)
class Glimpse:
    """One thing that one party sees, beside the truth that it stands for."""

    phase: str
    step: str
    party: str
    sees: str
    truth: str


@dataclass(frozen=True)
class Attack:
    """What somebody tries, and how often it succeeds with and without a protection."""

    who: str
    tries: str
    total: int
    found: int
    without: str
    found_without: int


def recorded(tables: Tables, params: Params) -> Recorded:
    """Set-up and one round, every message kept."""
    run = Recorded([set(table) for table in tables], dim=params.dim, collusion=params.collusion)
    return run.setup().round(tables)


def pick(tables: Tables) -> tuple[str, int]:
    """An entity that client 0 and some others have, and a client that does not have it."""
    found = [(sum(name in table for table in tables), name) for name in tables[0]]
    for owners, name in sorted(found, key=lambda each: (abs(each[0] - len(tables) / 2), each)):
        stranger = next((n for n, table in enumerate(tables) if name not in table), None)
        if stranger is not None and owners > 1:
            return name, stranger
    return max(found)[1], len(tables) - 1


def glimpses(run: Recorded, tables: Tables, name: str, stranger: int) -> list[Glimpse]:
    """Everything that bears on one entity of client 0, in the order in which it happens."""
    client = run.clients[0]
    row = int(client.rows[list(client.names).index(name)])
    owners = sum(name in table for table in tables)
    tag = client.tags[row]
    query = int(np.flatnonzero(client.placement == row)[0])
    other = next(n for n, table in enumerate(tables) if n and n != stranger)
    ones = client.shape.wanted(client.placement)
    asked = int(ones[np.searchsorted(np.flatnonzero(client.placement >= 0), query)])
    elsewhere = int(np.setdiff1d(np.arange(client.shape.positions), ones)[0])
    queried, shared = (_dealt(run, kind) for kind in (Kind.QUERY, Kind.SHARE))
    answer = np.frombuffer(run.answers(0, 1)[other], np.uint8).reshape(run.session.query_count, -1)[query]
    mean = np.mean([table[name] for table in tables if name in table], axis=0)
    lacks = "has" if name in tables[stranger] else "does not have"
    setup = [
        ("names", "clients", f"{int(tag):016x}", f"the tag of {name!r}"),
        ("union", "server", _cell(run, 0, tag), "client 0 has it"),
        ("union", "server", _cell(run, stranger, tag), f"client {stranger} {lacks} it"),
        ("queries", f"client {queried[0]}", _hex(queried[1][:, asked]), "1: client 0 asks for it"),
        ("queries", f"client {queried[0]}", _hex(queried[1][:, elsewhere]), "0: not for this one"),
        ("weights", "server", _hex(_opened(run, query)), f"{owners} owners, times a secret"),
    ]
    round_ = [
        ("share", f"client {shared[0]}", _hex(shared[1][:, row]), f"client 0's {_numbers(tables[0][name])}"),
        ("answer", "server", answer.tobytes().hex()[:WIDTH], f"client {other}'s part of it"),
        ("mean", "client 0", _numbers(means_of(run, 0)[name]), f"true mean {_numbers(mean)}"),
    ]
    return [*(Glimpse("set-up", *each) for each in setup), *(Glimpse("round", *each) for each in round_)]


def _hex(elements: Residues) -> str:
    return np.ascontiguousarray(elements).tobytes().hex()[:WIDTH]


def _numbers(values: NDArray[Any]) -> str:
    return " ".join(f"{x:.4f}" for x in values[:2].tolist())


def _cell(run: Recorded, n: int, tag: np.uint64) -> str:
    """The server: one of the entity's cells in client n's table."""
    table, geometry = _table(run, n)
    cell = geometry.positions(np.array([tag], np.uint64))[0, 0]
    return _hex(table[:, cell, :2])


def _table(run: Recorded, n: int) -> tuple[Residues, union.Geometry]:
    hops = list(run.of(Kind.TABLE, sender=n))
    geometry = run.session.geometry(run.server.attempt, hops[-1].header.context)
    parts = np.concatenate([run.residues(hop) for hop in hops], axis=1)
    return parts[:, -geometry.cells :], geometry


def _dealt(run: Recorded, kind: Kind) -> tuple[int, Residues]:
    """Somebody who got a share from client 0 that is no seed, and that share: [P, rows, width]."""
    hops: dict[int, list[Hop]] = {}
    for hop in run.of(kind, sender=0):
        if not run.is_seed(hop):
            hops.setdefault(hop.receiver, []).append(hop)
    receiver, found = next(iter(sorted(hops.items())))
    return receiver, np.concatenate([run.residues(hop) for hop in found], axis=1)


def _opened(run: Recorded, query: int) -> Residues:
    """The server: rho * count behind one of client 0's queries."""
    ring, code, clients = run.session.ring, run.session.code, sorted(run.clients)[: run.session.code.need]
    values = [np.concatenate([run.residues(h) for h in run.of(Kind.OPENING, sender=v)], axis=1) for v in clients]
    return ring.combine(code.matrix(code.at(clients), code.beta[:1]), values)[:, 0, query]


def means_of(run: Recorded, n: int) -> dict[str, Floats]:
    """What a client reads."""
    client = run.clients[n]
    table = Table(client.names, np.zeros((len(client.names), run.params.dim)))
    return dict(zip(map(str, client.names), client.means_like(table), strict=True))


# ------------------------------------------------------------------------------------------------------------- attacks


def owned(run: Recorded) -> int:
    """The server: pairs of a client and a tag of the union of which the client's table shows that it has it.

    A cell that holds a tag alone is (w, w * tag, w * check(tag)).
    """
    found = 0
    for n in run.clients:
        table, geometry = _table(run, n)
        tags = run.server.tags
        checks, here = geometry.checks(tags), np.zeros(tags.size, bool)
        for cells in geometry.positions(tags).T:
            w, tagged, checked = (np.ascontiguousarray(table[:, cells, column]) for column in range(COLUMNS))
            right = RING61.multiply(w, tags[None]) == tagged
            here |= (right & (RING61.multiply(w, checks[None]) == checked) & (w != 0))[0]
        found += int(here.sum())
    return found


def read_means(run: Recorded, truth: Mapping[str, Floats]) -> int:
    """The server: means that it reads when it decodes the answers to all queries, as the asking client would."""
    form, code, ring = run.session.form, run.session.code, run.session.ring
    assert isinstance(form, Reciprocal)
    found = 0
    for n, client in run.clients.items():
        answers = run.answers(n, 1)
        there = sorted(answers)[: code.need]
        values = [ring.from_bytes(answers[v], run.session.query_count, form.block_length) for v in there]
        blocks = code.decode(there, values, degree=code.need - 1)
        rows = ring.join(blocks, math.ldexp(1.0, -form.f) / run.params.C).transpose(1, 0, 2)
        seen = rows.reshape(run.session.query_count, -1)[:, : run.params.dim]
        asked = np.flatnonzero(client.placement >= 0)  # to count what was right, not to find it
        names = [str(client.names[i]) for i in np.searchsorted(client.rows, client.placement[asked])]
        wrong = np.abs(seen[asked] - np.stack([truth[name] for name in names])).max(axis=1)
        found += int((wrong < CLOSE).sum())
    return found


def attacks(run: Recorded, tables: Tables, truth: Mapping[str, Floats]) -> list[Attack]:
    """Two attacks of the server: on the product, and with the protection that stands in its way taken away."""
    no_pad = next(mutant for mutant in MUTANTS if mutant.name == "no-pad")
    with patch.object(union, "mask", lambda table, *_: table):
        maskless = recorded(tables, run.params)
    with no_pad.applied():
        padless = recorded(tables, run.params)
    total = sum(map(len, tables))
    ownership = "tell who has what, from tables"
    reading = "read means, from answers"
    return [
        Attack("the server", ownership, total, owned(run), "masks", owned(maskless)),
        Attack("the server", reading, total, read_means(run, truth), "pads", read_means(padless, truth)),
    ]
