"""The bytes that a form sends, computed from its table of phases. Parties follow the same table, so both agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum

from secea.errors import SERVER
from secea.params import Params
from secea.party.client import ROWS_BYTES
from secea.party.form import Form
from secea.party.phases import REST, Agreement, Begin, Common, Route, Row, row_of
from secea.wire.keys import HELLO_BYTES, KEY_BYTES
from secea.wire.link import overhead
from secea.wire.messages import ALL, DIGEST_BYTES, HEADER_BYTES, TAG_BYTES, Layout


@dataclass
class Costs:
    """Bytes on all hops, by kind, and what clients send of them."""

    bytes: Counter[str] = field(default_factory=Counter)
    sent_by_clients: int = 0
    hops: int = 0
    """Chunks of messages on all hops."""
    stages: int = 0
    """How often the server calls all clients, and waits for them."""
    ciphers: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Bytes that "client" (all of them) or "server" has to "seal", to "open", or to "tag" for one receiver."""

    def add(self, kind: IntEnum | Common, size: int, *, up: int = 0, down: int = 0, chunks: int = 1) -> None:
        """Add `up` messages of this size to the server, and `down` from it."""
        self.bytes[kind.name.lower()] += size * (up + down)
        self.sent_by_clients += size * up
        self.hops += (up + down) * chunks

    def seal(self, sender: str, receiver: str, size: int) -> None:
        """One message is sealed, and opened."""
        self.ciphers[sender, "seal"] += size
        self.ciphers[receiver, "open"] += size

    def broadcast(self, size: int, receivers: int) -> None:
        """One message is sealed for all of them. Each opens it, and its tag is made at both ends."""
        self.ciphers["server", "seal"] += size
        for party, what in (("client", "open"), ("client", "tag"), ("server", "tag")):
            self.ciphers[party, what] += size * receivers


def message_bytes(layout: Layout, *, signed: bool = False) -> int:
    """A whole message as it travels."""
    payload = layout.sections * layout.rows * layout.row_bytes + layout.chunks * layout.prefix
    return payload + layout.chunks * overhead(signed=signed)


def setup_costs(form: Form, params: Params, entities: int) -> Costs:
    """Hellos, and all phases up to the first union, with all clients and without a retry."""
    costs, N = Costs(), params.clients
    hello = HEADER_BYTES + HELLO_BYTES
    costs.add(Common.HELLO, hello + form.introduction_bytes(params), up=N, down=N * (N - 1))
    costs.add(Common.HELLO, hello, down=N)
    costs.stages += 1
    everyone = tuple(range(N))
    start = Agreement(form.setup_phase, everyone, everyone, union=1, names=1, size=entities)
    for row in _chain(form, params, form.setup_phase):
        _add_row(costs, form, params, row, replace(start, phase=row.phase))
    return costs


def round_costs(form: Form, params: Params, entities: int) -> Costs:
    """One round with all clients."""
    costs = Costs()
    everyone = tuple(range(params.clients))
    at = Agreement(form.round_phase, everyone, everyone, union=1, names=1, round=1, size=entities)
    for phase in dict.fromkeys((form.ready_phase, form.round_phase)):
        for row in _chain(form, params, phase):
            _add_row(costs, form, params, row, replace(at, phase=row.phase))
    return costs


def _chain(form: Form, params: Params, phase: str) -> Iterator[Row]:
    """The rows from an announced phase until the server is at rest."""
    first = True
    while phase != REST:
        row = row_of(form.table(params), phase)
        yield replace(row, announced=row.decides or (row.announced and first))
        phase, first = row.then, False


def _add_row(costs: Costs, form: Form, params: Params, row: Row, at: Agreement) -> None:
    def sealed(size: int) -> int:
        return message_bytes(Layout(1, size))

    def whole(kind: IntEnum, sender: int, receiver: int, *, signed: bool = False) -> tuple[int, int]:
        layout = form.layout(kind, params, at, sender, receiver)
        return message_bytes(layout, signed=signed), layout.chunks

    costs.stages += 1
    words = row.announced + bool(row.settles)
    costs.add(Common.BEGIN, sealed(Begin.size(len(at.members))), down=words * len(at.members))
    for kind in row.sends:
        receivers = form.receivers(kind, params, at)
        for sender in form.senders(kind, params, at):
            others = [v for v in receivers if v != sender]
            match form.routes[kind]:
                case Route.SERVER:
                    size, chunks = whole(kind, sender, SERVER)
                    costs.add(kind, size, up=1, chunks=chunks)
                    costs.seal("client", "server", size)
                case Route.EACH:
                    for v in others:
                        size, chunks = whole(kind, sender, v)
                        costs.add(kind, size, up=1, down=1, chunks=chunks)
                        costs.seal("client", "client", size)
                case _:
                    size, chunks = whole(kind, sender, ALL, signed=True)
                    costs.add(kind, size, up=1, down=len(others), chunks=chunks)
    for kind in row.answers:
        receivers = form.receivers(kind, params, at)
        shared = form.routes[kind] is Route.BROADCAST
        for n in receivers:
            size, chunks = whole(kind, SERVER, n)
            costs.add(kind, size, down=1, chunks=chunks)
            if not shared:
                costs.seal("server", "client", size)
        if shared:
            costs.broadcast(whole(kind, SERVER, ALL)[0], len(receivers))
            costs.add(Common.KEY, sealed(KEY_BYTES + DIGEST_BYTES + ROWS_BYTES), down=len(receivers))
            costs.add(Common.DIGEST, sealed(TAG_BYTES), down=len(receivers))
