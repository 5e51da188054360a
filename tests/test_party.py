"""Laws of the parties: they follow any form's table; what does not fit is refused with blame, and changes nothing."""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.errors import (
    SERVER,
    CallError,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    ParamsError,
    ProtocolError,
    RoundLost,
    Stale,
)
from secea.forms.keyed import Keyed
from secea.forms.keyed.form import TOLERANT
from secea.params import Params
from secea.party.client import ROWS_BYTES, Client
from secea.party.form import ClientDefaults, FormDefaults, Got, Retry, ServerDefaults
from secea.party.phases import GREETING, REST, STOPPED, Agreement, Begin, Route, Row, Standing
from secea.party.server import Server
from secea.party.session import Session
from secea.table import TableLike
from secea.testing import Parties, Recorder, insecure_seeded
from secea.wire.keys import KEY_BYTES, Identity, Roster, Sealer
from secea.wire.link import Link, broadcast_name
from secea.wire.messages import ALL, DIGEST_BYTES, HEADER_BYTES, NO_CONTEXT, TAG_BYTES, Buffer, Header, Layout
from secea.wire.randomness import Entropy

law = settings(max_examples=25)
fuzz = settings(max_examples=12)

# ------------------------------------------------------------------------------- a form that hides nothing from anybody


class Kind(IntEnum):
    HELLO = 1
    BEGIN = 2
    KEY = 3
    DIGEST = 4
    NOTE = 16
    GIFT = 17
    NUMBER = 18
    TOTAL = 19
    READY = 20
    VALUE = 21
    RESULT = 22


CHUNKS = 3
WORD = 4


def word(value: int) -> bytes:
    return value.to_bytes(WORD, "little")


def number(data: Buffer) -> int:
    return int.from_bytes(data, "little")


class PlainClient(ClientDefaults):
    """It tells everyone its number, gives each a gift, and uploads what it is told to."""

    def __init__(self, number: int, entropy: Entropy) -> None:
        self.number, self.note = number, entropy(WORD)
        self.log: list[str] = []
        self.gifts: dict[int, bytes] = {}
        self.home, self.value, self.result = NO_CONTEXT, 0, [0] * CHUNKS
        self.trained = False

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        self.value, self.trained = 100 * round + self.number, True

    def anchor(self, phase: str, at: Agreement) -> bytes:
        return self.home if phase in ("ready", "round") else NO_CONTEXT

    def check_begin(self, at: Agreement) -> None:
        if len(at.members) < 2:
            raise ValueError("announces a phase for one")

    def enter(self, at: Agreement) -> None:
        self.log.append(at.phase)
        self.trained = self.trained and at.phase != "ready"

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver in receivers:
            match kind:
                case Kind.NOTE:
                    yield receiver, (self.note,)
                case Kind.GIFT:
                    for chunk in range(CHUNKS):
                        yield receiver, (word(self.number), bytes([receiver, chunk]))
                case Kind.NUMBER:
                    yield receiver, (word(self.number),)
                case Kind.READY:
                    yield receiver, ()
                case _:
                    for chunk in range(CHUNKS):
                        yield receiver, (word(self.value + chunk),)

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        if number(payload) == 2**32 - 1:
            raise FaultyPeer(SERVER, "sends a result that cannot be")
        self.result[chunk] = number(payload)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        match at.phase:
            case "meet":
                notes = {v: got[Kind.NOTE, v] for v in at.members if v != self.number} | {self.number: self.note}
                return at.bound(*(notes[v] for v in at.members))
            case "swap":
                self.gifts = {v: got[Kind.GIFT, v] for v in at.members if v != self.number}
                return at
            case "count":
                self.home = at.context
                return replace(at, size=number(got[Kind.TOTAL, SERVER][:1]))
            case _:
                return replace(at, context=self.home)


class PlainServer(ServerDefaults):
    """It adds what comes, in the open."""

    def __init__(self) -> None:
        self.home, self.sums, self.come, self.given = NO_CONTEXT, [0] * CHUNKS, [0] * CHUNKS, 0
        self.retries = 0

    def anchor(self, phase: str, at: Agreement) -> bytes:
        return self.home if phase in ("ready", "round") else NO_CONTEXT

    def enter(self, at: Agreement) -> None:
        self.sums, self.come, self.given = [0] * CHUNKS, [0] * CHUNKS, 0

    def stream(self, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        if number(payload) > 2**31:
            raise ValueError("a value is too large")
        self.sums[chunk] += number(payload)
        self.come[chunk] += 1

    def ready(self, kind: IntEnum, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        if kind is Kind.TOTAL:
            yield ALL, (bytes([len(at.members)]) * at.size,)
            return
        while self.given < CHUNKS and self.come[self.given] == len(at.members):
            self.given += 1
            yield ALL, (word(self.sums[self.given - 1]),)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        match at.phase:
            case "meet":
                return at.bound(*(got[Kind.NOTE, v] for v in at.members))
            case "count":
                if self.retries:
                    self.retries -= 1
                    raise Retry("the count is not good enough")
                self.home = at.context
                return replace(at, size=len(at.members))
            case "ready" | "round":
                return replace(at, context=self.home)
            case _:
                return at


class Plain(FormDefaults):
    """Three phases of set-up, and rounds: one kind of message for each way. What plans ask of a form is left out."""

    name: ClassVar[str] = "plain"
    kinds: ClassVar[type[IntEnum]] = Kind
    routes: ClassVar[Mapping[IntEnum, Route]] = {
        Kind.NOTE: Route.ALL,
        Kind.GIFT: Route.EACH,
        Kind.NUMBER: Route.SERVER,
        Kind.TOTAL: Route.BROADCAST,
        Kind.READY: Route.SERVER,
        Kind.VALUE: Route.SERVER,
        Kind.RESULT: Route.BROADCAST,
    }
    streamed: ClassVar[frozenset[IntEnum]] = frozenset({Kind.VALUE, Kind.RESULT})
    rows: ClassVar[tuple[Row, ...]] = (
        Row("meet", (Kind.NOTE,), on_loss="meet", then="swap", announced=True),
        Row("swap", (Kind.GIFT,), on_loss="meet", then="count"),
        Row("count", (Kind.NUMBER,), (Kind.TOTAL,), on_loss="meet"),
        Row("ready", (Kind.READY,), on_loss="meet", announced=True, counts=""),
        Row("round", (Kind.VALUE,), (Kind.RESULT,), on_loss="meet", announced=True, counts="round", loses_round=True),
    )
    setup_phase: ClassVar[str] = "meet"
    names_phase: ClassVar[str] = "meet"
    union_phase: ClassVar[str] = "meet"
    ready_phase: ClassVar[str] = "ready"
    round_phase: ClassVar[str] = "round"
    end_phase: ClassVar[str] = "end"
    guests: ClassVar[int] = 0
    last_epoch: ClassVar[int] = 1 << 30

    def checked(self, params: Params) -> Params:
        return params

    def canonical(self, params: Params) -> str:
        return f"{params.canonical()}\nplain"

    def table(self, params: Params) -> tuple[Row, ...]:
        return self.rows

    def fewest(self, params: Params, phase: str = "", names: int = 0) -> int:
        return 2

    def next_numbers(self, phase: str, at: Agreement, *, again: bool) -> dict[str, int]:
        if phase in ("ready", "round"):
            return at.numbers | {"round": at.round + (phase == "round")}
        return at.numbers | {"epoch": at.union + 1, "attempt": at.attempt + 1 if again else 0}

    def senders(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        return at.members

    def receivers(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        return at.members

    def layout(self, kind: IntEnum, params: Params, at: Agreement, sender: int, receiver: int) -> Layout:
        match kind:
            case Kind.GIFT:
                return Layout(CHUNKS, WORD + 2, per_chunk=1)
            case Kind.VALUE | Kind.RESULT:
                return Layout(CHUNKS, WORD, per_chunk=1)
            case Kind.TOTAL:
                return Layout(at.size, 1)
            case Kind.READY:
                return Layout(1, 0)
            case _:
                return Layout(1, WORD)

    def client(
        self,
        params: Params,
        session: bytes,
        roster: Roster,
        number: int,
        identity: Identity,
        names: Iterable[Any],
        entropy: Entropy,
    ) -> PlainClient:
        return PlainClient(number, entropy)

    def server(self, params: Params, session: bytes) -> PlainServer:
        return PlainServer()


PLAIN: Any = Plain()
N = 4
ATTEMPTS = 8  # at a union that stalls
MEMBERS = (0, 1, 2)
TABLES: list[TableLike] = [{"a": [1.0]}] * N
PHASES = (GREETING, "meet", "swap", "count", REST, "ready", "round")
each_phase = pytest.mark.parametrize("phase", PHASES)


def plain_parties(**more: Any) -> Parties:
    params = Params(clients=N, dim=1, max_entities=8, max_union=8)
    return Parties(params, PLAIN, [()] * N, **{"entropy": insecure_seeded(5)} | more)


def brought_to(phase: str, members: Sequence[int] = MEMBERS, **more: Any) -> Parties:
    """All parties at the beginning of a phase: everything was delivered, nothing of it was sent."""
    parties = plain_parties(**more)
    exchange, server = parties.exchange, parties.server
    exchange.greet()
    if phase == GREETING:
        return parties
    server.begin("meet", members)
    while server.at.phase not in (phase, REST):
        exchange.step()
    if phase == "ready":
        server.begin("ready", members)
        exchange.deliver()
        for n in members:
            parties.clients[n].contribute(TABLES[n], 1)
    elif phase == "round":
        parties.contribute(TABLES)
        server.begin("round", members)
    exchange.deliver()
    assert server.at.phase == phase
    assert all(parties.clients[n].at.phase == phase for n in members)
    return parties


def counters(link: Link) -> list[Any]:
    """Everything that a link counts."""
    streams = {n: (stream.label, stream.next) for n, stream in link._streams.items()}
    return [streams, link.sequence, *map(copy.copy, (link.peers, link._heard, link._recent, link._broadcast))]


def copied(part: object) -> Any:
    """What a part holds. Arrays are written to in place, so that they count as bytes; other values are replaced."""
    if isinstance(part, np.ndarray):
        return part.tobytes()
    if isinstance(part, dict):
        return {key: copied(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [copied(value) for value in part]
    if type(part).__module__.startswith("secea.forms.") or hasattr(part, "anchor"):
        names = getattr(part, "__slots__", None) or vars(part)
        return {name: copied(getattr(part, name)) for name in names if name not in ("form", "params", "_entropy")}
    return copy.copy(part) if isinstance(part, set) else part


def state(who: Client | Server) -> list[Any]:
    """Everything of a party that a message could change."""
    common = [who.at, counters(who.link), copied(who.part)]
    if isinstance(who, Client):
        running = who._running.tags if who._running else None
        return [*common, copy.deepcopy(who.due), running, who._rows]
    sent = {kind: each.sent for kind, each in who._broadcasts.items()}
    return [*common, copy.deepcopy(who.collected), dict(who._hellos), len(who._queue), len(who._held), sent, who.lost]


def refused(
    who: Client | Server, message: Buffer, by: type[ProtocolError], *suspects: int, match: str, carrier: int = 1
) -> None:
    """The message is refused with this blame, and nothing has changed."""
    before = state(who)
    with pytest.raises(by, match=match) as caught:
        hand(who, message, carrier)
    assert type(caught.value) is by
    assert caught.value.suspects == suspects
    assert state(who) == before


def hand(who: Client | Server, message: Buffer, carrier: int) -> None:
    if isinstance(who, Client):
        who.receive(message)
    else:
        who.receive(carrier, message)


def sealed(
    sender: Link, kind: IntEnum, receiver: int, at: Agreement, *payload: bytes, chunk: int = 0, **other: Any
) -> bytes:
    """An authentic message with this label: to a party, or signed for all."""
    chunks = other.pop("chunks", 1)
    label = replace(sender.label(kind, at.numbers, at.context), **other)
    writer = sender.signer(label, chunks) if receiver == ALL else sender.sealer(label, receiver, chunks)
    return bytes(writer.seal(chunk, *payload))


def outbox(parties: Parties, n: int) -> list[bytes]:
    return [bytes(message) for message in parties.clients[n].outbox()]


def kind_of(parties: Parties, message: Buffer) -> Any:
    return parties.server.link.parse(message, SERVER).kind


def finished(parties: Parties) -> None:
    """What was begun comes to its end, and the next round gives the right sums."""
    while parties.server.at.phase != REST:
        parties.exchange.step()
    members = parties.server.at.members
    if parties.clients[members[0]].at.phase == "ready":
        parties.exchange.run("round", members)
    else:
        parties.contribute(TABLES)
        parties.exchange.run("round", members)
    for n in members:
        part = parties.clients[n].part
        assert isinstance(part, PlainClient)
        values = [100 * max(1, parties.number) + v for v in members]
        assert part.result == [sum(values) + chunk * len(members) for chunk in range(CHUNKS)]


# ----------------------------------------------------------------------------------------------- a table is interpreted


def test_parties_follow_the_table_of_a_form_that_they_do_not_know() -> None:
    parties = plain_parties()
    parties.setup(MEMBERS)
    for n in MEMBERS:
        client = parties.clients[n]
        part = client.part
        assert isinstance(part, PlainClient)
        assert part.log == ["meet", "swap", "count", REST]
        assert client.at == parties.server.at
        assert part.gifts == {
            v: b"".join(word(v) + bytes([n, chunk]) for chunk in range(CHUNKS)) for v in MEMBERS if v != n
        }
    assert parties.clients[3].at == Agreement()
    for _ in range(3):
        finished(parties)
    assert [parties.clients[n].at for n in MEMBERS] == [parties.server.at] * 3
    assert (parties.server.at.union, parties.server.at.round) == (1, 3)


@each_phase
def test_what_a_client_sends_is_a_function_of_its_state(phase: str) -> None:
    parties = brought_to(phase)
    for n in MEMBERS:
        before = state(parties.clients[n])
        assert outbox(parties, n) == outbox(parties, n)
        assert state(parties.clients[n]) == before
    if phase != GREETING:
        finished(parties)
    again = brought_to(phase)
    assert [outbox(again, n) for n in MEMBERS] == [outbox(brought_to(phase), n) for n in MEMBERS]


@each_phase
def test_a_client_says_what_is_overdue_and_who_may_have_failed(phase: str) -> None:
    parties = brought_to(phase)
    overdue = parties.clients[0].overdue()
    if phase == REST:
        assert overdue is None
        return
    assert overdue is not None
    others = {"meet": (1, 2), "swap": (1, 2)}.get(phase, ())
    assert overdue.suspects == (SERVER, *others)
    assert phase in str(overdue)


@each_phase
def test_the_server_knows_who_is_missing_and_closes_only_when_nobody_is(phase: str) -> None:
    parties = brought_to(phase)
    server = parties.server
    due = MEMBERS if phase not in (GREETING, REST) else ()
    assert server.missing() == due
    for n in due:
        before = state(server)
        with pytest.raises(FederationError, match=f"is not complete.*client {n}"):
            server.close()
        assert state(server) == before
        messages = outbox(parties, n)
        for message in messages[:-1]:
            server.receive(n, message)
            assert n in server.missing()
        server.receive(n, messages[-1])
        assert server.missing() == tuple(v for v in MEMBERS if v > n)
    if due:
        server.close()
        assert server.at.phase != phase


def test_a_phase_begins_with_those_whose_hello_came_and_with_enough_of_them() -> None:
    parties = plain_parties()
    server = parties.server
    server.receive(0, parties.clients[0].link.hello_message())
    before = state(server)
    with pytest.raises(FederationError, match="no hello came from client 1, client 2"):
        server.begin("meet", MEMBERS)
    with pytest.raises(FederationError, match="the set-up needs 2 clients, and only 1 is here"):
        server.begin("meet", [0])
    assert state(server) == before


def test_only_a_client_that_was_asked_contributes_and_only_once() -> None:
    for phase in PHASES:  # in "ready" it has contributed
        client = brought_to(phase).clients[0]
        before = state(client)
        with pytest.raises(FederationError, match=f"client 0 was not asked for a table: it is in '{phase}'"):
            client.contribute(TABLES[0], 1)
        assert state(client) == before


def test_a_client_that_was_asked_says_nothing_before_it_has_trained() -> None:
    parties = brought_to(REST)
    client = parties.clients[0]
    asked, sends = [client.asked], [len(list(client.outbox()))]
    parties.server.begin("ready", MEMBERS)
    parties.exchange.deliver()
    asked, sends = [*asked, client.asked], [*sends, len(list(client.outbox()))]
    client.contribute(TABLES[0], 1)
    asked, sends = [*asked, client.asked], [*sends, len(list(client.outbox()))]
    assert (asked, sends) == ([False, True, False], [0, 0, 1])


numbers32 = st.integers(0, 2**32 - 1) | st.integers(0, 3)


@given(
    settled=numbers32, union=numbers32, names=numbers32, named=numbers32, round=numbers32,
    base=st.binary(min_size=16, max_size=16), cut=st.integers(-2, 2),
)  # fmt: skip
def test_where_a_client_stands_is_read_as_it_was_or_refused(cut: int, **fields: Any) -> None:
    standing = Standing(**fields)
    data = standing.to_bytes()
    possible = standing.named <= standing.names <= standing.union < 2**31 and standing.settled in (0, standing.union)
    if possible and standing.round <= 1000 and standing.names <= 17:
        assert Standing.parse(data, 1000, 17) == standing
    else:
        with pytest.raises(ValueError, match="nobody can stand"):
            Standing.parse(data, 1000, 17)
    if cut:
        with pytest.raises(ValueError, match="do not say where a client stands"):
            Standing.parse(data[:cut] if cut < 0 else data + bytes(cut), 1000, 17)


def test_giving_up_loses_a_round_where_the_table_says_so() -> None:
    for phase in PHASES:
        parties = brought_to(phase)
        server = parties.server
        server.give_up()
        assert server.at.phase == (GREETING if phase == GREETING else REST)
        assert server.lost == ({1} if phase == "round" else set())
        server.begin("meet", MEMBERS)  # whatever was given up, a new union can begin
        finished(parties)


@pytest.mark.parametrize("phase", ["meet", "swap", "count"])
def test_who_is_lost_before_a_round_is_left_out_of_a_new_union(phase: str) -> None:
    parties = plain_parties()
    parties.exchange.losses[1] = phase
    parties.setup(MEMBERS)
    assert parties.server.at.members == (0, 2)
    assert parties.server.at.union == 2
    finished(parties)


def test_who_is_lost_in_a_round_costs_the_round() -> None:
    parties = brought_to(REST)
    parties.exchange.losses[1] = "round"
    with pytest.raises(RoundLost, match="round 1 is lost: client 1"):
        parties.round(TABLES)
    assert parties.server.lost == {1}
    parties.union([0, 2])
    finished(parties)


@pytest.mark.parametrize("times", [1, 3, ATTEMPTS - 1, ATTEMPTS])
def test_what_stalls_is_tried_again_so_many_times(times: int) -> None:
    parties = plain_parties()
    assert isinstance(parties.server.part, PlainServer)
    parties.server.part.retries = times
    if times == ATTEMPTS:
        with pytest.raises(FederationError, match="the count is not good enough; 8 attempts failed"):
            parties.setup(MEMBERS)
        return
    parties.setup(MEMBERS)
    assert (parties.server.at.attempt, parties.server.at.union) == (times, times + 1)
    finished(parties)


def test_a_client_that_starts_anew_takes_part_in_the_next_union() -> None:
    parties = brought_to(REST)
    parties.clients[1] = parties.client(1, ())
    parties.exchange.greet()
    parties.exchange.run("meet", MEMBERS)
    finished(parties)


def test_a_session_needs_bounds_a_full_roster_and_clients_that_exist() -> None:
    parties = plain_parties()
    session = parties.session
    with pytest.raises(ParamsError, match="max_entities and max_union must be known"):
        Session(Params(clients=N, dim=1), session.roster, PLAIN)
    with pytest.raises(ParamsError, match="the roster has 4 clients, Params has 3"):
        Session(replace(session.params, clients=3), session.roster, PLAIN)
    with pytest.raises(CallError, match=r"there is no client 4; the clients are 0\.\.3"):
        Client(session, 4, parties.identities[0], ())
    assert Session(session.params, session.roster, PLAIN).hash == session.hash
    assert Session(replace(session.params, dim=2), session.roster, PLAIN).hash != session.hash
    assert len(session.fingerprint.split()) == 10


# ------------------------------------------------------------------------------------------------ what a client refuses


def flipped(at: Agreement, name: str) -> dict[str, Any]:
    return {name: b"x" * DIGEST_BYTES if name == "context" else at.numbers[name] + 1}


LABELS = ("epoch", "attempt", "weights", "round", "context")


@pytest.mark.parametrize("name", LABELS)
def test_a_client_refuses_what_was_made_under_another_agreement(name: str) -> None:
    for phase, kind, receiver, payload in [("meet", Kind.NOTE, ALL, WORD), ("swap", Kind.GIFT, 0, WORD + 2)]:
        parties = brought_to(phase)
        client, sender = parties.clients[0], parties.clients[1].link
        chunks = CHUNKS if kind is Kind.GIFT else 1
        message = sealed(sender, kind, receiver, client.at, bytes(payload), chunks=chunks, **flipped(client.at, name))
        refused(client, message, FaultyPeerOrRelay, 1, SERVER, match="was made for")
        finished(parties)
    parties = brought_to("count")
    client = parties.clients[0]
    message = sealed(parties.server.link, Kind.KEY, 0, client.at, bytes(56), **flipped(client.at, name))
    refused(client, message, FaultyPeer, SERVER, match="was made for")
    finished(parties)


@each_phase
def test_a_client_refuses_kinds_of_another_phase(phase: str) -> None:
    parties = brought_to(phase)
    client, other = parties.clients[0], parties.clients[1].link
    if phase == GREETING:
        client.receive(parties.server.link.hello_message())
        client.receive(other.hello_message())
        other.greet(other.parse(client.link.hello_message(), SERVER), client.link.hello_message())
    due = {"meet": {Kind.NOTE}, "swap": {Kind.GIFT}}.get(phase, set())
    answers = {"count": {Kind.TOTAL}, "round": {Kind.RESULT}}.get(phase, set())
    for kind in list(Kind)[4:]:
        for receiver in (0, ALL):
            if kind not in due:
                message = sealed(other, kind, receiver, client.at, bytes(WORD))
                refused(client, message, FaultyPeerOrRelay, 1, SERVER, match="is not due in the phase")
        if kind not in answers:
            message = sealed(parties.server.link, kind, 0, client.at, bytes(WORD))
            refused(client, message, FaultyPeer, SERVER, match="is not due in the phase")
    for kind in (Kind.KEY, Kind.DIGEST):  # the server's alone
        message = sealed(other, kind, 0, client.at, bytes(WORD))
        refused(client, message, FaultyPeerOrRelay, 1, SERVER, match="is not due in the phase")
    message = sealed(parties.server.link, Kind.DIGEST, 0, client.at, bytes(TAG_BYTES))
    refused(client, message, FaultyPeer, SERVER, match="a broadcast that did not come")
    if phase != GREETING:
        finished(parties)


def test_a_client_refuses_who_is_no_member_and_what_is_for_another() -> None:
    parties = brought_to("swap")
    client = parties.clients[0]
    stranger = parties.clients[3].link
    client.receive(stranger.hello_message())
    stranger.greet(stranger.parse(client.link.hello_message(), SERVER), client.link.hello_message())
    gift = bytes(WORD + 2)
    message = sealed(stranger, Kind.GIFT, 0, client.at, gift, chunks=CHUNKS)
    refused(client, message, FaultyPeerOrRelay, 3, SERVER, match="is not due")
    message = sealed(parties.clients[1].link, Kind.GIFT, 2, client.at, gift, chunks=CHUNKS)
    refused(client, message, FaultyPeerOrRelay, 1, SERVER, match="for another party|is not due|another way")
    message = sealed(parties.clients[0].link, Kind.GIFT, 1, client.at, gift, chunks=CHUNKS)
    refused(client, message, FaultyPeer, SERVER, match="a message of our own")
    forger = parties.clients[2].link
    label = replace(forger.label(Kind.GIFT, client.at.numbers, client.at.context), sender=1, receiver=0, chunks=CHUNKS)
    forged = Sealer(forger.channels[0].derive("seal", label.label()), label).seal(0, gift)
    refused(client, forged, FaultyPeerOrRelay, 1, SERVER, match="damaged or forged")
    finished(parties)


@pytest.mark.parametrize(
    ("phase", "kind", "receiver"),
    [("meet", Kind.NOTE, 0), ("swap", Kind.GIFT, ALL)],
    ids=["note to one", "gift to all"],
)
def test_a_client_refuses_what_takes_another_way_than_its_kind(phase: str, kind: Kind, receiver: int) -> None:
    parties = brought_to(phase)
    client = parties.clients[0]
    layout = Plain().layout(kind, client.session.params, client.at, 1, receiver)
    payload = bytes(layout.payload_bytes(0))
    message = sealed(parties.clients[1].link, kind, receiver, client.at, payload, chunks=layout.chunks)
    refused(client, message, FaultyPeerOrRelay, 1, SERVER, match="another way")
    finished(parties)


def test_a_client_refuses_an_answer_that_is_sealed_to_it_alone() -> None:
    parties, (key, _, _) = answered("count")
    client = parties.clients[0]
    client.receive(key)
    message = sealed(parties.server.link, Kind.TOTAL, 0, client.at, bytes(3))
    refused(client, message, FaultyPeer, SERVER, match="another way")


@law
@given(size=st.integers(0, 40), chunks=st.integers(1, 9), chunk=st.integers(0, 8))
def test_a_client_refuses_other_sizes_and_numbers_of_chunks(size: int, chunks: int, chunk: int) -> None:
    parties = brought_to("swap")
    client = parties.clients[0]
    if (size, chunks) != (WORD + 2, CHUNKS) and chunk < chunks:
        message = sealed(parties.clients[1].link, Kind.GIFT, 0, client.at, bytes(size), chunks=chunks, chunk=chunk)
        by, why = (FaultyPeerOrRelay, "out of order") if chunk else (FaultyPeer, "not what is due")
        refused(client, message, by, *((1, SERVER) if chunk else (1,)), match=why)
    finished(parties)


def gifts(parties: Parties, sender: int, receiver: int) -> list[bytes]:
    """The chunks of one gift."""
    link = parties.server.link
    return [message for message in outbox(parties, sender) if link.parse(message, SERVER).receiver == receiver]


def test_a_client_takes_chunks_in_order_and_once() -> None:
    parties = brought_to("swap")
    client = parties.clients[0]
    first, second, third = gifts(parties, 1, 0)
    refused(client, second, FaultyPeerOrRelay, 1, SERVER, match="out of order")
    client.receive(first)
    refused(client, first, Stale, 1, SERVER, match="came before")
    refused(client, third, FaultyPeerOrRelay, 1, SERVER, match="out of order")
    for message in (second, third):
        client.receive(message)
    for message in (first, second, third):
        refused(client, message, Stale, 1, SERVER, match="came before")


def test_chunks_of_different_senders_may_come_mixed() -> None:
    parties = brought_to("swap")
    client = parties.clients[0]
    for one, other in zip(gifts(parties, 1, 0), gifts(parties, 2, 0), strict=True):
        client.receive(one)
        client.receive(other)
    assert isinstance(client.part, PlainClient)
    expected = {v: b"".join(word(v) + bytes([0, chunk]) for chunk in range(CHUNKS)) for v in (1, 2)}
    assert client.part.gifts == expected
    assert client.at.phase == "count"


def test_a_message_that_is_begun_anew_counts_alone() -> None:
    parties = brought_to("swap")
    client, sender = parties.clients[0], parties.clients[1].link
    first, *_ = gifts(parties, 1, 0)
    client.receive(first)
    label = sender.label(Kind.GIFT, client.at.numbers, client.at.context)
    for chunk in range(CHUNKS):
        client.receive(sender.sealer(label, 0, CHUNKS).seal(chunk, bytes([chunk] * (WORD + 2))))
    for message in gifts(parties, 2, 0):
        client.receive(message)
    assert isinstance(client.part, PlainClient)
    assert client.part.gifts[1] == b"".join(bytes([chunk] * (WORD + 2)) for chunk in range(CHUNKS))


@each_phase
def test_what_came_before_is_stale_in_every_later_phase(phase: str) -> None:
    recorder = Recorder(Kind)
    parties = brought_to(phase, tap=recorder)
    for n in MEMBERS:
        client = parties.clients[n]
        before, came = state(client), [hop for hop in recorder.hops if hop.receiver == n]
        for sender in (*MEMBERS, SERVER):
            labels = list(dict.fromkeys(hop.header.label() for hop in came if hop.header.sender == sender))
            recent = [hop for hop in came if hop.header.label() in labels[-4:] or hop.header.kind is Kind.HELLO]
            for hop in recent:  # what is older is a replay
                with pytest.raises(Stale):
                    client.receive(hop.message)
        for hop in came:
            with pytest.raises(ProtocolError):
                client.receive(hop.message)
        assert state(client) == before
    before = state(parties.server)
    for hop in recorder.hops:
        if hop.receiver == SERVER:
            with pytest.raises(Stale):
                parties.server.receive(hop.sender, hop.message)
    assert state(parties.server) == before


def test_ones_own_hello_is_stale_and_a_hello_is_for_everybody() -> None:
    parties = brought_to("meet")
    client = parties.clients[0]
    refused(client, client.link.hello_message(), FaultyPeer, SERVER, match="a message of our own")
    hello = bytearray(parties.clients[3].link.hello_message())
    hello[:HEADER_BYTES] = replace(client.link.parse(hello, SERVER), receiver=0).pack()
    refused(client, bytes(hello), FaultyPeerOrRelay, 3, SERVER, match="was made for another epoch")


# -------------------------------------------------------------------------------------------------------- announcements


def announced(parties: Parties, begin: bytes, phase: str = "meet", **other: Any) -> bytes:
    """The server's authentic word that a phase begins, to client 0."""
    server = parties.server
    numbers = Plain().next_numbers(phase, server.at, again=False)
    context = server.part.anchor(phase, server.at)
    label: dict[str, Any] = {**numbers, "context": context} | other
    return sealed(server.link, Kind.BEGIN, 0, server.at, begin, **label)


def lives(parties: Parties, *members: int) -> tuple[tuple[int, bytes], ...]:
    return tuple((n, parties.clients[n].link.hello.incarnation) for n in members)


WRONG_MEMBERS: dict[str, tuple[Callable[[Parties], tuple[tuple[int, bytes], ...]], str, tuple[int, ...]]] = {
    "out of order": (lambda p: lives(p, 1, 0, 2), "in order", (SERVER,)),
    "one twice": (lambda p: lives(p, 0, 1, 1), "in order", (SERVER,)),
    "one unknown": (lambda p: (*lives(p, 0, 1), (N, bytes(16))), "are not clients", (SERVER,)),
    "without oneself": (lambda p: lives(p, 1, 2), "we have no part", (SERVER,)),
    "alone": (lambda p: lives(p, 0), "announces a phase for one", (SERVER,)),
    "nobody": (lambda _: (), "we have no part", (SERVER,)),
    "another life": (lambda p: (*lives(p, 0), (1, bytes(16)), *lives(p, 2)), "in another life", (1, SERVER)),
    "another life of oneself": (lambda p: ((0, bytes(16)), *lives(p, 1, 2)), "in another life", (SERVER,)),
    "one not heard of": (lambda p: lives(p, 0, 1, 3), "in another life", (3, SERVER)),
}


@pytest.mark.parametrize("case", WRONG_MEMBERS)
@each_phase
def test_a_client_refuses_to_begin_with_wrong_members(phase: str, case: str) -> None:
    parties = brought_to("meet" if phase == GREETING else phase)
    members, why, suspects = WRONG_MEMBERS[case]
    for index, row in enumerate(Plain.rows):
        if row.announced:
            message = announced(parties, Begin(index, members(parties)).to_bytes(), row.phase)
            by = FaultyPeerOrRelay if len(suspects) == 2 else FaultyPeer
            refused(parties.clients[0], message, by, *suspects, match=why)
    finished(parties)


@each_phase
def test_a_client_refuses_to_begin_what_is_not_announced_not_next_or_made_for_another_union(phase: str) -> None:
    parties = brought_to("meet" if phase == GREETING else phase)
    client, at = parties.clients[0], parties.server.at
    right = Begin(0, lives(parties, *MEMBERS))
    for index in range(1, 5):
        if not Plain.rows[index].announced:
            message = announced(parties, replace(right, phase=index).to_bytes())
            refused(client, message, FaultyPeer, SERVER, match="which is not announced")
    for index in (5, 9, 255):
        message = announced(parties, replace(right, phase=index).to_bytes())
        refused(client, message, FaultyPeer, SERVER, match="names a phase that does not exist")
    for epoch, q in ((at.union, at.round), (at.union - 1, at.round + 1), (0, 0)):
        message = announced(parties, right.to_bytes(), epoch=epoch, round=q)
        refused(client, message, FaultyPeer, SERVER, match="these are not next")
    if at.round:
        message = announced(parties, right.to_bytes(), round=at.round - 1)
        refused(client, message, FaultyPeer, SERVER, match="these are not next")
    for name in ("epoch", "attempt", "weights"):  # a round is one of the union that stands
        message = announced(parties, replace(right, phase=4).to_bytes(), "round", **flipped(at, name))
        refused(client, message, FaultyPeer, SERVER, match="these are not next")
    message = announced(parties, replace(right, phase=4).to_bytes(), "round", round=at.round)
    refused(client, message, FaultyPeer, SERVER, match="these are not next")
    for context in (b"x" * DIGEST_BYTES, at.context):
        message = announced(parties, right.to_bytes(), context=context)
        refused(client, message, FaultyPeer, SERVER, match="another union than ours")
    if phase not in ("ready", REST, "round"):
        message = announced(parties, replace(right, phase=4).to_bytes(), "round", context=at.context)
        refused(client, message, FaultyPeer, SERVER, match="another union than ours")
    message = announced(parties, right.to_bytes(), attempt=ATTEMPTS)
    refused(client, message, FaultyPeer, SERVER, match="these are not next")
    message = announced(parties, right.to_bytes(), chunks=2)
    refused(client, message, FaultyPeer, SERVER, match="not announced")
    finished(parties)


@law
@given(cut=st.integers(0, 80), more=st.binary(max_size=40))
def test_an_announcement_is_read_strictly(cut: int, more: bytes) -> None:
    parties = brought_to("meet")
    right = Begin(0, lives(parties, *MEMBERS)).to_bytes()
    assert len(right) == Begin.size(3)
    data = right[:cut] + more
    with suppress(ValueError):
        assert Begin.parse(data, N).to_bytes() == data
    if (len(data) - 1) % 18 or not data:
        refused(parties.clients[0], announced(parties, data), FaultyPeer, SERVER, match="cannot be read")
    finished(parties)


def test_nobody_but_the_server_announces() -> None:
    parties = brought_to("swap")
    client, other = parties.clients[0], parties.clients[1].link
    numbers: dict[str, Any] = {"epoch": 2, "context": NO_CONTEXT}
    for receiver in (0, ALL):
        begin = Begin(0, lives(parties, *MEMBERS)).to_bytes()
        message = sealed(other, Kind.BEGIN, receiver, client.at, begin, **numbers)
        refused(client, message, FaultyPeerOrRelay, 1, SERVER, match="for the server to say")
    finished(parties)


def test_an_announcement_counts_once() -> None:
    parties = brought_to("meet")
    message = announced(parties, Begin(0, lives(parties, *MEMBERS)).to_bytes())
    client = parties.clients[0]
    client.receive(message)
    assert client.at.union == 2
    refused(client, message, Stale, SERVER, match="came before")


def test_a_new_union_can_begin_in_every_phase() -> None:
    for phase in PHASES:
        parties = brought_to(phase)
        parties.exchange.run("meet", MEMBERS)
        finished(parties)


# ----------------------------------------------------------------------------------------------------------- broadcasts


def answered(phase: str) -> tuple[Parties, list[Buffer]]:
    """The parties after the server answered in a phase, and what it has for client 0: key, chunks, hash."""
    parties = brought_to(phase)
    for n in MEMBERS:
        for message in outbox(parties, n):
            parties.server.receive(n, message)
    parties.server.close()
    inbox = parties.server.drain()[0]
    assert [kind_of(parties, message) for message in (inbox[0], inbox[-1])] == [Kind.KEY, Kind.DIGEST]
    return parties, inbox


@pytest.mark.parametrize("phase", ["count", "round"])
def test_everyone_gets_the_same_bytes_of_a_broadcast(phase: str) -> None:
    parties = brought_to(phase)
    recorder = Recorder(Kind)
    parties.exchange.tap = recorder
    parties.exchange.step()
    kind = Kind.TOTAL if phase == "count" else Kind.RESULT
    came = [[hop.message for hop in recorder.hops if hop.receiver == n and hop.header.kind is kind] for n in MEMBERS]
    assert came[0] == came[1] == came[2]
    assert len(came[0]) == (CHUNKS if phase == "round" else 1)


@pytest.mark.parametrize("phase", ["count", "round"])
def test_a_broadcast_counts_when_its_hash_has_come(phase: str) -> None:
    parties, inbox = answered(phase)
    client = parties.clients[0]
    for message in inbox:
        assert client.at.phase == phase
        client.receive(message)
    assert client.at == replace(parties.server.at)
    assert client.at.phase == REST


@pytest.mark.parametrize("phase", ["count", "round"])
def test_a_broadcast_of_another_hash_stops_the_client_until_the_server_begins_anew(phase: str) -> None:
    parties, inbox = answered(phase)
    client = parties.clients[0]
    for message in inbox[:-1]:
        client.receive(message)
    wrong = sealed(parties.server.link, Kind.DIGEST, 0, client.at, bytes(TAG_BYTES))
    with pytest.raises(FaultyPeer, match="sent others another broadcast") as caught:
        client.receive(wrong)
    assert caught.value.suspects == (SERVER,)
    assert client.at.phase == STOPPED
    assert client.overdue() is None
    assert outbox(parties, 0) == []
    for n in (1, 2):
        parties.clients[n].stop()
    parties.exchange.run("meet", MEMBERS)
    finished(parties)


@pytest.mark.parametrize("phase", ["count", "round"])
def test_a_broadcast_begins_with_its_key_and_comes_in_order(phase: str) -> None:
    parties, inbox = answered(phase)
    client = parties.clients[0]
    key, first, last = inbox[0], inbox[1], inbox[-1]
    refused(client, first, FaultyPeer, SERVER, match="whose key did not come")
    refused(client, last, FaultyPeer, SERVER, match="a broadcast that did not come")
    client.receive(key)
    refused(client, key, Stale, SERVER, match="came before")
    refused(client, last, FaultyPeer, SERVER, match="a broadcast that did not come")
    size = KEY_BYTES + DIGEST_BYTES
    second = sealed(parties.server.link, Kind.KEY, 0, client.at, bytes(size), (3).to_bytes(ROWS_BYTES, "little"))
    refused(client, second, FaultyPeer, SERVER, match="a second key")
    for message in inbox[1:-1]:
        client.receive(message)
        refused(client, message, Stale, SERVER, match="came before")
    client.receive(last)
    assert client.at.phase == REST


@law
@given(size=st.integers(0, 80), rows=st.integers(0, 2**64 - 1) | st.integers(0, 20), phase=st.sampled_from(PHASES[3:]))
def test_a_key_has_one_size_and_a_union_its_bound(size: int, rows: int, phase: str) -> None:
    parties = brought_to(phase)
    client, right = parties.clients[0], KEY_BYTES + DIGEST_BYTES + ROWS_BYTES
    payload = bytes(max(0, size - ROWS_BYTES)) + rows.to_bytes(ROWS_BYTES, "little")
    if len(payload) != right:
        message = sealed(parties.server.link, Kind.KEY, 0, client.at, payload)
        refused(client, message, FaultyPeer, SERVER, match="bytes instead of")
    payload = bytes(KEY_BYTES + DIGEST_BYTES) + rows.to_bytes(ROWS_BYTES, "little")
    if rows > 8 or (phase != "count" and rows != len(MEMBERS)):
        message = sealed(parties.server.link, Kind.KEY, 0, client.at, payload)
        refused(client, message, FaultyPeer, SERVER, match="announces a union of")
    finished(parties)


@law
@given(size=st.integers(0, 40), chunks=st.integers(1, 4))
def test_a_broadcast_of_another_size_is_refused(size: int, chunks: int) -> None:
    parties = brought_to("round")
    client, link = parties.clients[0], parties.server.link
    if (size, chunks) == (WORD, CHUNKS):
        return
    key = sealed(link, Kind.KEY, 0, client.at, b"")  # takes a number, so that the label below is newer
    label = replace(link.label(Kind.RESULT, client.at.numbers, client.at.context), chunks=chunks)
    rows = len(MEMBERS).to_bytes(ROWS_BYTES, "little")
    link.sequence -= 2
    key = sealed(link, Kind.KEY, 0, client.at, bytes(KEY_BYTES), broadcast_name(label), rows)
    client.receive(key)
    link.sequence += 1
    message = link.broadcaster(label, chunks, bytes(KEY_BYTES)).seal(0, bytes(size))
    refused(client, message, FaultyPeer, SERVER, match="not what is due")


def test_what_a_part_refuses_stops_the_client() -> None:
    parties = brought_to("round")
    client, link = parties.clients[0], parties.server.link
    rows = len(MEMBERS).to_bytes(ROWS_BYTES, "little")
    label = replace(link.label(Kind.RESULT, client.at.numbers, client.at.context), chunks=CHUNKS, sequence=9_000)
    client.receive(sealed(link, Kind.KEY, 0, client.at, bytes(KEY_BYTES), broadcast_name(label), rows))
    with pytest.raises(FaultyPeer, match="a result that cannot be"):
        client.receive(link.broadcaster(label, CHUNKS, bytes(KEY_BYTES)).seal(0, word(2**32 - 1)))
    assert client.at.phase == STOPPED
    assert client.due.waiting == frozenset()


# ---------------------------------------------------------------------------------------------- what the server refuses

SENT = [("meet", Kind.NOTE), ("swap", Kind.GIFT), ("count", Kind.NUMBER), ("ready", Kind.READY), ("round", Kind.VALUE)]
each_kind = pytest.mark.parametrize(("phase", "kind"), SENT)


def to_whom(kind: Kind) -> int:
    return {Route.ALL: ALL, Route.EACH: 0, Route.SERVER: SERVER}[Plain.routes[kind]]


def upload(parties: Parties, kind: Kind, sender: int = 1, **other: Any) -> bytes:
    """An authentic message of the right size, with another label."""
    at = parties.server.at
    layout = Plain().layout(kind, parties.session.params, at, sender, to_whom(kind))
    size = other.pop("size", layout.payload_bytes(0))
    receiver = other.pop("to", to_whom(kind))
    return sealed(
        parties.clients[sender].link,
        kind,
        receiver,
        at,
        bytes(size),
        chunks=other.pop("chunks", layout.chunks),
        **other,
    )


@each_kind
def test_the_server_refuses_what_was_made_under_another_agreement(phase: str, kind: Kind) -> None:
    parties = brought_to(phase)
    server = parties.server
    for name in LABELS:
        message = upload(parties, kind, **flipped(server.at, name))
        refused(server, message, FaultyPeer, 1, match="made for another union or other members")
    for name, value in server.at.numbers.items():
        if value:
            message = upload(parties, kind, **{name: value - 1})
            refused(server, message, Stale, 1, match="is not due")
    finished(parties)


@each_kind
def test_the_server_refuses_kinds_of_another_phase_and_its_own(phase: str, kind: Kind) -> None:
    parties = brought_to(phase)
    for other in list(Kind)[1:]:
        if other is not kind:
            receiver = to_whom(other) if other in Plain.routes and other not in (Kind.TOTAL, Kind.RESULT) else SERVER
            message = sealed(parties.clients[1].link, other, receiver, parties.server.at, bytes(WORD))
            refused(parties.server, message, Stale, 1, match="is not due in the phase")
    finished(parties)


@each_kind
def test_the_server_refuses_who_is_no_member_no_client_or_speaks_for_another(phase: str, kind: Kind) -> None:
    parties = brought_to(phase)
    server = parties.server
    for link in (parties.clients[3].link, server.link):
        for v in (*MEMBERS, SERVER):
            if link.number != v and v not in link.peers:
                hello = parties.clients[v].link.hello_message() if v != SERVER else server.link.hello_message()
                link.greet(link.parse(hello, SERVER), hello)
    message = upload(parties, kind, sender=3)
    refused(server, message, FaultyPeer, 3, match="is not for it to send", carrier=3)
    for carrier in (0, 2, 3):
        refused(server, upload(parties, kind), FaultyPeer, carrier, match="in the name of client 1", carrier=carrier)
    for carrier in (N, ALL, SERVER, -1):
        refused(server, upload(parties, kind), ProtocolError, carrier, match="there is no client", carrier=carrier)
    own = sealed(server.link, kind, 1, server.at, bytes(WORD))
    refused(server, own, FaultyPeer, 1, match="in the name of the server")
    finished(parties)


@each_kind
def test_the_server_refuses_what_takes_another_way_than_its_kind(phase: str, kind: Kind) -> None:
    parties = brought_to(phase)
    for to in (0, 2, SERVER, ALL):
        if to != to_whom(kind) and not (kind is Kind.GIFT and to in MEMBERS):
            refused(parties.server, upload(parties, kind, to=to), FaultyPeer, 1, match="who is no receiver of it")
    if kind is Kind.GIFT:
        stranger = parties.clients[3].link
        link = parties.clients[1].link
        link.greet(link.parse(stranger.hello_message(), SERVER), stranger.hello_message())
        refused(parties.server, upload(parties, kind, to=3), FaultyPeer, 1, match="who is no receiver of it")
    finished(parties)


@each_kind
@law
@given(size=st.integers(0, 40), chunks=st.integers(1, 9))
def test_the_server_refuses_other_sizes_and_numbers_of_chunks(phase: str, kind: Kind, size: int, chunks: int) -> None:
    parties = brought_to(phase)
    layout = Plain().layout(kind, parties.session.params, parties.server.at, 1, to_whom(kind))
    if (size, chunks) != (layout.payload_bytes(0), layout.chunks):
        message = upload(parties, kind, size=size, chunks=chunks)
        refused(parties.server, message, FaultyPeer, 1, match="not what is due")


@pytest.mark.parametrize("phase", ["swap", "round"])
def test_the_server_takes_chunks_in_order_once_and_of_one_try(phase: str) -> None:
    parties = brought_to(phase)
    server = parties.server
    first, second, third = gifts(parties, 1, 0 if phase == "swap" else SERVER)
    refused(server, second, FaultyPeer, 1, match="out of order")
    server.receive(1, first)
    refused(server, first, Stale, 1, match="came before")
    refused(server, third, FaultyPeer, 1, match="out of order")
    kind = Kind.GIFT if phase == "swap" else Kind.VALUE
    refused(server, upload(parties, kind), FaultyPeer, 1, match="belongs to another try")
    server.receive(1, second)
    server.receive(1, third)
    for message in (first, second, third):
        refused(server, message, Stale, 1, match="came before")


def test_the_server_blames_who_sends_what_its_part_cannot_use() -> None:
    parties = brought_to("round")
    server = parties.server
    message = sealed(parties.clients[1].link, Kind.VALUE, SERVER, server.at, word(2**32 - 1), chunks=CHUNKS)
    refused(server, message, FaultyPeer, 1, match="cannot be right: a value is too large")
    finished(parties)


def test_messages_of_different_clients_reach_the_server_in_any_order() -> None:
    parties = brought_to("round")
    for chunk in zip_longest(*(outbox(parties, n) for n in MEMBERS)):
        for n, message in reversed(list(zip(MEMBERS, chunk, strict=True))):
            parties.server.receive(n, message)
    parties.server.close()
    parties.exchange.deliver()
    assert isinstance(parties.clients[0].part, PlainClient)
    assert parties.clients[0].part.result == [303, 306, 309]


# ------------------------------------------------------------------------------------------------- many small chunks

MANY, LAST, KILOBYTE = 20_000, 50, 1024


def in_single_bytes(kind: IntEnum, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of this kind have many chunks of one byte each."""
    real = Plain.layout

    def layout(self: Plain, asked: IntEnum, *rest: Any) -> Layout:
        return Layout(MANY, 1, per_chunk=1) if asked is kind else real(self, asked, *rest)

    monkeypatch.setattr(Plain, "layout", layout)


def allocated(who: Client | Server, sender: Link, kind: IntEnum) -> float:
    """The bytes that a party allocates, on average, for each of the last chunks of a long message but the very last."""
    label = sender.label(kind, who.at.numbers, who.at.context)
    writer = sender.sealer(label, who.link.number, MANY)
    for chunk in range(MANY - 1 - LAST):
        hand(who, writer.seal(chunk, b"x"), sender.number)
    last = [writer.seal(chunk, b"x") for chunk in range(MANY - 1 - LAST, MANY)]
    total = 0
    tracemalloc.start()
    try:
        for message in last[:-1]:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            hand(who, message, sender.number)
            total += tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    hand(who, last[-1], sender.number)
    return total / LAST


def test_a_chunk_costs_a_client_the_same_however_many_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = brought_to("swap")
    client = parties.clients[0]
    in_single_bytes(Kind.GIFT, monkeypatch)
    assert allocated(client, parties.clients[1].link, Kind.GIFT) < 8 * KILOBYTE  # all of it would be 20 or more
    assert client.due.got[Kind.GIFT, 1] == b"x" * MANY


def test_a_chunk_costs_the_server_the_same_however_many_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = brought_to("count")
    server = parties.server
    in_single_bytes(Kind.NUMBER, monkeypatch)
    assert allocated(server, parties.clients[1].link, Kind.NUMBER) < 8 * KILOBYTE
    assert server.collected.got == {(Kind.NUMBER, 1): b"x" * MANY}


def test_what_has_not_come_whole_is_nothing_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = brought_to("count")
    in_single_bytes(Kind.NUMBER, monkeypatch)
    message = sealed(parties.clients[1].link, Kind.NUMBER, SERVER, parties.server.at, b"x", chunks=MANY)
    parties.server.receive(1, message)
    assert parties.server.collected.got == {}


# ---------------------------------------------------------------------------------------------------------------- bytes


@each_phase
@law
@given(data=st.data())
def test_garbage_is_refused_in_every_phase(phase: str, data: st.DataObject) -> None:
    parties = brought_to(phase)
    at, draw = parties.server.at, data.draw
    label = Header(
        draw(st.sampled_from(Kind)), draw(st.sampled_from((0, 1, 2, 3, SERVER))),
        draw(st.sampled_from((0, 1, SERVER, ALL))), **at.numbers, sequence=draw(st.integers(0, 99)),
        chunks=draw(st.sampled_from((1, CHUNKS))), context=at.context, salt=bytes(16),
    )  # fmt: skip
    message = draw(st.binary(max_size=300)) if draw(st.booleans()) else label.pack() + draw(st.binary())
    for who in (parties.clients[0], parties.server):
        before = state(who)
        with pytest.raises(ProtocolError):
            hand(who, message, 1)
        assert state(who) == before


@each_phase
def test_a_message_that_was_cut_anywhere_is_refused(phase: str) -> None:
    parties = brought_to(phase)
    server = parties.server
    for message in outbox(parties, 1):
        before = state(server)
        for cut in range(len(message)):
            with pytest.raises(ProtocolError):
                server.receive(1, message[:cut])
        assert state(server) == before
        with suppress(Stale):
            server.receive(1, message)
    for n in (0, 2):
        for message in outbox(parties, n):
            with suppress(Stale):
                server.receive(n, message)
    if phase not in (GREETING, REST):
        server.close()
    client = parties.clients[0]
    for delivered in server.drain().get(0, []):
        before = state(client)
        for cut in range(len(delivered)):
            with pytest.raises(ProtocolError):
                client.receive(bytes(delivered[:cut]))
        assert state(client) == before
        client.receive(delivered)


# ------------------------------------------------------------------------------------------- the keyed form, whole runs

KEYED_TABLES: list[TableLike] = [
    {"a": [1.0, -2.0], "b": [0.5, 1.0]},
    {"a": [3.0, 1.0]},
    {"c": [7.0, 1.0], "b": [1.5, 2.0]},
]
MEANS = [[[2.0, -0.5], [1.0, 1.5]], [[2.0, -0.5]], [[7.0, 1.0], [1.0, 1.5]]]
FIELDS = ("kind", "sender", "receiver", *LABELS, "sequence", "chunks", "chunk", "salt")
Mutation = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Target:
    """One message on one leg of its way, in a run of all phases and one round."""

    kind: Any
    sender: int
    receiver: int
    turn: int
    """Which of these it is."""


class Meddler:
    """A tap that meddles with one message, and lets everything else pass."""

    def __init__(self, target: Target, meddle: Callable[[Client | Server, int, bytes], Iterable[Buffer]]) -> None:
        self.target, self.meddle, self.turn, self.done = target, meddle, 0, False
        self.parties = keyed_parties(self)

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        at = self.target
        if (sender, receiver, kind_of(self.parties, message)) != (at.sender, at.receiver, at.kind):
            return (message,)
        self.turn += 1
        if self.turn != at.turn + 1:
            return (message,)
        self.done = True
        who = self.parties.server if receiver == SERVER else self.parties.clients[receiver]
        return self.meddle(who, sender, bytes(message))

    def run(self) -> None:
        """All phases and a round; the means are right."""
        whole_run(self.parties)
        assert self.done


def keyed_parties(tap: Any) -> Parties:
    return Parties.of(KEYED_TABLES, Keyed(batch=2), collusion=1, dropouts=1, tap=tap, entropy=insecure_seeded(9))


def whole_run(parties: Parties) -> None:
    parties.setup()
    found = parties.round(KEYED_TABLES)
    for n, means in enumerate(MEANS):
        assert np.allclose(found[n], means, atol=2 * parties.session.params.resolution)


@lru_cache
def transcript() -> tuple[tuple[Target, bytes], ...]:
    """Every message of an honest run. Draws are seeded: they are the same bytes each time."""
    recorder = Recorder(Keyed.kinds)
    whole_run(keyed_parties(recorder))
    turns: dict[tuple[Any, int, int], int] = {}
    found = []
    for hop in recorder.hops:
        leg = (hop.header.kind, hop.sender, hop.receiver)
        turns[leg] = turns.get(leg, -1) + 1
        found.append((Target(*leg, turns[leg]), hop.message))
    return tuple(found)


def goes(kind: Any, leg: str) -> bool:
    """Whether messages of this kind are seen there: everybody says hello, the server alone announces."""
    if kind.name == "HELLO":
        return True
    if leg == "to the server":
        return Keyed.routes.get(kind, Route.BROADCAST) is not Route.BROADCAST
    return Keyed.routes.get(kind) is not Route.SERVER


LEGS = [(kind.name, leg) for kind in Keyed.kinds for leg in ("to the server", "to a client") if goes(kind, leg)]
each_leg = pytest.mark.parametrize(("name", "leg"), LEGS, ids=str)


def targets(name: str, leg: str) -> st.SearchStrategy[Target]:
    kind = Keyed.kinds[name]
    return st.sampled_from(
        [at for at, _ in transcript() if at.kind is kind and (at.receiver == SERVER) == (leg == "to the server")]
    )


@st.composite
def mutations(draw: st.DrawFn) -> Mutation:
    """What somebody without keys can do to a message."""
    seed = draw(st.integers(0, 2**32 - 1))
    what = draw(st.sampled_from(("flip", "flip in the header", "cut", "extend", "header", "splice")))
    name = draw(st.sampled_from(FIELDS))
    small = draw(st.integers(0, 31) | st.sampled_from((SERVER, ALL, 0x7FFF)))
    other = draw(st.sampled_from(transcript()))[1]

    def mutate(message: bytes) -> bytes:
        rng, data = np.random.default_rng(seed), bytearray(message)
        match what:
            case "flip" | "flip in the header":
                end = HEADER_BYTES if what == "flip in the header" else len(data)
                for at in rng.integers(0, end, rng.integers(1, 4)):
                    data[at] ^= int(rng.integers(1, 256))
            case "cut":
                del data[int(rng.integers(0, len(data))) :]
            case "extend":
                data += rng.bytes(int(rng.integers(1, 40)))
            case "splice":
                data[HEADER_BYTES:] = other[HEADER_BYTES:]
            case _:
                value: Any = rng.bytes(16) if name in ("context", "salt") else small % 256 if name == "kind" else small
                data[:HEADER_BYTES] = replace(Header.parse(message, SERVER, Keyed.kinds), **{name: value}).pack()
        return bytes(data)

    return mutate


def refusal_of(work: Callable[[], None]) -> ProtocolError | None:
    """The error that names suspects, if there is one; any other goes through."""
    try:
        work()
    except ProtocolError as refusal:
        return refusal
    return None


class Relayed(Exception):
    """The server took what it cannot read; its receiver refused it."""


@pytest.mark.slow
@each_leg
@settings(max_examples=4)
@given(data=st.data())
def test_what_nobody_vouches_for_is_refused_and_the_honest_message_still_counts(
    name: str, leg: str, data: st.DataObject
) -> None:
    target, some = data.draw(targets(name, leg)), data.draw(st.lists(mutations(), min_size=1, max_size=8))

    def meddle(who: Client | Server, carrier: int, message: bytes) -> Iterable[Buffer]:
        for mutate in some:
            bad, before = mutate(message), state(who)
            if bad == message:
                continue
            if refusal := refusal_of(partial(hand, who, bad, carrier)):
                assert carrier in refusal.suspects
                assert state(who) == before
                continue
            header = Header.parse(bad, carrier, Keyed.kinds)
            assert isinstance(who, Server)
            assert Keyed.routes[header.kind] is Route.EACH  # the server cannot read it
            receiver = meddler.parties.clients[header.receiver]
            before = state(receiver)
            with pytest.raises(FaultyPeerOrRelay) as caught:
                receiver.receive(bad)
            assert caught.value.suspects == (carrier, SERVER)
            assert state(receiver) == before
            raise Relayed
        return (message,)

    meddler = Meddler(target, meddle)
    with suppress(Relayed):
        meddler.run()


@fuzz
@given(data=st.data())
def test_authentic_messages_at_any_other_time_change_no_result(data: st.DataObject) -> None:
    at, early = data.draw(st.sampled_from(transcript())), data.draw(st.lists(st.sampled_from(transcript()), max_size=9))

    def meddle(who: Client | Server, carrier: int, message: bytes) -> Iterable[Buffer]:
        for _, other in early:
            with suppress(ProtocolError):
                hand(who, other, carrier)
        return (message,)

    with suppress(ProtocolError):
        Meddler(at[0], meddle).run()


# ------------------------------------------------------------------------------------------------------ behind the seal


def resealed(parties: Parties, who: Client | Server, header: Header, payload: bytes) -> Buffer:
    """Another payload under the same label, as its sender could make it."""
    sender = parties.server.link if header.sender == SERVER else parties.clients[header.sender].link
    if header.receiver != ALL:
        return sender.sealer(header, header.receiver, header.chunks).seal(header.chunk, payload)
    if header.sender != SERVER:
        return sender.signer(header, header.chunks).seal(header.chunk, payload)
    return sender.broadcaster(header, header.chunks, who.link._broadcast[1]).seal(header.chunk, payload)


@st.composite
def lies(draw: st.DrawFn) -> Mutation:
    """Another payload of the same length, or of another one."""
    seed = draw(st.integers(0, 2**32 - 1))
    what = draw(st.sampled_from(("flip", "zeros", "ones", "random", "halves", "flip", "zeros", "shorter", "longer")))

    def lie(payload: bytes) -> bytes:
        rng, data = np.random.default_rng(seed), bytearray(payload)
        match what:
            case "flip" if data:
                data[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
            case "halves":
                half = len(data) // 2
                data[:] = data[half:] + data[:half]
            case "shorter":
                del data[len(data) // 2 :]
            case "longer":
                data += bytes(1)
            case "zeros" | "ones":
                data[:] = (b"\0" if what == "zeros" else b"\xff") * len(data)
            case _:
                data[:] = rng.bytes(len(data))
        return bytes(data)

    return lie


def sealed_to_the_end(name: str, leg: str) -> bool:
    """Whether the receiver there can open it."""
    return name != "HELLO" and (leg == "to a client" or Keyed.routes[Keyed.kinds[name]] is not Route.EACH)


LIES = [(name, leg) for name, leg in LEGS if sealed_to_the_end(name, leg)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "leg"), LIES, ids=str)
@settings(max_examples=4)
@given(data=st.data())
def test_a_lie_under_seal_gives_the_honest_means_or_an_error_that_blames(
    name: str, leg: str, data: st.DataObject
) -> None:
    target, lie = data.draw(targets(name, leg)), data.draw(lies())
    lied: list[Client | Server] = []

    def meddle(who: Client | Server, carrier: int, message: bytes) -> Iterable[Buffer]:
        header = who.link.parse(message, carrier)
        payload = bytes(who.link.open(header, message).payload)
        if lie(payload) == payload:
            return (message,)
        lied.append(who)
        return (resealed(meddler.parties, who, header, lie(payload)),)

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        parties = meddler.parties
        kind = kind_of(parties, message)
        broadcast = Keyed.routes.get(target.kind) is Route.BROADCAST
        if broadcast and lied and kind is Keyed.kinds["DIGEST"] and receiver == target.receiver:
            who = parties.clients[receiver]  # the liar's hash fits its lie
            if who._running is not None:
                return (resealed(parties, who, who.link.parse(message, SERVER), who._running.digest()),)
        return meddler(sender, receiver, message)

    meddler = Meddler(target, meddle)
    meddler.parties.exchange.tap = tap
    refusal = None
    with suppress(RoundLost):  # masks that do not open name nobody
        refusal = refusal_of(meddler.run)
    if refusal:
        assert lied
        assert refusal.suspects
        assert set(refusal.suspects) <= {*range(3), SERVER}


def test_the_table_in_the_docs_is_the_table_of_the_form() -> None:
    page = (Path(__file__).parent.parent / "docs/protocol-keyed.md").read_text(encoding="utf-8")
    for number, row in (*enumerate(Keyed.rows), *enumerate(TOLERANT)):
        sends = ", ".join(kind.name.lower() for kind in row.sends)
        sends += " (holders)" if row.phase == "evaluate" else ""
        answers = ", ".join(kind.name.lower() for kind in row.answers)
        lost = row.on_loss + (", and the round is lost" if row.loses_round else "")
        lost = f"goes on with t; else {lost}" if row.tolerates else lost
        announced = "always" if row.decides else "yes" if row.announced else ""
        cells = (f"{row.phase} ({number})", announced, sends, answers, lost, row.then)
        line = "| " + " | ".join(cells) + " |"
        assert line.replace("|  |", "| |").replace("|  |", "| |") in page, line
    for kind in Keyed.kinds:
        assert f"| {kind.name.lower()} | {kind.value} |" in page


# -------------------------------------------------------------- a form in which the server says whose messages count


class Said(IntEnum):
    HELLO = 1
    BEGIN = 2
    PART = 16
    NUMBER = 17
    LIST = 18
    ASK = 19
    CANNOT = 20
    GIVE = 21
    REPLY = 22
    OWN = 23


PARTS, ASKED, GIVEN = 1, 2, 6
"""The server's words on whose messages count."""
FAVOURITE = 1
"""Its parts come in three chunks, everyone else's in one."""


class WordyClient(ClientDefaults):
    """It sends everyone a part, asks everyone, gives everyone a value, and hears something of its own."""

    def __init__(self, number: int) -> None:
        self.number, self.clumsy, self.home = number, 0, NO_CONTEXT
        self.parts: dict[int, bytes] = {}
        self.list: list[int] = []
        self.value = self.sum = self.result = 0
        self.trained = False

    @property
    def introduction(self) -> bytes:
        return word(self.number)

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        self.value, self.trained = 100 * round + self.number, True

    def anchor(self, phase: str, at: Agreement) -> bytes:
        return self.home if phase == "end" else NO_CONTEXT

    def check_begin(self, at: Agreement) -> None:
        if len(at.members) < 2:
            raise ValueError("announces a phase for one")

    def enter(self, at: Agreement) -> None:
        if at.phase == "ask" and self.clumsy:
            self.clumsy -= 1
            raise Retry

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver in receivers:
            match kind:
                case Said.PART:
                    for chunk in range(CHUNKS if receiver == FAVOURITE else 1):
                        yield receiver, (bytes([self.number, receiver, chunk, 0]),)
                case Said.GIVE:
                    yield receiver, (word(self.value),)
                case Said.REPLY:
                    yield receiver, (word(self.sum),)
                case _:
                    yield receiver, (word(self.number),)

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        self.result = number(payload)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        others = [v for v in at.members if v != self.number]
        match at.phase:
            case "part":
                self.parts = {v: got[Said.PART, v] for v in others}
            case "count":
                data = got[Said.LIST, SERVER]
                if len(data) % WORD:
                    raise FaultyPeer(SERVER, "sends half a word")
                self.list = [number(data[i : i + WORD]) for i in range(0, len(data), WORD)]
                return replace(at.bound(data), size=len(self.list))
            case "ask":
                self.home = at.bound(at.word).context
            case "give":
                self.sum = self.value + sum(number(got[Said.GIVE, v]) for v in others)
            case _:
                self.trained = False
                return replace(at, context=self.home)
        return replace(at.bound(at.word), participants=at.members)


class WordyServer(ServerDefaults):
    """It lists the members, and tells each who replied that it did."""

    def __init__(self) -> None:
        self.home = NO_CONTEXT
        self.sums: dict[int, int] = {}
        self.told: set[int] = set()

    def anchor(self, phase: str, at: Agreement) -> bytes:
        return self.home if phase == "end" else NO_CONTEXT

    def enter(self, at: Agreement) -> None:
        self.sums, self.told = {}, set()

    def stream(self, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        self.sums[sender] = number(payload)

    def ready(self, kind: IntEnum, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        if kind is Said.LIST:
            for v in at.members:
                yield ALL, (word(v),)
            return
        for n in sorted(self.sums.keys() - self.told):
            self.told.add(n)
            yield n, (word(1000 * n + self.sums[n]),)

    def finish(self, at: Agreement, got: Got) -> Agreement:
        match at.phase:
            case "count":
                return replace(at.bound(b"".join(map(word, at.members))), size=len(at.members))
            case "ask":
                self.home = at.bound(at.word).context
            case "reply":
                return replace(at, context=self.home)
        return replace(at.bound(at.word), participants=at.members)


class Wordy(Plain):
    """What `Plain` has not: words on whose messages count, a phase without a word, hellos that say more."""

    name: ClassVar[str] = "wordy"
    kinds: ClassVar[type[IntEnum]] = Said
    routes: ClassVar[Mapping[IntEnum, Route]] = {
        Said.PART: Route.EACH,
        Said.NUMBER: Route.SERVER,
        Said.LIST: Route.SAME,
        Said.ASK: Route.EACH,
        Said.CANNOT: Route.SERVER,
        Said.GIVE: Route.EACH,
        Said.REPLY: Route.SERVER,
        Said.OWN: Route.OWN,
    }
    streamed: ClassVar[frozenset[IntEnum]] = frozenset({Said.REPLY, Said.OWN})
    unsized: ClassVar[frozenset[IntEnum]] = frozenset({Said.LIST})
    rows: ClassVar[tuple[Row, ...]] = (
        Row("part", (Said.PART,), on_loss="part", then="count", announced=True, tolerates=True, settles=PARTS),
        Row("count", (Said.NUMBER,), (Said.LIST,), on_loss="part", then="ask"),
        Row("ask", (Said.ASK,), on_loss="part", tolerates=True, settles=ASKED, instead=Said.CANNOT),
        Row(
            "give", (Said.GIVE,), on_loss="part", then="reply", counts="round", silent=True, tolerates=True,
            settles=GIVEN, loses_round=True,
        ),
        Row("reply", (Said.REPLY,), (Said.OWN,), on_loss="part", counts="", tolerates=True, loses_round=True),
        Row("end", announced=True, counts=""),
    )  # fmt: skip
    last_epoch: ClassVar[int] = 0
    setup_phase: ClassVar[str] = "part"
    names_phase: ClassVar[str] = ""
    union_phase: ClassVar[str] = "part"
    ready_phase: ClassVar[str] = "give"
    round_phase: ClassVar[str] = "give"

    def canonical(self, params: Params) -> str:
        return f"{params.canonical()}\nwordy"

    def introduction_bytes(self, params: Params) -> int:
        return WORD

    def check_introduction(self, params: Params, data: bytes) -> None:
        if number(data) >= N:
            raise ValueError("nobody has this number")

    def quorum(self, params: Params, at: Agreement) -> int:
        return 2

    def next_numbers(self, phase: str, at: Agreement, *, again: bool) -> dict[str, int]:
        if phase in ("give", "end"):
            return at.numbers | {"round": at.round + (phase == "give")}
        return at.numbers | {"epoch": at.union + 1, "attempt": at.attempt + 1 if again else 0}

    def layout(self, kind: IntEnum, params: Params, at: Agreement, sender: int, receiver: int) -> Layout:
        if kind is Said.PART and receiver == FAVOURITE:
            return Layout(CHUNKS, WORD, per_chunk=1)
        return Layout(at.size, WORD, per_chunk=1) if kind is Said.LIST else Layout(1, WORD)

    def client(self, *given: Any) -> Any:
        return WordyClient(given[3])

    def server(self, params: Params, session: bytes) -> Any:
        return WordyServer()


WORDY: Any = Wordy()
SETTLING = {"part": (Said.PART, PARTS), "ask": (Said.ASK, ASKED), "give": (Said.GIVE, GIVEN)}
each_settling = pytest.mark.parametrize("phase", SETTLING)


def wordy_parties(phase: str = GREETING, *, clumsy: int = 0, **more: Any) -> Parties:
    """All parties at the beginning of a phase."""
    params = Params(clients=N, dim=1, max_entities=8, max_union=8)
    parties = Parties(params, WORDY, [()] * N, **{"entropy": insecure_seeded(7)} | more)
    for n in range(clumsy):
        wordy(parties, n).clumsy = 1
    parties.exchange.greet()
    if phase == GREETING:
        return parties
    parties.server.begin("part", MEMBERS)
    parties.exchange.deliver()
    while parties.server.at.phase not in (phase, REST):
        parties.exchange.step()
    if phase in ("give", "reply"):
        parties.server.begin("give", MEMBERS)
        for n in MEMBERS:
            parties.clients[n].contribute(TABLES[n], 1)
        if phase == "reply":
            parties.exchange.step()
    assert parties.server.at.phase == phase
    assert all(parties.clients[n].at.phase == phase for n in MEMBERS)
    return parties


def wordy(parties: Parties, n: int) -> WordyClient:
    part = parties.clients[n].part
    assert isinstance(part, WordyClient)
    return part


def all_sent(parties: Parties) -> None:
    """What clients have to send has come to the server."""
    for n in parties.server.at.members:
        for message in outbox(parties, n):
            parties.server.receive(n, message)


def salts(parties: Parties, *members: int) -> tuple[tuple[int, bytes], ...]:
    """Of what these have sent."""
    return tuple((n, parties.clients[n].due.sends[0].salt) for n in members)


def settled(parties: Parties, phase: str, members: Sequence[tuple[int, bytes]], **other: Any) -> bytes:
    """The server's authentic word to client 0 on whose messages count."""
    begin = Begin(SETTLING[phase][1], tuple(members)).to_bytes()
    return sealed(parties.server.link, Said.BEGIN, 0, parties.server.at, begin, **other)


def wordy_rounds(parties: Parties, members: Sequence[int], rounds: int = 1) -> None:
    """What was begun comes to its end; then rounds give each of these its own result."""
    while parties.server.at.phase != REST:
        parties.exchange.step()
    parties.exchange.check_finished()
    for _ in range(rounds):
        parties.contribute(TABLES)
        parties.exchange.run("give", members)
        parties.exchange.check_finished()
        total = sum(100 * parties.number + v for v in members)
        assert [wordy(parties, n).result for n in members] == [1000 * n + total for n in members]
        assert {parties.clients[n].at for n in members} == {parties.server.at}


def test_parties_follow_words_on_whose_messages_count() -> None:
    recorder = Recorder(Said)
    parties = wordy_parties(tap=recorder)
    parties.setup(MEMBERS)
    wordy_rounds(parties, MEMBERS, 3)
    assert (parties.server.at.union, parties.server.at.round) == (1, 3)
    for n in MEMBERS:
        chunks = range(CHUNKS if n == FAVOURITE else 1)
        assert wordy(parties, n).list == list(MEMBERS)
        assert wordy(parties, n).parts == {
            v: b"".join(bytes([v, n, chunk, 0]) for chunk in chunks) for v in MEMBERS if v != n
        }
    words = [hop for hop in recorder.hops if hop.header.kind is Said.BEGIN]
    assert len(words) == (1 + 2 + 3) * len(
        MEMBERS
    )  # who takes part; in the set-up twice, and in every round, who counts


@each_settling
@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("without oneself", "count in the phase"),
        ("with a stranger", "count in the phase"),
        ("own message exchanged", "another message of ours"),
        ("alone", "announces a phase for one"),
        ("in two chunks", "says twice"),
        ("of another union", "was made for another epoch"),
        ("of another round", "was made for another round"),
        ("in another context", "was made for other members"),
    ],
)
def test_a_client_refuses_a_word_that_counts_others_or_other_messages(phase: str, case: str, why: str) -> None:
    parties = wordy_parties(phase)
    all_sent(parties)
    members, other = salts(parties, *MEMBERS), dict[str, Any]()
    match case:
        case "without oneself":
            members = members[1:]
        case "with a stranger":
            members = (*members, (3, bytes(16)))
        case "own message exchanged":
            members = ((0, bytes(16)), *members[1:])
        case "alone":
            members = members[:1]
        case "in two chunks":
            other = {"chunks": 2}
        case _:
            name = {"union": "epoch", "round": "round", "context": "context"}[case.split()[-1]]
            other = flipped(parties.server.at, name)
    refused(parties.clients[0], settled(parties, phase, members, **other), FaultyPeer, SERVER, match=why)
    parties.server.close()
    parties.exchange.deliver()
    wordy_rounds(parties, MEMBERS)


@each_settling
def test_a_word_is_said_once_and_nothing_comes_before_it(phase: str) -> None:
    parties = wordy_parties(phase)
    client, (kind, _) = parties.clients[0], SETTLING[phase]
    early = next(m for m in outbox(parties, 1) if parties.server.link.parse(m, 1).receiver == 0)
    refused(
        client, early, FaultyPeerOrRelay, 1, SERVER, match=f"{kind.name.lower()} .*is not due in the phase '{phase}'"
    )
    all_sent(parties)
    client.receive(settled(parties, phase, salts(parties, *MEMBERS)))
    refused(client, settled(parties, phase, [(0, bytes(16))]), FaultyPeer, SERVER, match="says twice")
    client.receive(early)


@each_settling
def test_a_word_that_comes_late_is_refused(phase: str) -> None:
    parties = wordy_parties(phase)
    all_sent(parties)
    late = settled(parties, phase, salts(parties, *MEMBERS), sequence=99)
    parties.server.close()
    parties.exchange.deliver()
    assert parties.clients[0].at.phase != phase
    refused(parties.clients[0], late, FaultyPeer, SERVER, match="is not announced|does not exist")


@each_settling
def test_a_message_of_another_salt_than_the_word_says_does_not_count(phase: str) -> None:
    parties = wordy_parties(phase)
    client = parties.clients[0]
    all_sent(parties)
    client.receive(settled(parties, phase, [*salts(parties, 0), (1, bytes(16)), *salts(parties, 2)]))
    for v, due in ((1, False), (2, True)):
        message = next(m for m in outbox(parties, v) if parties.server.link.parse(m, v).receiver == 0)
        if due:
            client.receive(message)
        else:
            refused(client, message, FaultyPeerOrRelay, 1, SERVER, match="is not the one that counts")
    overdue = client.overdue()
    assert overdue is not None
    assert overdue.suspects == (SERVER, 1)


@each_settling
def test_whose_messages_did_not_all_come_is_not_in_the_word_and_none_of_them_is_passed_on(phase: str) -> None:
    recorder = Recorder(Said)
    parties = wordy_parties(phase, tap=recorder)
    recorder.hops.clear()
    parties.exchange.losses[1] = phase  # in the middle: some of its messages have come
    parties.exchange.step()
    assert [hop.sender for hop in recorder.hops if hop.receiver == SERVER].count(1) > 0
    assert not [hop for hop in recorder.hops if hop.sender == SERVER and hop.header.sender == 1]
    assert parties.server.at.members == (0, 2)
    wordy_rounds(parties, (0, 2), rounds=0 if phase == "give" else 1)


def test_with_fewer_than_a_quorum_a_word_is_not_said() -> None:
    parties = wordy_parties("part")
    for message in outbox(parties, 0):
        parties.server.receive(0, message)
    with pytest.raises(FederationError, match="is not complete"):
        parties.server.close()


def test_a_phase_that_is_silent_begins_when_a_client_contributes() -> None:
    parties = wordy_parties(REST)
    server, client = parties.server, parties.clients[0]
    assert (client.asked, outbox(parties, 0)) == (True, [])
    server.begin("give", MEMBERS)
    assert server.drain() == {}
    client.contribute(TABLES[0], 1)
    assert (client.asked, client.at, len(outbox(parties, 0))) == (False, server.at, 2)
    refused(server, upload_of(parties, round=2), FaultyPeer, 1, match="made for another union or other members")
    client.stop()
    assert (client.asked, outbox(parties, 0)) == (False, [])


def upload_of(parties: Parties, **other: Any) -> bytes:
    return sealed(parties.clients[1].link, Said.GIVE, 0, parties.server.at, bytes(WORD), **other)


def test_a_phase_without_a_word_cannot_be_announced() -> None:
    parties = wordy_parties(REST)
    at, begin = parties.server.at, Begin(3, lives(parties, *MEMBERS)).to_bytes()
    message = sealed(parties.server.link, Said.BEGIN, 0, at, begin, round=at.round + 1)
    refused(parties.clients[0], message, FaultyPeer, SERVER, match="which is not announced")


@pytest.mark.parametrize("clumsy", [1, 3])
def test_who_cannot_go_on_says_so_and_nothing_else_and_all_try_again(clumsy: int) -> None:
    parties = wordy_parties("ask", clumsy=clumsy)
    assert [[kind_of(parties, m) for m in outbox(parties, n)] for n in MEMBERS] == [
        [Said.CANNOT] if n < clumsy else [Said.ASK] * 2 for n in MEMBERS
    ]
    word_to_it = settled(parties, "ask", salts(parties, *MEMBERS))
    refused(parties.clients[0], word_to_it, FaultyPeer, SERVER, match="another message of ours")
    parties.exchange.step()
    assert (parties.server.at.phase, parties.server.at.union, parties.server.at.attempt) == ("part", 2, 1)
    wordy_rounds(parties, MEMBERS)


def test_what_is_the_same_for_all_has_one_label_and_what_is_for_each_has_its_own() -> None:
    recorder = Recorder(Said)
    parties = wordy_parties(tap=recorder)
    parties.setup(MEMBERS)
    wordy_rounds(parties, MEMBERS)
    for kind, labels, chunks in ((Said.LIST, 1, len(MEMBERS)), (Said.OWN, len(MEMBERS), 1)):
        hops = [hop for hop in recorder.hops if hop.header.kind is kind]
        assert len(hops) == len({hop.message for hop in hops}) == len(MEMBERS) * chunks
        assert len({hop.header.salt for hop in hops}) == labels
        for n in MEMBERS:
            assert [hop.header.chunk for hop in hops if hop.receiver == n] == list(range(chunks))


def test_what_is_for_each_is_held_until_the_phase_is_over_and_no_longer_where_it_is_lost() -> None:
    for lost in (False, True):
        parties = wordy_parties("reply")
        all_sent(parties)
        assert isinstance(parties.server.part, WordyServer)
        assert parties.server.part.told == set(MEMBERS)
        assert parties.server.drain() == {}
        if lost:
            parties.server.give_up()
        else:
            parties.server.close()
        assert parties.server.drain().keys() == (set() if lost else set(MEMBERS))


@pytest.mark.parametrize(("data", "fits"), [(b"", True), (bytes(WORD), True), (bytes(9 * WORD), True), (b"x", False)])
def test_the_size_of_what_is_unsized_is_for_the_part_to_judge(data: bytes, fits: bool) -> None:
    parties = wordy_parties("count")
    client = parties.clients[0]
    message = sealed(parties.server.link, Said.LIST, 0, client.at, data)
    if fits:
        client.receive(message)
        assert wordy(parties, 0).list == [0] * (len(data) // WORD)
        return
    with pytest.raises(FaultyPeer, match="half a word"):
        client.receive(message)
    assert client.at.phase == STOPPED


@pytest.mark.parametrize(
    ("introduction", "why"), [(b"", "bytes instead of"), (bytes(5), "bytes instead of"), (word(N), "nobody has this")]
)
def test_a_hello_with_another_introduction_is_refused(introduction: bytes, why: str) -> None:
    parties = wordy_parties("part")
    made = parties.session.link(1, parties.identities[1], parties.entropy[1], introduction)
    refused(parties.server, made.hello_message(), FaultyPeer, 1, match=why)
    by, suspects = (FaultyPeer, (1,)) if introduction == word(N) else (FaultyPeerOrRelay, (1, SERVER))
    refused(parties.clients[0], made.hello_message(), by, *suspects, match=why)
    for n in MEMBERS:
        expected = {v: word(v) for v in MEMBERS}
        assert {v: parties.clients[n].link.introduction(v) for v in MEMBERS} == expected
    wordy_rounds(parties, MEMBERS)


def test_how_a_message_falls_into_chunks_may_depend_on_its_receiver() -> None:
    parties = wordy_parties("part")
    sender, at = parties.clients[0].link, parties.server.at
    for receiver, chunks in ((FAVOURITE, 1), (2, CHUNKS)):
        message = sealed(sender, Said.PART, receiver, at, bytes(WORD), chunks=chunks)
        refused(parties.server, message, FaultyPeer, 0, match="not what is due", carrier=0)
        all_sent(wordy := wordy_parties("part"))
        client = wordy.clients[receiver]
        begin = Begin(PARTS, salts(wordy, *MEMBERS)).to_bytes()
        client.receive(sealed(wordy.server.link, Said.BEGIN, receiver, at, begin))
        message = sealed(
            wordy.clients[0].link, Said.PART, receiver, at, bytes(WORD), chunks=chunks, salt=salts(wordy, 0)[0][1]
        )
        refused(client, message, FaultyPeer, 0, match="not what is due")
