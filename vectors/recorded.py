"""The federation of transcript-paillier.json and negative.json: three clients, a set-up and a round.

It was recorded with release 0.1.0, and parties say the same since then, byte for byte, from the same randomness. The
names "one" and "two" were the integers 1 and 2 there. The code that still said the same with those recorded it again
with these, before integers and their decimal texts became one name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from keyed import InOrder, link_of
from secea.engines.exchange import Tap, untouched
from secea.errors import SERVER
from secea.forms.paillier import Paillier
from secea.forms.paillier.client import PaillierClient
from secea.forms.paillier.form import QUERY, SECRET, SHARE, Kind
from secea.forms.paillier.server import PaillierServer
from secea.table import Name
from secea.testing import Hop, Parties, Recorder
from secea.wire.keys import Opener, Sealer
from secea.wire.messages import ALL, SALT_BYTES
from secea.wire.randomness import SEED_BYTES, KeyStream

SETS: Final[Sequence[Sequence[Name]]] = (["a", "b", "one", "c", "d"], ["b", "c", "1"], ["d", "a", "two", "e"])
"""Three clients with more than three entities (fewer would make all buckets alike)."""
DIM: Final = 3
STEPS: Final = {0: "greeting", SECRET: "secret", QUERY: "query", SHARE: "share"}
"""The server's words, by number."""
SEED_MESSAGE_BYTES: Final = 64 + SEED_BYTES + 16
PLACES: Final = (
    "hello to the server", "server's hello to a client", "greeting announcement to a client", "hello to a client",
    "part to the server", "secret announcement to a client", "part to a client", "table to the server",
    "tags to a client", "query seed to the server", "query to the server", "query announcement to a client",
    "query seed to a client", "query to a client", "share seed to the server", "share to the server",
    "share announcement to a client", "share seed to a client", "share to a client", "answer to the server",
    "mean to a client",
)  # fmt: skip
"""Every kind of message at every stage."""


class Tape:
    """The randomness of one party, handed out in the order in which 0.1.0 drew it.

    That release drew a salt and then a seed for every message, used or not. Now a phase draws its seed, if it needs
    one, and then the salt of its message.
    """

    def __init__(self, number: int) -> None:
        key = hashlib.sha256(repr(("vectors", number)).encode()).digest()
        self.stream, self.server = KeyStream(key), number == SERVER
        self.playing = False
        """Whether the party's keys are drawn: identity, Paillier, session, incarnation."""
        self._salt, self._announced = b"", 0

    def __call__(self, count: int) -> bytes:
        """The next bytes."""
        if not self.playing:
            return self.stream.bytes(count)
        if self.server:  # four announcements and the tags, each with a seed that nobody used; then means
            drawn = self.stream.bytes(count)
            self._announced += 1
            if self._announced <= 5:
                self.stream.bytes(SEED_BYTES)
            return drawn
        if count == SEED_BYTES:
            self._salt = self.stream.bytes(SALT_BYTES)
            return self.stream.bytes(count)
        drawn, self._salt = self._salt or self.stream.bytes(count), b""
        return drawn


def tables() -> list[dict[Name, NDArray[np.float64]]]:
    """An embedding for each name of each client; the first coordinate of every other one is 64 or -64."""
    rng = np.random.default_rng(list(hashlib.sha256(repr(("vectors", 0)).encode()).digest()))
    drawn = [{name: rng.uniform(-64.0, 64.0, DIM) for name in names} for names in SETS]
    for table in drawn:
        for row in list(table.values())[::2]:
            row[0] = 64.0 * rng.choice([-1.0, 1.0])
    return drawn


def federation(tap: Tap = untouched) -> Parties:
    """The parties before their first message."""
    parties = Parties.of(tables(), Paillier(), key_bits=256, insecure_small_keys=True, entropy=Tape)
    parties.exchange = InOrder(parties.server, parties.clients, tap=tap)
    for tape in parties.entropy.values():
        assert isinstance(tape, Tape)
        tape.playing = True
    return parties


@cache
def recorded() -> tuple[Parties, tuple[Hop, ...]]:
    """The parties after the round, and all messages, in the transcript's order."""
    recorder = Recorder(Kind)
    parties = federation(recorder)
    parties.setup()
    parties.round(tables())
    return parties, in_the_transcripts_order(recorder.hops)


def in_the_transcripts_order(hops: Iterable[Hop]) -> tuple[Hop, ...]:
    """What 0.1.0 sent in another order, and nothing else, is moved.

    It announced who takes part before it passed their hellos on; now the hellos come first. And messages of several
    clients may take turns: those of one stay in order.
    """

    def late(hop: Hop) -> tuple[int, int]:
        kind = hop.header.kind
        return (kind, hop.header.sender) if kind in (Kind.ANSWER, Kind.MEAN) else (0, 0)

    batches = groupby(sorted(hops, key=late), key=lambda hop: (hop.sender, hop.receiver))
    return tuple(hop for _, batch in batches for hop in sorted(batch, key=lambda hop: hop.header.sender != SERVER))


def server_part(parties: Parties) -> PaillierServer:
    """The form's part of the server."""
    assert isinstance(parties.server.part, PaillierServer)
    return parties.server.part


def means(parties: Parties, n: int) -> list[tuple[str, NDArray[np.float64]]]:
    """What client n got under the text of each name, in the order of the union."""
    part = parties.clients[n].part
    assert isinstance(part, PaillierClient)
    assert part.result is not None
    return [(str(name), row) for name, row in zip(*part.result, strict=True)]


def opened(parties: Parties, hop: Hop) -> bytes:
    """The payload of a sealed message."""
    header = hop.header
    key = link_of(parties, header.sender).channels[header.receiver].derive("seal", header.label())
    return bytes(Opener(key, header).open(header, hop.message))


def resealed(parties: Parties, hop: Hop, payload: bytes | None = None, **label: Any) -> Hop:
    """The message with another payload or another label, sealed by its sender: authentic, and wrong."""
    header = replace(hop.header, **label)
    key = link_of(parties, header.sender).channels[header.receiver].derive("seal", header.label())
    said = opened(parties, hop) if payload is None else payload
    return replace(hop, header=header, message=bytes(Sealer(key, header).seal(header.chunk, said)))


def place(parties: Parties, hop: Hop) -> str:
    """Where a hop stands in the protocol: its kind and step, and who takes it."""
    header = hop.header
    what = header.kind.name.lower()
    if header.kind is Kind.HELLO:
        what = "part" if header.receiver != ALL else "server's hello" if header.sender == SERVER else "hello"
    elif header.kind is Kind.BEGIN:
        what = f"{STEPS[opened(parties, hop)[0]]} announcement"
    elif header.kind in (Kind.QUERY, Kind.SHARE) and len(hop.message) == SEED_MESSAGE_BYTES:
        what += " seed"
    return f"{what} to {'the server' if hop.receiver == SERVER else 'a client'}"
