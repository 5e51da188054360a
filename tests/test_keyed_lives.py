"""Lives of the keyed form: absences, returns, restarts, crashes after any message, other names; nothing is used twice."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea import Federation, FederationError, Params, ProtocolError, RoundLost, SnapshotError
from secea.engines.exchange import Exchange, Tap, untouched
from secea.errors import SERVER
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.masking import Masking, public_of
from secea.party.client import Client
from secea.party.phases import REST, Agreement
from secea.party.server import Server
from secea.steps import masks, oprf
from secea.table import Name
from secea.testing import Parties, insecure_seeded
from secea.wire import snapshot
from secea.wire.keys import Sealer
from secea.wire.link import Signer
from secea.wire.messages import HEADER_BYTES, Buffer, kind_of

NAMES: Final[tuple[Name, ...]] = ("a", "b", "c", "d", 1, "1", 2, "e")
WITHIN: Final = 1e-5
Tables = list[dict[Name, Any]]


# ------------------------------------------------------------------------------------------------------------ a ledger


@dataclass
class Ledger:
    """What each label and each key stream was used for. No two things under one of them, whoever was restarted."""

    used: dict[tuple[Any, ...], bytes] = field(default_factory=dict, repr=False)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, what: str, key: tuple[Any, ...], *plain: Buffer) -> None:
        """This key serves these bytes; the same bytes again are no second use."""
        hashed = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + bytes(part) for part in plain)).digest()
        self.counts[what] += (what, *key) not in self.used
        assert self.used.setdefault((what, *key), hashed) == hashed, f"{what} serves two different things"

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Listen wherever something is sealed, signed, masked, blinded or opened."""
        for writer in (Sealer, Signer):
            self._wrap(patch, writer, "seal", self._sealed)
        self._wrap(patch, masks, "add_masks", self._masked)
        self._wrap(patch, oprf, "blind", self._blinded)
        self._wrap(patch, Masking, "_opening", self._opened)
        self._listen_to_uploads(patch)

    @staticmethod
    def _wrap(patch: pytest.MonkeyPatch, owner: Any, name: str, listen: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any) -> Any:
            before = [np.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
            result = original(*args)
            listen(result, *before)
            return result

        patch.setattr(owner, name, wrapped)

    def _sealed(self, message: Buffer, writer: Any, chunk: int, *_payload: Buffer) -> None:
        self.note("label", (bytes(message[:HEADER_BYTES]),), message)
        if isinstance(writer, Sealer):
            self.note("key of a message", (writer._cipher.key, chunk), message)

    def _masked(self, _: None, ring: Any, rows: Any, me: int, seeds: dict[int, bytes], lane: int) -> None:
        for seed in seeds.values():
            self.note("mask of a pair", (me, seed, lane), rows.tobytes())

    def _blinded(self, blinding: Any, inputs: Sequence[bytes], size: int, seed: bytes) -> None:
        self.note("seed of a list", (seed,), blinding.points.tobytes())

    def _opened(self, _: bytes, masking: Masking, at: Agreement) -> None:
        assert masking.batch is not None
        for v in at.participants:
            key = public_of(masking.batch.public[v], at.round - masking.batch.first)
            self.note("opening of a key", (masking.number, key), b"its own" if v in at.members else b"of pairs")

    def _listen_to_uploads(self, patch: pytest.MonkeyPatch) -> None:
        original = KeyedClient._upload

        def listening(client: KeyedClient, at: Agreement) -> Iterator[Sequence[Buffer]]:
            union, round_ = client.union, client.round
            assert union is not None
            assert round_ is not None
            me, secrets = client.number, client.secrets(at)
            _, own_seed = client.masking.seeds(at, union.L, union.pairs)
            for i, key in zip(union.order, union.keys, strict=True):
                self.note("key of a row", (me, key.tobytes(), at.round), round_.values[i].tobytes())
            for chunk, parts in enumerate(original(client, at)):
                self.note("rho", (me, secrets.key("rho"), chunk), parts[0])
                if own_seed:
                    self.note("mask of one's own", (me, own_seed, chunk), parts[0])
                if round_.noise_seed:
                    self.note("seed of noise", (round_.noise_seed, chunk), *parts)
                    for k in range(secrets.checks):
                        self.note("pad of noise", (me, secrets.key("H", me, k), chunk), *parts[1:])
                yield parts

        patch.setattr(KeyedClient, "_upload", listening)


@pytest.fixture(autouse=True)
def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients do not work side by side here: a seed gives the same messages in the same order."""

    def in_order(_: Exchange, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [work(item) for item in items]

    monkeypatch.setattr(Exchange, "_map", in_order)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    kept = Ledger()
    kept.install(monkeypatch)
    return kept


# --------------------------------------------------------------------------------------------------------- a long life


class Stopped(FederationError):
    """The server was stopped and started again in the middle of something."""


class Life:
    """A federation to which things happen; every mean that it gives is numpy's."""

    def __init__(self, clients: int, dropouts: int, seed: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64([seed, clients, dropouts]))
        params = Params(
            clients=clients, dim=2, collusion=1, dropouts=dropouts, rounds=10_000, max_entities=4, max_union=8
        )
        entropy = insecure_seeded(int(self.rng.integers(1 << 60)))(SERVER)
        self.fed: Any = Federation(params, form=Keyed(batch=3, max_updates=5_000), entropy=entropy)
        self.fed.setup([self.some_names() for _ in range(clients)])
        self.happened: Counter[str] = Counter()
        self._crash: tuple[int, int] | None = None
        self._hops = 0
        self._gone: set[int] = set()
        self._listen()

    def _listen(self) -> None:
        self.pass_on: Tap = self.fed._exchange.tap
        self.fed._exchange.tap = self.tap

    def tap(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """What a party that was stopped had to say is gone, and so is what was on its way to it."""
        self._hops += 1
        if self._crash is not None and self._hops >= self._crash[0]:
            (_, who), self._crash = self._crash, None
            self.fed.restart(who)
            self.happened["crash"] += 1
            if who == SERVER:
                raise Stopped("the server was restarted in the middle of it")
            self._gone.add(who)
            self.fed._exchange.here.discard(who)
        return () if {sender, receiver} & self._gone else self.pass_on(sender, receiver, message)

    @property
    def clients(self) -> int:
        return int(self.fed.params.clients)

    def some_names(self) -> list[Name]:
        return [NAMES[int(i)] for i in self.rng.choice(len(NAMES), int(self.rng.integers(5)), replace=False)]

    def some(self, most: int) -> list[int]:
        count = int(self.rng.integers(most + 1))
        return [int(n) for n in self.rng.choice(self.clients, min(count, self.clients), replace=False)]

    def tables(self) -> Tables:
        tables: Tables = []
        for n in range(self.clients):
            names = list(self.fed.clients[n].part.next_names)
            self.rng.shuffle(names)
            tables.append({name: self.rng.uniform(-3, 3, 2) for name in names})
        return tables

    def round(self, absent: Iterable[int] = (), vanish: dict[int, str] | None = None) -> str:
        """One round; how it ended."""
        tables, out = self.tables(), set(absent)
        given: list[Any] = [None if n in out else table for n, table in enumerate(tables)]
        lost = {n: phase for n, phase in (vanish or {}).items() if n not in out}
        try:
            results = self.fed.round(given, vanish=lost)
        except FederationError as error:
            assert str(error)
            return type(error).__name__
        finally:
            self._crash, gone, self._gone = None, self._gone, set()
        among = self.fed.server.at.members
        assert set(range(self.clients)) - out - set(lost) - gone <= set(among) <= set(range(self.clients)) - out
        self.check(tables, results, among, out | set(lost) | gone)
        return "means"

    def check(self, tables: Tables, results: list[Any], among: Iterable[int], may_be_none: set[int]) -> None:
        for n, result in enumerate(results):
            assert result is not None or n in may_be_none
            for name, mean in (result or {}).items():
                truth = np.mean([tables[v][name] for v in among if name in tables[v]], axis=0)
                assert np.abs(mean - truth).max() < WITHIN
            assert result is None or list(result) == list(tables[n])
        assert all(not without for n, without in enumerate(self.fed.without_mean) if results[n] is not None)

    def change(self) -> str:
        """Somebody's names change; others may be away, vanish, or be stopped meanwhile."""
        who, absent = int(self.rng.integers(self.clients)), set(self.some(1))
        before, after = set(self.fed.clients[who].part.next_names), self.some_names()
        vanish = {n: self.phase() for n in self.some(1) if n not in absent}
        try:
            self.fed.update(who, after, absent=absent - {who}, vanish=vanish)
        except FederationError as error:
            assert str(error)
            ended = type(error).__name__
        else:
            ended = "update"
        finally:
            self._crash, self._gone = None, set()
        assert set(self.fed.clients[who].part.next_names) in (before, set(after))
        return ended

    def phase(self) -> str:
        phases = [row.phase for row in self.fed.session.rows]
        return phases[int(self.rng.integers(len(phases)))]

    def crash_soon(self) -> None:
        """Somebody is stopped, and started again, after some message of what comes next."""
        who = int(self.rng.integers(-1, self.clients))
        self._hops, self._crash = 0, (int(self.rng.integers(1, 120)), SERVER if who < 0 else who)

    def regroup(self) -> str:
        if self.clients > 3 + self.fed.params.dropouts and self.rng.random() < 0.5:
            self.fed.leave(int(self.rng.integers(self.clients)))
        elif self.clients < 6:
            self.fed.join(self.some_names())
        else:
            return "full"
        self._listen()
        return "regroup"

    def something(self) -> None:
        """Things happen; then a round in which nothing happens, and which always works."""
        dice = self.rng.random(6)
        if dice[0] < 0.03:
            self.happened[self.regroup()] += 1
        if dice[1] < 0.3:
            self.fed.restart(*(SERVER if n == self.clients - 1 and dice[2] < 0.5 else n for n in {0, *self.some(9)}))
            self.happened["restart"] += 1
        if dice[3] < 0.35:
            self.crash_soon()
        if dice[2] < 0.3:
            self.happened[f"update: {self.change()}"] += 1
        if dice[4] < 0.35:
            self.crash_soon()
        vanish = {n: self.phase() for n in self.some(2)} if dice[5] < 0.5 else {}
        self.happened[f"disturbed: {self.round(self.some(1), vanish)}"] += 1
        if dice[0] < 0.5:
            self.happened[f"again: {self.round(self.some(2))}"] += 1
        assert self.round() == "means"
        self.happened["undisturbed"] += 1


@pytest.mark.parametrize(("clients", "dropouts"), [(3, 0), (4, 0), (5, 0), (3, 1), (4, 1), (5, 1)])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_mean_of_a_long_life_is_right_and_the_next_quiet_round_works(
    clients: int, dropouts: int, seed: int, ledger: Ledger
) -> None:
    print(f"seed {seed}")
    life = Life(clients, dropouts, seed)
    for _ in range(25):
        life.something()
    print(life.happened, ledger.counts)


# ------------------------------------------------------------------------------------------- a crash after any message

SETS: Final[list[list[Name]]] = [["a", "b"], ["a", "c"], ["c", "b", "d"]]
OTHER: Final[list[list[Name]]] = [["a", "e"], ["a", "c"], ["d", "b", 1]]


class Dying:
    """A tap: one party is stopped after so many messages, and started again from what it saved last.

    A client saves before the first byte of a phase leaves it, the server before anything does; with `first` what was
    saved before the stage began is all that is left.
    """

    def __init__(self, parties: Parties, who: int | None, after: int, *, first: bool = False) -> None:
        self.parties, self.who, self.after, self.first = parties, who, after, first
        self.hops: list[set[int]] = []
        self.gone: set[int] = set()
        self.saved = {n: client.save() for n, client in parties.clients.items()} | {SERVER: parties.server.save()}
        self.seen: dict[int, Agreement] = {n: client.at for n, client in parties.clients.items()}

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """What is on its way to a party that was stopped, or from it, is gone."""
        if not self.first and sender not in self.gone:
            self._save(sender)
        if len(self.hops) == self.after and self.who is not None:
            self.stop()
        self.hops.append({sender, receiver})
        return () if {sender, receiver} & self.gone else (message,)

    def _save(self, sender: int) -> None:
        if sender == SERVER:
            self.saved[SERVER] = self.parties.server.save()
        elif self.parties.clients[sender].at != self.seen[sender]:
            client = self.parties.clients[sender]
            self.saved[sender], self.seen[sender] = client.save(), client.at

    def stop(self) -> None:
        """Another life begins."""
        who, self.who = self.who, None
        assert who is not None
        self.parties.restart(who, self.saved[who])
        self.gone.add(who)
        if who == SERVER:
            raise Stopped("the server was restarted in the middle of it")
        self.parties.exchange.here.discard(who)


def run(parties: Parties, stage: str) -> set[int]:
    """One stage, from where nothing goes on; who is in the sum of a round."""
    exchange, form = parties.exchange, parties.session.form
    match stage:
        case "set-up":
            parties.setup()
        case "names":
            sets = OTHER if set(parties.clients[0].part.next_names) == set(SETS[0]) else SETS
            for n, names in enumerate(sets):
                parties.clients[n].part.update(names)
            exchange.run(form.names_phase, range(3))
        case "union":
            exchange.run(form.union_phase, range(3))
        case _:
            parties.number += 1
            while True:
                tables = trained(parties)
                for n in parties.server.at.members:
                    parties.clients[n].contribute(tables[n], parties.number)
                parties.server.collect(form.ready_phase)
                exchange.step()
                if parties.server.at.phase == REST:
                    break
                while parties.server.at.phase != REST:  # somebody was missing: a union of the others
                    exchange.step()
            exchange.run(form.round_phase, parties.server.at.members)
            exchange.check_finished()
            return set(parties.server.at.members)
    return set()


def trained(parties: Parties) -> Tables:
    """The tables of a training round: a function of its number."""
    rng = np.random.Generator(np.random.PCG64(parties.number))
    return [
        {name: rng.uniform(-3, 3, 2) for name in parties.clients[n].part.next_names} for n in sorted(parties.clients)
    ]


def founded(dropouts: int, sets: list[list[Name]] = SETS, **more: Any) -> Parties:
    """Parties that have not met."""
    tables = [dict.fromkeys(own, np.zeros(2)) for own in sets]
    bounds = {"collusion": 1, "dropouts": dropouts, "max_entities": 3, "max_union": 8, "rounds": 10_000}
    return Parties.of(tables, Keyed(batch=2, max_updates=10_000), dim=2, **(bounds | more))


def undisturbed(parties: Parties) -> None:
    """Everybody is back: whatever was left undone is done, and a round gives numpy's means."""
    exchange, form, everyone = parties.exchange, parties.session.form, range(len(parties.clients))
    exchange.tap, exchange.here = untouched, set(everyone)
    parties.server.give_up()
    exchange.greet()
    parts: list[Any] = [parties.clients[n].part for n in everyone]
    if not all(part.naming.key.joint for part in parts):
        exchange.run(form.setup_phase, everyone)
    while any(part.renamed for part in parts):
        exchange.run(form.names_phase, everyone)
    settled = all(party.at.phase == REST for party in (*parties.clients.values(), parties.server))
    if not settled or parties.server.at.members != tuple(everyone):
        exchange.run(form.union_phase, everyone)
    if not parties.server.part.prepared(parties.server.at):
        exchange.run(form.prepare_phase, everyone)
    assert run(parties, "round") == set(everyone)
    check_means(parties, set(everyone), set(everyone))


def check_means(parties: Parties, who: set[int], among: set[int]) -> None:
    """These clients have the means over those."""
    tables = trained(parties)
    for n in who:
        for row, name in zip(parties.means(n, tables[n]), tables[n], strict=True):
            truth = np.mean([tables[v][name] for v in among if name in tables[v]], axis=0)
            assert np.abs(row - truth).max() < WITHIN


def outcome(parties: Parties, stage: str, dying: Dying) -> str:
    """How a stage with a crash in it ended; a mean that somebody has is the right one."""
    parties.exchange.tap = dying
    try:
        among = run(parties, stage)
    except FederationError as error:
        assert str(error)
        return type(error).__name__
    check_means(parties, among - dying.gone if stage == "round" else set(), among)
    return f"{stage} of {len(among - dying.gone)}" if among else stage


def crashes(parties: Callable[[], Parties], stage: str) -> Counter[str]:
    """A crash of each party after each message that it sends or gets."""
    there = parties()
    whole = Dying(there, None, 0)
    outcome(there, stage, whole)
    undisturbed(there)
    ended: Counter[str] = Counter()
    for after, ends in enumerate(whole.hops):
        for who in sorted(ends):  # a message changes its sender and its receiver, and nobody else
            there = parties()
            ended[outcome(there, stage, Dying(there, who, after))] += 1
            undisturbed(there)
    return ended


def test_after_a_crash_at_any_message_of_a_setup_there_is_a_federation(ledger: Ledger) -> None:
    print(crashes(lambda: founded(0), "set-up"), ledger.counts)


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("stage", ["names", "union", "round"])
def test_after_a_crash_at_any_message_the_next_round_works(dropouts: int, stage: str, ledger: Ledger) -> None:
    one = founded(dropouts)  # it lives through all of them
    one.setup()
    print(crashes(lambda: one, stage), ledger.counts)
