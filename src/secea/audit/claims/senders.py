"""Claims about who says something: authentic is not enough, if it is not for that party to say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.claims.common import CHANGED, SETS, made_tables
from secea.audit.mutants import senders as mutants
from secea.errors import SERVER, ProtocolError, party
from secea.testing import Parties
from secea.wire.keys import Channel, Opener, Sealer
from secea.wire.link import hello_header
from secea.wire.messages import ALL, HEADER_BYTES, TAG_BYTES, Buffer, Header

OTHER: Final = 2
"""A client that says what only another party may say."""
TO: Final = 1
"""Whom it tells it."""


class InAnothersPlace:
    """What client 1 gets from the server comes from client 2 first, and what it gets from clients from the server."""

    def __init__(self, parties: Parties) -> None:
        self.parties, self.cases = parties, 0

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Pass on everything, after the same by somebody else."""
        header = Header.parse(message, sender, self.parties.session.form.kinds)
        if receiver == TO and header.kind.name != "HELLO":
            client = self.parties.clients[TO]
            for other, false in self._said_by_others(header, message):
                before = client.save(), client.at
                with suppress(ProtocolError):
                    client.receive(false)
                    raise Objection(f"client {TO} takes {header.title} from {party(other)}, and it is not its to say")
                if (client.save(), client.at) != before:
                    raise Objection(f"{header.title} comes from {party(other)}, is refused, and changes something")
                self.cases += 1
        return (message,)

    def _said_by_others(self, header: Header, message: Buffer) -> Iterator[tuple[int, bytes]]:
        """The same words by a party whose they are not, sealed or signed as its own."""
        ends: dict[int, Any] = {SERVER: self.parties.server, **self.parties.clients}
        other = OTHER if header.sender == SERVER else SERVER
        link = ends[other].link
        if TO not in link.channels:
            return  # they have not met
        if header.receiver == ALL:  # a broadcast, or what is signed for all
            said = replace(header, sender=other)
            yield other, bytes(link.signer(said, said.chunks).seal(said.chunk, bytes(message)[-TAG_BYTES:]))
            return
        theirs = ends[header.sender].link.channels[TO]
        payload = bytes(Opener(theirs.derive("seal", header.label()), header).open(header, message))
        for sequence in (header.sequence, header.sequence + 1000):
            said = replace(header, sender=other, sequence=sequence)
            yield other, bytes(Sealer(link.channels[TO].derive("seal", said.label()), said).seal(said.chunk, payload))


@claim("attack", KEYED, PAILLIER, mutants=(mutants.ORDERS_OF_ANYBODY, mutants.DUE_FROM_ANYBODY))
def said_by_its_own(subject: Subject) -> int:
    """Both forms: what only the server may say does nothing if a client says it, and the other way round.

    Each message of a set-up, an epoch of names, a union and a round, by its content, under a seal that is the sayer's
    own. So nobody but the server can make a client train, or end a run.
    """
    tables = made_tables(SETS)
    parties = subject.parties(tables, collusion=1, **({"dropouts": 1} if subject.form.name == KEYED else {}))
    parties.exchange.greet()
    parties.exchange.tap = others = InAnothersPlace(parties)
    parties.setup()
    if subject.form.names_phase:
        parties.exchange.run(subject.form.names_phase, range(len(SETS)))
    for _ in range(2):
        parties.union(range(len(SETS)))
        parties.round(tables)
    parties.exchange.run(subject.form.end_phase, range(len(SETS)))
    return others.cases


class Damaged:
    """What clients get of each other is damaged on the way first, at every relay: the server, and the network."""

    def __init__(self, parties: Parties) -> None:
        self.parties, self.cases = parties, 0

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Pass on everything, after the same with another last byte, another number of its part, and one beyond."""
        header = Header.parse(message, sender, self.parties.session.form.kinds)
        if receiver == SERVER or header.sender in (SERVER, receiver) or header.kind.name == "HELLO":
            return (message,)
        last = bytes(message[:-1]) + bytes([bytes(message)[-1] ^ 1])
        later = replace(header, sequence=header.sequence + 1).pack() + bytes(message[HEADER_BYTES:])
        for false in (last, later):
            try:
                self.parties.clients[receiver].receive(false)
            except ProtocolError as error:
                if set(error.suspects) != {header.sender, SERVER}:
                    raise Objection(
                        f"{header.title} is damaged on its way, and client {receiver} says: {error}"
                    ) from None
            else:
                raise Objection(f"{header.title} is damaged on its way, and client {receiver} takes it")
            self.cases += 1
        return (message,)


@claim("attack", KEYED, PAILLIER, mutants=(mutants.SENDER_ALONE,))
def damaged_on_the_way(subject: Subject) -> int:
    """Both forms: if what one client says to another does not open, the server is named beside it: it carried it.

    Else a server that changes a bit has operators leave out a client of its choice.
    """
    tables = made_tables(SETS)
    parties = subject.parties(tables, collusion=1, **({"dropouts": 1} if subject.form.name == KEYED else {}))
    parties.exchange.greet()
    parties.exchange.tap = damaged = Damaged(parties)
    parties.setup()
    parties.round(tables)
    return damaged.cases


@claim("record", KEYED, PAILLIER, mutants=(mutants.SALT_LEFT_OUT,))
def label_in_the_key(subject: Subject) -> int:
    """Both forms: the key of a message has its whole label in it, the salt too: no other message has the same key.

    Whose memory is put back (a snapshot of a machine) may send something else under the same numbers. The salt, drawn
    from the system, is then all that is different.
    """
    parties, cases = subject.parties(made_tables(SETS), collusion=1), 0
    parties.setup()
    channel, zeros = parties.clients[0].link.channels[1], bytes(64)
    for kind in subject.form.kinds:
        header = replace(hello_header(subject.form.kinds, 0, bytes(range(16))), kind=kind, receiver=1)
        base = _stream(channel, header, zeros)
        for field in (*CHANGED, "kind"):
            if field == "chunk":
                continue  # chunks of a message have one key, and nonces of their own
            before: Any = getattr(header, field)
            others = _others(before) if field != "kind" else [each for each in subject.form.kinds if each != kind][:1]
            for other in others:
                cases += 1
                if _stream(channel, _with(header, field, other), zeros) == base:
                    raise Objection(f"the key of a message is the same with another {field}: {header.title}")
    return cases


def _with(header: Header, field: str, value: Any) -> Header:
    return replace(header, **{field: value})


def _others(value: Any) -> list[Any]:
    """Numbers and texts that differ in one place."""
    if isinstance(value, int):
        return [value + 1]
    return [value[:i] + bytes([value[i] ^ 1]) + value[i + 1 :] for i in range(len(value))]


def _stream(channel: Channel, header: Header, zeros: bytes) -> bytes:
    """What a message's text is covered with."""
    return bytes(channel.sealer(header).seal(0, zeros))[-len(zeros) - TAG_BYTES : -TAG_BYTES]
