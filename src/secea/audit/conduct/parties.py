"""Lives of a session in which server, clients, users and the network do anything, at random.

In each stretch of a life, a set-up, a union, an epoch of names, a round, parties follow the protocol but for one thing
at most. Then all begin again where they are. Every message that leaves, every refusal and whom it names, every state
that would be saved, and all means are noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, SMALL_KEYS, Subject
from secea.audit.attacks.names import Next, following
from secea.audit.attacks.stage import broadcast, word
from secea.audit.claims.counts import form_of
from secea.audit.conduct import Dice, Life
from secea.audit.standing import standing_in
from secea.errors import SERVER, ProtocolError, SecEAError, Stale
from secea.forms.paillier import Paillier
from secea.params import Params
from secea.party.phases import REST, UNKNOWN
from secea.party.server import Server
from secea.table import Name, Table
from secea.testing import Parties, insecure_seeded
from secea.wire.messages import Buffer

STRETCHES: Final = 7
MOST_STEPS: Final = 24
"""Phases in one stretch: attempts that fail again and again end here."""


@dataclass(frozen=True)
class Shape:
    """A federation: N, T, D, and its options."""

    clients: int
    collusion: int
    dropouts: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)


SHAPES: Final[Sequence[Shape]] = (
    Shape(2, 1),
    Shape(3, 2),
    Shape(4, 1),
    Shape(5, 2),
    Shape(4, 1, 1),
    Shape(5, 1, 2),
    Shape(6, 1, 2),
    Shape(4, 2, 0, {"min_owners": 2}),
    Shape(5, 1, 1, {"min_owners": 3}),
    Shape(4, 1, 0, {"noise": 0.5}),
    Shape(4, 1, 1, {"noise": 0.25, "min_owners": 2}),
    Shape(4, 2, 0, {"max_weight": 9}),
    Shape(4, 1, 1, {"max_weight": 9, "min_owners": 2}),
    Shape(3, 1, 0, {"partial": True}),
    Shape(5, 2, 1, {"partial": True}),
    Shape(3, 2, 0, {"precision": 40}),
    Shape(4, 1, 1, {"precision": 40, "noise": 0.5}),
    Shape(3, 1, 0, {"normalize": ("nfc", "strip", "casefold")}),
)
PAPER: Final[Sequence[Shape]] = (
    Shape(3, 1), Shape(4, 1), Shape(5, 1, 1), Shape(3, 1), Shape(4, 1), Shape(5, 2), Shape(3, 1), Shape(6, 1, 2),
)  # fmt: skip
"""Mostly small ones: this form is slow."""
NAMES: Final[Sequence[Name]] = ("a", 1, " B", "ß", "7", "long " * 30, "c", 12, "é")


def names_of(dice: Dice, n: int, clients: int) -> list[Name]:
    """The first entities of client n: everybody's together are all of them."""
    return [name for i, name in enumerate(NAMES) if i % clients == n or dice.chance(40)]


def tables_like(dice: Dice, names: Sequence[Name], dim: int, weights: int) -> Table:
    """A table with these names: sometimes of another kind, with another order, or with weights."""
    some = dice.some(names, len(names))
    if dice.chance(50):
        some.reverse()
    kind = dice.one((np.float64, np.float64, np.float32, np.float16))
    matrix = np.array([[dice.value() for _ in range(dim)] for _ in some], np.float64).reshape(len(some), dim)
    table = Table(tuple(some), matrix.astype(kind))
    return table.weighing(np.array([dice.below(weights + 1) for _ in some], np.int64)) if weights else table


class Turmoil(Life):
    """The life of one session."""

    def __init__(self, subject: Subject, seed: int) -> None:
        super().__init__()
        self.subject, self.seed, form = subject, seed, subject.form
        shapes = SHAPES if form.name == KEYED else PAPER
        self.shape = shapes[seed % len(shapes)]
        self.dice = dice = Dice(form.name, seed)
        self.dim, clients = 1 + dice.below(3 if form.name == KEYED else 2), self.shape.clients
        own = [names_of(dice, n, clients) for n in range(clients)]
        self.parties = self._made(own, seed)
        self.fresh, self.number = 0, 0
        self.past: list[tuple[int, int, bytes]] = []
        """What was delivered before: sender, receiver, message."""
        self.held: list[tuple[int, int, bytes]] = []
        """What is late."""
        self.saved: dict[int, list[bytes]] = {}
        self.tables: dict[int, Table] = {}
        self.fault: Fault | None = None

    def _made(self, own: Sequence[Sequence[Name]], seed: int, **other: Any) -> Parties:
        """All parties of the session, or of one that is like it but for something."""
        form, dice = self.subject.form, Dice("bounds", seed)
        small = SMALL_KEYS if isinstance(form, Paillier) else {}
        if form.name == KEYED:
            form = replace(
                form_of(self.subject), batch=1 + dice.below(3), max_new_entities=1 + dice.below(3),
                max_updates=dice.one((1, 3, 9)),
            )  # fmt: skip
        rounds, most = dice.one((2, 4, 99)), dice.one((9, 12))
        params = Params(
            self.shape.clients, dim=self.dim, collusion=self.shape.collusion, dropouts=self.shape.dropouts,
            max_entities=most, max_union=most + dice.below(most), max_abs=dice.one((8.0, 64.0)),
            **{"rounds": rounds, **small, **self.shape.more, **other},
        )  # fmt: skip
        return Parties(
            params, form, own, entropy=insecure_seeded(seed), session=self.subject.session, client=self.subject.client
        )

    # ------------------------------------------------------------------------------------------------- what is noted

    @property
    def server(self) -> Server:
        """The server."""
        return self.parties.server

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Note whether it worked, and who is named where it did not."""
        try:
            yield
        except Stale as error:
            self.note(f"{what}: came before", error.suspects)
        except ProtocolError as error:
            self.note(f"{what}: refused, and names {sorted(error.suspects)}", type(error).__name__)
        except SecEAError as error:
            self.note(f"{what}: {type(error).__name__}")
        except (ValueError, TypeError) as error:
            self.note(f"{what}: {type(error).__name__}")
        else:
            self.note(f"{what}: done")

    def look(self) -> None:
        """Note where everybody is, and what would be saved."""
        for n, client in self.parties.clients.items():
            overdue = client.overdue()
            self.note(
                f"client {n} is in {client.at.phase}, union {client.at.union}, round {client.at.round}",
                client.at, client.save(), client.standing.to_bytes(), client.asked, client.vouched,
                overdue.suspects if overdue else (),
            )  # fmt: skip
        at = self.server.at
        self.note(
            f"the server is in {at.phase}, union {at.union}, round {at.round}",
            at, self.server.save(), self.server.missing() if at.members else (), sorted(self.server.lost),
        )  # fmt: skip

    def live(self) -> str:
        """All of it."""
        form = self.parties.session.form
        with standing_in({}, CHUNK_BYTES=self.dice.one((260, 1200, 1 << 21))):
            self.step("hellos")
            for n in self.parties.clients:
                self.hand(n, SERVER, self.parties.clients[n].link.hello_message())
            self.stretch("the set-up", form.setup_phase)
            for _ in range(STRETCHES):
                if form.name == KEYED and not self.server.at.named:
                    self.stretch("the set-up again", form.setup_phase)
                for event in self.dice.some(EVENTS, self.dice.below(3)):
                    event(self)
                self.dice.one(KINDS_OF_STRETCHES)(self)
        return self.over()

    # --------------------------------------------------------------------------------------------- what is delivered

    def hand(self, sender: int, receiver: int, message: Buffer) -> None:
        """Deliver a message."""
        with self.trying(f"{_name(receiver)} takes {len(message)} bytes"):
            if receiver == SERVER:
                self.server.receive(sender, message)
            else:
                self.parties.clients[receiver].receive(message)

    def carry(self, sender: int, receiver: int, message: Buffer) -> None:
        """A message is on its way: it is noted, and delivered, or what a fault makes of it."""
        data = bytes(message)
        self.note(f"{_name(sender)} sends {len(data)} bytes to {_name(receiver)}", data)
        plain = [(sender, receiver, data)]
        for one, two, arrives in self.fault.relayed(*plain[0]) if self.fault else plain:
            self.hand(one, two, arrives)
        if len(self.past) < 400:
            self.past.append((sender, receiver, data))

    def deliver(self) -> None:
        """What the server has for each."""
        for n, inbox in sorted(self.server.drain().items()):
            for message in inbox:
                self.carry(SERVER, n, message)

    def collect(self) -> None:
        """What the members have to send."""
        gone = self.fault.vanished() if self.fault else {}
        for n in self.server.at.members:
            sending: Iterator[Buffer] = self.parties.clients[n].outbox()
            if n in gone:
                self.note(f"client {n} vanishes")
                sending = islice(sending, gone[n])
            while True:
                try:
                    message = next(sending)
                except StopIteration:
                    break
                except (SecEAError, AssertionError) as error:
                    self.note(f"client {n} cannot send: {type(error).__name__}")
                    break
                self.carry(n, SERVER, message)

    # ------------------------------------------------------------------------------------------------------ stretches

    def stretch(self, what: str, *phases: str, members: Iterable[int] | None = None, **more: Any) -> bool:
        """Phases that are begun one after the other, with one fault at most. Whether all came to their end."""
        who = sorted(self.parties.clients if members is None else members)
        fault = Fault(self, self.dice.below(len(phases))) if self.dice.chance(50) else None
        self.step(f"{what} of {who}{f', in which {fault.words}' if fault else ''}")
        fine = True
        for i, phase in enumerate(phases):
            self.fault = fault if fault and fault.begins == i else None
            with self.fault.at_work() if self.fault else standing_in({}):
                fine = self._run(phase, who, more)
            if not fine:
                break
        self.look()
        self._begin_again()
        return fine

    def _run(self, phase: str, who: Sequence[int], more: Mapping[str, Any]) -> bool:
        """Begin a phase, and go on until all is at rest. Whether it gets there."""
        server, session, begun = self.server, self.parties.session, False
        with self.trying(f"the server begins '{phase}'"):
            server.begin(phase, who, **more)
            begun = True
        if phase == session.form.ready_phase and server.at.phase == phase:
            self._train(who)
        for _ in range(MOST_STEPS if begun else 0):
            self.deliver()
            if server.at.phase == REST:
                return True
            if not session.row(server.at.phase).sends:
                break
            self.collect()
            for sender, receiver, message in self.held if self.dice.chance(50) else ():
                self.hand(sender, receiver, message)
            late, self.held = self.held, []
            self.step(f"  the phase '{server.at.phase}' ends{', and something was late' if late else ''}")
            ended = False
            with self.trying("the server ends the phase"):
                ended = server.end()
            if not ended:
                break
        server.give_up()
        self.deliver()
        return False

    def _begin_again(self) -> None:
        """The server goes on from where all are."""
        server, clients = self.server, self.parties.clients
        self.fault, self.held = None, []
        server.give_up()
        server.drain()
        for n in clients:
            server.lost_touch(n)
            if server.link.incarnation(n) != clients[n].link.hello.incarnation:
                self.hand(n, SERVER, clients[n].link.hello_message())
        seen = [client.at for client in clients.values()]
        server.at = replace(
            server.at, phase=REST, union=max(server.at.union, *(at.union for at in seen)),
            round=max(server.at.round, *(at.round for at in seen)),
            size=server.at.size if all(at.phase == REST and at.union == server.at.union for at in seen) else UNKNOWN,
        )  # fmt: skip

    def _train(self, members: Sequence[int]) -> None:
        """Those who are asked have a table, which is sometimes none that they can contribute."""
        self.deliver()
        self.number += 1
        for n in members:
            client = self.parties.clients[n]
            more = self.shape.more
            weights = int(more.get("max_weight") or more.get("partial") or 0)
            names = list(client.part.next_names)
            table = tables_like(self.dice, names, self.dim, weights)
            number = self.number
            if self.dice.chance(12):
                table, number = self._odd(n, table)
            with self.trying(f"client {n} contributes to training round {number}"):
                client.contribute(table, number)
                self.tables[n] = table

    def _odd(self, n: int, table: Table) -> tuple[Table, int]:
        """A table that is the last one, of an earlier round, out of range, of other names, or too wide."""
        dice, matrix = self.dice, table.matrix.astype(np.float64)
        number = max(1, self.number - dice.below(3))
        match dice.below(7):
            case 0 if n in self.tables:
                return self.tables[n], max(1, self.number - 1)
            case 1:
                return table, number
            case 2 if matrix.size:
                matrix[-1, -1] = dice.one((np.nan, np.inf, 9e9, -64.0, 2.0**-60))
            case 3:
                return Table((*table.names[:-1], "other"), matrix, table.weights), self.number
            case 4:
                matrix = np.concatenate([matrix, matrix], axis=1)
            case 5 if table.weights is not None and len(matrix):
                return table.weighing(table.weights + 7), self.number
            case _:
                matrix = np.ldexp(np.rint(matrix), dice.below(5) - 2)
        return Table(table.names, matrix, table.weights), self.number

    def union(self) -> None:
        """A union, of all or of fewer."""
        everyone = list(self.parties.clients)
        fewer = self.dice.some(everyone, len(everyone) - self.dice.below(3)) if self.dice.chance(40) else everyone
        self.stretch("a union", self.parties.session.form.union_phase, members=fewer)

    def rename(self) -> None:
        """An epoch of names, or whatever a form has for it; sometimes the one before."""
        form, everyone = self.parties.session.form, list(self.parties.clients)
        if self.dice.chance(70):
            self.other_names()
        fewer = self.dice.some(everyone, len(everyone) - 1) if self.dice.chance(15) else everyone
        again = self.dice.chance(20) and form.name == KEYED
        number = {"names": max(1, self.server.at.names - self.dice.below(2))} if again else {}
        self.stretch("other names", form.names_phase or form.union_phase, members=fewer, **number)

    def round(self) -> None:
        """Whatever a round needs, and a round."""
        form, at = self.parties.session.form, self.server.at
        everyone = tuple(self.parties.clients)
        stands = at.size != UNKNOWN and at.members == at.participants
        members = at.participants if stands else everyone
        phases = [] if stands else [form.union_phase]
        if stands and not self.server.part.prepared(at):
            phases.append(form.prepare_phase)
        if self.dice.chance(12):
            phases, members = [], tuple(self.dice.some(everyone, len(everyone) - self.dice.below(2)))
        self.stretch("a round", *dict.fromkeys([*phases, form.ready_phase, form.round_phase]), members=members)
        for n, table in self.tables.items():
            with self.trying(f"client {n} reads its means"):
                part = self.parties.clients[n].part
                means = part.means_like(table)
                self.note("means", str(means.dtype), means.tobytes(), part.without_mean, part.below_minimum)

    def rounds(self) -> None:
        """Two rounds, one after the other."""
        self.round()
        self.round()

    def ahead(self) -> None:
        """Mask keys once more, or the end of a run."""
        form = self.parties.session.form
        phases = [row.phase for row in self.parties.session.rows if row.phase in (form.prepare_phase, form.end_phase)]
        phase = self.dice.one([*phases, form.union_phase])
        self.stretch(f"'{phase}'", phase, members=self.server.at.participants or None)

    # --------------------------------------------------------------------------------------------------------- events

    def other_names(self) -> None:
        """Somebody's entities change."""
        n, dice = self.dice.one(list(self.parties.clients)), self.dice
        part = self.parties.clients[n].part
        own = list(part.next_names)
        wanted = dice.some(own, len(own) - dice.below(3))
        for _ in range(dice.below(4)):
            self.fresh += 1
            wanted.append(dice.one((f"new {self.fresh}", 100 + self.fresh, "b", "SS", *NAMES)))
        at_once = dice.chance(50)
        self.step(f"client {n} has {len(wanted)} entities, {len(set(wanted) - set(own))} of them new")
        with self.trying("they change"):
            part.update(wanted, at_once=at_once)
        self.note("names", part.next_names, part.waiting, part.renamed, part.has(own))

    def restart(self) -> None:
        """Somebody restarts, sometimes from an older state, or from a damaged one."""
        n, dice = self.dice.one([*self.parties.clients, SERVER]), self.dice
        party: Any = self.server if n == SERVER else self.parties.clients[n]
        kept = self.saved.setdefault(n, [])
        kept.append(party.save())
        saved, what = kept[-1], "restarts"
        if dice.chance(20):
            saved, what = dice.one(kept), "restarts with an older state"
        elif dice.chance(15):
            at = dice.below(len(saved))
            saved = saved[:at] + bytes([saved[at] ^ (1 << dice.below(8))]) + saved[at + 1 :]
            what = "has a damaged state"
        self.step(f"{_name(n)} {what}")
        with self.trying("it begins a new life"):
            self.parties.restart(n, saved)
        if n == SERVER:
            for v, client in self.parties.clients.items():
                self.hand(v, SERVER, client.link.hello_message())
            if dice.chance(50):
                self.server.learn({v: client.standing for v, client in self.parties.clients.items()})
        self._begin_again()
        self.look()

    def announce(self) -> None:
        """The server says something to one client that may be out of place."""
        dice, everyone = self.dice, list(self.parties.clients)
        n = dice.one(everyone)
        client = self.parties.clients[n]
        row = dice.one(self.parties.session.rows)
        at, members = client.at, dice.some(everyone, len(everyone) - dice.below(3) * dice.below(2))
        numbers = {
            "epoch": at.union + dice.one((0, 1, 1, 2, -1, 1 << 16, (1 << 16) + 1)),
            "weights": at.names + dice.one((0, 0, 0, 1, -1, 2)),
            "round": at.round + dice.one((0, 0, 1, 1, -1, 3)),
            "attempt": dice.one((0, 0, 0, 1, 8)),
        }
        if dice.chance(60):  # all is right but one number
            numbers |= self.parties.session.form.next_numbers(row.phase, at, again=dice.chance(20))
            numbers[dice.one(list(numbers))] += dice.one((0, -1, -1, 1))
        numbers = {name: max(0, number) for name, number in numbers.items()}
        link, lives = self.server.link, []
        for v in members:
            past = [client.link.hello.incarnation, bytes(16)]
            lives.append((v, dice.one(past) if dice.chance(8) else link.incarnation(v)))
        if dice.chance(8):
            lives.reverse()
        anchor = dice.one((b"", bytes(16), at.context, at.base)) if dice.chance(25) else None
        self.step(f"the server announces '{row.phase}' of {[v for v, _ in lives]} to client {n}: {numbers}")
        if n in link.channels:
            with self.trying("it is made"):
                made = word(self.parties, row.phase, lives, n, anchor, **numbers)
                self.carry(SERVER, n, made)
                for message in client.outbox():
                    self.note("it says", bytes(message))
        self.look()
        self._begin_again()

    def show(self) -> None:
        """The server broadcasts something to one client that is not due, or twice as long."""
        dice, form = self.dice, self.parties.session.form
        n = dice.one(list(self.parties.clients))
        kinds: list[Any] = [kind for kind, route in form.routes.items() if route.name == "BROADCAST"]
        if not kinds or n not in self.server.link.channels:
            return
        kind = dice.one(kinds)
        self.step(f"the server broadcasts {kind.name.lower()} to client {n} alone")
        with self.trying("it is made"):
            for message in broadcast(self.parties, n, kind, dice.bytes(8 * (1 + dice.below(4)))):
                self.carry(SERVER, n, message)
        self.look()
        self._begin_again()

    def foreign(self) -> None:
        """A message of another session of the same parties arrives."""
        other = self._made([["x"]] * self.shape.clients, self.seed, rounds=77)
        n = self.dice.one(list(self.parties.clients))
        self.step(f"hellos of another session come to client {n} and to the server")
        self.hand(n, SERVER, other.clients[n].link.hello_message())
        self.hand(SERVER, n, other.server.link.hello_message())
        v = self.dice.one(list(self.parties.clients))
        self.hand(SERVER, n, other.clients[v].link.hello_message())
        self.look()

    def again(self) -> None:
        """Old messages arrive once more."""
        self.step("old messages come again")
        for sender, receiver, message in self.dice.some(self.past, 6):
            self.hand(sender, receiver, message)
        self.look()

    def hand_over(self) -> None:
        """Some of these go on in a new session, and keep the key of their names."""
        if self.parties.session.form.name != KEYED or self.shape.more:
            return
        dice, everyone = self.dice, list(self.parties.clients)
        stay: list[int | None] = list(dice.some(everyone, len(everyone) - dice.below(2)))
        stay += [None] * dice.below(2)
        self.step(f"{stay} go on in a new session")
        then: Any = None
        with self.trying("they agree on it"):
            most = len(stay) - 1 - self.shape.dropouts
            found = following(self.parties, stay, max(1, min(self.shape.collusion, most)))
            self.note("there is one", found is not None)
            if found is not None:
                then = Next(self.parties, found, self.shape.collusion, insecure_seeded(self.seed + 1000))
        if then is not None:
            with self.trying("it begins"):
                then.setup()
            for i, client in then.clients.items():
                self.note(f"client {i} there", client.at, client.save())
        self.look()


EVENTS: Final[Sequence[Callable[[Turmoil], None]]] = (
    Turmoil.other_names, Turmoil.restart, Turmoil.announce, Turmoil.show, Turmoil.foreign, Turmoil.again,
    Turmoil.hand_over,
)  # fmt: skip
KINDS_OF_STRETCHES: Final[Sequence[Callable[[Turmoil], None]]] = (
    Turmoil.rounds, Turmoil.round, Turmoil.round, Turmoil.rename, Turmoil.union, Turmoil.ahead,
)  # fmt: skip


def _name(n: int) -> str:
    return "the server" if n == SERVER else f"client {n}"


class Fault:
    """One thing that goes wrong in a stretch: on the way, or in what somebody says."""

    WAYS: Final = (
        "is lost", "comes twice", "has a bit flipped", "is cut short", "is longer", "is an old one",
        "is another's", "is late", "comes in another's name",
    )  # fmt: skip
    LIES: Final = (
        "the last bit is another", "the first bit is another", "it is zero", "it is garbage", "one element is higher",
        "it is what was said before", "it is shorter", "it is longer", "two parts are swapped",
    )  # fmt: skip
    LABELS: Final = ("epoch", "weights", "round", "attempt", "context")

    def __init__(self, life: Turmoil, begins: int) -> None:
        self.life, self.begins, dice = life, begins, life.dice
        self.gone: dict[int, int] = {}
        """Who vanishes, after how many messages of a phase."""
        self.phases_left = 0
        self.way = self.lie = self.label = ""
        self.who = dice.one([*life.parties.clients, SERVER])
        self.due = dice.below(dice.one((3, 12, 40, 120)))
        """How many messages pass before it."""
        self.seen, self.said = 0, b""
        match dice.below(10):
            case 0 | 1:
                most = life.shape.dropouts + 1
                gone = dice.some(list(life.parties.clients), 1 + dice.below(most))
                self.gone = {n: dice.one((0, 0, 1, 3)) for n in gone}
                self.phases_left = dice.one((0, 0, 1, 2))
                self.words = f"{gone} vanish"
            case 2 | 3 | 4:
                self.way = dice.one(self.WAYS)
                self.words = f"a message {self.way}"
            case 5:
                self.label = dice.one(self.LABELS)
                self.words = f"{_name(self.who)} writes another {self.label} on what it sends"
            case _:
                self.lie = dice.one(self.LIES)
                self.words = f"{_name(self.who)} lies: {self.lie}"

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While it is at work."""
        parties: Any = self.life.parties
        party = parties.server if self.who == SERVER else parties.clients[self.who]
        if self.lie:
            name = "ready" if self.who == SERVER else "payloads"
            honest = getattr(party.part, name)
            setattr(party.part, name, self._lying(honest))
            try:
                yield
            finally:
                party.part.__dict__.pop(name, None)
        elif self.label:
            party.link.label = self._mislabelled(party.link.label)
            try:
                yield
            finally:
                party.link.__dict__.pop("label", None)
        else:
            yield

    def vanished(self) -> Mapping[int, int]:
        """Who vanishes in this phase or has vanished, and how many messages leave it before."""
        self.phases_left -= 1
        if self.phases_left >= 0:
            return {}
        now, self.gone = self.gone, dict.fromkeys(self.gone, 0)
        return now

    def _turn(self) -> bool:
        """Whether it is time."""
        self.seen += 1
        return self.seen == self.due + 1

    def relayed(self, sender: int, receiver: int, message: bytes) -> list[tuple[int, int, bytes]]:
        """What becomes of a message on its way."""
        plain, dice = (sender, receiver, message), self.life.dice
        if not self.way or not self._turn():
            return [plain]
        at = dice.below(len(message))
        flipped = message[:at] + bytes([message[at] ^ (1 << dice.below(8))]) + message[at + 1 :]
        old = [each for each in self.life.past if each[:2] == (sender, receiver)] or [plain]
        clients = list(self.life.parties.clients)
        to = dice.one(clients) if sender == SERVER else receiver
        name = sender if sender == SERVER else dice.one(clients)
        if self.way == "is late":
            self.life.held.append(plain)
        return {
            "is lost": [],
            "comes twice": [plain, plain],
            "has a bit flipped": [(sender, receiver, flipped)],
            "is cut short": [(sender, receiver, message[: dice.below(len(message))])],
            "is longer": [(sender, receiver, message + bytes(1 + dice.below(32)))],
            "is an old one": [dice.one(old)],
            "is another's": [(sender, to, message)],
            "is late": [],
            "comes in another's name": [(name, receiver, message)],
        }[self.way]

    def _lying(self, honest: Callable[..., Iterable[Any]]) -> Callable[..., Iterable[Any]]:
        def parts(*args: Any) -> Iterator[Any]:
            for receiver, said in honest(*args):
                whole = b"".join(bytes(each) for each in said)
                yield receiver, ((self._lied(whole),) if whole and self._turn_or_later() else said)
                self.said = whole

        return parts

    def _turn_or_later(self) -> bool:
        """A lie is told again when the same is said again."""
        self.seen += 1
        return self.seen > self.due and self.life.dice.chance(60)

    def _lied(self, said: bytes) -> bytes:
        dice, half = self.life.dice, len(said) // 2
        element = int.from_bytes(said[: 8 * (len(said) >= 8)], "little") + 1
        return {
            "the last bit is another": said[:-1] + bytes([said[-1] ^ 1]),
            "the first bit is another": bytes([said[0] ^ 1]) + said[1:],
            "it is zero": bytes(len(said)),
            "it is garbage": dice.bytes(len(said)),
            "one element is higher": (element % 2**64).to_bytes(8, "little")[: len(said)] + said[8:],
            "it is what was said before": (self.said or said)[: len(said)].ljust(len(said), b"\0"),
            "it is shorter": said[:-1],
            "it is longer": said + bytes(1),
            "two parts are swapped": said[half:] + said[:half],
        }[self.lie]

    def _mislabelled(self, honest: Callable[..., Any]) -> Callable[..., Any]:
        def label(kind: Any, numbers: dict[str, int], context: bytes) -> Any:
            if self._turn():
                if self.label == "context":
                    context = bytes(len(context))
                else:
                    numbers = {**numbers, self.label: max(0, numbers[self.label] + self.life.dice.one((1, -1, 2)))}
            return honest(kind, numbers, context)

        return label
