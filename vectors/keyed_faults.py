"""The faults of keyed-negative.json, one each: messages that a party gets after some honest ones, and must refuse.

A case says: run the federation of keyed-transcript.json until `party` has taken its first `after` messages, and hand it
`messages` next, in order, from `carrier`. All but the last are taken. On the last one, or (`on`) when the server has to
close the phase then, it raises `error`, blames `suspects`, and says `text`. A client that `stops` waits for another
beginning; anyone else has not changed. The cases under `dropouts` are for the transcript's round with a drop-out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np

from keyed import (
    ROUNDS,
    VANISHED,
    Json,
    broadcast_key,
    end,
    federation,
    link_of,
    opened,
    played,
    recorded,
    recorded_dropout,
)
from secea.arithmetic.field import M61, P56, RING56
from secea.arithmetic.ristretto import ORDER, multiply_base, scalar_bytes, scalar_rows
from secea.errors import SERVER
from secea.forms.keyed import Kind
from secea.party.phases import REST, Begin, row_of
from secea.steps import oprf
from secea.testing import Hop, Parties
from secea.wire.keys import Hello, Mac, Sealer
from secea.wire.link import Signer, broadcast_name
from secea.wire.messages import ALL, HEADER_BYTES, NO_CONTEXT, Buffer, Header
from secea.wire.randomness import KeyStream

CARRIER, PEER, RELAYED, STALE = "ProtocolError", "FaultyPeer", "FaultyPeerOrRelay", "Stale"
NO_POINT: Final = b"\x01" + bytes(31)
OTHER: Final = bytes(range(16))
"""A context, a life or a salt that nobody has."""
OUR_DIM: Final = 2
COLUMNS: Final = OUR_DIM + 1
"""Of the means: data, and one check."""
ELEMENT: Final = RING56.element_bytes


@dataclass(frozen=True)
class Case:
    """A fault: where, which messages, and what must come of it."""

    fault: str
    phase: str
    """In which the last message is refused."""
    party: int
    after: int
    carrier: int
    messages: tuple[bytes, ...]
    error: str
    suspects: tuple[int, ...]
    text: str
    on: str = "receive"
    stops: bool = False


# ------------------------------------------------------------------------------------------------------ the transcript

_runs: Final[list[Callable[[], tuple[Parties, tuple[Hop, ...], Any]]]] = [recorded]


def run() -> tuple[Parties, tuple[Hop, ...], Any]:
    """The run that cases are made for: the parties at its end, and all messages."""
    return _runs[-1]()


@contextmanager
def cases_of(other: Callable[[], tuple[Parties, tuple[Hop, ...], Any]]) -> Iterator[None]:
    """What is made here is for another run."""
    _runs.append(other)
    yield
    _runs.pop()


def inbox(party: int) -> list[Hop]:
    """What a party takes, in order."""
    return [hop for hop in run()[1] if hop.receiver == party]


def place(party: int, kind: IntEnum, sender: int, nth: int = 0) -> int:
    """Where the nth message of this kind and sender comes, among those that the party takes."""
    found = [i for i, hop in enumerate(inbox(party)) if (hop.header.kind, hop.header.sender) == (kind, sender)]
    return found[nth]


def payload_of(hop: Hop) -> bytes:
    """The payload of a recorded message."""
    return opened(*run()[:2], hop)


def forged(hop: Hop, payload: Buffer | None = None, *, session: bytes = b"", **fields: Any) -> bytes:
    """The message with another payload or header, signed or sealed by its sender: authentic, and wrong."""
    parties, hops, _ = run()
    header = replace(hop.header, **fields)
    body = payload_of(hop) if payload is None else payload
    if header.receiver != ALL:
        key = link_of(parties, header.sender).channels[header.receiver].derive("seal", header.label())
        return bytes(Sealer(key, header).seal(header.chunk, body))
    if header.sender == SERVER:
        return bytes(Sealer(broadcast_key(parties, hops, hop), header).seal(header.chunk, body))
    return Signer(parties.identities[header.sender], session or parties.session.hash, header).seal(header.chunk, body)


class Reached(Exception):
    """The party has taken as many messages as it should."""


def parties_before(party: int, after: int) -> Parties:
    """The federation once more, until a party has taken so many messages."""
    parties, _ = federation(ROUNDS[0])
    taken = 0

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        nonlocal taken
        if receiver == party:
            if taken == after:
                raise Reached
            taken += 1
        return (message,)

    parties.exchange.tap = tap
    try:
        list(played(parties))
        end(parties)
    except Reached:
        return parties
    raise AssertionError(f"party {party} takes fewer than {after} messages")


def put(data: bytes, at: int, new: bytes) -> bytes:
    """The data with some of its bytes replaced."""
    at %= len(data)
    assert data[at : at + len(new)] != new, "the change changes nothing"
    return data[:at] + new + data[at + len(new) :]


def phase_of(kind: IntEnum) -> str:
    """The phase in which a kind is sent."""
    rows = run()[0].session.rows
    return next(row.phase for row in rows if kind in (*row.sends, *row.answers))


def one(
    fault: str, party: int, hop: Hop, message: bytes, error: str, suspects: Sequence[int], text: str, **more: Any
) -> Case:
    """A fault in the place of one message."""
    after = next(i for i, each in enumerate(inbox(party)) if each is hop)
    return Case(
        fault, more.pop("phase", "") or phase_of(hop.header.kind), party, more.pop("after", after),
        more.pop("carrier", hop.sender), (message, *more.pop("then", ())), error, tuple(suspects), text, **more,
    )  # fmt: skip


def following(party: int, hop: Hop, *kinds: IntEnum) -> tuple[bytes, ...]:
    """The honest messages of these kinds that come right after one."""
    rest: list[bytes] = []
    every = inbox(party)
    for each in every[next(i for i, other in enumerate(every) if other is hop) + 1 :]:
        if each.header.kind not in kinds:
            break
        rest.append(each.message)
    return tuple(rest)


# ----------------------------------------------------------------------------------------------------- what anyone says


def anything() -> Iterator[Case]:
    """Faults that no kind is safe from: hellos, headers, signatures, sessions, contexts, repeats."""
    parties = recorded()[0]
    hello = inbox(SERVER)[0]
    relayed = inbox(0)[place(0, Kind.HELLO, 1)]
    here = {"phase": "greeting"}
    unsigned = put(hello.message, -1, b"\0")
    yield one("a hello of another identity", SERVER, hello, unsigned, PEER, [0], "identity", **here)
    yield one("a relayed hello of another identity", 0, relayed, put(relayed.message, -1, b"\0"), RELAYED, [1, SERVER],
              "identity", **here)  # fmt: skip
    for fault, text, session, public in (
        ("a hello for another session", "another session", bytes(32), parties.clients[0].link.hello.public),
        ("a hello with a key of small order", "small order", parties.session.hash, bytes(32)),
    ):
        lie = Hello.make(parties.identities[0], 0, session, hello.header.salt, public, b"")
        yield one(fault, SERVER, hello, hello.message[:HEADER_BYTES] + lie.to_bytes(), PEER, [0], text, **here)
    yield one("a hello of another client", SERVER, hello, hello.message, PEER, [1], "in the name of", carrier=1, **here)
    yield one("another wire version", SERVER, hello, put(hello.message, 0, b"\x02"), CARRIER, [0], "version 2", **here)
    yield one("an unknown kind", SERVER, hello, put(hello.message, 1, b"\xff"), CARRIER, [0], "unknown kind", **here)
    yield one("shorter than a header", SERVER, hello, hello.message[:63], CARRIER, [0], "shorter than", **here)

    up, down = inbox(SERVER)[place(SERVER, Kind.COMMITMENT, 0)], inbox(0)[place(0, Kind.COMMITMENT, 1)]
    yield one("a wrong signature", SERVER, up, put(up.message, -1, b"\xff"), PEER, [0], "damaged or forged")
    yield one("a relayed message with a wrong signature", 0, down, put(down.message, -1, b"\xff"), RELAYED, [1, SERVER],
              "damaged or forged")  # fmt: skip
    yield one("truncated", 0, down, down.message[:-1], RELAYED, [1, SERVER], "damaged or forged")
    yield one("signed for another session", 0, down, forged(down, session=bytes(32)), RELAYED, [1, SERVER], "forged")
    foreign = down.message[:-64] + up.message[-64:]
    yield one("signed by another client", 0, down, foreign, RELAYED, [1, SERVER], "damaged or forged")
    yield one("made for another context", 0, down, forged(down, context=OTHER), RELAYED, [1, SERVER], "other members")
    yield one("another context, at the server", SERVER, up, forged(up, context=OTHER), PEER, [0], "other members")
    yield one("another union", 0, down, forged(down, epoch=2), RELAYED, [1, SERVER], "another epoch")
    yield one("another round", 0, down, forged(down, round=1), RELAYED, [1, SERVER], "another round")
    yield one("chunk 2 before chunk 1", 0, down, forged(down, chunk=1, chunks=2), RELAYED, [1, SERVER], "out of order")
    yield one("more chunks than are due", 0, down, forged(down, chunks=2), PEER, [1], "not what is due")
    yield one("longer than is due", 0, down, forged(down, payload_of(down) + b"\0"), PEER, [1], "not what is due")
    after = place(0, Kind.COMMITMENT, 1) + 1
    yield one("repeated", 0, down, down.message, STALE, [1, SERVER], "came before", after=after)
    yield one("repeated, at the server", SERVER, up, up.message, STALE, [0], "came before",
              after=place(SERVER, Kind.COMMITMENT, 0) + 1)  # fmt: skip
    yield one("our own message", 0, down, up.message, PEER, [SERVER], "of our own")
    share = inbox(0)[place(0, Kind.SHARE, 1)]
    for_another = inbox(2)[place(2, Kind.SHARE, 1)]
    yield one("for another client", 0, share, for_another.message, RELAYED, [1, SERVER], "share from client 1")
    sealed = put(share.message, -1, b"\xff")
    yield one("sealed and damaged", 0, share, sealed, RELAYED, [1, SERVER], "damaged or forged")


# ---------------------------------------------------------------------------------------------------- the key of names


def dealing() -> Iterator[Case]:
    """Dealers that cheat, as client 0 sees them."""
    dealt, other = inbox(0)[place(0, Kind.DEALING, 1)], inbox(0)[place(0, Kind.DEALING, 2)]
    share = inbox(0)[place(0, Kind.SHARE, 1)]
    kinds = Kind.DEALING, Kind.SHARE
    session, commitments = recorded()[0].session.hash, payload_of(dealt)[:64]
    another = oprf.polynomial(1, KeyStream(bytes(32)))
    points = oprf.commit(another)
    proof = oprf.prove(another, points, session, 1, KeyStream(bytes(32)))
    for fault, payload, text in (
        ("commitments other than hashed", points + proof, "other commitments"),
        ("proof of another dealer", commitments + payload_of(other)[64:], "does not prove"),
        ("proof for other commitments", commitments + proof, "does not prove"),
    ):
        rest = following(0, dealt, *kinds)
        yield one(fault, 0, dealt, forged(dealt, payload), PEER, [1], text, then=rest, stops=True)
    rest = following(0, share, *kinds)
    scalar = int.from_bytes(payload_of(share), "little")
    for fault, payload in (
        ("share that does not fit", scalar_bytes(scalar + 1)),
        ("share not below the group's order", (scalar + ORDER).to_bytes(32, "little")),
        ("share of 0", bytes(32)),
    ):
        text = "does not fit its commitments"
        yield one(fault, 0, share, forged(share, payload), CARRIER, [1], text, then=rest, stops=True)
    yield commitments_of("commitments that are no points", NO_POINT * 2)
    yield commitments_of("commitment to 0", bytes(32) + commitments[32:])


class View:
    """What client 0 sees where another client tells it something else than the others: contexts follow."""

    def __init__(self, kind: IntEnum, sender: int) -> None:
        self.after = place(0, kind, sender)
        self.client = parties_before(0, self.after).clients[0]
        self.messages: list[bytes] = []
        self.phase = ""

    def hand(self, kind: IntEnum, sender: int, payload: Buffer | None = None) -> bytes:
        """The message of the transcript with another payload, under the labels that client 0 expects."""
        hop = inbox(0)[place(0, kind, sender)]
        context = self.client.at.context
        message = forged(hop, payload, context=context)
        self.messages.append(message)
        return message

    def take(self) -> None:
        """Client 0 takes what was handed over last; the last message of a case is not taken here."""
        self.client.receive(self.messages[-1])

    def case(self, fault: str, error: str, suspects: Sequence[int], text: str, **more: Any) -> Case:
        """What was handed over, as a case."""
        phase = self.client.at.phase
        messages = tuple(self.messages)
        return Case(fault, phase, 0, self.after, SERVER, messages, error, tuple(suspects), text, stops=True, **more)


def commitments_of(fault: str, commitments: bytes) -> Case:
    """A dealer that hashed what it then sends."""
    view = View(Kind.COMMITMENT, 1)
    for sender, payload in ((1, oprf.commitments_hash(commitments)), (2, None)):
        view.hand(Kind.COMMITMENT, sender, payload)
        view.take()
    dealt = inbox(0)[place(0, Kind.DEALING, 1)]
    view.hand(Kind.DEALING, 1, commitments + payload_of(dealt)[64:])
    for kind, sender in ((Kind.SHARE, 1), (Kind.DEALING, 2), (Kind.SHARE, 2)):
        view.take()
        view.hand(kind, sender)
    return view.case(fault, PEER, [1], "does not prove")


# --------------------------------------------------------------------------------------------------------------- names


def names() -> Iterator[Case]:
    """Lists, marks, confirmations, answers."""
    sent, mark = inbox(SERVER)[place(SERVER, Kind.LIST, 0)], inbox(SERVER)[place(SERVER, Kind.MARK, 2)]
    points = payload_of(sent)
    yield one("a list that is too short", SERVER, sent, forged(sent, points[:-32]), PEER, [0], "not what is due")
    yield one("a list that is too long", SERVER, sent, forged(sent, points + points[:32]), PEER, [0], "not what is due")
    yield one("a mark of another list", SERVER, mark, forged(mark, bytes(32)), PEER, [2], "another list", on="close")

    confirm = inbox(0)[place(0, Kind.CONFIRM, 1)]
    rest, lie = confirmed(confirm), forged(confirm, bytes(32))
    suspects = [SERVER, 1]
    yield one("confirmation of other lists", 0, confirm, lie, CARRIER, suspects, "other lists", then=rest, stops=True)
    digest = inbox(0)[place(0, Kind.DIGEST, SERVER)]
    every = payload_of_lists()
    changed = every.copy()
    changed[1, 0] = changed[1, 0][::-1]
    yield broadcast_lie("a list other than marked", changed, PEER, [SERVER], "another list")

    twice, shared, invalid = every.copy(), every.copy(), every.copy()
    twice[1, 1] = twice[1, 0]
    shared[1, 0] = every[2, 0]
    invalid[1, 0] = np.frombuffer(NO_POINT, np.uint8)
    yield listed("a point twice in one list", twice, PEER, [1], "twice")
    yield listed("a point of another's list", shared, CARRIER, [2, 1], "in common")
    yield listed("a list with what is no point", invalid, PEER, [1], "not a blinded name")

    answer = inbox(0)[place(0, Kind.EVALUATION, 1)]
    some = payload_of(answer)
    for fault, wrong in (
        ("a wrong answer", multiply_base(scalar_rows([5])).tobytes()),
        ("an answer that is no point", NO_POINT),
        ("an answer that is the identity", bytes(32)),
    ):
        message = forged(answer, put(some, 32, wrong))
        yield one(fault, 0, answer, message, CARRIER, [1], "answered our blinded names wrongly", stops=True)
    swapped = some[32:64] + some[:32] + some[64:]
    yield one("answers in another order", 0, answer, forged(answer, swapped), CARRIER, [1], "wrongly", stops=True)
    third = inbox(SERVER)[place(SERVER, Kind.EVALUATION, 0)]
    stranger = forged(third, sender=2, sequence=99)
    yield one("an answer of one who holds no share now", SERVER, third, stranger, PEER, [2], "not for it", carrier=2)
    yield one("the tag of another broadcast", 0, digest, forged(digest, bytes(16)), PEER, [SERVER],
              "another broadcast than us", phase="confirm", stops=True)  # fmt: skip


def payload_of_lists() -> Any:
    """All lists as the holders get them: [clients, points, 32]."""
    data = b"".join(payload_of(hop) for hop in lists_hops())
    return np.frombuffer(data, np.uint8).reshape(3, -1, 32).copy()


def lists_hops() -> list[Hop]:
    """The chunks of the lists that client 0 gets: one for each client."""
    return [hop for hop in inbox(0) if hop.header.kind == Kind.LISTS]


def confirmed(confirm: Hop) -> tuple[bytes, ...]:
    """What follows a confirmation up to the end of its phase."""
    return following(0, confirm, Kind.CONFIRM, Kind.KEY, Kind.LISTS, Kind.DIGEST)


def mac_of(n: int, header: Header) -> Mac:
    """What the server shows client n after the broadcast of this header."""
    parties, _, _ = run()
    return parties.server.link.mac(n, broadcast_name(header))


def tag_of(n: int, hop: Hop, message: bytes) -> bytes:
    """The tag of a broadcast of one chunk, for client n."""
    mac = mac_of(n, hop.header)
    mac.update(message)
    return mac.digest()


def broadcast_lie(fault: str, lists: Any, error: str, suspects: Sequence[int], text: str) -> Case:
    """Other lists to client 0, with the tag that they have."""
    hops, messages = lists_hops(), list[bytes]()
    state = mac_of(0, hops[0].header)
    for hop, points in zip(hops, lists, strict=True):
        messages.append(forged(hop, points.tobytes()))
        state.update(messages[-1])
    digest = forged(inbox(0)[place(0, Kind.DIGEST, SERVER)], state.digest())
    return one(fault, 0, hops[0], messages[0], error, suspects, text, then=(*messages[1:], digest), stops=True)


def listed(fault: str, lists: Any, error: str, suspects: Sequence[int], text: str, **more: Any) -> Case:
    """Client 1 has another list, and marks it; everybody confirms it, and client 0 is a holder."""
    view = View(Kind.MARK, 1)
    for sender, payload in ((1, oprf.list_hash(lists[1])), (2, None)):
        view.hand(Kind.MARK, sender, payload)
        view.take()
    part: Any = view.client.part
    ours, context = part.naming._confirmation(view.client.at), view.client.at.context
    for sender in (1, 2):
        view.hand(Kind.CONFIRM, sender, ours)
        view.take()
    hops = lists_hops()
    name = broadcast_name(replace(hops[0].header, context=context))
    key = payload_of(inbox(0)[place(0, Kind.KEY, SERVER)])
    view.hand(Kind.KEY, SERVER, key[:32] + name + key[48:])
    view.take()
    state = mac_of(0, replace(hops[0].header, context=context))
    for hop, points in zip(hops, lists, strict=True):
        view.messages.append(forged(hop, points.tobytes(), context=context))
        view.take()
        state.update(view.messages[-1])
    view.hand(Kind.DIGEST, SERVER, state.digest())
    return replace(view.case(fault, error, suspects, text), **more)


# -------------------------------------------------------------------------------------------------------------- unions


def unions() -> Iterator[Case]:
    """Parts of secrets, tables, keys of broadcasts, tags."""
    part = inbox(0)[place(0, Kind.PART, 2)]
    weak = payload_of(part)[:32] + bytes(32)
    yield one("a mask key of small order", 0, part, forged(part, weak), PEER, [2], "small order", stops=True)
    table = inbox(SERVER)[place(SERVER, Kind.TABLE, 0)]
    yield one("a table of another length", SERVER, table, forged(table, bytes(24)), PEER, [0], "not what is due")

    here = {"phase": "table"}
    key = inbox(2)[place(2, Kind.KEY, SERVER)]
    tags, digest = inbox(2)[place(2, Kind.TAGS, SERVER)], inbox(2)[place(2, Kind.DIGEST, SERVER)]
    listed_tags = np.frombuffer(payload_of(tags), "<u8")
    given = payload_of(key)
    yield one("a broadcast without key", 2, key, tags.message, PEER, [SERVER], "whose key did not come", **here)
    yield one("a tag without its broadcast", 2, key, digest.message, PEER, [SERVER], "that did not come", **here)
    yield one("a tag right after the key", 2, tags, digest.message, PEER, [SERVER], "that did not come", **here)
    again = forged(key, sequence=99)
    yield one("a second key before the broadcast", 2, tags, again, PEER, [SERVER], "a second key", **here)
    many = given[:48] + (5).to_bytes(8, "little")
    yield one("a tag list that is too long", 2, key, forged(key, many), PEER, [SERVER], "a union of 5", **here)
    fewer = given[:48] + (3).to_bytes(8, "little")
    yield one("more tags than the key says", 2, key, forged(key, fewer), PEER, [SERVER], "not what is due",
              then=(tags.message,), **here)  # fmt: skip
    yield one("a broadcast under another key", 2, key, forged(key, bytes(32) + given[32:]), PEER, [SERVER], "forged",
              then=(tags.message,), **here)  # fmt: skip
    yield one("a key of another length", 2, key, forged(key, given + b"\0"), PEER, [SERVER], "instead of 56", **here)
    for fault, lie in (
        ("tags out of order", listed_tags[::-1]),
        ("a tag twice", np.concatenate([listed_tags[:1], listed_tags[:-1]])),
        ("a tag not below p", np.concatenate([listed_tags[:-1], np.array([M61], "<u8")])),
    ):
        message = forged(tags, np.ascontiguousarray(lie, "<u8").tobytes())
        fits = forged(digest, tag_of(2, tags, message))
        yield one(fault, 2, tags, message, PEER, [SERVER], "out of order", then=(fits,), stops=True)


# -------------------------------------------------------------------------------------------------------------- rounds


def begins() -> Iterator[Case]:
    """What a server must not announce."""
    first, asked, second, end_of_it = (inbox(0)[place(0, Kind.BEGIN, SERVER, nth)] for nth in (0, 3, 4, 5))
    said = payload_of(second)
    begin = Begin.parse(said, 3)
    members = begin.members
    base = recorded()[0].clients[0].at.base
    rows = [row.phase for row in recorded()[0].session.rows]

    def announced(phase: str, kept: Iterable[tuple[int, bytes]] = members) -> bytes:
        return Begin(rows.index(phase), tuple(kept)).to_bytes()

    def case(fault: str, message: bytes, error: str, suspects: Sequence[int], text: str) -> Case:
        return one(fault, 0, second, message, error, suspects, text, phase="ready")

    server = [SERVER]
    yield case("begin with old numbers", forged(second, round=1), PEER, server, "announces union 1, round 1")
    yield case("begin of an older union", forged(second, epoch=0), PEER, server, "union 0")
    mixed = forged(second, epoch=9, round=0)
    yield case("begin of a later union with an older round", mixed, PEER, server, "announces union 9, round 0")
    lives = [(n, OTHER if n == 1 else life) for n, life in members]
    yield case("begin with another life", forged(second, announced("upload", lives)), RELAYED, [1, SERVER], "life")
    too_few = announced("upload", members[:2])
    yield case("begin with too few members", forged(second, too_few), PEER, server, "announces 2 participants")
    yield case("begin without us", forged(second, announced("upload", members[1:])), PEER, server, "no part")
    stranger = announced("upload", [*members, (3, OTHER)])
    yield case("begin with an unknown client", forged(second, stranger), PEER, server, "cannot be read")
    yield case("begin with members out of order", forged(second, announced("upload", members[::-1])), PEER, server,
               "in order")  # fmt: skip
    yield case("begin cut short", forged(second, said[:-1]), PEER, server, "cannot be read")
    yield case("begin of a phase that is not there", forged(second, b"\xff" + said[1:]), PEER, server,
               "that does not exist")  # fmt: skip
    yield case("begin of a phase that is not announced", forged(second, announced("deal"), epoch=9), PEER, server,
               "is not announced")  # fmt: skip
    yield case("begin for another union", forged(second, context=OTHER), PEER, server, "another union than ours")
    beyond = forged(second, round=1001)
    yield case("round beyond the session's bound", beyond, PEER, server, "announces round 1001")
    new_key = forged(second, announced("commit"), epoch=9, weights=1, context=NO_CONTEXT)
    yield case("begin of a second key", new_key, PEER, server, "announces a new key")
    past = forged(second, announced("list"), epoch=9, weights=0, context=base)
    yield case("names of an epoch that is past", past, PEER, server, "is not due")
    spent = forged(second, announced("list"), epoch=9, weights=18, context=base)
    yield case("more epochs of names than are allowed", spent, PEER, server, "is not due")
    older = forged(second, announced("secret"), epoch=9, weights=0, context=base)
    yield case("union of names of an older epoch", older, PEER, server, "a union of the names of epoch 0")
    yield case("begin said by a client", forged(second, sender=1, sequence=99), RELAYED, [1, SERVER], "to say")
    early = forged(first, announced("secret"))
    yield one("union before there is a key", 0, first, early, PEER, server, "before there is a key", phase="greeting")
    ended = inbox(0)[place(0, Kind.DIGEST, SERVER, 2)]
    yield one("round that we are not ready for", 0, ended, ended.message, PEER, server, "not ready for",
              then=(second.message,), phase=REST)  # fmt: skip
    after = place(0, Kind.BEGIN, SERVER, 4) + 1
    yield one("begin once more", 0, second, second.message, STALE, server, "came before", after=after, phase="upload")
    for fault, message, text in (
        ("training in another union", forged(asked, context=OTHER), "another union than ours"),
        ("training for some of the union", forged(asked, announced("ready", members[:2])), "announces 2 participants"),
        ("training for a round that was not", forged(asked, round=2), "announces union 1, round 2"),
        ("the end of another union", forged(asked, announced("end"), context=OTHER), "another union than ours"),
    ):
        yield one(fault, 0, asked, message, PEER, server, text, phase=REST)
    again = forged(asked, announced("ready"), sequence=99, epoch=9)
    yield one("training under a later union", 0, asked, again, PEER, server, "announces union 9", phase=REST)
    over = place(0, Kind.BEGIN, SERVER, 5) + 1
    for fault, message in (
        ("a round after the end", forged(second, sequence=99, round=3)),
        ("training after the end", forged(asked, sequence=99, round=2)),
    ):
        yield one(fault, 0, end_of_it, message, PEER, server, "another union than ours", after=over, phase="end")


def rounds() -> Iterator[Case]:
    """Readiness, uploads and means."""
    ready = inbox(SERVER)[place(SERVER, Kind.READY, 2, 1)]
    said = payload_of(ready)
    lie = forged(ready, bytes(16) + said[16:])
    yield one("ready for another union", SERVER, ready, lie, CARRIER, [0, 1, 2], "do not agree", on="close")
    yield one("ready, and says nothing of its entities", SERVER, ready, forged(ready, said[:16]), PEER, [2],
              "not what is due")  # fmt: skip
    upload = inbox(SERVER)[place(SERVER, Kind.UPLOAD, 0)]
    rows = payload_of(upload)
    above = put(rows, 0, P56.to_bytes(ELEMENT, "little"))
    yield one("upload not below p", SERVER, upload, forged(upload, above), PEER, [0], "not below its prime")
    body = 4 * 5 * ELEMENT
    noisy = next(hop for hop in inbox(SERVER) if hop.header.kind == Kind.UPLOAD and len(payload_of(hop)) > body)
    column = put(payload_of(noisy), body, b"\xff" * ELEMENT)
    yield one("noise column not below p", SERVER, noisy, forged(noisy, column), PEER, [noisy.sender], "below its prime")
    yield one("upload of wrong length", SERVER, upload, forged(upload, rows[:-ELEMENT]), PEER, [0], "not what is due")
    ahead = inbox(SERVER)[place(SERVER, Kind.READY, 0, 1)]
    yield one("upload of the round before", SERVER, ahead, upload.message, STALE, [0], "not due")

    at_0 = [hop for hop in inbox(0) if hop.header.kind == Kind.MEANS]
    first, second = at_0
    honest = payload_of(second)
    slots = len(honest) // (COLUMNS * ELEMENT + 1)
    table = RING56.from_bytes(honest[:-slots], slots, COLUMNS)[0]
    marks = honest[-slots:]

    def means(changed: Any, mark: bytes = marks) -> bytes:
        return bytes(RING56.to_bytes(np.array(changed, np.uint64)[None])) + mark

    def modulo(changed: Iterable[Iterable[int]]) -> Any:
        return [[int(x) % P56 for x in row] for row in changed]

    everyone = [SERVER, 1, 2]
    cheated = "slots are not what the uploads add up to"
    sum_lie, one_scaled = table.astype(object), table.astype(object)
    sum_lie[1, 0] += 1
    one_scaled[2] *= 2
    for fault, payload in (
        ("wrong sum", means(modulo(sum_lie))),
        ("scaled sum of one slot", means(modulo(one_scaled))),
        ("scaled sums", means(modulo(table.astype(object) * 3))),
        ("means of two slots swapped", means(table[[1, 0, *range(2, slots)]])),
        ("zeros", means(table * 0)),
        ("false empty", means(modulo([[0] * COLUMNS, *table[1:]]), b"\x01" + marks[1:])),
        ("false empty with a mean", means(table, b"\x01" + marks[1:])),
        ("all slots empty", means(table * 0, b"\x01" * slots)),
        ("means of the round before", payload_of(first)),
    ):
        yield one(fault, 0, second, forged(second, payload), CARRIER, everyone, cheated, stops=True)
    big = table.copy()
    big[0, 0] = P56
    yield one("mean not below p", 0, second, forged(second, means(big)), PEER, [SERVER], "cannot be read", stops=True)
    yield one("mark 2", 0, second, forged(second, means(table, b"\x02" + marks[1:])), PEER, [SERVER], "something else",
              stops=True)  # fmt: skip
    yield one("means of wrong length", 0, second, forged(second, honest[:-1]), PEER, [SERVER], "not what is due")
    yield one("broadcast of the round before", 0, second, first.message, STALE, [SERVER], "came before")


# ----------------------------------------------------------------------------------------------------------- drop-outs


def batches() -> Iterator[Case]:
    """Mask keys and their shares, as client 0 gets them."""
    kinds = Kind.BATCH, Kind.SECRETS
    batch, secrets = inbox(0)[place(0, Kind.BATCH, 1)], inbox(0)[place(0, Kind.SECRETS, 1)]
    said, shares = payload_of(batch), payload_of(secrets)
    for fault, hop, payload, text in (
        ("a key of a batch of small order", batch, put(said, 64, bytes(32)), "small order"),
        ("a share of a batch that is no scalar", secrets, put(shares, 32, ORDER.to_bytes(32, "little")), "no scalars"),
    ):
        yield one(fault, 0, hop, forged(hop, payload), PEER, [1], text, then=following(0, hop, *kinds), stops=True)
    yield one("a batch for fewer rounds", 0, batch, forged(batch, said[:64]), PEER, [1], "not what is due")
    yield one("shares for fewer rounds", 0, secrets, forged(secrets, shares[:64]), PEER, [1], "not what is due")


def openings() -> Iterator[Case]:
    """What a server must not have opened, and what it must not be given."""
    parties = run()[0]
    upload, agree = (inbox(0)[place(0, Kind.BEGIN, SERVER, nth)] for nth in (2, 3))
    members, rows = Begin.parse(payload_of(upload), 4).members, [row.phase for row in parties.session.rows]
    part: Any = parties.clients[0].part
    few = Begin(rows.index("agree"), members[:2]).to_bytes()
    batch = Begin(rows.index("batch"), members).to_bytes()
    server = [SERVER]
    yield one("a round without mask keys", 0, upload, forged(upload, round=3), PEER, server, "no mask keys",
              phase="ready")  # fmt: skip
    for fault, message, text in (
        ("an opening for too few", forged(agree, few), "announces 2 participants"),
        ("an opening of another upload", forged(agree, context=OTHER), "another union than ours"),
        ("an opening of another round", forged(agree, round=2), "announces union 1, round 2"),
        ("mask keys in the middle of a round", forged(agree, batch, context=part.union.context), "not due"),
    ):
        yield one(fault, 0, agree, message, PEER, server, text, phase="upload")
    twice = place(0, Kind.BEGIN, SERVER, 3) + 1
    others = forged(agree, Begin(rows.index("agree"), (*members[:2], members[3])).to_bytes(), sequence=99)
    yield one("another opening after a vote", 0, agree, others, PEER, server, "another union than ours", after=twice,
              phase="agree")  # fmt: skip

    votes = inbox(0)[place(0, Kind.VOTES, SERVER)]
    digest = inbox(0)[place(0, Kind.VOTES, SERVER) + 1]
    said, width = payload_of(votes), 66
    for fault, payload, text in (
        ("a vote twice", said[:width] * 2 + said[2 * width :], "another one"),
        ("a vote of one who is not in the sum", put(said, 0, VANISHED.to_bytes(2, "little")), "who has none"),
        ("a vote in another's name", said[: 2 * width] + said[2 * width :][:2] + said[2:width], "not for this sum"),
    ):
        message = forged(votes, payload)
        fits = forged(digest, tag_of(0, votes, message))
        yield one(fault, 0, votes, message, PEER, server, text, then=(fits,), stops=True)

    vote, opening = (inbox(SERVER)[place(SERVER, kind, 0)] for kind in (Kind.VOTE, Kind.OPENING))
    uploaded = inbox(SERVER)[place(SERVER, Kind.UPLOAD, 0)]
    late = forged(uploaded, sender=VANISHED, sequence=99)
    yield one("an upload that comes too late", SERVER, vote, late, STALE, [VANISHED], "not due", carrier=VANISHED)
    yield one("a vote cut short", SERVER, vote, forged(vote, payload_of(vote)[:-1]), PEER, [0], "not what is due")
    stranger = forged(vote, sender=VANISHED, sequence=99)
    yield one("a vote of one who vanished", SERVER, vote, stranger, PEER, [VANISHED], "not for it", carrier=VANISHED)
    yield one("an opening of fewer", SERVER, opening, forged(opening, payload_of(opening)[:-32]), PEER, [0],
              "not what is due")  # fmt: skip
    stranger = forged(opening, sender=VANISHED, sequence=99)
    yield one("an opening by one who vanished", SERVER, opening, stranger, PEER, [VANISHED], "not for it",
              carrier=VANISHED)  # fmt: skip


def opened_means() -> Iterator[Case]:
    """Means of those who are left; nobody of them owns the last slot."""
    sent = inbox(0)[place(0, Kind.MEANS, SERVER)]
    honest = payload_of(sent)
    slots = len(honest) // (COLUMNS * ELEMENT + 1)
    at = COLUMNS * ELEMENT * honest[-slots:].index(1)
    mark = int.from_bytes(honest[at : at + ELEMENT], "little")
    for fault, payload in (
        ("an empty slot with another mark", put(honest, at, ((mark + 1) % P56).to_bytes(ELEMENT, "little"))),
        ("an empty slot with a mean", put(honest, at + ELEMENT, (1).to_bytes(ELEMENT, "little"))),
        ("an empty slot that is called owned", put(honest, len(honest) - slots + at // (COLUMNS * ELEMENT), b"\0")),
        ("a wrong sum of who is left", put(honest, 0, bytes([honest[0] ^ 1]))),
    ):
        text = "slots are not what the uploads add up to"
        yield one(fault, 0, sent, forged(sent, payload), CARRIER, [SERVER, 1, 2], text, stops=True)


def negative() -> Json:
    """All faults, in the order of the protocol."""
    cases = [*anything(), *dealing(), *names(), *unions(), *begins(), *rounds()]
    check_phases(cases)
    with cases_of(recorded_dropout):
        dropouts = [*batches(), *openings(), *opened_means()]
        check_phases(dropouts)
    return {"case": [asdict(case) for case in cases], "dropouts": [asdict(case) for case in dropouts]}


def check_phases(cases: Iterable[Case]) -> None:
    """Each case is in a phase that there is."""
    rows = run()[0].session.rows
    assert all(case.phase in ("greeting", REST) or row_of(rows, case.phase) in rows for case in cases)
