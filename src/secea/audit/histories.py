"""Whole lives of federations, and what should come of each round: by the specification, whatever happened before.

A `History` plays what users, machines and networks do: other tables, in another order and of another kind, other names,
absences, restarts, losses in every phase, epochs and batches that are repeated. What happens is drawn from a number, so
that it can be repeated. `told` compares each round with `specified`, and what users get with the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.audit import Subject
from secea.audit.claims.counts import form_of
from secea.audit.differing import bytes_differ
from secea.audit.specification import designated, fewest_participants
from secea.audit.specified import Expected, key_of, part_of, recorded
from secea.errors import SERVER, RoundLost
from secea.party.phases import REST
from secea.table import Name, Table, as_table, keys
from secea.testing import Parties, insecure_seeded

Matrix = NDArray[Any]
NUMBERS: Final[Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Matrix]]] = {
    "float64": lambda rng, shape: rng.normal(size=shape),
    "float32": lambda rng, shape: rng.normal(size=shape).astype(np.float32),
    "eighths": lambda rng, shape: np.ldexp(rng.integers(-300, 300, shape).astype(np.float64), -3),
    "fours": lambda rng, shape: np.ldexp(rng.integers(-200, 200, shape).astype(np.float64), 2),
    "decimals": lambda rng, shape: rng.normal(size=shape).round(2),
    "small and zero": lambda rng, shape: rng.choice([0.0, -0.0, 2.0**-40, -1.5], shape),
    "the range": lambda rng, shape: rng.choice([np.inf, -np.inf, 0.5, 0.0], shape),
}
"""Kinds of tables. Numbers that are out of range are the ends of it."""


ODD_NAMES: Final[Sequence[Name]] = ("x" * 65_535 + "1", "x" * 65_535 + "2", "ecea long name\n", "é" * 40_000, "01", "ß")
"""Two that differ after 65,535 letters, and one that begins like the hash of a long one."""


@dataclass(frozen=True)
class Case:
    """A federation, and the number that its life is drawn from."""

    seed: int
    clients: int
    collusion: int
    rounds: int
    names: int = 7
    dim: int = 2
    odd: bool = False
    """Whether some names are long, and begin alike."""
    more: Mapping[str, Any] = field(default_factory=dict)


class Told(Exception):
    """Something is not as specified."""


class History:
    """The life of one federation."""

    def __init__(self, subject: Subject, case: Case) -> None:
        self.case, self.random, self.rng = case, random.Random(case.seed), np.random.default_rng(case.seed)  # noqa: S311
        form = replace(form_of(subject), batch=2, max_new_entities=3)
        own = [self._some(n) for n in range(case.clients)]
        tables = [{name: np.zeros(case.dim) for name in each} for each in own]
        bounds = {"max_entities": 5 * case.names, "max_union": 9 * case.names, "rounds": 999}
        self.parties: Parties = replace(subject, form=form).parties(
            tables, collusion=case.collusion, entropy=insecure_seeded(case.seed), **bounds, **case.more
        )
        self.parties.setup()
        self.k = key_of(self.parties)
        self.grids: dict[int, tuple[int, float]] = {}
        self.renamed: set[int] = set()
        self.happened: list[str] = []
        """What happened so far, for an objection."""
        self.compared = 0

    def _some(self, n: int) -> list[Name]:
        """The first entities of a client: integers, texts that are none, and some with odd names."""
        every: list[Name] = [i if i % 3 else f"name {i}" for i in range(self.case.names)]
        every += ODD_NAMES if self.case.odd else []
        return [name for i, name in enumerate(every) if i % self.case.clients == n or self.random.random() < 0.5]

    # ------------------------------------------------------------------------------------------------- what happens

    def live(self) -> int:
        """All rounds; how many were compared."""
        for number in range(self.case.rounds):
            for event in self.random.sample(EVENTS, self.random.randint(1, 3)):
                if number:
                    event(self)
            self.round()
        return self.compared

    def _note(self, what: str) -> None:
        self.happened.append(what)

    def _union(self, members: set[int] | None = None) -> None:
        """A new union of these, or of all."""
        self.parties.exchange.losses, self.parties.exchange.here = {}, set(self.parties.clients)
        self.parties.server.give_up()
        self.parties.server.drain()
        self.parties.exchange.greet()
        self.parties.union(sorted(members or self.parties.clients))

    def restart(self) -> None:
        """Somebody restarts, perhaps the server."""
        who = self.random.choice([*self.parties.clients, SERVER])
        self._note(f"{'the server' if who == SERVER else who} restarts")
        self.parties.restart(who)
        for n in self.parties.clients:  # a new server, or those who greet a new life, have heard of nobody
            if who == SERVER:
                self.parties.exchange.server.learn({n: self.parties.clients[n].standing})
        self._union()

    def rename(self) -> None:
        """Somebody's entities change: at once, or from the next epoch of names on."""
        n, at_once = self.random.choice(list(self.parties.clients)), self.random.random() < 0.6
        part = part_of(self.parties, n)
        own = list(part.next_names)
        gone = self.random.sample(own, min(len(own), self.random.randint(0, 2)))
        new: list[Name] = [f"later {self.random.randrange(6)}", *self.random.sample(range(100, 106), 4)]
        new = new[: self.random.choice((0, 1, 2, 5))]
        wanted = [name for name in own if name not in gone] + [name for name in new if name not in own]
        self.random.shuffle(wanted)
        part.update(wanted, at_once=False)
        self._note(f"{n} gives up {len(gone)} and has {len(new)} new entities{' at once' if at_once else ''}")
        if at_once:
            self.epoch()

    def epoch(self) -> None:
        """An epoch of names, where one is left; sometimes its end does not come to all, and it is repeated."""
        parties, form = self.parties, self.parties.session.form
        if parties.server.at.named > 8:
            return
        self._union()
        if self.random.random() < 0.3:
            parties.exchange.run(form.names_phase, parties.clients, until="evaluate")
            parties.server.give_up()
            parties.server.drain()
            self._note("an epoch of names breaks off")
        parties.exchange.run(form.names_phase, parties.clients)

    def meanwhile(self) -> None:
        """Somebody's entities change while its list is out: that makes another epoch due."""
        parties, form = self.parties, self.parties.session.form
        if parties.server.at.named > 8:
            return
        self._union()
        part = part_of(parties, self.random.choice(list(parties.clients)))
        parties.exchange.run(form.names_phase, parties.clients, until="evaluate")
        part.update([*part.next_names[1:], f"meanwhile {len(self.happened)}"], at_once=False)
        self._note("an entity changes while answers are due")
        parties.exchange.run(form.names_phase, parties.clients)

    def absent(self) -> None:
        """A union without somebody."""
        case, params = self.case, self.parties.session.params
        room = case.clients - fewest_participants(case.clients, params.T, params.dropouts)
        away = set(self.random.sample(range(case.clients), min(room, 1)))
        self._note(f"a union without {sorted(away)}")
        self._union(set(self.parties.clients) - away)

    def ahead(self) -> None:
        """Mask keys are made once more."""
        server = self.parties.server
        if self.parties.session.params.dropouts and server.at.members == server.at.participants:
            self._note("mask keys ahead")
            self.parties.exchange.run(self.parties.session.form.prepare_phase, server.at.members)

    def lost(self) -> None:
        """Too many vanish: what was trained goes out again to the same clients, or not at all."""
        parties, params = self.parties, self.parties.session.params
        self._ready()
        tables = self._tables()
        members = list(parties.server.at.members)
        self._contribute(tables)
        many = len(members) - (params.clients - params.dropouts) + 1 if params.dropouts else 1
        gone = self.random.sample(members, many)
        self._note(f"{gone} vanish, and the round is lost")
        parties.exchange.losses = dict.fromkeys(gone, parties.session.form.round_phase)
        with suppress(RoundLost):
            parties.exchange.run(parties.session.form.round_phase, members)
        again = set(members) if self.random.random() < 0.7 else set(members) - {gone[0]}
        if len(again) < fewest_participants(params.clients, params.T, params.dropouts):
            again = set(members)
        self._union(again)
        once = bool(params.dropouts or params.noise) or again != set(members)
        parties.server.begin(parties.session.form.ready_phase, sorted(again))
        parties.exchange.deliver()
        others = self._tables() if self.random.random() < 0.5 else []
        for n in again if others else ():
            if self._goes_out(n, others[n]):
                raise Told("another table for the same training round goes out")
        same = {n: not once and (not others or self._looked_at(n, others[n])) for n in again}
        for n, due in same.items():
            if self._goes_out(n, tables[n]) != due:
                raise Told(f"what was trained {'does not go' if due else 'goes'} out again")
        if all(same.values()):
            parties.exchange.step()
            self._compare(tables, {})
        parties.server.give_up()
        parties.server.drain()
        self._union()

    def _goes_out(self, n: int, table: Table) -> bool:
        """Whether a client contributes this table for the last training round."""
        try:
            self.parties.clients[n].contribute(table, self.parties.number)
        except RoundLost:
            return False
        return True

    # -------------------------------------------------------------------------------------------------------- rounds

    def _ready(self) -> None:
        """Whatever a round needs."""
        parties, server = self.parties, self.parties.server
        spent = server.at.phase != REST or server.at.size < 0 or server.at.members != server.at.participants
        if spent:
            self._union()
        for v in parties.clients:
            names = part_of(parties, v).naming.names
            due = set(part_of(parties, v).naming.next_names) != {*names.own, *names.waiting}
            if part_of(parties, v).renamed != due:
                raise Told(f"client {v} says that its entities {'do not ' * due}change, and is wrong")
        if not server.part.prepared(parties.server.at):
            parties.exchange.run(parties.session.form.prepare_phase, parties.server.at.members)

    def _tables(self) -> list[Table]:
        """New tables, each in an order and of a kind of its own."""
        given = []
        for n in self.parties.clients:
            names = list(part_of(self.parties, n).next_names)
            self.random.shuffle(names)
            kind = self.random.choice(list(NUMBERS))
            most_abs = self.parties.session.params.max_abs
            matrix = np.clip(NUMBERS[kind](self.rng, (len(names), self.case.dim)), -most_abs, most_abs)
            most = self.case.more.get("max_weight") or int(self.case.more.get("partial", 0))
            table = as_table(Table(tuple(names), matrix), self.case.dim)
            given.append(table.weighing(self.rng.integers(0, most + 1, len(names))) if most else table)
        return given

    def _contribute(self, tables: list[Table]) -> None:
        self.parties.contribute([Table(t.names, t.matrix.copy(), t.weights) for t in tables])
        for n in self.parties.server.at.members:
            self._looked_at(n, tables[n])

    def _looked_at(self, n: int, table: Table) -> bool:
        """A client sees how coarse its table is; whether that is no news."""
        used, step = grid.grid_of(table.matrix, table.dtype)
        bits, common = before = self.grids.get(n, (used, step))
        self.grids[n] = min(used, bits), max(step, common)
        return self.grids[n] == before

    def round(self) -> None:
        """A round, in which some may vanish."""
        self._ready()
        tables, parties, params = self._tables(), self.parties, self.parties.session.params
        self._contribute(tables)
        members = list(parties.server.at.members)
        room = len(members) - (params.clients - params.dropouts) if params.dropouts else 0
        who = self.random.sample(members, self.random.randint(0, max(0, room)))
        turn = designated(members, parties.server.at.round + 1)
        gone = {n: self.random.choice(("upload", "agree", "open")) for n in who if params.min_owners == 1 or n != turn}
        self._compare(tables, gone)
        if gone:
            self._union()

    def _compare(self, tables: list[Table], gone: Mapping[int, str]) -> None:
        """One round, after all have said that they are ready, and what came of it."""
        parties, members = self.parties, self.parties.server.at.members
        self._note(f"a round of {list(members)}, in which {dict(gone)} vanish")
        parties.exchange.losses = dict(gone)
        with recorded() as record:
            parties.exchange.run(parties.session.form.round_phase, members)
        weights = [dict(zip(t.names, t.weights.tolist(), strict=True)) for t in tables if t.weights is not None]
        rows = [dict(zip(t.names, t.matrix, strict=True)) for t in tables]
        own = {v: part_of(parties, v).names for v in members}
        due = Expected(parties, rows, record, weights, self.k, own, self.grids)
        for what in bytes_differ(parties, due):
            raise Told(f"{what} is not as specified")
        for v in sorted(set(due.U) & parties.exchange.here):
            for what in self._read(due, v, tables[v]):
                raise Told(f"{what} of client {v} is not as specified")
        self.compared += 1

    def _read(self, due: Expected, v: int, table: Table) -> Iterator[str]:
        """What the user of a client gets, in the order and the dtype of its table."""
        part, most = part_of(self.parties, v), Fraction(due.n.max_abs)
        got, without, below = part.means_like(table), list[Name](), list[Name]()
        if got.dtype != table.dtype:
            yield "the type of means"
        spelled = dict(zip(keys(tuple(table.names)), table.names, strict=True))
        for (name, user), mine, x in zip(spelled.items(), table.matrix.tolist(), got.tolist(), strict=True):
            exact, there = due.mean(name) if name in due.slot and name in due.named(v) else ([], False)
            if not there:
                without.append(user)
            if name in due.named(v) and due.kinds[due.slot[name]] == 2:
                below.append(user)
            right = [max(-most, min(most, each)) for each in exact] if there else [Fraction(each) for each in mine]
            far = [
                abs(Fraction(a) - b) - abs(b) * due.last_bit(table.dtype) * there for a, b in zip(x, right, strict=True)
            ]
            if max(far, default=Fraction(0)) > 0:
                yield "the mean of an entity" if there else "a row without a mean"
        if self.random.random() < 0.5 and part.give_means(table).tolist() != got.tolist():
            yield "what is given away"
        if set(part.without_mean) != set(without) or set(part.below_minimum) != set(below):
            yield "what is said about entities without a mean"


EVENTS: Final[tuple[Callable[[History], None], ...]] = (
    History.restart,
    History.rename,
    History.rename,
    History.epoch,
    History.meanwhile,
    History.absent,
    History.ahead,
    History.lost,
)


def lived(subject: Subject, case: Case) -> int:
    """The life of a federation; how many rounds were compared. `Told` says what is not as specified, and after what."""
    history = History(subject, case)
    try:
        return history.live()
    except Told as told:
        raise Told(f"{told}, after: {'; '.join(history.happened[-6:])}") from None
