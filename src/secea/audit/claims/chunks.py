"""Claims about messages of several chunks: none of them is missing, and what is refused leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product
from typing import Final

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.attacks.stage import broadcast
from secea.audit.claims.common import SETS, Withheld, made_tables
from secea.audit.mutants import chunks as mutants
from secea.audit.standing import standing_in
from secea.engines.exchange import untouched
from secea.errors import SERVER, ProtocolError
from secea.forms.keyed.form import Kind
from secea.testing import Parties
from secea.wire import snapshot
from secea.wire.keys import Sealer
from secea.wire.messages import TAG_BYTES, Buffer, Header

CHUNK_BYTES: Final = 64
"""Two points of a list, or one row."""


class Impatient:
    """A tap that gives each receiver the next chunk of a message before the one that is due, and then both."""

    def __init__(self, parties: Parties) -> None:
        self._parties = parties
        self._held: dict[tuple[int, bytes], Buffer] = {}
        self.tried: dict[str, int] = {}
        """How often, by kind."""

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Hold every other chunk back."""
        header = Header.parse(message, sender, self._parties.session.form.kinds)
        place = receiver, header.label()
        if (before := self._held.pop(place, None)) is not None:
            self._first(sender, receiver, header, message)
            return before, message
        if header.chunk + 1 < header.chunks:
            self._held[place] = message
            return ()
        return (message,)

    def _first(self, sender: int, receiver: int, header: Header, message: Buffer) -> None:
        """The later chunk: it has to be refused, and nobody is convicted for what a relay may have done."""
        parties, kind = self._parties, header.kind.name.lower()
        taken = f"a chunk of {kind} is taken though the one before it did not come"
        try:
            if receiver == SERVER:
                parties.server.receive(sender, message)
            else:
                parties.clients[receiver].receive(message)
        except ProtocolError as error:
            if receiver != SERVER and SERVER not in error.suspects:
                raise Objection(f"a relay that drops a chunk of {kind} has its sender convicted") from None
        except Exception as error:  # it was taken, and something else broke
            raise Objection(f"{taken}: {type(error).__name__}") from None
        else:
            raise Objection(taken)
        self.tried[header.kind.name] = self.tried.get(header.kind.name, 0) + 1


@claim("attack", KEYED, PAILLIER, mutants=(mutants.CHUNKS_MISSING,))
def chunks_in_order(subject: Subject) -> int:
    """Both forms: no chunk of a message can be left out on its way, and a relay that drops one convicts nobody.

    Every kind of message that has several, on every hop of a set-up and a round.
    """
    cases = 0
    for dropouts in (0, 1):
        tables = made_tables(SETS)
        with standing_in({}, CHUNK_BYTES=CHUNK_BYTES):
            parties = subject.parties(tables, collusion=1, dropouts=dropouts)
            parties.exchange.tap = tap = Impatient(parties)
            parties.setup()
            parties.round(tables)
        kinds = {"LIST", "LISTS", "EVALUATION", "TABLE", "UPLOAD", "MEANS"} if subject.form.name == KEYED else {"TABLE"}
        assert kinds <= tap.tried.keys(), tap.tried
        cases += sum(tap.tried.values())
    return cases


# ------------------------------------------------------------------------------------------------------ without a trace

Spoils = Callable[[Parties, int, list[bytes]], list[Buffer]]
"""What client n gets in place of a broadcast of means, of which these are the chunks."""


def _whole(parties: Parties, n: int, chunks: list[bytes]) -> list[Buffer]:
    return broadcast(parties, n, Kind.MEANS, *chunks, size=len(chunks))


def _without_tag(parties: Parties, n: int, chunks: list[bytes]) -> list[Buffer]:
    return _whole(parties, n, chunks)[:-1]


def _with_another_tag(parties: Parties, n: int, chunks: list[bytes]) -> list[Buffer]:
    *messages, tag = _whole(parties, n, chunks)
    header = Header.parse(tag, SERVER, parties.session.form.kinds)
    key = parties.server.link.channels[n].derive("seal", header.label())
    return [*messages, Sealer(key, header).seal(0, bytes(TAG_BYTES))]


def _with_a_wrong_row(parties: Parties, n: int, chunks: list[bytes]) -> list[Buffer]:
    *right, last = chunks
    return _whole(parties, n, [*right, bytes([last[0] ^ 1]) + last[1:]])


def _damaged(parties: Parties, n: int, chunks: list[bytes]) -> list[Buffer]:
    key, *messages, tag = _whole(parties, n, chunks)
    last = bytearray(messages[-1])
    last[-1] ^= 1
    return [key, *messages[:-1], bytes(last), tag]


def _without_a_chunk(parties: Parties, n: int, chunks: list[bytes]) -> list[Buffer]:
    key, first, _, *messages = _whole(parties, n, chunks)
    return [key, first, *messages]


SPOILT: Final[dict[str, Spoils]] = {
    "whose tag does not come": _without_tag, "with another tag": _with_another_tag,
    "whose last row is wrong": _with_a_wrong_row, "whose last chunk is damaged": _damaged,
    "without its second chunk": _without_a_chunk,
}  # fmt: skip


@claim("attack", KEYED, mutants=(mutants.MEANS_BEFORE_THE_TAG, mutants.MEANS_SO_FAR))
def refused_without_a_trace(subject: Subject) -> int:
    """Keyed: a broadcast of means that is refused, or does not come to its end, leaves no means behind.

    Else whoever holds the wire and the key of the broadcast, as any client does, has others train on means of its own.
    """
    tables = made_tables(SETS)
    for what, spoilt in {**SPOILT, "that is right": _whole}.items():
        parties = subject.parties(tables, collusion=1)
        parties.setup()
        with standing_in({}, CHUNK_BYTES=1):
            parties.contribute(tables)
            parties.exchange.tap = server = Withheld(parties)
            parties.exchange.run(subject.form.round_phase, range(len(SETS)))
            for n, client in parties.clients.items():
                before = snapshot.dumps(client.part.plain())
                with suppress(ProtocolError):
                    for message in spoilt(parties, n, server.chunks):
                        client.receive(message)
                same = snapshot.dumps(client.part.plain()) == before and not client.part.has_means
                if what in SPOILT and not same:
                    raise Objection(f"a broadcast {what} leaves something behind at client {n}")
                assert what in SPOILT or client.part.has_means
    return len(SPOILT) * len(SETS)


# ------------------------------------------------------------------------------------------------- whoever owns nothing

OWNED: Final = ("abc", "ab", "c", "")
"""With each slot in a chunk of its own, all clients but the first have none in some chunk, the last one none at all."""


def _altered(chunk: bytes, what: str) -> bytes:
    """A chunk with another number, check or mark."""
    place = {"first number": 0, "check": -2, "mark": -1}[what]
    changed = bytearray(chunk)
    changed[place] ^= 1
    return bytes(changed)


@claim("attack", KEYED, mutants=(mutants.OWN_CHUNKS, mutants.OWN_ROUNDS, mutants.OTHERS_LATER))
def chunks_of_others(subject: Subject) -> int:
    """Keyed: all clients refuse a wrong chunk of means alike and at once: also those who own nothing in it, or at all.

    Every chunk with another number, check and mark. Else a server that alters it sees by who refuses who owns what.
    """
    cases = 0
    parties = subject.parties(made_tables(OWNED), collusion=1)
    parties.setup()
    for number, (chunk, what) in enumerate(product(range(3), ("first number", "check", "mark"))):
        tables = [{name: row + number for name, row in own.items()} for own in made_tables(OWNED)]
        if number:
            parties.exchange.tap = untouched
            parties.server.give_up()
            parties.union(range(len(OWNED)))
        parties.contribute(tables)
        with standing_in({}, CHUNK_BYTES=1):
            parties.exchange.tap = server = Withheld(parties)
            parties.exchange.run(subject.form.round_phase, range(len(OWNED)))
            assert len(server.chunks) == 3, "each slot is a chunk of its own"
            wrong = [_altered(each, what) if i == chunk else each for i, each in enumerate(server.chunks)]
            refused = {n: _refused(parties, n, wrong) for n in parties.clients}
        if set(refused.values()) != {(1 + chunk, refused[0][1])}:
            raise Objection(f"chunk {chunk} with another {what}: refused at {refused}, each with its reason")
        cases += len(refused)
    return cases


def _refused(parties: Parties, n: int, chunks: list[bytes]) -> tuple[int, str]:
    """Which message of a broadcast client n refuses, and what it says; -1 if none."""
    for i, message in enumerate(_whole(parties, n, chunks)):
        try:
            parties.clients[n].receive(message)
        except ProtocolError as error:
            return i, error.fault
    return -1, ""
