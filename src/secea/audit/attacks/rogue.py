"""A client that deviates, among sites and a server's side that do not: what it tries, what it costs them, who is named.

`Sites` runs a driver and hosts as a deployment does, over a port in this process. One client lies in what it says
(`Deviation.lie`) or in how it replies (`Deviation.reply`). What is refused, and whom the refusal suspects, is noted.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import Any, Final

import numpy as np

from secea.arithmetic.field import Ring
from secea.arithmetic.paillier import PrivateKey, PublicKey
from secea.arithmetic.ristretto import ORDER, multiply_base, scalar_rows
from secea.audit import SMALL_KEYS, Subject
from secea.audit.attacks.names import corrupt, naming
from secea.engines.driver import Driver
from secea.engines.host import Host, Participant
from secea.engines.log import Log
from secea.engines.port import Failure, Order, Reply, Task, Terms, orders
from secea.errors import SERVER, FederationError, ProtocolError, Stale
from secea.forms.keyed.form import Keyed
from secea.forms.keyed.form import Kind as KeyedKind
from secea.forms.keyed.numbers import Numbers as KeyedNumbers
from secea.forms.paillier.form import Kind as PaillierKind
from secea.forms.paillier.numbers import Numbers
from secea.params import Params
from secea.party.client import Client
from secea.party.form import FormDefaults
from secea.party.server import Server
from secea.party.session import Session
from secea.table import Table
from secea.wire.keys import Identity, Opener, Roster
from secea.wire.messages import ALL, Buffer, Header

ROGUE: Final = 1
"""It deals, holds a share, answers for names, adds noise, and votes."""
CLIENTS: Final = 4
ENTITIES: Final = 3
DIM: Final = 1
ROUNDS: Final = 2
"""While it deviates."""
FLOOD: Final = 100
HUGE: Final = 2**32 - 1
WITHIN: Final = 1e-5
"""How far a mean may be from the right one: the resolution, which is 2^-18 or less here."""


# ---------------------------------------------------------------------------------------------------------------- sites


class Notes(Log):
    """Keeps whom each refusal suspects."""

    def __init__(self) -> None:
        super().__init__()
        self.suspected: list[frozenset[int]] = []

    def refused(self, message: Buffer, error: ProtocolError) -> None:
        """Note the suspects; what came before is nobody's fault."""
        if not isinstance(error, Stale):
            self.suspected.append(frozenset(error.suspects))

    def noted(self, what: str, **details: object) -> None:
        """Note whom the server's side refuses at the end of a phase, and whom it leaves out; its reasons name them."""
        if what == "refused":
            self.suspected.append(_parties(str(details["why"]).partition(":")[0]))
        elif what == "lost" and "client" in details and not str(details["why"]).startswith("it refuses"):
            self.suspected.append(_parties(str(details["client"])))


def _parties(text: str) -> frozenset[int]:
    """The parties that a text names."""
    return frozenset(SERVER if name == "the server" else int(name[7:]) for name in text.split(" or "))


class Sites:
    """A federation as it is deployed, without a network: a driver, its port, and a host at each site."""

    def __init__(self, subject: Subject, clients: int, **params: Any) -> None:
        form, small = subject.form, {} if isinstance(subject.form, Keyed) else SMALL_KEYS
        if isinstance(form, Keyed):
            form = replace(form, batch=ROUNDS + 2)
        self.notes, self.rng = Notes(), np.random.default_rng(clients)
        self.sets = [[f"e{i}" for i in range(ENTITIES) if (i + n) % 3] for n in range(clients)]
        identities = {n: Identity.generate() for n in (*range(clients), SERVER)}
        roster = Roster(tuple(identities[n].public for n in range(clients)), identities[SERVER].public)
        bounds = Params(clients, dim=DIM, max_entities=ENTITIES, max_union=4 * ENTITIES, **params, **small)
        self.session, self.identities = subject.session(bounds, roster, form), identities
        self._type = subject.client
        self.hosts = {n: self._host(n) for n in range(clients)}
        self.deviation: Deviation | None = None
        self.kept = 0
        """The most bytes that a party ever kept while one deviated."""
        self.driver = Driver(Server(self.session, identities[SERVER]), self, log=self.notes)

    def _host(self, n: int) -> Host:
        def train(means: Table | None, number: int) -> Table:
            return Table(tuple(self.sets[n]), self.rng.uniform(-9, 9, (len(self.sets[n]), DIM)))

        notes = Notes() if n == ROGUE else self.notes  # nobody listens to what the rogue complains of
        host = Host(self.session, n, self.identities[n], Participant(lambda: self.sets[n], train), log=notes)
        host.client = self._type(self.session, n, self.identities[n], self.sets[n])
        return host

    @property
    def honest(self) -> list[int]:
        """All but one."""
        return [n for n in self.hosts if n != ROGUE]

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`. What the client that deviates replies is what its deviation makes of it."""
        for n, order in orders(tasks, round, inboxes()).items():
            reply = self._reply(n, order)
            if reply is not None:
                yield n, reply
            if n == ROGUE:
                self.kept = max(self.kept, size_of(self.driver.server))  # what is left of it when it was heard

    def _reply(self, n: int, order: Order) -> Reply | None:
        reply = self.hosts[n].obey(order)
        return reply if n != ROGUE or self.deviation is None else self.deviation.reply(self, reply)

    def deviate(self, deviation: Deviation) -> None:
        """From now on the rogue deviates."""
        self.deviation = deviation
        corrupt(self.hosts[ROGUE].client, lambda kind, receiver, said: deviation.lie(self, kind, receiver, said))

    def repent(self) -> None:
        """It stops, and begins a new life with what it saved; so does the server's side, which may have shut it out."""
        self.deviation, host = None, self.hosts[ROGUE]
        host.client = self._type.restore(self.session, self.identities[ROGUE], host.client.save())
        server = Server.restore(self.session, self.identities[SERVER], self.driver.server.save())
        self.driver = Driver(server, self, log=self.notes)

    def round(self) -> bool:
        """A round. Whether the honest members have its means; that these are right is for `wrong` to say."""
        try:
            self.driver.round()
        except (FederationError, ProtocolError) as error:
            if told := re.search(r"mask keys of (client \d+)", str(error)):  # the operator reads it
                self.notes.suspected.append(_parties(told[1]))
            return False
        for n, messages in self.driver.server.drain().items():  # as with the next order
            if reply := self._reply(n, Order(Task.STEP, 0, messages)):
                self.driver._heard(n, replace(reply, messages=[]))
        members = set(self.driver.server.at.members)
        return all(self.hosts[n].means() is not None for n in self.honest if n in members)

    def together(self) -> bool:
        """Whether a round with everybody gives right means."""
        try:
            self.driver.setup()
        except (FederationError, ProtocolError):
            return False
        return self.round() and len(self.driver.server.at.members) == len(self.hosts) and self.wrong() < WITHIN

    def wrong(self) -> float:
        """How far the means of the honest are from those over what all members gave, at most."""
        members, far = self.driver.server.at.members, 0.0
        given = {n: self.hosts[n]._table for n in members}
        for n in (n for n in self.honest if n in members):
            found = self.hosts[n].means()
            for name, row in zip(found.names, found.matrix, strict=True) if found else ():
                rows = [t.matrix[t.names.index(name)] for t in given.values() if t is not None and name in t.names]
                far = max(far, float(np.abs(row - np.mean(rows, axis=0)).max()))
        return far


# ----------------------------------------------------------------------------------------------------------- deviations


Saying = Callable[[Sites, IntEnum, int, bytes], bytes]
Replying = Callable[[Sites, Reply], Reply | None]


def _said(sites: Sites, kind: IntEnum, receiver: int, said: bytes) -> bytes:
    return said


def _replied(sites: Sites, reply: Reply) -> Reply | None:
    return reply


@dataclass(frozen=True)
class Deviation:
    """What a client does that it should not do."""

    what: str
    lie: Saying = _said
    reply: Replying = _replied
    setup: bool = False
    """Whether it begins before the set-up."""
    tolerated: bool = False
    """Whether it costs no round where one client may drop out: what it sends is seen to be wrong, or not needed."""
    again: bool = False
    """Whether it is also a case of another claim, so that it is tried here only if there is time."""


def garbage(size: int) -> bytes:
    """Bytes, the same each time."""
    return hashlib.shake_256(b"garbage").digest(size)


def elements(size: int) -> bytes:
    """Elements of either field, as random as true ones."""
    words = np.frombuffer(garbage(size - size % 4), "<u4") & np.uint32(2**29 - 1)
    return words.astype("<u4").tobytes() + bytes(size % 4)


def scalars(size: int) -> bytes:
    """Scalars of the group, as random as true ones."""
    numbers = (int.from_bytes(garbage(size)[at : at + 32], "little") % ORDER for at in range(0, size, 32))
    return b"".join(number.to_bytes(32, "little") for number in numbers)


def saying(kind: IntEnum, change: Callable[[Sites, int, bytes], bytes]) -> Saying:
    """Lies in messages of one kind."""

    def lie(sites: Sites, said_in: IntEnum, receiver: int, said: bytes) -> bytes:
        return change(sites, receiver, said) if said_in is kind else said

    return lie


def replaced(make: Callable[[int], bytes]) -> Callable[[Sites, int, bytes], bytes]:
    """Something else of the same size."""
    return lambda _sites, _receiver, said: make(len(said))


def flipped(_sites: Sites, _receiver: int, said: bytes) -> bytes:
    """The last bit is another one."""
    return said[:-1] + bytes([said[-1] ^ 1])


def longer(_sites: Sites, _receiver: int, said: bytes) -> bytes:
    """One point more."""
    return said + multiply_base(scalar_rows([9])).tobytes()


def points(size: int) -> bytes:
    """Points of the group."""
    return multiply_base(scalar_rows(range(2, 2 + size // 32))).tobytes()


def _copied(sites: Sites, _receiver: int, said: bytes) -> bytes:
    return naming(sites.hosts[0].client)._points.tobytes()


def _to_each_another(_sites: Sites, receiver: int, said: bytes) -> bytes:
    return bytes([receiver]) * 32 + said[32:]


def _of_small_order(_sites: Sites, _receiver: int, said: bytes) -> bytes:
    return said[:32] + bytes(32) + said[64:]


def _key_of_small_order(_sites: Sites, _receiver: int, said: bytes) -> bytes:
    return bytes(32) + said[32:]


def _no_scalars(_sites: Sites, _receiver: int, said: bytes) -> bytes:
    return ORDER.to_bytes(32, "little") * (len(said) // 32)


def _other_slots(_sites: Sites, _receiver: int, said: bytes) -> bytes:
    return bytes(16) + said[16:]


def _always_changed(_sites: Sites, _receiver: int, said: bytes) -> bytes:
    return said[:16] + bytes([7]) + said[17:]


def _marked(sites: Sites, _receiver: int, said: bytes) -> bytes:
    return garbage(len(said))


# ------------------------------------------------------------------------------------------------------------- replies


def silent(_sites: Sites, _reply: Reply) -> Reply | None:
    """Does not answer."""
    return None


def twice(_sites: Sites, reply: Reply) -> Reply | None:
    """Says everything twice."""
    return replace(reply, messages=[each for each in reply.messages for _ in range(2)])


def flooding(_sites: Sites, reply: Reply) -> Reply | None:
    """Says everything a hundred times."""
    return replace(reply, messages=list(reply.messages) * FLOOD)


def backwards(_sites: Sites, reply: Reply) -> Reply | None:
    """Says what it says in the wrong order."""
    return replace(reply, messages=list(reversed(reply.messages)))


def scrambled(_sites: Sites, reply: Reply) -> Reply | None:
    """Bytes that are no messages."""
    return replace(reply, messages=[garbage(len(each)) for each in reply.messages] or [garbage(10)])


def huge(sites: Sites, reply: Reply) -> Reply | None:
    """Messages, authentic ones, that say that they have four thousand million chunks, of which this is the first."""
    return replace(reply, messages=[_relabelled(sites, each, chunks=HUGE) for each in reply.messages])


def late(sites: Sites, reply: Reply) -> Reply | None:
    """Begins with the second chunk."""
    return replace(reply, messages=[_relabelled(sites, each, chunks=2, chunk=1) for each in reply.messages])


def _relabelled(sites: Sites, message: Buffer, **changes: Any) -> Buffer:
    client, kinds = sites.hosts[ROGUE].client, sites.session.form.kinds
    header = Header.parse(message, ROGUE, kinds)
    if header.kind.name == "HELLO" and header.receiver == ALL:
        return message
    label, first = replace(header, **changes), changes.get("chunk", 0)
    if header.receiver == ALL:
        return client.link.signer(label, label.chunks).seal(first, bytes(message)[64:-64])
    key = client.link.channels[header.receiver].derive("seal", header.label())
    payload = Opener(key, header).open(header, message)
    return client.link.sealer(label, header.receiver, label.chunks).seal(first, payload)


def lost_memory(sites: Sites, reply: Reply) -> Reply | None:
    """Says that it is in no union."""
    standing = replace(sites.hosts[ROGUE].client.standing, settled=0)
    return replace(reply, standing=standing.to_bytes())


def many_lives(sites: Sites, reply: Reply) -> Reply | None:
    """Says hello in ten new lives before it says anything else."""
    lives = [Client(sites.session, ROGUE, sites.identities[ROGUE], ()).link.hello_message() for _ in range(10)]
    return replace(reply, messages=[*lives, *reply.messages])


NOTHING: Final = Deviation("does not deviate")
ANY_FORM: Final = (
    Deviation("does not answer", reply=silent, tolerated=True),
    Deviation("answers twice", reply=twice, tolerated=True),
    Deviation(f"sends everything {FLOOD} times", reply=flooding, tolerated=True),
    Deviation("sends its messages in the wrong order", reply=backwards, tolerated=True),
    Deviation("sends bytes that are no messages", reply=scrambled, tolerated=True),
    Deviation("says that a message has 2^32-1 chunks", reply=huge, tolerated=True),
    Deviation("begins with the second chunk", reply=late, tolerated=True),
    Deviation("says that it is in no union", reply=lost_memory, tolerated=True),
    Deviation("says hello in many lives", reply=many_lives, tolerated=True),
)
K, P = KeyedKind, PaillierKind
OF_KEYED: Final = (
    Deviation(
        "set-up: deals other commitments than it hashed",
        saying(K.COMMITMENT, replaced(garbage)),
        setup=True,
        again=True,
    ),
    Deviation("set-up: proves nothing", saying(K.DEALING, flipped), setup=True, again=True),
    Deviation("set-up: deals shares that do not fit", saying(K.SHARE, replaced(scalars)), setup=True, again=True),
    Deviation("set-up: lists more names than the bound", saying(K.LIST, longer), setup=True),
    Deviation("set-up: lists another client's points", saying(K.LIST, _copied), setup=True, again=True),
    Deviation("set-up: signs another list than it sends", saying(K.MARK, _marked), setup=True),
    Deviation("set-up: has seen other lists than the others", saying(K.CONFIRM, replaced(garbage)), setup=True),
    Deviation("set-up: answers blinded names wrongly", saying(K.EVALUATION, replaced(points)), setup=True, again=True),
    Deviation("set-up: answers with what is no point", saying(K.EVALUATION, replaced(garbage)), setup=True, again=True),
    Deviation("set-up: a key of small order for masks", saying(K.PART, _of_small_order), setup=True),
    Deviation("set-up: another part of the secret for each", saying(K.PART, _to_each_another), setup=True),
    Deviation("set-up: a table of random elements", saying(K.TABLE, replaced(elements)), setup=True),
    Deviation("set-up: a table of what is no element", saying(K.TABLE, replaced(lambda n: b"\xff" * n)), setup=True),
    Deviation("ready for other slots than the others", saying(K.READY, _other_slots)),
    Deviation("says in every round that its entities changed", saying(K.READY, _always_changed)),
    Deviation("uploads random elements", saying(K.UPLOAD, replaced(elements))),
    Deviation("uploads what is no element", tolerated=True, lie=saying(K.UPLOAD, replaced(lambda n: b"\xff" * n))),
    Deviation("uploads too much", tolerated=True, lie=saying(K.UPLOAD, longer)),
)
OF_TOLERANT: Final = (
    Deviation("signs another sum than the others", tolerated=True, lie=saying(K.VOTE, replaced(garbage))),
    Deviation("opens with wrong shares", tolerated=True, lie=saying(K.OPENING, replaced(scalars))),
    Deviation("opens with what is no scalar", tolerated=True, lie=saying(K.OPENING, replaced(lambda n: b"\xff" * n))),
    Deviation("set-up: mask keys of small order", saying(K.BATCH, _key_of_small_order), setup=True, again=True),
    Deviation(
        "set-up: shares of mask keys that are no scalars", saying(K.SECRETS, _no_scalars), setup=True, again=True
    ),
    Deviation("set-up: shares of mask keys that do not fit", saying(K.SECRETS, replaced(scalars)), setup=True),
)
OF_PAILLIER: Final = (
    Deviation("set-up: another part of the secret for each", saying(P.HELLO, _to_each_another), setup=True),
    Deviation("set-up: a table of random elements", saying(P.TABLE, replaced(elements)), setup=True),
    Deviation("set-up: a table of what is no element", saying(P.TABLE, replaced(lambda n: b"\xff" * n)), setup=True),
    Deviation("set-up: queries of what is no element", saying(P.QUERY, replaced(lambda n: b"\xff" * n)), setup=True),
    Deviation("shares of what is no element", saying(P.SHARE, replaced(lambda n: b"\xff" * n))),
    Deviation("shares of random elements", saying(P.SHARE, replaced(elements))),
    Deviation("answers with garbage", saying(P.ANSWER, replaced(garbage))),
    Deviation("answers with zeros", saying(P.ANSWER, replaced(bytes))),
)


# -------------------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Result:
    """What came of a deviation."""

    deviation: Deviation
    dropouts: int
    rounds: tuple[bool, ...]
    """Whether each round that was tried meanwhile gave means; none if the set-up failed."""
    unions: int
    """Unions that were begun meanwhile."""
    left_out: bool
    """Whether the others went on without it."""
    suspected: tuple[frozenset[int], ...]
    """Whom each refusal suspects."""
    wrong: float
    """How far a mean that was taken was from the right one."""
    kept: int
    """The most bytes that a party kept of what came."""
    recovered: bool
    """Whether all went on together once it stopped."""

    @property
    def cost(self) -> str:
        """What the others paid."""
        lost = self.rounds.count(False)
        if not self.rounds:
            return "the set-up, while it does so"
        if self.wrong > WITHIN:
            return "wrong means, unnoticed"
        if lost == len(self.rounds):
            return "every round, while it does so"
        parts = [f"{lost} round{'s' * (lost > 1)}"] if lost else []
        parts += [f"{self.unions} union{'s' * (self.unions > 1)}"] if self.unions else []
        return (" and ".join(parts) or "nothing") + (", then they go on without it" if self.left_out else "")

    @property
    def named(self) -> str:
        """Who is."""
        among = frozenset[int]().union(*self.suspected)
        if not among:
            return "nobody"
        if not all(ROGUE in each for each in self.suspected):
            return "somebody else"
        return {1: "it", 2: "it or the server"}.get(len(among), "it among all others") if among else "nobody"


@cache
def tried(subject: Subject, deviation: Deviation, dropouts: int) -> Result:
    """Let one client deviate for some rounds, then behave."""
    sites = Sites(subject, CLIENTS, collusion=1, dropouts=dropouts)
    if deviation.setup:
        sites.deviate(deviation)
    rounds, far, unions = list[bool](), 0.0, 0
    with suppress(FederationError, ProtocolError):
        sites.driver.setup()
        if not deviation.setup:
            assert sites.round(), "without a deviation there are means"
            sites.deviate(deviation)
        before = sites.driver.server.at.union
        for _ in range(ROUNDS):
            rounds.append(sites.round())
            far = max(far, sites.wrong() if rounds[-1] else 0.0)
            sites.kept = max(sites.kept, *(size_of(sites.hosts[n].client) for n in sites.honest))
        unions = sites.driver.server.at.union - before
    left_out, suspected = ROGUE not in sites.driver.server.at.members, tuple(sites.notes.suspected)
    sites.repent()
    recovered = any(sites.together() for _ in range(2))
    return Result(deviation, dropouts, tuple(rounds), unions, left_out, suspected, far, sites.kept, recovered)


def size_of(x: Any, seen: set[int] | None = None) -> int:
    """The bytes of all that a party keeps, as far as messages may change it."""
    seen = set() if seen is None else seen
    if id(x) in seen:
        return 0
    seen.add(id(x))
    match x:
        case Session() | FormDefaults() | Params() | Ring() | PrivateKey() | PublicKey() | Numbers() | KeyedNumbers():
            return 0  # what all have from the start
        case bytes() | bytearray() | memoryview():
            return len(x)
        case np.ndarray():
            return int(x.nbytes)
        case dict():
            return 16 * len(x) + sum(size_of(each, seen) for pair in x.items() for each in pair)
        case list() | tuple() | set() | frozenset() | deque():
            return 8 * len(x) + sum(size_of(each, seen) for each in x)
        case _ if type(x).__module__.startswith("secea."):
            slots = [name for each in type(x).__mro__ for name in getattr(each, "__slots__", ())]
            inner = [*getattr(x, "__dict__", {}).values(), *(getattr(x, name, None) for name in slots)]
            return sum(size_of(each, seen) for each in inner)
        case _:
            return 0


def deviations(subject: Subject) -> list[tuple[Deviation, int]]:
    """Each with the number of clients that may drop out; first a client that does not deviate."""
    if not isinstance(subject.form, Keyed):
        return [(each, 0) for each in (NOTHING, *OF_PAILLIER, *ANY_FORM)]
    in_rounds = [each for each in (*OF_KEYED, *ANY_FORM) if not each.setup]
    tolerant = (*OF_TOLERANT, *(in_rounds if subject.thorough else in_rounds[2:6]))
    plain = (*ANY_FORM, *OF_KEYED)
    every = [(NOTHING, 0), (NOTHING, 1), *((each, 1) for each in tolerant), *((each, 0) for each in plain)]
    return [(each, dropouts) for each, dropouts in every if subject.thorough or not each.again]


def results(subject: Subject) -> Iterator[Result]:
    """What comes of each of them."""
    return (tried(subject, *each) for each in deviations(subject))


def table(subject: Subject) -> list[dict[str, str]]:
    """What is tried, what it costs the others, and who is named; the same with and without drop-outs is told once."""
    told: dict[tuple[str, str, str], list[int]] = {}
    for each in results(subject):
        if each.deviation is not NOTHING:
            told.setdefault((each.deviation.what, each.cost, each.named), []).append(each.dropouts)
    both = {what for what, _, _ in told if sum(what == other for other, _, _ in told) > 1}
    return [
        {
            "it": f"{what}{f' (D={dropouts[0]})' if what in both else ''}",
            "cost to the others": cost,
            "who is named": named,
        }
        for (what, cost, named), dropouts in told.items()
    ]
