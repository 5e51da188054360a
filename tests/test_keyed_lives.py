"""Lives of the keyed form: absences, restarts, crashes after any message, other names; nothing is used twice."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optional import OPTIONS, Due, dues
from secea import CallError, Federation, FederationError, Params, ProtocolError, RoundLost, SnapshotError
from secea.engines.exchange import Exchange, Tap, untouched
from secea.errors import SERVER
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.masking import Masking, public_of
from secea.party.client import Client
from secea.party.phases import REST, Agreement
from secea.party.server import Server
from secea.steps import masks, oprf
from secea.table import Name, key_of
from secea.testing import Parties, insecure_seeded
from secea.wire import snapshot
from secea.wire.keys import Sealer
from secea.wire.link import Signer
from secea.wire.messages import HEADER_BYTES, Buffer, kind_of
from tiers import always

NAMES: Final[tuple[Name, ...]] = ("a", "b", "c", "d", 1, "3", 2, "e")
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
            kept = client._kept(slice(0, len(union.order)))
            for key, row in zip(union.keys[kept], client._values(kept), strict=True):
                self.note("key of a row", (me, key.tobytes(), at.round), row.tobytes())
            for chunk, parts in enumerate(original(client, at)):
                self.note("rho", (me, secrets.key("rho"), chunk), parts[0])
                if own_seed:
                    self.note("mask of one's own", (me, own_seed, chunk), parts[0])
                if round_.spread_seed:
                    self.note("seed of what is added everywhere", (round_.spread_seed, chunk), parts[0])
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


def test_the_ledger_notices_randomness_that_repeats(ledger: Ledger) -> None:
    parties = founded(0)
    parties.setup()
    part: Any = parties.clients[2].part  # it adds noise in both rounds
    part._entropy = bytes
    run(parties, "round")
    with pytest.raises(AssertionError, match="seed of noise serves two different things"):
        run(parties, "round")


# --------------------------------------------------------------------------------------------------------- a long life


class Stopped(FederationError):
    """The server was stopped and started again in the middle of something."""


def reason(error: FederationError) -> str:
    """The kind of an error, which says why."""
    assert len(str(error)) > 20
    return type(error).__name__


class Life:
    """A federation to which things happen; every mean that it gives is numpy's."""

    def __init__(self, clients: int, dropouts: int, seed: int, option: str = "none") -> None:
        self.rng = np.random.Generator(np.random.PCG64([seed, clients, dropouts]))
        bounds: dict[str, Any] = {"rounds": 10_000, "max_entities": 4, "max_union": 8}
        bounds |= OPTIONS.get(option, {})
        params = Params(clients=clients, dim=2, collusion=1, dropouts=dropouts, **bounds)
        entropy = insecure_seeded(int(self.rng.integers(1 << 60)))(SERVER)
        self.fed: Any = Federation(params, form=Keyed(batch=3, max_updates=5_000), entropy=entropy)
        self.fed.setup([self.some_names() for _ in range(clients)])
        self.happened: Counter[str] = Counter()
        self.rounds = 0
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
        self.rounds += 1
        tables, out = self.tables(), set(absent)
        most = self.fed.params.max_weight or int(self.fed.params.partial)
        weights = [{name: int(self.rng.integers(most + 1)) for name in table} if most else None for table in tables]
        given: list[Any] = [None if n in out else table for n, table in enumerate(tables)]
        lost = {n: phase for n, phase in (vanish or {}).items() if n not in out}
        try:
            results = self.fed.round(given, weights=weights, vanish=lost)
        except FederationError as error:
            return reason(error)
        finally:
            self._crash, gone, self._gone = None, self._gone, set()
        among = self.fed.server.at.members
        assert set(range(self.clients)) - out - set(lost) - gone <= set(among) <= set(range(self.clients)) - out
        self.check(tables, weights, results, among, out | set(lost) | gone)
        return "means"

    def check(
        self, tables: Tables, weights: list[Any], results: list[Any], among: Iterable[int], may_be_none: set[int]
    ) -> None:
        among = set(among)
        parts = [self.fed.clients[n].part for n in range(self.clients)]
        waiting = [{name for name in part.next_names if key_of(name) not in part.names} for part in parts]
        known = [{name: row for name, row in tables[v].items() if name not in waiting[v]} for v in range(self.clients)]
        due = dues(self.fed.params, [(known[v], weights[v]) for v in among])
        for n, result in enumerate(results):
            assert result is not None or n in may_be_none
            if result is None:
                continue
            assert list(result) == list(tables[n])
            for name, row in result.items():
                wanted = Due() if name in waiting[n] else due[name]
                assert wanted.meets(row, tables[n][name])
            none = {name for name in known[n] if due[name].low is None}
            assert set(self.fed.without_mean[n]) == waiting[n] | none
            assert set(self.fed.below_minimum[n]) == {name for name in none if due[name].below}
            self.happened["below the minimum"] += any(due[name].below for name in none)
            if waiting[n]:  # what came of a change that broke off, when too few are here for it
                fewest = self.fed.form.fewest(self.fed.params, self.fed.form.names_phase, self.fed.server.at.named + 1)
                assert parts[n].renamed
                assert len(among) < fewest
                self.happened["waits"] += 1

    def change(self) -> str:
        """Somebody's names change; others may be away, vanish, or be stopped meanwhile."""
        who, absent = int(self.rng.integers(self.clients)), set(self.some(1))
        before, after = set(self.fed.clients[who].part.next_names), self.some_names()
        vanish = {n: self.phase() for n in self.some(1) if n not in absent}
        try:
            self.fed.update(who, after, absent=absent - {who}, vanish=vanish)
        except FederationError as error:
            ended = reason(error)
        else:
            ended = "update"
        finally:
            self._crash, self._gone = None, set()
        assert set(self.fed.clients[who].part.next_names) in (before, set(after))
        return ended

    def phase(self) -> str:
        phases: list[str] = [row.phase for row in self.fed.session.rows]
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


LIVES: Final = (*product((3, 4, 5), (0, 1), ["none"]), *product([3], [0], OPTIONS), *product([4], [1], OPTIONS))
QUICK: Final = [(5, 1, "none"), (4, 1, "weights and a minimum"), (3, 0, "rows left out and a minimum")]


@pytest.mark.parametrize(("clients", "dropouts", "option"), always(QUICK, LIVES))
def test_every_mean_of_a_long_life_is_right_and_the_next_quiet_round_works(
    clients: int, dropouts: int, option: str, ledger: Ledger
) -> None:
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    life = Life(clients, dropouts, seed, option)
    for _ in range(30):
        life.something()
    print(life.happened, ledger.counts)
    assert life.rounds >= 60
    assert bool(life.happened["below the minimum"]) == ("minimum" in option)


@pytest.mark.slow
@pytest.mark.parametrize(("dropouts", "option"), [(0, "none"), (1, "none"), (1, "noise and a minimum")])
def test_in_a_life_of_two_hundred_rounds_everything_happens_and_no_key_or_label_serves_twice(
    dropouts: int, option: str, ledger: Ledger
) -> None:
    """Updates, absences, restarts, crashes, losses, joins and leaves, one after the other, with one ledger for all."""
    seed = int(np.random.SeedSequence().generate_state(1)[0])
    print(f"seed {seed}")
    life = Life(4, dropouts, seed, option)
    wanted = {"restart", "crash", "update: update", "disturbed: means", "disturbed: RoundLost", "regroup"}
    while life.rounds < 200 or not all(life.happened[what] for what in wanted):
        life.something()
        assert life.rounds < 2000
    print(life.happened, ledger.counts)
    used = {"label", "key of a message", "mask of a pair", "seed of a list", "key of a row", "rho", "seed of noise"}
    used |= {"pad of noise"} | ({"mask of one's own", "opening of a key"} if dropouts else set())
    used |= {"seed of what is added everywhere"} if "noise" in option else set()
    assert set(ledger.counts) == used


# ------------------------------------------------------------------------------------------- a crash after any message

SETS: Final[list[list[Name]]] = [["a", "b"], ["a", "c"], ["c", "b", "d"]]
OTHER: Final[list[list[Name]]] = [["a", "e"], ["a", "c"], ["d", "b", 1]]


class Dying:
    """A tap: one party is stopped after so many messages, and started again from what it saved last.

    A client saves before the first byte of a phase leaves it, the server before anything does.
    """

    def __init__(self, parties: Parties, who: int | None, after: int) -> None:
        self.parties, self.who, self.after = parties, who, after
        self.hops: list[tuple[Kind, set[int]]] = []
        self.gone: set[int] = set()
        self.saved = {n: client.save() for n, client in parties.clients.items()} | {SERVER: parties.server.save()}
        self.seen: dict[int, Agreement] = {n: client.at for n, client in parties.clients.items()}

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """What is on its way to a party that was stopped, or from it, is gone."""
        if sender not in self.gone:
            self._save(sender)
        if len(self.hops) == self.after and self.who is not None:
            self.stop()
        self.hops.append((kind_of(message, Kind), {sender, receiver}))
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
        case _:
            parties.number += 1
            while True:
                exchange.ask(parties.server.at.members, partial(contribute, parties, trained(parties)))
                if parties.server.at.phase == REST:
                    break
                while parties.server.at.phase != REST:  # somebody was missing: a union of the others
                    exchange.step()
            exchange.run(form.round_phase, parties.server.at.members)
            exchange.check_finished()
            return set(parties.server.at.members)
    return set()


def contribute(parties: Parties, tables: Tables, n: int) -> None:
    parties.clients[n].contribute(tables[n], parties.number)


def trained(parties: Parties) -> Tables:
    """The tables of a training round: a function of its number."""
    rng = np.random.Generator(np.random.PCG64(parties.number))
    return [
        {name: rng.uniform(-3, 3, 2) for name in parties.clients[n].part.next_names} for n in sorted(parties.clients)
    ]


def founded(dropouts: int, sets: list[list[Name]] = SETS, **more: Any) -> Parties:
    """Parties that have not met."""
    tables = [dict.fromkeys(own, np.zeros(2)) for own in sets]
    form = Keyed(batch=2, max_updates=more.pop("max_updates", 10_000), max_new_entities=more.pop("new", None))
    bounds = {"collusion": 1, "dropouts": dropouts, "max_entities": 3, "max_union": 8, "rounds": 10_000}
    return Parties.of(tables, form, dim=2, **(bounds | more))


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
        first = not all(part.naming.names.number for part in parts)  # who has no answers yet waits for the first epoch
        parties.server.begin(form.names_phase, everyone, names=int(first and parties.server.at.named > 0))
        while parties.server.at.phase != REST:
            exchange.step()
    settled = {*(client.at.phase for client in parties.clients.values()), parties.server.at.phase} == {REST}
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
        return reason(error)
    check_means(parties, among - dying.gone if stage == "round" else set(), among)
    return f"{stage} of {len(among - dying.gone)}" if among else stage


def crashes(parties: Callable[[], Parties], stage: str, until: Kind | None = None) -> Counter[str]:
    """A crash of each party after each message that it sends or gets."""
    there = parties()
    whole = Dying(there, None, 0)
    outcome(there, stage, whole)
    undisturbed(there)
    ended: Counter[str] = Counter()
    for after, (kind, ends) in enumerate(whole.hops):
        if kind is until:
            break
        for who in sorted(ends):  # a message changes its sender and its receiver, and nobody else
            there = parties()
            ended[outcome(there, stage, Dying(there, who, after))] += 1
            undisturbed(there)
    return ended


@pytest.mark.slow
def test_after_a_crash_at_any_message_of_a_setup_there_is_a_federation(ledger: Ledger) -> None:
    print(crashes(lambda: founded(0), "set-up", until=Kind.PART), ledger.counts)  # a union is part of "names" too


@pytest.mark.slow
@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("stage", ["names", "round"])
def test_after_a_crash_at_any_message_the_next_round_works(dropouts: int, stage: str, ledger: Ledger) -> None:
    one = founded(dropouts)  # it lives through all of them
    one.setup()
    print(crashes(lambda: one, stage), ledger.counts)


# -------------------------------------------------------------------------------------------------------- old snapshots


def lived(dropouts: int) -> tuple[Parties, dict[int, list[bytes]]]:
    """Parties that did everything once, and all that each of them ever saved."""
    parties = founded(dropouts)
    saved: dict[int, dict[bytes, None]] = {n: {} for n in (0, 1, 2, SERVER)}

    def keeping(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        saved[sender][(parties.server if sender == SERVER else parties.clients[sender]).save()] = None
        return (message,)

    parties.exchange.tap = keeping
    for stage in ("set-up", "round", "names", "round", "round"):
        if stage == "round" and not parties.server.part.prepared(parties.server.at):
            parties.exchange.run("batch", range(3))
        run(parties, stage)
    return parties, {n: list(each) for n, each in saved.items()}


@pytest.mark.slow
@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("who", [0, 2, SERVER])
def test_an_old_snapshot_is_refused_or_works_and_nothing_is_used_twice(dropouts: int, who: int, ledger: Ledger) -> None:
    ended: Counter[str] = Counter()
    ages, named = len(lived(dropouts)[1][who]), 0
    for age in range(ages):
        parties, saved = lived(dropouts)
        parties.restart(who, saved[who][age])
        part: Any = None if who == SERVER else parties.clients[who].part
        named += part is not None and part.naming.names.number > 0
        try:
            undisturbed(parties)
            ended["works"] += 1
        except (ProtocolError, FederationError) as refused:
            ended[str(refused)] += 1
    print(f"{ages} snapshots: {ended}, {ledger.counts}")
    known = (
        ("these are not next",) if who == SERVER else ("a new key; that needs a new session", "epoch 1 of names; it")
    )
    assert all(text == "works" or any(each in text for each in known) for text in ended)
    assert ended["works"] == (1 if who == SERVER else named)  # all that were made with the keys of names
    assert who == SERVER or named > ages / 2


def in_the_middle_of_an_epoch(max_updates: int = 10_000) -> Parties:
    """All lists are confirmed, and nobody has its answers."""
    parties = founded(0, max_updates=max_updates)
    parties.setup()
    run(parties, "round")
    for n, names in enumerate(OTHER):
        parties.clients[n].part.update(names)
    parties.exchange.run("list", range(3), until="evaluate")
    return parties


def lists(parties: Parties) -> list[bytes]:
    parts: list[Any] = [parties.clients[n].part for n in range(3)]
    return [bytes(part.naming._points) for part in parts]


@settings(max_examples=8)
@given(who=st.sets(st.sampled_from([0, 1, 2, SERVER]), min_size=1))
def test_a_list_is_sent_again_with_the_same_bytes_after_a_restart(who: set[int]) -> None:
    parties = in_the_middle_of_an_epoch()
    before = lists(parties)
    parties.server.give_up()
    for n in who:
        parties.restart(n)
    parties.exchange.greet()
    parties.exchange.run("list", range(3), until="confirm")
    assert lists(parties) == before
    assert parties.server.at.names == 2
    undisturbed(parties)
    assert [set(client.part.next_names) for client in parties.clients.values()] == [set(names) for names in OTHER]


def test_whoever_is_restored_from_before_its_list_and_makes_another_one_is_refused_by_all() -> None:
    parties = founded(0)
    parties.setup()
    old = parties.clients[1].save()
    parties.exchange.run("list", range(3), until="evaluate")
    parties.server.give_up()
    parties.restart(1, old)
    with pytest.raises(ProtocolError, match="another list of blinded names in epoch 2 than it sent before") as refused:
        undisturbed(parties)
    assert 1 in refused.value.suspects


@pytest.mark.parametrize("restarted", [0, 2])
def test_marks_that_were_confirmed_before_a_restart_bind_after_it(restarted: int) -> None:
    parties = in_the_middle_of_an_epoch()
    parties.server.give_up()
    parties.restart(restarted)
    parties.exchange.greet()
    part: Any = parties.clients[1].part
    naming = part.naming
    naming.names = dataclasses.replace(naming.names, seed=bytes(32), marks={})  # another list of the same names
    seen = []

    def only_the_restarted(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        if kind_of(message, Kind) is Kind.MARK and receiver in (0, 2):
            seen.append(receiver)
            return (message,) if receiver == restarted else ()
        return (message,)

    parties.exchange.tap = only_the_restarted
    with pytest.raises(ProtocolError, match="another list of blinded names in epoch 2 than it sent before"):
        parties.exchange.run("list", range(3))
    assert restarted in seen


def test_budgets_of_updates_survive_restarts() -> None:
    parties = founded(0, max_updates=2)
    parties.setup()
    for epoch in (2, 3):
        run(parties, "names")
        assert parties.server.at.named == epoch
        for n in (0, 1, 2, SERVER):
            parties.restart(n)
        parties.exchange.greet()
    with pytest.raises(ProtocolError, match="announces epoch 4 of names; it is not due"):
        run(parties, "names")


def test_what_was_uploaded_before_a_restart_is_not_uploaded_otherwise_after_it() -> None:
    parties = founded(0, [*SETS, ["a"]])
    parties.setup()
    parties.exchange.losses = {2: "upload"}
    parties.number = 1
    tables = trained(parties)
    parties.exchange.ask(range(4), lambda n: parties.clients[n].contribute(tables[n], 1))
    with pytest.raises(RoundLost, match="client 2 vanished"):
        parties.exchange.run("upload", range(4))
    parties.exchange.losses = {}
    for n in (0, 1, 2, 3):
        parties.restart(n)
    client, others = parties.clients[0], {name: row + 0.5 for name, row in tables[0].items()}
    parties.exchange.here = {0, 1, 3}
    parties.exchange.greet()
    parties.exchange.run("secret", [0, 1, 3])
    parties.server.begin("ready", [0, 1, 3])
    parties.exchange.deliver()
    with pytest.raises(RoundLost, match="went out to 4 clients"):
        client.contribute(tables[0], 1)
    parties.server.give_up()
    parties.exchange.here = set(range(4))
    parties.exchange.greet()
    parties.exchange.run("secret", range(4))
    parties.server.begin("ready", range(4))
    parties.exchange.deliver()
    with pytest.raises(RoundLost, match="other values than these"):
        client.contribute(others, 1)
    parties.server.give_up()
    parties.exchange.run("secret", range(4))
    parties.number = 0
    assert run(parties, "round") == {0, 1, 2, 3}
    check_means(parties, {0, 1, 2, 3}, {0, 1, 2, 3})


# ------------------------------------------------------------------------------------------------------------ snapshots


@pytest.fixture(scope="module")
def old() -> Parties:
    """Parties of which nothing but snapshots is used."""
    parties = founded(0)
    parties.setup()
    parties.round(trained(parties))
    return parties


def restored(parties: Parties, n: int, data: bytes, session: Any = None) -> Client | Server:
    """A party from saved bytes."""
    if n == SERVER:
        return Server.restore(session or parties.session, parties.identities[n], data)
    return Client.restore(session or parties.session, parties.identities[n], data)


def saved_by(parties: Parties, n: int) -> bytes:
    return (parties.server if n == SERVER else parties.clients[n]).save()


@given(n=st.sampled_from([0, SERVER]), at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_damaged_and_truncated_snapshots_are_refused(old: Parties, n: int, at: float, flip: int) -> None:
    data = saved_by(old, n)
    place = int(at * len(data))
    wrong = bytes([*data[:place], data[place] ^ flip, *data[place + 1 :]])
    for bad in (wrong, data[:place], data + bytes([flip])):
        with pytest.raises(SnapshotError, match=r"is damaged|not saved state of this version"):
            restored(old, n, bad)


def test_snapshots_of_another_session_party_or_version_are_refused_with_a_clear_text(old: Parties) -> None:
    other = founded(0, max_union=9)
    for n in (0, SERVER):
        with pytest.raises(SnapshotError, match="of another session or version: roster and parameters"):
            restored(old, n, saved_by(other, n))
        with pytest.raises(SnapshotError, match="of another session or version"):
            restored(old, n, saved_by(old, SERVER if n == 0 else 0))
        content = snapshot.loads(saved_by(old, n))
        with pytest.raises(SnapshotError, match="of another session or version"):
            restored(old, n, snapshot.dumps(content | {"what": content["what"][:-1] + "0"}))
    with pytest.raises(SnapshotError, match="saved state of client 1: restore it with that client's identity"):
        restored(old, 0, saved_by(old, 1))
    with pytest.raises(CallError, match="not the one that the roster pins for the server"):
        Server.restore(old.session, old.identities[0], saved_by(old, SERVER))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a snapshot."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from leaves(item, (*path, i))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The same with something else in one place."""
    if not path:
        return new
    if isinstance(value, dict):
        return value | {path[0]: changed(value[path[0]], path[1:], new)}
    return (*value[: path[0]], changed(value[path[0]], path[1:], new), *value[path[0] + 1 :])


@given(n=st.sampled_from([0, SERVER]), data=st.data())
def test_a_snapshot_that_was_made_up_gives_one_error_or_a_party(old: Parties, n: int, data: st.DataObject) -> None:
    content = snapshot.loads(saved_by(old, n))
    path = data.draw(st.sampled_from(list(leaves(content))))
    new: Any = data.draw(st.sampled_from([None, -1, 1 << 70, 0.5, "x", b"", b"x" * 31, (), (1, 2), {}, [3], True]))
    with suppress(SnapshotError):
        restored(old, n, snapshot.dumps(changed(content, path, new)))


def secrets_of(client: Client) -> dict[str, list[bytes]]:
    """What a client knows and nobody may see, by how long it may be kept."""
    part: Any = client.part
    union, batch, names = part.union, part.masking.batch, part.naming.names
    memory = [client.link._key.secret, part._entropy(0), *part.tables.fill]
    if union is not None:
        memory += [union.part, union.mask_key, union.secret, *union.pairs.values(), *(bytes(key) for key in union.keys)]
    if part.round is not None:
        memory += [part.round.noise_seed, part._values(part._kept(slice(0, len(union.order)))).tobytes()]
    if batch is not None:
        memory += [batch.seed, *batch.shares.values()]
        memory += [scalar.to_bytes(32, "little") for scalar in (*batch.keys, *batch.seeds)]
    kept = [part.naming.key.share, names.seed, *names.prf.values()]
    return {"memory": [each for each in memory if each], "kept": [each for each in kept if each]}


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("phase", ["secret", "table", "batch", "ready", "upload", "agree", "open"])
def test_what_serves_one_life_is_in_no_snapshot_and_no_secret_is_shown(dropouts: int, phase: str) -> None:
    parties, reached = founded(dropouts), 0

    def looking(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        nonlocal reached
        for client in parties.clients.values():
            if client.at.phase != phase:
                continue
            reached += 1
            secrets, data = secrets_of(client), client.save()
            assert not [each for each in secrets["memory"] if each in data]
            assert all(each in data for each in secrets["kept"])
            part: Any = client.part
            shown = "".join(map(repr, (client, client.due, part.union, part.round, part.released, part.masking.batch)))
            shown += f"{part.naming.key!r} {part.naming.names!r} {client.link!r}"
            for each in (*secrets["memory"], *secrets["kept"]):
                assert repr(each)[2:-1] not in shown
                assert each.hex() not in shown
        return (message,)

    parties.exchange.tap = looking
    parties.setup()
    parties.round(trained(parties))
    assert bool(reached) == (dropouts > 0 or phase not in ("batch", "agree", "open"))
