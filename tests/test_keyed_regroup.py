"""Joining and leaving: the key of the names is kept exactly where that is safe, and what would abuse it is refused."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from secea import Federation, FederationError, Params, ParamsError, ProtocolError
from secea.arithmetic.ristretto import ORDER, multiply_base, read_scalar, scalar_rows
from secea.engines.exchange import Exchange
from secea.errors import SERVER, CallError, TableError, TwoClients, Uncovered
from secea.forms import FormName
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.handover import Following, Handover
from secea.forms.keyed.names import Key, Names, Naming
from secea.forms.keyed.server import KeyedServer
from secea.party.client import Client
from secea.party.phases import REST, STOPPED, Agreement
from secea.party.server import Server
from secea.party.session import Session
from secea.steps import oprf
from secea.testing import Parties, Recorder
from secea.wire.keys import Identity, Roster
from secea.wire.messages import Buffer
from secea.wire.randomness import KeyStream
from tiers import slow

WITHIN = 1e-5
NAMES = tuple("abcdefgh")
Payload = Callable[[IntEnum, int, bytes], bytes]


def naming(client: Any) -> Naming:
    return client.part.naming  # type: ignore[no-any-return]


def public_key(fed: Any) -> bytes:
    (key,) = {oprf.public_key(naming(client).key.joint) for client in fed.clients.values()}
    return key


def prf_of(fed: Any) -> list[dict[Any, bytes]]:
    """F of the names of each client."""
    return [dict(naming(client).names.prf) for _, client in sorted(fed.clients.items())]


def check_round(fed: Any, rng: np.random.Generator) -> None:
    """Every mean is numpy's."""
    clients = [client for _, client in sorted(fed.clients.items())]
    tables = [{name: rng.uniform(-3, 3, 2) for name in client.part.next_names} for client in clients]
    for table, result in zip(tables, fed.round(tables), strict=True):
        assert list(result) == list(table)
        for name, mean in result.items():
            truth = np.mean([each[name] for each in tables if name in each], axis=0)
            assert np.abs(mean - truth).max() < WITHIN


def federation(clients: int, sets: Sequence[Sequence[str]], form: Keyed | FormName = "keyed", **more: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TwoClients)
        warnings.simplefilter("ignore", Uncovered)
        fed = Federation(Params(**({"clients": clients, "dim": 2} | more)), form=form)
    fed.setup(sets)
    return fed


# ----------------------------------------------------------------------------------------------- where the key is kept


@pytest.mark.slow
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), clients=st.integers(2, 5), dropouts=st.integers(0, 1), seed=st.integers(0, 2**32))
def test_the_key_is_kept_exactly_where_those_who_left_cannot_hold_it(
    data: st.DataObject, clients: int, dropouts: int, seed: int
) -> None:
    dropouts = min(dropouts, clients - 2)
    collusion = data.draw(st.one_of(st.none(), st.integers(1, clients - 1 - dropouts)))
    some_names = st.lists(st.sampled_from(NAMES), max_size=4, unique=True)
    rng = np.random.default_rng(seed)
    sets = [data.draw(some_names) for _ in range(clients)]
    fed = federation(clients, sets, collusion=collusion, dropouts=dropouts, max_entities=4, max_union=8)
    kept_once = False
    for _ in range(3):
        before, key, N, T = prf_of(fed), public_key(fed), fed.params.clients, fed.params.T
        fewest = max(2 + dropouts, (collusion or 1) + 1 + dropouts)
        leaves = fewest < N and (N == 6 or data.draw(st.booleans()))
        passed = len(fed.traffic)
        if leaves:
            who = data.draw(st.integers(0, N - 1))
            fed.leave(who)
            del before[who]
        else:
            assert fed.join(data.draw(some_names)) == N
        kept = fed.params.T + leaves <= T
        assert (public_key(fed) == key) == kept
        assert isinstance(fed.session.form, Following) == kept
        after = prf_of(fed)
        if kept:
            kept_once = True
            assert after[: len(before)] == before
            asked = {hop.sender for hop in fed.traffic[passed:] if hop.kind == "list"}
            answered = {hop.receiver for hop in fed.traffic[passed:] if hop.kind == "evaluation"} - {"server"}
            assert asked == (set() if leaves else {N})
            assert answered == (set() if leaves else {N})
            shared = {name: value for own in before for name, value in own.items()}
            assert all(shared.get(name, value) == value for name, value in after[-1].items())
        else:
            assert all(value not in set(own.values()) for own in before for each in after for value in each.values())
        check_round(fed, rng)
    if collusion is not None and fed.params.clients > clients:
        assert kept_once


@pytest.mark.parametrize("dropouts", [0, 1])
def test_shares_of_the_kept_key_are_new_and_lie_on_one_polynomial(dropouts: int) -> None:
    fed = federation(6, [list("ab")] * 6, dropouts=dropouts)
    old = {n: naming(client).key.share for n, client in fed.clients.items()}
    key = public_key(fed)
    fed.leave(2)
    shares = {n: naming(client).key.share for n, client in fed.clients.items()}
    assert not set(shares.values()) & set(old.values())
    T = fed.params.T
    for holders in (range(T + 1), range(5 - T - 1, 5)):
        k = sum(oprf.part_of_key(shares[j], list(holders), j) for j in holders)
        assert multiply_base(scalar_rows([k])).tobytes() == key
    mixed = sum(oprf.part_of_key(old[0] if j == 0 else shares[j], list(range(T + 1)), j) for j in range(T + 1))
    assert multiply_base(scalar_rows([mixed])).tobytes() != key


def test_whoever_is_gone_for_good_cannot_hand_over_and_there_is_a_new_key() -> None:
    fed = federation(4, [list("ab"), list("bc"), list("cd"), list("da")])
    key, before = public_key(fed), prf_of(fed)
    fed.leave(3, gone=True)
    assert public_key(fed) != key
    assert prf_of(fed)[0]["a"] != before[0]["a"]
    check_round(fed, np.random.default_rng(3))


def test_names_that_are_to_change_change_in_the_new_session() -> None:
    fed = federation(4, [list("ab"), list("bc"), list("cd"), list("da")], max_entities=4, max_union=8)
    key, before = public_key(fed), prf_of(fed)
    fed.clients[1].part.update(["b", "x"])
    fed.leave(0)
    assert public_key(fed) == key
    assert fed.clients[0].part.next_names == ("b", "x")
    check_round(fed, np.random.default_rng(4))
    assert prf_of(fed)[0]["b"] == before[1]["b"]
    assert "x" in prf_of(fed)[0]


@pytest.mark.parametrize("leaves", [True, False])
def test_names_that_found_no_room_wait_in_the_new_session_too_and_make_no_epoch_due(leaves: bool) -> None:
    form = Keyed(max_new_entities=2)
    fed = federation(4, [list("ab")] * 4, form=form, collusion=None if leaves else 2, max_entities=12, max_union=20)
    key, wanted = public_key(fed), ("a", *(f"new {i}" for i in range(9)))
    fed.clients[1].part.update(wanted, at_once=False)
    check_round(fed, np.random.default_rng(4))
    for left in (7, 7):
        assert (len(fed.clients[1].part.waiting), fed.clients[1].part.renamed) == (left, False)
        check_round(fed, np.random.default_rng(4))
    fed.leave(3) if leaves else fed.join(["z"])
    assert public_key(fed) == key
    part = fed.clients[1].part
    assert (len(part.waiting), set(part.next_names), part.renamed) == (7, set(wanted), False)
    updates = naming(fed.clients[1]).updates
    check_round(fed, np.random.default_rng(4))
    assert naming(fed.clients[1]).updates == updates
    fed.update(0, ["b"])
    assert (len(part.waiting), part.renamed) == (5, False)


def test_a_change_whose_epoch_broke_off_is_still_due_in_the_new_session() -> None:
    for names in (list("xb"), list("ab")):
        old = founded(4, 2)
        old.clients[0].part.update(names)
        old.server.begin("list", range(4))
        deliver(old, {})
        form: Any = old.session.form
        following = form.following(bounds(5, 2), old.session, parts(old), JOIN)
        then = follow(old, JOIN, collusion=2, form=following)
        then.setup()
        assert [client.part.renamed for client in then.clients.values()] == [names[0] == "x", *[False] * 4]


@pytest.mark.parametrize("phase", ["commit", "deal"])
@pytest.mark.parametrize("leaves", [True, False])
def test_whoever_vanishes_while_the_key_is_dealt_costs_nothing_but_the_attempt(phase: str, leaves: bool) -> None:
    """The session before goes on, and hands its key over in the next attempt."""
    fed = federation(4, [list("ab"), list("bc"), list("cd"), list("da")], collusion=None if leaves else 2)
    key, before, rng = public_key(fed), fed.session.hash, np.random.default_rng(5)
    begin = Exchange.greet

    def greet(self: Exchange) -> None:
        self.losses = {1: phase}
        begin(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exchange, "greet", greet)
        with pytest.raises(FederationError, match="the set-up needs"):
            fed.leave(3) if leaves else fed.join(["z"])
    assert fed.session.hash == before
    check_round(fed, rng)
    fed.update(0, ["a"])
    fed.leave(3) if leaves else fed.join(["z"])
    assert public_key(fed) == key
    check_round(fed, rng)


def test_a_long_life_with_one_key() -> None:
    """Six join one by one, then as many leave as the rule allows; restarts between."""
    rng = np.random.default_rng(6)
    fed = federation(3, [list("ab"), list("bc"), list("ca")], collusion=2, max_entities=3, max_union=8)
    key, first = public_key(fed), prf_of(fed)[0]
    for k in range(4):
        fed.join([NAMES[k], NAMES[k + 1]])
        fed.restart(*range(k))
        check_round(fed, rng)
        assert public_key(fed) == key
    fed._asked = replace(fed._asked, collusion=1)  # the last leave lowers it, with everybody's signature
    fed.leave(5)
    assert public_key(fed) == key
    check_round(fed, rng)
    assert prf_of(fed)[0] == first
    fed.leave(4)
    assert public_key(fed) != key
    check_round(fed, rng)


def test_progress_counts_the_newcomers_names_alone() -> None:
    fed = federation(3, [list("ab"), list("bc"), list("ca")], collusion=1)
    seen: list[tuple[int, int]] = []
    fed.progress = lambda done, total: seen.append((done, total))
    fed.join(["a"])
    assert {total for _, total in seen} == {seen[-1][0]}
    size = fed.params.max_entities
    assert seen[-1][1] == 2 * (size + 1) + size + 1


# ------------------------------------------------------------------------------------------------- what a coalition has


class Forms:
    """Linear forms over unknown scalars: what a coalition knows, and whether it fixes another one."""

    def __init__(self) -> None:
        self.unknowns = 0
        self.rows: list[dict[int, int]] = []

    def draw(self) -> dict[int, int]:
        self.unknowns += 1
        return {self.unknowns: 1}

    @staticmethod
    def total(parts: Sequence[tuple[int, dict[int, int]]]) -> dict[int, int]:
        out: dict[int, int] = {}
        for factor, form in parts:
            for place, value in form.items():
                out[place] = (out.get(place, 0) + factor * value) % ORDER
        return {place: value for place, value in out.items() if value}

    def reduced(self, form: dict[int, int]) -> dict[int, int]:
        for row in self.rows:
            lead = min(row)
            if lead in form:
                form = self.total([(1, form), (-form[lead] * pow(row[lead], -1, ORDER), row)])
        return form

    def learn(self, form: dict[int, int]) -> None:
        rest = self.reduced(form)
        if rest:
            self.rows.append(rest)
            self.rows.sort(key=min)
            rows, self.rows = self.rows, []
            for row in rows:  # keep them in steps
                row = self.reduced(row)
                if row:
                    self.rows.append(row)
                    self.rows.sort(key=min)

    def knows(self, form: dict[int, int]) -> bool:
        return not self.reduced(form)


class Lineage:
    """Sessions that hand one key on, as linear algebra. Clients are people here: a number that never changes."""

    def __init__(self, people: Sequence[int], T: int) -> None:
        self.forms, self.T, self.people = Forms(), T, list(people)
        coefficients = [self.forms.draw() for _ in range(T + 1)]
        self.k = coefficients[0]
        self.shares = {p: self.value(coefficients, i + 1) for i, p in enumerate(self.people)}
        self.seen: list[tuple[int, dict[int, int]]] = [(p, share) for p, share in self.shares.items()]

    @staticmethod
    def value(coefficients: Sequence[dict[int, int]], x: int) -> dict[int, int]:
        return Forms.total([(pow(x, e, ORDER), each) for e, each in enumerate(coefficients)])

    def hand_over(self, people: Sequence[int], T: int) -> None:
        """Dealers are those that the protocol takes: who stays first, then who leaves."""
        old = [self.people.index(p) if p in self.people else None for p in people]
        left = [n for n, p in enumerate(self.people) if p not in people]
        record = Handover(bytes(32), oprf.commit(range(1, self.T + 2)), (*old, *left), len(left))
        everyone = [*people, *(self.people[n] for n in left)]
        dealt: dict[int, list[dict[int, int]]] = {p: [] for p in people}
        for dealer in record.dealers:
            person = everyone[dealer]
            weight = oprf.holder_weight(record.holders, record.old(dealer))
            constant = Forms.total([(weight, self.shares[person])])
            coefficients = [constant, *(self.forms.draw() for _ in range(T))]
            self.seen += [(person, each) for each in coefficients]
            for i, p in enumerate(people):
                share = self.value(coefficients, i + 1)
                dealt[p].append(share)
                self.seen.append((p, share))
        self.people, self.T = list(people), T
        self.shares = {p: Forms.total([(1, each) for each in shares]) for p, shares in dealt.items()}

    def known_to(self, coalition: set[int]) -> bool:
        """Whether these people together have k."""
        self.forms.rows = []
        for person, form in self.seen:
            if person in coalition:
                self.forms.learn(form)
        return self.forms.knows(self.k)


@settings(deadline=None)
@given(data=st.data())
def test_all_who_ever_left_and_as_many_present_as_may_conspire_know_nothing_of_the_key(data: st.DataObject) -> None:
    N = data.draw(st.integers(2, 6))
    line, next_person = Lineage(range(N), data.draw(st.integers(1, N - 1))), N
    gone: set[int] = set()
    for _ in range(data.draw(st.integers(1, 3))):
        most = min(line.T - 1, len(line.people) - 2)
        left = data.draw(st.lists(st.sampled_from(line.people), unique=True, max_size=max(0, most)))
        people = [p for p in line.people if p not in left]
        for _ in range(data.draw(st.integers(0, 2))):
            people.insert(data.draw(st.integers(0, len(people))), next_person)
            next_person += 1
        T = data.draw(st.integers(1, min(line.T - len(left), len(people) - 1)))
        gone |= set(left)
        line.hand_over(people, T)
    present = set(data.draw(st.permutations(line.people))[: line.T])
    assert not line.known_to(gone | present)
    assert line.known_to(gone | set(data.draw(st.permutations(line.people))[: line.T + 1]))


def test_one_more_who_left_and_the_coalition_has_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule is no more than it must be: without it, two who left and one who stayed put k together."""
    old = founded(4, 2)
    shares = {n: naming(old.clients[n]).key.share for n in range(4)}
    following = record_of(old, (0, 1), collusion=1)
    with pytest.raises(ParamsError, match=r"with 2 clients who left and collusion=1, .* cannot be kept"):
        session_of(old, following, collusion=1)
    assert old.session.form.following(bounds(2, collusion=1), old.session, parts(old), (0, 1)) is None
    monkeypatch.setattr(Following, "checked", Keyed.checked)
    then = follow(old, (0, 1), collusion=1, form=following)
    then.setup()
    k = sum(oprf.part_of_key(shares[j], (1, 2, 3), j) for j in (1, 2, 3))  # client 1 stayed; 2 and 3 left
    assert multiply_base(scalar_rows([k])).tobytes() == oprf.public_key(naming(then.clients[0]).key.joint)


# ------------------------------------------------------------------------------------------------ one handover, by hand


def bounds(clients: int, collusion: int, **more: Any) -> Params:
    return Params(**({"clients": clients, "dim": 2, "collusion": collusion, "max_entities": 4, "max_union": 8} | more))


def parts(old: Parties) -> dict[int, Any]:
    return {n: client.part for n, client in old.clients.items()}


def founded(clients: int, collusion: int, form: Keyed | None = None) -> Parties:
    own = [[NAMES[n], NAMES[n + 1]] for n in range(clients)]
    old = Parties(bounds(clients, collusion), form or Keyed(), own)
    old.setup()
    return old


def record_of(old: Parties, stay: Sequence[int | None], **_: Any) -> Following:
    """The form of the next session, whether the rule allows it or not."""
    left = [n for n in old.clients if n not in stay]
    updates = max(naming(client).updates for client in old.clients.values())
    joint = naming(old.clients[0]).key.joint
    return Following(before=Handover(old.session.hash, joint, (*stay, *left), len(left), updates))


def session_of(
    old: Parties, form: Following, *, collusion: int, newcomers: dict[int, Identity] | None = None
) -> Session:
    numbers, clients = form.taken_over.numbers, len(form.taken_over.numbers) - form.guests
    new = {i: Identity.generate() for i, n in enumerate(numbers) if n is None} if newcomers is None else newcomers
    keys = [new[i].public if n is None else old.identities[n].public for i, n in enumerate(numbers)]
    return Session(bounds(clients, collusion), Roster(tuple(keys), old.identities[SERVER].public), form)


class Then:
    """The session that follows: all its parties, with guests."""

    def __init__(self, old: Parties, session: Session, newcomers: dict[int, Identity], tap: Any) -> None:
        self.old, self.session = old, session
        form = session.form
        assert isinstance(form, Following)
        self.record = form.taken_over
        self.identities = {
            i: newcomers[i] if n is None else old.identities[n] for i, n in enumerate(self.record.numbers)
        }
        self.server = Server(session, old.identities[SERVER])
        self.clients: dict[int, Client] = {}
        for i, n in enumerate(self.record.numbers):
            names = ("a", "new") if n is None else old.clients[n].part.next_names
            self.clients[i] = Client(session, i, self.identities[i], names)
        self.exchange = Exchange(self.server, self.clients, tap=tap) if tap else Exchange(self.server, self.clients)

    def inherit(self) -> None:
        for i, n in enumerate(self.record.numbers):
            if n is not None:
                self.clients[i].part.inherit(self.old.session, self.old.clients[n].part)

    def setup(self) -> None:
        self.exchange.greet()
        self.exchange.run("commit", self.clients)

    def begin(self) -> dict[int, ProtocolError]:
        self.exchange.greet()
        self.server.begin("commit", self.clients)
        return {}


def follow(
    old: Parties,
    stay: Sequence[int | None],
    *,
    collusion: int,
    form: Following | None = None,
    tap: Any = None,
    inherit: bool = True,
) -> Then:
    form = form or record_of(old, stay)
    newcomers = {i: Identity.generate() for i, n in enumerate(form.taken_over.numbers) if n is None}
    then = Then(old, session_of(old, form, collusion=collusion, newcomers=newcomers), newcomers, tap)
    if inherit:
        then.inherit()
    return then


def corrupt(client: Client, lie: Payload) -> None:
    """A client says something else than it should."""
    part: Any = client.part
    right = part.payloads

    def payloads(kind: IntEnum, receivers: Sequence[int], at: Any) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver, each in right(kind, receivers, at):
            yield receiver, (lie(kind, receiver, b"".join(map(bytes, each))),)

    part.payloads = payloads


def deliver(p: Any, errors: dict[int, ProtocolError], deaf: Sequence[int] = ()) -> None:
    for n, inbox in p.server.drain().items():
        for message in inbox if n not in deaf else ():
            try:
                p.clients[n].receive(message)
            except ProtocolError as error:
                errors.setdefault(n, error)


def run(p: Any, phase: str, errors: dict[int, ProtocolError], deaf: Sequence[int] = ()) -> None:
    """From where the server is to the beginning of a phase; what clients complain of is kept."""
    while True:
        deliver(p, errors, deaf)
        if errors or p.server.at.phase == phase:
            return
        for n in p.server.at.members:
            try:
                for message in p.clients[n].outbox():
                    p.server.receive(n, message)
            except ProtocolError as error:
                errors.setdefault(n, error)
        if errors:
            return
        p.server.close()


JOIN: tuple[int | None, ...] = (0, 1, 2, 3, None)
LEAVE: tuple[int | None, ...] = (0, 1, 3)
BOTH: tuple[int | None, ...] = (3, None, 1, 0)
CASES = [
    pytest.param(JOIN, 2, id="one joins"),
    pytest.param(LEAVE, 1, id="one leaves"),
    pytest.param(BOTH, 1, id="one joins, one leaves"),
]


@pytest.mark.parametrize(("stay", "collusion"), CASES)
def test_a_handover_by_hand_keeps_the_key_and_the_names(stay: tuple[int | None, ...], collusion: int) -> None:
    old = founded(4, 2)
    then = follow(old, stay, collusion=collusion)
    then.setup()
    for i, n in enumerate(stay):
        own = naming(then.clients[i])
        assert oprf.public_key(own.key.joint) == oprf.public_key(naming(old.clients[0]).key.joint)
        if n is not None:
            assert own.names.prf == naming(old.clients[n]).names.prf
        else:
            assert own.names.prf["a"] == naming(old.clients[0]).names.prf["a"]
    assert then.server.at.members == tuple(range(len(stay)))
    for i in range(len(stay), len(then.clients)):  # whoever left has signed and dealt, and holds nothing of it
        assert then.clients[i].at.phase == REST
        assert not naming(then.clients[i]).key.share


# -------------------------------------------------------------------------------------------------------------- dealers

ROGUE = 1
Lie = Callable[[Then, int], Payload]


def honest(_kind: IntEnum, _receiver: int, said: bytes) -> bytes:
    return said


def other_part(then: Then, rogue: int, shift: int = 7) -> Payload:
    """Commitments, proof and shares that fit each other, and another constant than the rogue's part of the key."""
    part: Any = naming(then.clients[rogue])
    right = part._polynomial
    part._polynomial = lambda: ((right()[0] + shift) % ORDER, *right()[1:])
    return honest


def wrong_share(then: Then, rogue: int) -> Payload:
    other = oprf.polynomial(2, KeyStream(b"another polynomial".ljust(32)))
    return lambda kind, receiver, said: oprf.share_for(other, receiver) if kind is Kind.SHARE else said


def other_than_hashed(then: Then, rogue: int) -> Payload:
    part: Any = naming(then.clients[rogue])
    part._own_hash = lambda: bytes(32)
    return honest


def unproven(then: Then, rogue: int) -> Payload:
    return lambda kind, _receiver, said: said[:-1] + bytes([said[-1] ^ 1]) if kind is Kind.DEALING else said


def proven_before(then: Then, rogue: int) -> Payload:
    """A proof of the same part, for the session before."""
    part = naming(then.clients[rogue])

    def lie(kind: IntEnum, _receiver: int, said: bytes) -> bytes:
        if kind is not Kind.DEALING:
            return said
        polynomial = part._polynomial()
        commitments = oprf.commit(polynomial)
        return commitments + oprf.prove(polynomial, commitments, then.old.session.hash, rogue, KeyStream(bytes(32)))

    return lie


@pytest.mark.parametrize(
    ("stay", "collusion"),
    CASES[:1] + [pytest.param(*case.values, id=case.id, marks=pytest.mark.slow) for case in CASES[1:]],
)
@pytest.mark.parametrize("lie", [other_part, wrong_share, other_than_hashed, unproven, proven_before])
def test_a_rogue_dealer_is_named_by_everybody(lie: Lie, stay: tuple[int | None, ...], collusion: int) -> None:
    """By members, by newcomers, and by whoever leaves; a wrong share is seen by those who get one."""
    then = follow(founded(4, 2), stay, collusion=collusion)
    clients = range(len(stay))
    for rogue in then.record.dealers:
        then = follow(founded(4, 2), stay, collusion=collusion)
        errors = then.begin()
        corrupt(then.clients[rogue], lie(then, rogue))
        run(then, "list" if None in stay else "secret", errors)
        cheated = {n for n in then.clients if n != rogue and (lie is not wrong_share or n in clients)}
        assert set(errors) - {rogue} == cheated
        for n in cheated:
            assert errors[n].suspects == (rogue,)
            assert then.clients[n].at.phase == STOPPED
            assert not naming(then.clients[n]).key.joint


def test_two_dealers_whose_lies_cancel_are_both_liars() -> None:
    """The sum is k; yet what each dealt is not its own, and the first of them is named."""
    old = founded(4, 2)
    then = follow(old, JOIN, collusion=2)
    errors = then.begin()
    other_part(then, 1, 7)
    other_part(then, 2, -7)
    run(then, "list", errors)
    assert {0, 3, 4} <= set(errors)
    assert all(errors[n].suspects[0] in (1, 2) for n in (0, 3, 4))


def test_without_the_check_of_its_part_a_dealer_gives_newcomers_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Naming, "_check_part", lambda *_: None)
    old = founded(4, 2)
    then = follow(old, JOIN, collusion=2)
    errors = then.begin()
    other_part(then, ROGUE)
    run(then, REST, errors)
    assert not errors
    assert naming(then.clients[4]).names.prf["a"] != naming(then.clients[0]).names.prf["a"]


# ------------------------------------------------------------------------------------------------ what members sign

OTHER_POINTS = oprf.commit((11, 12, 13))


def lies(record: Handover) -> dict[str, Handover]:
    return {
        "it names another session": replace(record, session=bytes(32)),
        "it names another key": replace(record, joint=OTHER_POINTS),
        "it has other members": replace(record, numbers=(0, 1, 2, None, None)),
        "it counts 0 epochs": replace(record, updates=0),
        "is not client": replace(record, numbers=(0, 2, 1, 3, None)),
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"numbers": (0, 1, 1, None)}, "needs one place"),
        ({"numbers": (0, 1, 3, None)}, "needs one place"),
        ({"numbers": (1, 2, 3, None)}, "needs one place"),
        ({"session": bytes(31)}, "needs the hash"),
        ({"joint": OTHER_POINTS[:-1]}, r"T\+1 commitments"),
        ({"joint": OTHER_POINTS[:32]}, r"T\+1 commitments"),
        ({"numbers": (0, 1, None)}, r"T\+1 commitments"),
        ({"left": -1}, "cannot be negative"),
        ({"updates": -1}, "cannot be negative"),
        ({"left": 1}, "only members of the previous session can leave"),
        ({"numbers": (0, 1, None, 2), "left": 2}, "only members of the previous session can leave"),
        ({"joint": bytes(96)}, "is not valid"),
    ],
)
def test_a_handover_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ParamsError, match=says):
        replace(Handover(bytes(32), OTHER_POINTS, JOIN), **change)


def test_a_handover_of_t_plus_1_members_or_of_all_who_leave_can_be() -> None:
    for numbers, left in (((0, 1, 2), 0), ((None, 2, 0, 1), 3), ((0, None, 1, 2), 2)):
        record = Handover(bytes(32), OTHER_POINTS, numbers, left)
        assert (record.collusion, len(record.members), record.left) == (2, 3, left)


@pytest.mark.parametrize("says", lies(Handover(bytes(32), OTHER_POINTS, JOIN)))
def test_no_member_signs_what_is_not_true_of_the_session_before(says: str) -> None:
    old = founded(4, 2)
    old.exchange.run("list", range(4))
    form = record_of(old, JOIN)
    assert form.taken_over.updates == 1
    lie = replace(form, before=lies(form.taken_over)[says])
    newcomers = {i: Identity.generate() for i, n in enumerate(lie.taken_over.numbers) if n is None}
    session = session_of(old, lie, collusion=2, newcomers=newcomers)
    if says == "is not client":  # the roster stays as it was, so that keys and numbers do not fit
        session = Session(session.params, session_of(old, form, collusion=2, newcomers=newcomers).roster, lie)
    client = Client(session, 0, old.identities[0], ())
    with pytest.raises(FederationError, match=says):
        client.part.inherit(old.session, old.clients[0].part)
    assert not naming(old.clients[0]).successor
    assert not naming(client).past


def test_a_member_cannot_come_as_a_newcomer_to_have_its_names_again() -> None:
    """The rule of who left would count it as gone; its budget would begin anew."""
    old = founded(4, 2)
    form = Following(before=Handover(old.session.hash, naming(old.clients[0]).key.joint, (0, 1, 2, None, 3), 1))
    keys = [old.identities[n].public for n in (0, 1, 2, 3)]
    with pytest.raises(ParamsError, match="same identity key"):
        Roster((*keys, keys[3]), old.identities[SERVER].public)
    stranger = Identity.generate().public
    roster = Roster((*keys, stranger), old.identities[SERVER].public)  # the one who leaves is somebody else
    client = Client(Session(bounds(4, 1), roster, form), 0, old.identities[0], ())
    with pytest.raises(FederationError, match="client 3 comes as a newcomer, but was a member"):
        client.part.inherit(old.session, old.clients[0].part)


def test_no_member_signs_without_a_share_names_or_its_own_place() -> None:
    old = founded(4, 2)
    form = record_of(old, JOIN)
    roster = session_of(old, form, collusion=2).roster

    def says(part: Naming) -> str:
        with pytest.raises(FederationError) as caught:
            form.taken_over.check(roster, old.session, part, 0)
        return str(caught.value).rpartition(": ")[2]

    nameless, shareless = (copy.copy(naming(old.clients[0])) for _ in range(2))
    nameless.names = replace(nameless.names, number=0)
    shareless.key = replace(shareless.key, share=naming(old.clients[1]).key.share)
    assert says(nameless) == "that session has no names yet"
    assert says(shareless) == "our share does not belong to that key"
    assert says(naming(old.clients[1])) == "it takes us for client 0, but we were client 1"


def test_a_record_with_more_members_than_there_were_is_refused() -> None:
    old = founded(4, 2)
    record = replace(record_of(old, JOIN).taken_over, numbers=(0, 1, 2, 3, 4))
    roster = session_of(old, record_of(old, JOIN), collusion=2).roster
    with pytest.raises(FederationError, match="it has other members than that session"):
        record.check(roster, old.session, naming(old.clients[0]), 0)


def test_whoever_left_may_come_back_as_a_newcomer() -> None:
    """It is in the roster of the session before, as a guest, and was no member of it."""
    first = founded(5, 4)
    second = follow(first, (0, 1, 2, 3), collusion=3)
    second.setup()
    gone = first.identities[4].public
    assert second.session.roster.clients[4] == gone
    record = Handover(second.session.hash, naming(second.clients[0]).key.joint, (0, 1, 2, 3, None))
    roster = Roster((*second.session.roster.clients[:4], gone), second.session.roster.server)
    record.check(roster, second.session, naming(second.clients[0]), 0)


@pytest.mark.parametrize(("updates", "last"), [(0, 6), (2, 4), (5, 1)])
def test_epochs_of_a_key_count_from_its_beginning(updates: int, last: int) -> None:
    form = Following(max_updates=5, before=Handover(bytes(32), OTHER_POINTS, JOIN, updates=updates))
    assert form.last_epoch == last
    assert form.checked(bounds(5, collusion=2)).collusion == 2


def test_a_key_that_has_seen_all_its_epochs_is_not_kept() -> None:
    form = Following(max_updates=5, before=Handover(bytes(32), OTHER_POINTS, JOIN, updates=6))
    with pytest.raises(ParamsError, match="max_updates is 5, but the key has seen 6 updates"):
        form.checked(bounds(5, collusion=2))


def test_who_is_needed_and_who_gets_what_in_a_session_that_follows() -> None:
    form = Following(before=Handover(bytes(32), OTHER_POINTS, (0, 1, 2, 3, None, 4), 1))
    params = bounds(5, collusion=1, max_entities=100, max_union=100)
    fewest = [form.fewest(params, phase, names) for phase, names in (("commit", 1), ("list", 1), ("list", 2))]
    assert fewest == [6, 5, 4]
    at = Agreement(names=1, members=(0, 1, 2, 3, 4))
    assert form.receivers(Kind.LISTS, params, at) == (0, 1)
    assert form.receivers(Kind.SHARE, params, at) == (0, 1, 2, 3, 4)
    assert form.receivers(Kind.EVALUATION, params, at) == (4,)
    assert form.ticks(params, 7) == 2 * (100 + 1) + 100 + 7


def test_the_record_of_a_handover_is_in_the_sessions_hash_word_by_word() -> None:
    record = Handover(bytes(32), OTHER_POINTS, (0, None, 1, 2), 1, 5)
    text = f"before={'00' * 32};joint={OTHER_POINTS.hex()};numbers=0,new,1,2;left=1;updates=5"
    assert record.canonical() == text
    params = Keyed().checked(bounds(3, collusion=1))
    assert Following(before=record).canonical(params) == f"{Keyed().canonical(params)};{text}"


def test_the_key_is_kept_with_the_most_epochs_that_anybody_saw_and_only_if_all_can_hand_it_over() -> None:
    old = founded(4, 2, Keyed(max_updates=3))
    held, params = parts(old), bounds(4, collusion=2)

    def next_form() -> Any:
        return old.session.form.following(params, old.session, held, (0, 1, 2, 3))

    assert next_form().taken_over.updates == 0
    part = held[2].naming
    right = part.names
    part.names = replace(right, asked=4)
    assert next_form().taken_over.updates == 3
    part.names = replace(right, asked=5)
    assert next_form() is None
    part.names = replace(right, number=0)
    assert next_form() is None
    part.names, part.successor = right, bytes(32)
    assert next_form() is None


def test_whoever_was_not_given_its_share_signs_nothing() -> None:
    old = founded(4, 2)
    then = follow(old, JOIN, collusion=2, inherit=False)
    errors = then.begin()
    deliver(then, errors)
    assert set(errors) == {0, 1, 2, 3}  # the newcomer has nothing to be given
    assert all("we were not given our share" in str(error) for error in errors.values())


@pytest.mark.parametrize(("stay", "collusion"), CASES)
def test_without_every_signature_nobody_gets_a_share_and_the_session_before_goes_on(
    stay: tuple[int | None, ...], collusion: int
) -> None:
    old = founded(4, 2)
    form = record_of(old, stay)
    for refuses in form.taken_over.members:
        then = follow(old, stay, collusion=collusion, form=form)
        then.begin()
        deliver(then, {}, deaf=(refuses,))
        for n in then.clients:
            for message in then.clients[n].outbox() if n != refuses else ():
                then.server.receive(n, message)
        assert then.server.missing() == (refuses,)
        with pytest.raises(FederationError, match=f"'commit' is not complete: client {refuses}"):
            then.server.close()
        assert not any(naming(client).key.share for client in then.clients.values())
        with pytest.raises(FederationError, match="the set-up needs"):
            then.server.begin("commit", set(then.clients) - {refuses})
        for client in then.clients.values():
            client.part.renounce()
    old.exchange.run("list", range(4))
    assert {naming(client).names.number for client in old.clients.values()} == {2}


def test_a_server_that_leaves_out_a_signer_is_refused_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    then = follow(founded(4, 2), LEAVE, collusion=1)
    then.exchange.greet()
    monkeypatch.setattr(Following, "fewest", lambda *_: 0)
    then.server.begin("commit", (0, 1, 2))
    monkeypatch.undo()
    errors: dict[int, ProtocolError] = {}
    deliver(then, errors)
    assert {n: error.suspects for n, error in errors.items()} == dict.fromkeys((0, 1, 2), (SERVER,))


def test_a_newcomer_that_is_told_another_key_is_in_a_session_of_its_own() -> None:
    """Different records have different hashes: nobody takes the other's hello, so nobody can be shown other holders."""
    old = founded(4, 2)
    form = record_of(old, JOIN)
    newcomers = {4: Identity.generate()}
    session = session_of(old, form, collusion=2, newcomers=newcomers)
    for record in (
        replace(form.taken_over, joint=OTHER_POINTS),
        replace(form.taken_over, numbers=(1, 0, 2, 3, None)),
        replace(form.taken_over, updates=3),
        replace(form.taken_over, session=bytes(32)),
    ):
        told = Session(session.params, session.roster, Following(before=record))
        assert told.hash != session.hash
        newcomer = Client(told, 4, newcomers[4], ["a"])
        server = Server(session, old.identities[SERVER])
        with pytest.raises(ProtocolError) as caught:
            server.receive(4, newcomer.link.hello_message())
        assert caught.value.suspects == (4,)
        member = Client(session, 0, old.identities[0], ())
        with pytest.raises(ProtocolError) as caught:  # also where the server passes it on
            member.receive(newcomer.link.hello_message())
        assert set(caught.value.suspects) == {4, SERVER}


# ------------------------------------------------------------------------------------------ replays, second outcomes


def test_nothing_of_one_handover_counts_in_another_attempt_at_it() -> None:
    recorder = Recorder(Kind)
    old = founded(4, 2)
    form = record_of(old, JOIN)
    newcomers = {4: Identity.generate()}
    session = session_of(old, form, collusion=2, newcomers=newcomers)
    first = Then(old, session, newcomers, recorder)
    first.inherit()
    first.setup()
    for each in (*old.clients.values(),):
        naming(each).successor = b""  # as if nobody remembered
    again = Then(old, session, newcomers, None)
    again.inherit()
    again.begin()
    deliver(again, {})
    phases = 0
    while again.server.at.phase in ("commit", "deal", "list"):
        phases += 1
        for hop in recorder.hops:
            if hop.header.kind in (Kind.HELLO,):
                continue
            party: Any = again.server if hop.receiver == SERVER else again.clients[hop.receiver]
            before = party.save()
            with pytest.raises(ProtocolError):
                party.receive(*([hop.sender] if hop.receiver == SERVER else []), hop.message)
            assert party.save() == before
        for n in again.server.at.members:
            for message in again.clients[n].outbox():
                again.server.receive(n, message)
        again.server.close()
        deliver(again, {})
    assert phases == 3
    assert len(recorder.hops) > 50


def test_two_outcomes_of_one_handover_do_not_meet() -> None:
    """One newcomer hears the end of a first dealing, everybody else of a second one: no list and no union has both."""
    then = follow(founded(4, 2), (*JOIN, None), collusion=2)
    others = tuple(range(5))
    errors = then.begin()
    run(then, "deal", errors)
    close(then)
    deliver(then, errors, deaf=others)
    first = naming(then.clients[5]).key
    then.server.begin("commit", then.clients)
    deliver(then, errors, deaf=(5,))
    stuck = then.server.at
    assert (then.server.at.phase, errors) == ("commit", {})
    for _ in ("commit", "deal"):  # newcomers have nothing to sign: the server does not need this one
        close(then, but=5)
        deliver(then, errors, deaf=(5,))
    assert then.server.at.union > stuck.union
    second = naming(then.clients[4]).key
    assert first.joint
    assert second.joint
    assert second.joint != first.joint
    assert oprf.public_key(second.joint) == oprf.public_key(first.joint)
    for phase in ("list", "secret"):
        then.server.begin(phase, then.clients)
        errors = {}
        deliver(then, errors)
        assert errors[5].suspects == (SERVER,)
        assert "another union than ours" in str(errors[5])


def close(then: Then, but: int = -1) -> None:
    for n in then.server.at.members:
        for message in then.clients[n].outbox() if n != but else ():
            then.server.receive(n, message)
    then.server.close()


def names_twice(then: Then) -> dict[int, ProtocolError]:
    """The newcomer has its list answered; then it and the server want the key dealt again, for another list."""
    errors = then.begin()
    run(then, "evaluate", errors)
    assert not errors
    assert list(then.clients[0].outbox())  # the first list is answered
    for i, n in enumerate(then.record.numbers):
        if n is None:
            naming(then.clients[i]).names = replace(naming(then.clients[i]).names, asked=0, listed=0, marks={})
    then.server.begin("commit", then.clients)
    deliver(then, errors)
    return errors


def test_no_newcomer_has_its_first_names_twice_by_a_second_dealing() -> None:
    then = follow(founded(4, 2), JOIN, collusion=2)
    errors = names_twice(then)
    assert {n: error.suspects for n, error in errors.items()} == dict.fromkeys(range(4), (SERVER,))
    assert all("new key" in str(error) for error in errors.values())


def test_members_that_forget_what_they_confirmed_let_a_newcomer_guess_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Naming, "begun", False)
    monkeypatch.setattr(Naming, "_hands_over", False)
    then = follow(founded(4, 2), JOIN, collusion=2, inherit=False)
    assert then.record.members == (0, 1, 2, 3)
    for i in range(4):
        naming(then.clients[i]).past = naming(then.old.clients[i]).key.share
    assert not names_twice(then)


# --------------------------------------------------------------------------------------------------- forks, and budgets


def test_a_key_is_handed_over_to_one_session() -> None:
    old = founded(4, 2)
    then = follow(old, JOIN, collusion=2)
    with pytest.raises(CallError, match="handed over the key of its names to another session"):
        follow(old, LEAVE, collusion=1)
    form: Any = old.session.form
    assert form.following(bounds(3, 1), old.session, parts(old), LEAVE) is None
    for client in then.clients.values():
        client.part.renounce()
    follow(old, LEAVE, collusion=1).setup()


def test_once_names_were_confirmed_nobody_goes_back_to_the_session_before() -> None:
    old = founded(4, 2)
    then = follow(old, JOIN, collusion=2)
    errors = then.begin()
    run(then, "confirm", errors)
    assert not errors
    for client in then.clients.values():
        client.part.renounce()
    assert all(naming(client).successor == then.session.hash for client in old.clients.values())
    with pytest.raises(ProtocolError, match="whose key was handed over"):
        old.exchange.run("list", range(4))
    restored = Client.restore(old.session, old.identities[2], old.clients[2].save())
    assert naming(restored).successor == then.session.hash


def test_no_epoch_of_names_of_the_session_before_runs_beside_the_new_one() -> None:
    """Its budget is in the record that was signed."""
    old = founded(4, 2)
    then = follow(old, LEAVE, collusion=1)
    old.server.begin("list", range(4))
    errors: dict[int, ProtocolError] = {}
    deliver(old, errors)
    assert {n: error.suspects for n, error in errors.items()} == dict.fromkeys(range(4), (SERVER,))
    then.setup()


def test_epochs_of_names_carry_over_and_newcomers_have_the_bound_once() -> None:
    form = Keyed(max_updates=3, max_new_entities=2)
    fed = federation(4, [list("ab")] * 4, form=form, collusion=2, max_entities=5, max_union=8)
    fed.update(0, ["a", "c"])
    fed.join(["a", "b", "c", "d", "e"])
    assert fed.session.form.taken_over.updates == 1
    lists = [hop.size for hop in fed.traffic if hop.kind == "list"]
    assert len(set(lists[:4])) == 1
    assert lists[-1] == lists[0]  # the newcomer's first list: as large as everybody's first one
    assert lists[4:8] == [lists[0] - 3 * 32] * 4
    fed.update(4, ["a", "f"])
    assert [hop.size for hop in fed.traffic if hop.kind == "list"][-5:] == [lists[0] - 3 * 32] * 5
    fed.join([])
    assert fed.session.form.taken_over.updates == 2
    fed.update(0, ["g"])
    with pytest.raises(FederationError, match="max_updates"):
        fed.update(0, ["h"])
    key = public_key(fed)
    fed.join(["h"])
    assert fed.session.form.taken_over.updates == 3
    assert public_key(fed) == key
    check_round(fed, np.random.default_rng(8))


def test_an_epoch_that_broke_off_counts() -> None:
    old = founded(4, 2)
    old.server.begin("list", range(4))
    deliver(old, {})
    form: Any = old.session.form
    following = form.following(bounds(5, 2), old.session, parts(old), JOIN)
    assert following.taken_over.updates == 1
    then = follow(old, JOIN, collusion=2, form=following)
    then.setup()
    assert not any(client.part.renamed for client in then.clients.values())


def test_members_have_no_list_in_the_newcomers_epoch() -> None:
    """The server may conspire: then the others refuse the hash of a list that is not due."""
    then = follow(founded(4, 2), JOIN, collusion=2)
    errors = then.begin()
    run(then, "list", errors)
    rogue: Any = naming(then.clients[ROGUE])
    assert rogue.names.blinding is None
    sends = {label.kind for label in then.clients[ROGUE].due.sends}
    assert sends == {Kind.MARK}
    corrupt(then.clients[ROGUE], lambda kind, _, said: bytes(32) if kind is Kind.MARK else said)
    run(then, "evaluate", errors)
    others = [n for n in errors if n != ROGUE]
    assert set(others) == {0, 2, 3, 4}
    assert all(errors[n].suspects == (ROGUE,) for n in others)


def test_where_nobody_came_the_first_epoch_of_names_is_never_due() -> None:
    then = follow(founded(4, 2), LEAVE, collusion=1)
    then.setup()
    part, at = naming(then.clients[0]), replace(then.clients[0].at, phase="list", members=(0, 1, 2))
    with pytest.raises(ValueError, match="announces epoch 1 of names; it is not due"):
        part.check_begin(replace(at, names=1))
    part.check_begin(replace(at, names=2))


def test_a_key_is_made_in_the_first_epoch_and_not_once_names_were_asked_for() -> None:
    part = naming(follow(founded(4, 2), JOIN, collusion=2).clients[0])
    at = Agreement(phase="commit", members=(0, 1, 2, 3, 4), names=1)
    part.check_begin(at)
    assert not part.begun
    with pytest.raises(ValueError, match="announces a new key"):
        part.check_begin(replace(at, names=2))
    for begun in (replace(part.names, asked=1), replace(part.names, marks={0: b""})):
        part.names = begun
        with pytest.raises(ValueError, match="announces a new key"):
            part.check_begin(at)


def test_a_member_takes_over_what_it_knows_and_asks_for_the_rest() -> None:
    old = founded(4, 2)
    form = replace(record_of(old, JOIN), max_new_entities=1)
    then, before = follow(old, JOIN, collusion=2, form=form, inherit=False), naming(old.clients[1])

    def inherited(*wanted: str) -> Naming:
        part = naming(then.clients[1])
        part.names = Names(wanted)
        part.inherit(then.session.roster, old.session, before)
        assert (part.past, part.updates, part.begun) == (before.key.share, form.taken_over.updates, False)
        assert before.successor == part.session
        return part

    assert inherited("b", "c").names == Names(("b", "c"), prf=before.names.prf)
    assert inherited("c", "z", "b").names == Names(("c", "b"), ("c", "z", "b"), prf=before.names.prf)
    with pytest.raises(TableError, match="client 1 has 2 new entities, but only 1 may come at once"):
        inherited("z", "y", "b")
    other = naming(follow(old, JOIN, collusion=2, form=form, inherit=False).clients[1])
    with pytest.raises(CallError, match="client 1 has handed over the key of its names to another session"):
        other.inherit(then.session.roster, old.session, before)


def test_who_was_no_member_has_nothing_to_take_over() -> None:
    old = founded(4, 2)
    then = follow(old, JOIN, collusion=2)
    for part, number in ((naming(then.clients[4]), 4), (naming(old.clients[0]), 0)):
        with pytest.raises(CallError, match=f"client {number} has nothing to take over"):
            part.inherit(then.session.roster, old.session, naming(old.clients[0]))


def test_updates_are_those_of_the_sessions_before_and_the_epochs_after_the_first() -> None:
    old = founded(4, 2)
    form = record_of(old, JOIN)
    then = follow(old, JOIN, collusion=2, form=replace(form, before=replace(form.taken_over, updates=5)), inherit=False)
    for one, asked, updates in ((old, 0, 0), (old, 1, 0), (old, 4, 3), (then, 0, 5), (then, 1, 5), (then, 3, 7)):
        part = naming(one.clients[0])
        part.names = replace(part.names, asked=asked)
        assert part.updates == updates


def test_a_member_goes_back_only_before_anything_was_asked_confirmed_or_answered() -> None:
    old = founded(4, 2)
    for state in ({"number": 1}, {"asked": 1}, {"marks": {0: b"list"}}, {}):
        then = follow(old, JOIN, collusion=2)
        part = naming(then.clients[0])
        part.names = replace(part.names, **state)
        assert part.begun == bool(state)
        part.renounce()
        back = (part.key, part.past, naming(old.clients[0]).successor) == (Key(), b"", b"")
        assert back == (not state)
        for client in old.clients.values():
            naming(client).successor = b""


def test_once_the_key_is_dealt_newcomers_ask_and_shares_of_the_session_before_are_forgotten() -> None:
    then = follow(founded(4, 2), JOIN, collusion=2)
    run(then, "list", then.begin())
    here = [then.clients[v] for v in then.server.at.members]
    assert {client.at.named for client in here} == {then.server.at.named} == {0}
    assert not any(naming(client).past for client in here)


def test_the_server_binds_what_members_said_and_keeps_the_lists_of_newcomers() -> None:
    form = Following(before=Handover(bytes(32), OTHER_POINTS, JOIN))
    params = form.checked(bounds(5, 2))
    part, at = KeyedServer(form, params, b""), Agreement("commit", (0, 1, 2, 3, 4), (0, 1, 2, 3, 4), names=1)
    for phase, kind in (("commit", Kind.COMMITMENT), ("deal", Kind.DEALING)):
        at = replace(at, phase=phase)
        said: dict[Any, bytes] = {(kind, v): bytes([v]) * 9 for v in form.senders(kind, params, at)}
        after = part.finish(at, said)
        assert 4 not in {v for _, v in said}
        assert after.context == at.bound(*said.values()).context
        assert after.named == 0
    assert after.base == after.context
    at = replace(at, phase="list")
    points = np.zeros((form.list_size(params, 1) + 1, 32), np.uint8)
    marks: dict[Any, bytes] = {(Kind.MARK, v): oprf.list_hash(points if v == 4 else points[:0]) for v in range(5)}
    part.finish(at, marks | {(Kind.LIST, 4): points.tobytes()})
    assert b"".join(bytes(rows) for _, (rows,) in part.ready(Kind.LISTS, at)) == points.tobytes()
    form = Following(before=Handover(bytes(32), OTHER_POINTS, (*LEAVE, 2), 1))
    params, part = form.checked(bounds(3, 1)), KeyedServer(form, form.checked(bounds(3, 1)), b"")
    at = Agreement("deal", (0, 1, 2), (0, 1, 2), names=1)
    dealt: dict[Any, bytes] = {(Kind.DEALING, v): b"said" for v in range(4)}
    assert part.finish(at, dealt).named == 1, "nobody asks for the first names"


def test_what_served_an_epoch_of_names_is_forgotten_when_it_is_answered() -> None:
    parties = Parties(bounds(4, 2), Keyed(), [["a", "b"], ["a"], ["b"], []])
    parties.exchange.greet()
    parties.server.begin("commit", range(4))
    run(parties, "evaluate", {})
    deliver(parties, {})
    assert len(naming(parties.clients[0]).names.lists) == 4
    run(parties, "secret", {})
    for client in parties.clients.values():
        names = naming(client).names
        assert (names.number, names.lists, names.blinding, client.at.named) == (1, {}, None, 1)


def test_a_member_whose_names_have_keys_takes_part_in_what_a_newcomer_must_wait_for() -> None:
    then = follow(founded(4, 2), JOIN, collusion=2)
    run(then, "list", then.begin())
    member, newcomer = naming(then.clients[0]), naming(then.clients[4])
    at = replace(then.clients[0].at, members=(0, 1, 2, 3, 4))
    member.check_begin(replace(at, phase="list", names=2))
    member.check_begin(replace(at, phase="secret", names=1))
    member.names, newcomer.names = replace(member.names, asked=0), replace(newcomer.names, asked=0)
    for part, phase, names in ((newcomer, "list", 2), (newcomer, "secret", 1), (member, "secret", 2)):
        with pytest.raises(ValueError, match=r"before the first one was answered|before names have their keys"):
            part.check_begin(replace(at, phase=phase, names=names))


def test_a_member_that_does_not_deal_signs_the_hash_of_nothing() -> None:
    old = founded(4, 2)
    form = record_of(old, JOIN)
    then, dealers = follow(old, JOIN, collusion=2, form=form), form.taken_over.dealers
    hashes = {n: naming(then.clients[n])._own_hash() for n in range(4)}
    assert {n for n, each in hashes.items() if each == oprf.commitments_hash(b"")} == {0, 1, 2, 3} - set(dealers)
    assert len(dealers) == 3


def test_whoever_left_is_in_no_union(monkeypatch: pytest.MonkeyPatch) -> None:
    then = follow(founded(4, 2), LEAVE, collusion=1)
    then.setup()
    then.server.begin("secret", (0, 1, 2, 3))
    errors: dict[int, ProtocolError] = {}
    deliver(then, errors)
    assert {n: error.suspects for n, error in errors.items()} == dict.fromkeys(range(4), (SERVER,))


def test_no_union_begins_before_newcomers_have_the_keys_of_their_names() -> None:
    then = follow(founded(4, 2), JOIN, collusion=2)
    errors = then.begin()
    run(then, "list", errors)
    for named in (0, 1):
        then.server.at = replace(then.server.at, named=named)
        then.server.begin("secret", range(5))
        deliver(then, errors)
        assert errors[4].suspects == (SERVER,)
        assert not named or set(errors) == {4}
        errors.clear()


# ------------------------------------------------------------------------------------------------------------- restarts


@pytest.mark.parametrize("phase", ["commit", "deal"])
@pytest.mark.parametrize("who", [0, slow(3), slow(4)])
def test_a_party_that_restarts_while_the_key_is_dealt_takes_part_in_the_next_attempt(phase: str, who: int) -> None:
    """A dealer, one who only signs or leaves, and a newcomer."""
    for stay, collusion in ((JOIN, 2), (BOTH, 1)):
        then = follow(founded(4, 2), stay, collusion=collusion)
        errors = then.begin()
        run(then, phase, errors)
        assert not errors
        saved = then.clients[who].save()
        then.clients[who] = Client.restore(then.session, then.identities[who], saved)
        then.server.give_up()
        then.setup()
        keys = {oprf.public_key(naming(then.clients[n]).key.joint) for n in range(len(stay))}
        assert keys == {oprf.public_key(then.record.joint)}
        assert then.server.at.phase == REST


def test_shares_of_the_session_before_are_neither_shown_nor_kept_longer_than_needed() -> None:
    then = follow(founded(4, 2), JOIN, collusion=2)
    share = naming(then.old.clients[0]).key.share
    assert naming(then.clients[0]).past == share
    assert share in then.clients[0].save()
    part: Any = then.clients[0].part
    shown = f"{then.clients[0]!r} {part.naming.key!r} {part.naming.names!r} {then.session!r}"
    assert share.hex() not in shown
    assert repr(share)[2:-1] not in shown
    then.setup()
    for client in then.clients.values():
        assert not naming(client).past or client.number >= 5
    assert share not in then.clients[0].save()
    assert read_scalar(naming(then.clients[0]).key.share) != read_scalar(share)
