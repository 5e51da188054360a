"""Claims about both forms: keys, old messages, hellos, sizes, and what the server opens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import RING61
from secea.arithmetic.ristretto import ORDER, multiply, read_scalar, scalar_rows
from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.attacks.relay import Middleman
from secea.audit.attacks.stage import broadcast
from secea.audit.mutants import common as mutants
from secea.audit.mutants import keyed as keyed_mutants
from secea.audit.mutants import paillier as paillier_mutants
from secea.audit.standing import standing_in
from secea.audit.tails import uniform
from secea.errors import SERVER, ProtocolError, Stale, party
from secea.forms.keyed import Keyed, Kind
from secea.forms.paillier import Paillier
from secea.forms.paillier.retrieval import public_key
from secea.party.phases import Common
from secea.steps import oprf, union
from secea.table import name_bytes
from secea.testing import Derived, Parties, Recorder, Sealed, Watch, insecure_seeded
from secea.wire.keys import KEY_BYTES, Channel, Opener, Sealer, expand, shared_secret
from secea.wire.messages import ALL, DIGEST_BYTES, HEADER_BYTES, TAG_BYTES, Buffer, Header
from secea.wire.randomness import SEED_BYTES

SETS: Final = ("abc", "bcd", "ace", "be")
DIM: Final = 3


def made_tables(sets: Sequence[Iterable[str]], dim: int = DIM) -> list[dict[str, NDArray[np.float64]]]:
    """Made-up embeddings, with one letter for each entity."""
    rng = np.random.default_rng(len(sets))
    return [{name: rng.normal(size=dim) for name in own} for own in sets]


# ----------------------------------------------------------------------------------------------------------------- keys


class Ledger:
    """What each key covered. A key may cover the same thing again (a repeated message), and nothing else."""

    def __init__(self) -> None:
        self.covered: dict[tuple[object, ...], bytes] = {}

    def note(self, what: str, key: tuple[object, ...], content: bytes) -> None:
        """A key covers something."""
        digest = hashlib.sha256(content).digest()
        if self.covered.setdefault((what, *key), digest) != digest:
            raise Objection(f"one key covers two different things: {what}")

    def read(self, watch: Watch, parties: Parties) -> None:
        """Everything that was sealed, and masked, and encrypted."""
        masks: dict[int, list[bytes]] = {}
        for each in watch.heard:
            if isinstance(each, Derived):
                self.note("purposes", (each.key,), each.purpose.encode())
                if each.purpose == "mask":
                    masks.setdefault(each.me, []).append(each.key)
                continue
            kind, sender = each.header.kind.name, each.header.sender
            self.note("messages", (each.key,), each.header.label())
            self.note("chunks of messages", (each.key, each.header.chunk), each.payload)
            for key in masks.pop(sender, []) if kind == "TABLE" else ():
                self.note("masked tables", (key, sender), each.payload)
            if kind in ("QUERY", "SHARE") and len(each.payload) == SEED_BYTES:
                self.note("seeds of shares", (each.payload,), each.header.label())
            if kind == "ANSWER":
                self._answers(each, parties)

    def _answers(self, answer: Sealed, parties: Parties) -> None:
        """A ciphertext modulo n is just its blind: two answers with one blind would show their difference."""
        asker = answer.header.chunk % len(parties.clients)
        key = public_key(parties.clients[asker].part.introduction, parties.session.params.key_bits)
        body = answer.payload[DIGEST_BYTES:]
        for c in key.ciphertexts_from_bytes(body, len(body) // key.ciphertext_bytes):
            self.note("encrypted answers", (int(c % key.n),), answer.header.label())


@claim("record", KEYED, PAILLIER, mutants=(mutants.ONE_KEY, mutants.ONE_STREAM, paillier_mutants.ONE_BLIND))
def keys(subject: Subject) -> int:
    """Both forms: nobody sees two things under one key, over rounds, unions and restarts.

    Keys of messages; with Paillier also of masks and shares, and the randomness of ciphertexts.
    """
    tables, watch, ledger = made_tables(SETS), Watch(), Ledger()
    parties = subject.parties(tables, collusion=1, watch=watch)
    parties.setup()
    parties.exchange.each(range(len(SETS)), lambda n: parties.clients[n].part.prepare())  # what can be made ahead
    parties.server.part.prepare(parties.server.at)
    for again in (None, None, 1, 2):
        if again is not None:
            parties.restart(again)
            parties.exchange.greet()
            parties.union(range(len(SETS)))
        parties.round(tables)
    ledger.read(watch, parties)
    return len(ledger.covered)


@claim("attack", KEYED, PAILLIER, mutants=(mutants.AT_ONCE,))
def tables_after_an_update(subject: Subject) -> int:
    """Both forms: the server does not learn what changed if names change before a table is sent again."""
    parties = subject.parties(made_tables(SETS), collusion=1)
    parties.exchange.greet()
    parties.exchange.run(subject.form.setup_phase, range(len(SETS)), until="table")
    client = parties.clients[0]
    before = [bytes(message) for message in client.outbox()]
    client.part.update(["a", "b"])
    if before != [bytes(message) for message in client.outbox()]:
        raise Objection("client 0 has fewer entities now, and masks another table in the same way")
    return len(before)


# --------------------------------------------------------------------------------------------------------- old messages


@claim("attack", KEYED, PAILLIER, mutants=(mutants.LOOSE,))
def replays(subject: Subject) -> int:
    """Both forms: a server or a network that hands over an old message again finds nobody who takes it."""
    tables, old = made_tables(SETS[:3]), Recorder(subject.form.kinds)
    parties = subject.parties(tables, collusion=1, tap=old)
    parties.setup()
    parties.round(tables)
    past, tried = list(old.hops), [0]

    def first_the_old(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        for hop in past:
            if (hop.sender, hop.receiver) != (sender, receiver):
                continue
            tried[0] += 1
            try:
                if receiver == SERVER:
                    parties.server.receive(sender, hop.message)
                else:
                    parties.clients[receiver].receive(hop.message)
            except ProtocolError:
                continue
            raise Objection(f"an old {hop.header.kind.name.lower()} was taken again")
        return (message,)

    parties.exchange.tap = first_the_old
    parties.round(tables)
    return tried[0]


LIVES: Final = 4


@claim("attack", KEYED, PAILLIER, mutants=(mutants.OLD_LIVES, mutants.LIVES_BEFORE_THE_LAST))
def past_lives(subject: Subject) -> int:
    """Both forms: the hello of any earlier life of a party, handed over again, brings that life back nowhere."""
    parties, cases = subject.parties(made_tables(SETS), collusion=1), 0
    parties.setup()
    for one, others in ((1, (SERVER, 0, 2, 3)), (SERVER, tuple(range(len(SETS))))):
        past = list[Buffer]()
        for _ in range(LIVES):
            ends: dict[int, Any] = {SERVER: parties.server, **parties.clients}
            past.append(bytes(ends[one].link.hello_message()))
            parties.restart(one)
            parties.exchange.greet()
            parties.union(range(len(SETS)))
            ends = {SERVER: parties.server, **parties.clients}
            for n in others:
                for hello in past:
                    with suppress(ProtocolError):
                        ends[n].receive(*([one] if n == SERVER else []), hello)
                    if ends[n].link.incarnation(one) != ends[one].link.hello.incarnation:
                        raise Objection(f"a life of {party(one)} that is over is believed in again")
                    cases += 1
    return cases


CHANGED: Final = ("epoch", "weights", "round", "attempt", "sequence", "chunks", "chunk", "context", "salt")
"""What a label has besides kind, sender and receiver."""


def relabelled(message: Buffer, header: Header, field: str) -> bytes:
    """The same message under another label."""
    before: Any = getattr(header, field)
    other: Any = before + 1 if isinstance(before, int) else bytes([before[0] ^ 1]) + before[1:]
    return replace(header, **{field: other}).pack() + bytes(message[HEADER_BYTES:])


@claim("attack", KEYED, PAILLIER, mutants=(mutants.SIGNED_WITHOUT_LABEL, mutants.SEALED_WITHOUT_LABEL))
def labels(subject: Subject) -> int:
    """Both forms: a message counts under the label that its sender gave it, and under no other.

    Each message of a set-up and a round is handed over first with one field of its label changed.
    """
    tables, tried = made_tables(SETS[:3]), [0]
    parties = subject.parties(tables, collusion=1)

    def first_another(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        header = Header.parse(message, sender, subject.form.kinds)
        passed_on = receiver == SERVER and header.receiver not in (SERVER, ALL)  # the server cannot open it
        for field in () if passed_on else CHANGED:
            tried[0] += 1
            other = relabelled(message, header, field)
            try:
                if receiver == SERVER:
                    parties.server.receive(sender, other)
                else:
                    parties.clients[receiver].receive(other)
            except ProtocolError:
                continue
            raise Objection(f"{header.title} was taken with another {field} than its sender gave it")
        return (message,)

    parties.exchange.tap = first_another
    parties.setup()
    parties.round(tables)
    return tried[0]


# --------------------------------------------------------------------------------------------------------------- hellos


def names_read(parties: Parties, watch: Watch, relay: Middleman) -> list[str]:
    """The names of entities that a middleman can test: those of client 1, or those of the union."""
    guesses, form, everyone = [*"abcdefgh"], parties.session.form, range(len(SETS))
    part = "HELLO" if isinstance(form, Paillier) else "PART"
    parts = {v: relay.read[part, v, (v + 1) % len(SETS)][:SEED_BYTES] for v in everyone}
    secret = shared_secret(list(parts.items()))
    if isinstance(form, Paillier):
        context = watch.sealed(form.kinds["TABLE"])[-1].header.context
        tags = union.tags_of(guesses, expand(secret, "tags", context))
        at = parties.server.at
        geometry = union.Geometry.of(parties.session.params.max_union or 0, at.attempt, context)
        there = union.peel(relay.tables[1], geometry)
    else:
        context, k = watch.sealed(form.kinds["PART"])[-1].header.context, 0
        for v in everyone:
            held = {w: relay.read["SHARE", v, w] for w in everyone if w != v}
            k += sum(oprf.holder_weight(held, w) * read_scalar(share) for w, share in held.items())
        inputs = [oprf.input_of(name_bytes(name)) for name in guesses]
        points = multiply(oprf.hash_to_group(inputs), scalar_rows([k % ORDER])[0])
        tags = union.tags_of_keys(oprf.finalize(inputs, points), expand(secret, "tags", context))
        there = parties.server.part.tags  # type: ignore[attr-defined]
    assert there is not None
    return [name for name, found in zip(guesses, np.isin(tags, there), strict=True) if found]


@claim("attack", KEYED, PAILLIER, mutants=(mutants.UNPINNED,))
def key_swap(subject: Subject) -> int:
    """Both forms: a server that puts keys of its own into the hellos reads no message and no name."""
    watch = Watch()
    parties = subject.parties(made_tables(SETS), collusion=1, watch=watch)
    relay = Middleman(parties)
    parties.exchange.tap = relay
    try:
        parties.setup()
    except ProtocolError:
        return len(SETS)
    raise Objection(f"a server with keys of its own in the hellos reads the names {names_read(parties, watch, relay)}")


# ----------------------------------------------------------------------------------------------------------- broadcasts


class Interloper:
    """A client that also holds the wire: with the key of a broadcast it makes another one for a victim."""

    def __init__(self, parties: Parties, victim: int, kind: str) -> None:
        self.parties, self.victim, self.kind = parties, victim, kind
        self.key = b""
        """Of the latest broadcast."""
        self.last: Header | None = None
        """Of the tag that comes after the broadcast that it made."""
        self.made = 0

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Change what comes to the victim."""
        header = Header.parse(message, sender, self.parties.session.form.kinds)
        if receiver != self.victim:
            return (message,)
        if header.kind.name == Common.KEY:  # every client gets the same, so this one is the interloper's too
            key = self.parties.server.link.channels[receiver].derive("seal", header.label())
            self.key = bytes(Opener(key, header).open(header, message)[:KEY_BYTES])
        if header.kind.name == self.kind:
            payload = bytes(Opener(self.key, header).open(header, message))
            self.made += 1
            return (Sealer(self.key, header).seal(header.chunk, bytes([payload[0] ^ 1]), payload[1:]),)
        if self.made and header.kind.name == Common.DIGEST:
            self.last = self.last or header
        return (message,)


@claim("attack", KEYED, mutants=(mutants.HASH_UNREAD,))
def broadcasts(subject: Subject) -> int:
    """Keyed: a client that holds the wire and the key of a broadcast cannot give another client one of its own."""
    tables = made_tables(SETS)
    for kind in ("LISTS", "TAGS", "MEANS", "VOTES"):
        parties = subject.parties(tables, collusion=1, dropouts=1)
        parties.exchange.tap = tap = Interloper(parties, 1, kind)
        with suppress(ProtocolError):
            parties.setup()
            parties.round(tables)
        assert tap.made, kind
        try:
            if tap.last:  # else it was refused before
                parties.clients[1].link.check_fresh(tap.last)
        except Stale:
            raise Objection(f"client 1 takes {kind.lower()} that another client made in the server's name") from None
    return 4


PARTS: Final = (bytes(range(70)), bytes(range(64, 129)), bytes(64))
"""Of a broadcast, as they travel."""


def _tag(channel: Channel, parts: Iterable[bytes]) -> bytes:
    mac = channel.mac(b"a broadcast")
    for part in parts:
        mac.update(part)
    return mac.digest()


def _covered(subject: Subject) -> int:
    """The tag is another one if any byte of any part is, or the order, or the number of parts."""
    parties = subject.parties(made_tables(SETS), collusion=1)
    parties.exchange.greet()
    channel = parties.server.link.channels[0]
    right, cases = _tag(channel, PARTS), 0
    others = [[*PARTS[:i], PARTS[i][:at] + bytes([PARTS[i][at] ^ 1]) + PARTS[i][at + 1 :], *PARTS[i + 1 :]]
              for i in range(len(PARTS)) for at in range(len(PARTS[i]))]  # fmt: skip
    others += [[*PARTS[::-1]], [*PARTS[:2]], [*PARTS[1:]], [*PARTS, b""], [PARTS[0] + PARTS[1], PARTS[2]], []]
    for parts in others:
        cases += 1
        if _tag(channel, parts) == right:
            raise Objection("a broadcast has the same tag as another one: whoever has its key can change it on the way")
    return cases


@claim("attack", KEYED, mutants=(mutants.SHORT_TAGS, mutants.TAG_OF_THE_ENDS))
def tags_of_broadcasts(subject: Subject) -> int:
    """Keyed: a broadcast's tag is of every byte that travels, and every byte of it counts.

    All receivers have the key that a broadcast is sealed with, and could make another one for each other.
    """
    tables, size = made_tables(SETS[:3]), TAG_BYTES
    for place in range(size):
        parties, changed = subject.parties(tables, collusion=1), [0]

        def another(
            sender: int, receiver: int, message: Buffer, place: int = place, parties: Parties = parties,
            changed: list[int] = changed,
        ) -> Iterable[Buffer]:  # fmt: skip
            header = Header.parse(message, sender, parties.session.form.kinds)
            if receiver != 1 or header.kind.name != Common.DIGEST:
                return (message,)
            changed[0] += 1
            key = parties.server.link.channels[receiver].derive("seal", header.label())
            tag = bytearray(Opener(key, header).open(header, message))
            tag[place] ^= 1 << place % 8
            return (Sealer(key, header).seal(header.chunk, tag),)

        parties.exchange.tap = another
        try:
            parties.setup()
        except ProtocolError:
            assert changed[0] == 1
            continue
        raise Objection(f"client 1 takes a broadcast whose tag differs in byte {place}")
    return size + _covered(subject)


class Withheld:
    """A server that keeps the means of a round to itself, chunk by chunk."""

    def __init__(self, parties: Parties) -> None:
        self.parties, self.key = parties, b""
        self.chunks: list[bytes] = []

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Pass on everything else."""
        header = Header.parse(message, sender, self.parties.session.form.kinds)
        if sender != SERVER or header.kind.name not in (Common.KEY, Common.DIGEST, "MEANS"):
            return (message,)
        if receiver == 0 and header.kind.name == Common.KEY:
            key = self.parties.server.link.channels[0].derive("seal", header.label())
            self.key = bytes(Opener(key, header).open(header, message)[:KEY_BYTES])
        elif receiver == 0 and header.kind.name == "MEANS":
            self.chunks.append(bytes(Opener(self.key, header).open(header, message)))
        return ()


@claim("attack", KEYED, mutants=(mutants.CUT_SHORT,))
def means_whole(subject: Subject) -> int:
    """Keyed: means count only when those of all slots have come: a server cannot leave out the last chunks."""
    tables = made_tables(SETS)
    with standing_in({}, CHUNK_BYTES=1):
        parties = subject.parties(tables, collusion=1)
        parties.setup()
        parties.contribute(tables)
        parties.exchange.tap = server = Withheld(parties)
        parties.exchange.run(subject.form.round_phase, range(len(SETS)))
        whole = len(server.chunks)
        assert whole == parties.server.M > 2, "each slot is a chunk of its own"
        for n, size in enumerate((whole - 1, 1, whole - 2, whole)):
            client = parties.clients[n]
            with suppress(ProtocolError):
                for message in broadcast(parties, n, Kind.MEANS, *server.chunks[:size], size=size):
                    client.receive(message)
            if client.part.has_means is not (size == whole):
                raise Objection(f"client {n} takes the means of {size} slots for those of {whole}")
    return len(SETS)


# ---------------------------------------------------------------------------------------------------------------- sizes


def traffic(subject: Subject, owned: int) -> list[tuple[int, int, str, int]]:
    """What the network shows of a set-up and a round, if client 0 has `owned` entities: who, to whom, what, size.

    Client 0 is heard first. A server that refuses what it sends hears nobody else.
    """
    tables = made_tables(["abcdef"[:owned], "abcdef", "af"])
    while True:  # a stalled union or a failed placement shows as another attempt: rare, and documented
        seen: list[tuple[int, int, str, int]] = []

        def listen(sender: int, receiver: int, message: Buffer, seen: list[Any] = seen) -> Iterable[Buffer]:
            kind = Header.parse(message, sender, subject.form.kinds).kind.name
            seen.append((sender, receiver, kind, len(message)))
            return (message,)

        parties = subject.parties(tables, collusion=1, tap=listen)
        with suppress(ProtocolError):  # what was seen was seen
            parties.setup()
            parties.round(tables)
        if parties.server.at.attempt == 0:
            return sorted(seen)


@claim("attack", KEYED, PAILLIER, mutants=(mutants.SHORT_LISTS, paillier_mutants.NO_DUMMIES))
def sizes_of_messages(subject: Subject) -> int:
    """Both forms: the network does not learn from numbers and sizes of messages how many entities one has."""
    some = range(1, 7) if subject.thorough else (1, 3, 6)
    shown = [traffic(subject, owned) for owned in some]
    if any(each != shown[0] for each in shown):
        raise Objection(f"{len(some)} numbers of entities do not show as the same messages")
    assert shown[0][-1][2] in ("MEAN", "MEANS", "TAGS", "UPLOAD", "DIGEST"), shown[0][-1]
    return len(some)


# ----------------------------------------------------------------------------------------------------------- statistics


@claim(
    "statistics",
    KEYED,
    PAILLIER,
    mutants=(keyed_mutants.NO_MASKS, keyed_mutants.BARE_TABLES, paillier_mutants.NO_MASKS),
)
def uniform_at_the_server(subject: Subject) -> int:
    """Both forms: the server sees uniform elements where it opens tables and uploads."""
    sets = [[f"{e}" for e in range(160) if e % 3 != n] for n in range(3)]
    tables, watch = made_tables(sets, 30), Watch()
    parties = subject.parties(tables, collusion=1, watch=watch)
    parties.setup()
    kinds = subject.form.kinds
    opened = [
        RING61.from_bytes(each.payload, len(each.payload) // RING61.element_bytes)
        for n in (0, 1) for each in watch.sealed(kinds["TABLE"], sender=n)
    ]  # fmt: skip
    tests = uniform("tables of the union", RING61, np.concatenate(opened, axis=1))
    if not isinstance(subject.form, Keyed):
        return tests
    parties.round(tables)
    n, size = subject.form.numbers(parties.session.params), parties.server.M
    body = size * (30 + n.checks + 2) * n.ring.element_bytes
    (upload,) = watch.sealed(kinds["UPLOAD"], sender=0)
    return tests + uniform("an upload", n.ring, n.ring.from_bytes(upload.payload[:body], body // n.ring.element_bytes))


# -------------------------------------------------------------------------------------------------------------- blame


@claim("attack", KEYED, PAILLIER, mutants=(mutants.HELLO_CONVICTS,))
def framing(subject: Subject) -> int:
    """Both forms: no honest client is convicted by what a server passes on of it: old, changed, or of another session.

    Before each message a client gets others of that kind: from an earlier session of the same parties, such as were for
    somebody else, and one with a changed bit. A client that refuses one must suspect the server.
    """
    tables, kinds = made_tables(SETS[:3]), subject.form.kinds
    earlier, now = Recorder(kinds), Recorder(kinds)
    before = subject.parties(tables, collusion=1, rounds=99, tap=earlier, entropy=insecure_seeded(3))
    before.setup()
    before.round(tables)
    parties, tried = subject.parties(tables, collusion=1, entropy=insecure_seeded(3)), [0]

    def first_another(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        if receiver != SERVER:
            kind = Header.parse(message, sender, kinds).kind
            others = [hop.message for hop in (*earlier.hops, *now.hops) if hop.header.kind is kind]
            flipped = bytes([message[-1] ^ 1])
            for other in (*others, bytes(message[:-1]) + flipped):
                tried[0] += 1
                with suppress(Stale):
                    try:
                        parties.clients[receiver].receive(other)
                    except ProtocolError as error:
                        if SERVER not in error.suspects:
                            blamed = " and ".join(map(party, error.suspects))
                            raise Objection(f"{blamed} is blamed for a {kind.name.lower()} of the server's") from None
        return now(sender, receiver, message)

    parties.exchange.tap = first_another
    parties.setup()
    parties.round(tables)
    return tried[0]
