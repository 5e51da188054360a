"""A server that deviates, in front of real clients: nobody accepts a wrong mean, and what clients send says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.audit.attacks.stage import announcement, broadcast
from secea.errors import SERVER, FederationError, ProtocolError, RoundLost
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed.server import KeyedServer
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import REST, STOPPED, Agreement
from secea.steps import means
from secea.testing import Parties
from secea.wire.messages import Buffer, Header
from tiers import slow

Tables = list[dict[str, NDArray[np.float64]]]
Sums = Callable[[Ring, Residues], None]

DIM = 3
OWNERS = {"a": (0, 1, 2, 3), "b": (0, 1), "c": (2, 3), "d": (1,), "e": (3,)}


def tables_of(owners: Mapping[str, Iterable[int]], clients: int = 4, seed: int = 5) -> Tables:
    rng = np.random.default_rng(seed)
    tables: Tables = [{} for _ in range(clients)]
    for name, own in owners.items():
        for n in own:
            tables[n][name] = rng.normal(size=DIM)
    return tables


class Liar(KeyedServer):
    """A server's part that can lie in each thing that it makes."""

    def __init__(self, form: Keyed, params: Params, session: bytes) -> None:
        super().__init__(form, params, session)
        self.sums: Sums | None = None
        self.seeds: Callable[[dict[int, bytes]], dict[int, bytes]] | None = None
        self.payload: Callable[[IntEnum, bytes], bytes] | None = None
        self.found: Callable[[NDArray[np.uint64]], NDArray[np.uint64]] | None = None
        self.said: list[bytes] = []
        """The means that went out."""
        self.anyway = False
        """Goes on, whatever clients say of the union."""

    def _means(self, chunk: int, come: Any) -> Sequence[Buffer]:
        if self.sums:
            self.sums(self.numbers.ring, come.total)
        if self.seeds:
            come.seeds = self.seeds(come.seeds)
        return super()._means(chunk, come)

    def ready(self, kind: IntEnum, at: Agreement) -> Any:
        for receiver, parts in super().ready(kind, at):
            whole = b"".join(bytes(part) for part in parts)
            if kind is Kind.MEANS:
                self.said.append(whole)
            yield receiver, (self.payload(kind, whole) if self.payload else whole,)

    def _peeled(self, at: Agreement) -> Agreement:
        after = super()._peeled(at)
        if self.found is None:
            return after
        self.tags = self.found(self.tags)
        return replace(after, size=int(self.tags.size))

    def _ready(self, at: Agreement, got: Got) -> Agreement:
        return at if self.anyway else super()._ready(at, got)


@dataclass
class Stage:
    """Parties around a lying server; what clients sent, and what they complained of."""

    tables: Tables
    parties: Parties
    liar: Liar
    sent: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    errors: dict[int, ProtocolError] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Tables, *, collusion: int = 1, form: Keyed | None = None, **more: Any) -> Stage:
        sent: dict[int, list[tuple[str, int]]] = {n: [] for n in range(len(tables))}

        def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
            if sender != SERVER:
                sent[sender].append((Header.parse(message, sender, Kind).kind.name, len(message)))
            return (message,)

        bounds = {"max_entities": 5, "max_union": 12} | more
        parties = Parties.of(tables, form or Keyed(), dim=DIM, collusion=collusion, tap=tap, **bounds)
        liar = Liar(parties.session.form, parties.session.params, parties.session.hash)  # type: ignore[arg-type]
        parties.server.part = liar
        return cls(tables, parties, liar, sent)

    @property
    def members(self) -> tuple[int, ...]:
        return self.parties.server.at.members

    def deliver(self, instead: Mapping[int, Sequence[Buffer]] | None = None) -> None:
        """Hand over what the server has, or what it says instead; keep each client's first complaint."""
        for n, inbox in self.parties.server.drain().items():
            self.hand(n, inbox if instead is None or n not in instead else instead[n])

    def hand(self, n: int, messages: Iterable[Buffer]) -> None:
        for message in messages:
            try:
                self.parties.clients[n].receive(message)
            except ProtocolError as error:
                self.errors.setdefault(n, error)

    def send(self) -> None:
        """What clients have to send now reaches the server."""
        for n in self.members:
            for message in self.parties.clients[n].outbox():
                self.sent[n].append((Header.parse(message, n, Kind).kind.name, len(message)))
                self.parties.server.receive(n, message)

    def ask(self, members: Iterable[int]) -> None:
        """The server asks for what was trained."""
        self.parties.server.begin("ready", members)
        self.deliver()

    def upload(self) -> None:
        """Everyone has trained; an upload begins, and what the server made of it is with it."""
        self.parties.contribute(self.tables)
        self.parties.server.begin("upload", self.members)
        self.deliver()
        self.send()

    def round(self) -> None:
        """A round with whatever the server does."""
        self.upload()
        self.parties.server.close()
        self.deliver()

    def result(self, n: int) -> dict[str, NDArray[np.float64]] | None:
        """The means that client n accepted; None where it has no result."""
        table = self.tables[n]
        try:
            rows = self.parties.means(n, table)
        except FederationError:
            return None
        none = self.parties.clients[n].part.without_mean
        return {name: row for name, row in zip(table, rows, strict=True) if name not in none}

    def truth(self, name: str, among: Iterable[int] | None = None) -> NDArray[np.float64]:
        own = [self.tables[n] for n in (self.members if among is None else among)]
        rows = [table[name] for table in own if name in table]
        found: NDArray[np.float64] = np.mean(rows, axis=0)
        return found

    def check_nobody_is_wrong(self) -> None:
        """A client has no result, or a right one."""
        close = 2 * self.parties.session.params.resolution
        for n in self.members:
            for name, row in (self.result(n) or {}).items():
                assert np.abs(row - self.truth(name)).max() < close

    def check_refused(self, by: Iterable[int] | None = None) -> None:
        """These clients, or all, have no result, and suspect the server among others."""
        refusing = set(self.members if by is None else by)
        assert set(self.errors) == refusing
        for n in refusing:
            assert SERVER in self.errors[n].suspects
            assert self.result(n) is None
        self.check_nobody_is_wrong()

    def check_next_round_works(self) -> None:
        """Whoever stopped comes back with the next union."""
        liar = self.liar
        liar.sums = liar.seeds = liar.payload = liar.found = None
        self.parties.server.give_up()
        self.parties.union(self.members)
        self.parties.round(self.tables)
        for n in self.members:
            assert self.parties.clients[n].part.without_mean == ()
        self.check_nobody_is_wrong()

    # ------------------------------------------------------------------------------------------ what a server can make

    def say(
        self,
        phase: str,
        members: Iterable[int],
        to: Iterable[int] | None = None,
        *,
        lives: Mapping[int, bytes] | None = None,
        anchor: bytes | None = None,
        **numbers: int,
    ) -> None:
        """An announcement with any numbers, sealed as it should be."""
        known = dict(lives or {})
        for n in members if to is None else to:
            self.hand(n, [announcement(self.parties, phase, members, n, lives=known, anchor=anchor, **numbers)])

    def broadcast(self, n: int, kind: Kind, payloads: Sequence[bytes], size: int) -> list[Buffer]:
        """A broadcast for one client alone, with its key and its hash."""
        return broadcast(self.parties, n, kind, *payloads, size=size)


def ready(**more: Any) -> Stage:
    stage = Stage.of(tables_of(OWNERS), **more)
    stage.parties.setup()
    return stage


# ------------------------------------------------------------------------------------------------------- wrong means


def rows_of(stage: Stage, payload: bytes) -> tuple[Residues, NDArray[np.uint8]]:
    """The rows and the marks of a broadcast, to be changed."""
    n, size = stage.liar.numbers, stage.parties.server.at.size
    return n.ring.from_bytes(payload[:-size], size, DIM + n.checks).copy(), np.frombuffer(
        payload[-size:], np.uint8
    ).copy()


Change = Callable[[Stage, Residues, NDArray[np.uint8]], None]


def _one(at: tuple[int, ...]) -> Change:
    def change(stage: Stage, rows: Residues, marks: NDArray[np.uint8]) -> None:
        prime = stage.liar.numbers.ring.primes[at[0]]
        rows[at] = (int(rows[at]) + 1) % prime

    return change


def _swap(stage: Stage, rows: Residues, marks: NDArray[np.uint8]) -> None:
    rows[:, [0, 1]] = rows[:, [1, 0]]


def _mark(stage: Stage, rows: Residues, marks: NDArray[np.uint8]) -> None:
    marks[2] = 1


def _strange_mark(stage: Stage, rows: Residues, marks: NDArray[np.uint8]) -> None:
    marks[2] = 7


def _zeros(stage: Stage, rows: Residues, marks: NDArray[np.uint8]) -> None:
    rows[:, 0] = 0


def _all_zeros_and_empty(stage: Stage, rows: Residues, marks: NDArray[np.uint8]) -> None:
    rows[:, 0], marks[0] = 0, 1


def _too_large(stage: Stage, rows: Residues, marks: NDArray[np.uint8]) -> None:
    rows[0, 0, 0] = stage.liar.numbers.ring.primes[0]


def _scaled(stage: Stage, rows: Residues, marks: NDArray[np.uint8]) -> None:
    rows[...] = stage.liar.numbers.ring.add(rows, rows)


CHANGES = {
    "one element": _one((0, 1, 1)),
    "the last prime of one element": _one((-1, 1, 1)),
    "a check": _one((0, 1, -1)),
    "two slots swapped": _swap,
    "all scaled, noise and all": _scaled,
    "an owned slot called empty": _mark,
    "a strange mark": _strange_mark,
    "zeros": _zeros,
    "an owned slot called empty, with zeros": _all_zeros_and_empty,
    "an element that is none": _too_large,
}


@pytest.mark.parametrize("precision", [24, slow(40)])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_means_are_refused_by_everybody(change: Change, precision: int) -> None:
    stage = ready(precision=precision)
    assert (stage.liar.numbers.ring.size == 1) == (precision == 24)

    def lie(kind: IntEnum, payload: bytes) -> bytes:
        if kind is not Kind.MEANS:
            return payload
        rows, marks = rows_of(stage, payload)
        change(stage, rows, marks)
        return bytes(stage.liar.numbers.ring.to_bytes(rows)) + marks.tobytes()

    stage.liar.payload = lie
    stage.round()
    stage.check_refused()
    stage.check_next_round_works()


def _sums_scaled(ring: Ring, total: Residues) -> None:
    part = np.ascontiguousarray(total[:, :, :-2])
    total[:, :, :-2] = ring.add(part, part)


def _count_scaled(ring: Ring, total: Residues) -> None:
    part = np.ascontiguousarray(total[:, :, -2])
    total[:, :, -2] = ring.add(part, part)


def _no_count(ring: Ring, total: Residues) -> None:
    total[:, 1, -2] = 0


def _other_slot(ring: Ring, total: Residues) -> None:
    total[:, 0] = total[:, 1]


@pytest.mark.parametrize("lie", [_sums_scaled, _count_scaled, _no_count, _other_slot])
def test_other_sums_under_honest_noise_are_refused_by_everybody(lie: Sums) -> None:
    stage = ready()
    stage.liar.sums = lie
    stage.round()
    stage.check_refused()


@pytest.mark.parametrize("check", ["J", "theta"])
def test_without_j_a_scaled_sum_passes_and_without_theta_an_owned_slot_is_called_empty(
    check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutants of the two tests above: each check is needed."""

    def blind(secrets: means.Secrets) -> means.Secrets:
        if check == "J":
            return replace(secrets, J=tuple(np.zeros_like(each) for each in secrets.J))
        return replace(secrets, theta=np.zeros_like(secrets.theta), beta=np.zeros_like(secrets.beta))

    contribution, right = means.contribution, means.right
    monkeypatch.setattr(means, "contribution", lambda r, y, s, secrets: contribution(r, y, s, blind(secrets)))
    monkeypatch.setattr(means, "right", lambda r, m, e, secrets, n: right(r, m, e, blind(secrets), n))
    stage = ready()
    stage.liar.sums = _sums_scaled if check == "J" else _no_count
    stage.round()
    assert not stage.errors


def test_noise_cannot_be_left_out_or_replaced() -> None:
    lies: list[Callable[[dict[int, bytes]], dict[int, bytes]]] = [
        lambda _: {},
        lambda seeds: dict(list(seeds.items())[1:]),
        lambda seeds: dict.fromkeys(seeds, bytes(32)),
        lambda seeds: dict(zip(seeds, reversed(seeds.values()), strict=True)) | {9: bytes(32)},
    ]
    for lie in lies:
        stage = ready()
        stage.liar.seeds = lie
        stage.round()
        stage.check_refused()


def test_the_broadcast_of_an_earlier_round_is_refused() -> None:
    stage = ready()
    stage.round()
    assert not stage.errors
    first = stage.liar.said[0]
    stage.liar.payload = lambda kind, payload: first if kind is Kind.MEANS else payload
    stage.round()
    stage.check_refused()


def test_truncated_means_are_refused() -> None:
    stage = ready()
    stage.liar.payload = lambda kind, payload: payload[:-5] if kind is Kind.MEANS else payload
    stage.round()
    stage.check_refused()


def test_a_right_broadcast_after_a_wrong_one_comes_too_late() -> None:
    stage = ready()
    stage.upload()
    stage.parties.server.close()
    stage.parties.server.drain()
    right, size = stage.liar.said[0], stage.parties.server.at.size
    wrong = bytes([right[0] ^ 1]) + right[1:]
    for n in stage.members:
        stage.hand(n, stage.broadcast(n, Kind.MEANS, [wrong], size))
        assert stage.parties.clients[n].at.phase == STOPPED
        stage.hand(n, stage.broadcast(n, Kind.MEANS, [right], size))
    stage.check_refused()


def test_a_wrong_broadcast_to_one_client_is_refused_by_that_one_alone() -> None:
    stage = ready()
    stage.upload()
    right, size = stage.liar.said[0], stage.parties.server.at.size
    wrong = bytes([right[0] ^ 1]) + right[1:]
    stage.parties.server.close()
    stage.parties.server.drain()
    for n in stage.members:
        stage.hand(n, stage.broadcast(n, Kind.MEANS, [wrong if n == 2 else right], size))
    stage.check_refused(by=[2])
    assert all(stage.parties.clients[n].at.phase == REST for n in stage.members if n != 2)
    stage.check_next_round_works()


@settings(max_examples=12)
@given(st.data())
def test_no_random_change_of_a_broadcast_passes(data: st.DataObject) -> None:
    stage = ready()
    where = data.draw(st.integers(0, 10_000))
    flip = data.draw(st.integers(1, 255))

    def lie(kind: IntEnum, payload: bytes) -> bytes:
        if kind is not Kind.MEANS:
            return payload
        at = where % len(payload)
        return payload[:at] + bytes([payload[at] ^ flip]) + payload[at + 1 :]

    stage.liar.payload = lie
    stage.round()
    stage.check_refused()


# ----------------------------------------------------------------------------------------------------------- unions


def leave_out(stage: Stage, name: str, owner: int) -> None:
    """The next union lacks the tag of a name."""

    def without(tags: NDArray[np.uint64]) -> NDArray[np.uint64]:
        own: Any = stage.parties.clients[owner].part
        mine = int(own._tags()[own.names.index(name)])
        kept: NDArray[np.uint64] = tags[tags != np.uint64(mine)]
        return kept

    stage.liar.found = without


def test_a_tag_left_out_stops_nobody_and_tells_nothing() -> None:
    """The owner has its own row back; what clients send is the same whoever owned the slot."""
    traces = []
    for name, owner in (("d", 1), ("e", 3), ("b", 0)):
        stage = Stage.of(tables_of(OWNERS))
        leave_out(stage, name, owner)
        stage.parties.setup()
        stage.round()
        assert not stage.errors
        for n, table in enumerate(stage.tables):
            part = stage.parties.clients[n].part
            assert part.without_mean == ((name,) if name in table else ())
            if name in table:
                rows = stage.parties.means(n, table)
                assert (rows[list(table).index(name)] == table[name]).all()
        stage.check_nobody_is_wrong()
        traces.append(stage.sent)
    assert traces[0] == traces[1] == traces[2]


def add_tags(tags: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Two more: one in front, one behind."""
    return np.unique(np.concatenate([tags, np.array([3, 2**61 - 3], np.uint64)]))


def test_added_tags_are_empty_slots_and_change_no_mean() -> None:
    stage = Stage.of(tables_of(OWNERS))
    stage.liar.found = add_tags
    stage.parties.setup()
    stage.round()
    assert not stage.errors
    assert stage.parties.server.at.size == 7
    assert all(stage.parties.clients[n].part.without_mean == () for n in range(4))
    stage.check_nobody_is_wrong()


def test_an_empty_slot_cannot_be_called_owned() -> None:
    def owned(ring: Ring, total: Residues) -> None:
        total[:, 0, -2] = 1

    stage = Stage.of(tables_of(OWNERS))
    stage.liar.found = add_tags
    stage.parties.setup()
    stage.liar.sums = owned
    stage.round()
    stage.check_refused()


@pytest.mark.parametrize(
    "lie",
    [
        lambda tags: tags[::-1].copy(),
        lambda tags: np.repeat(tags, 2),
        lambda tags: np.append(tags, np.uint64(2**63)),
        lambda tags: np.arange(1, 14, dtype=np.uint64),
    ],
    ids=["reversed", "twice", "no element", "too many"],
)
def test_a_list_of_tags_that_is_none_is_refused_by_everybody(lie: Any) -> None:
    stage = Stage.of(tables_of(OWNERS))
    stage.parties.setup()
    stage.liar.found = lie
    stage.parties.server.begin("secret", range(4))
    for _ in range(2):
        stage.deliver()
        stage.send()
        stage.parties.server.close()
    stage.deliver()
    assert set(stage.errors) == set(range(4))
    assert all(SERVER in error.suspects for error in stage.errors.values())


def test_two_unions_for_two_clients_give_nobody_a_mean() -> None:
    """The server knows each client's L, lets all upload, adds, divides, and answers each in its own context."""
    stage = Stage.of(tables_of(OWNERS))
    stage.parties.setup()
    server, liar = stage.parties.server, stage.liar
    server.begin("secret", range(4))
    stage.deliver()
    stage.send()
    server.close()  # the parts of the secret
    stage.deliver()
    stage.send()
    server.close()
    server.drain()
    tags = liar.tags.astype("<u8")
    other = np.unique(np.append(tags[1:], np.uint64(1)))
    for n in range(4):
        stage.hand(n, stage.broadcast(n, Kind.TAGS, [(other if n == 0 else tags).tobytes()], tags.size))
        stage.say("ready", range(4), [n])
        stage.parties.clients[n].contribute(stage.tables[n], 1)
    L = {n: stage.parties.clients[n].part.union.L for n in range(4)}  # type: ignore[attr-defined]
    assert L[0] != L[1] == L[2] == L[3]
    at = server.at
    for n in range(4):
        stage.say("upload", range(4), [n], anchor=L[n], round=at.round + 1)
    assert not stage.errors
    round_at = replace(at, phase="upload", round=at.round + 1, size=int(tags.size))
    liar.enter(round_at)
    for n in range(4):
        for message in stage.parties.clients[n].outbox():
            header = server.link.parse(message, n)
            opened = server.link.open(header, message)
            server.link.take(opened)
            liar.stream(Kind.UPLOAD, n, header.chunk, opened.payload, round_at)
    ((_, (payload,)),) = liar.ready(Kind.MEANS, round_at)
    for n in range(4):
        stage.hand(n, stage.broadcast(n, Kind.MEANS, [payload], tags.size))
    stage.check_refused()


def test_clients_that_disagree_on_the_union_are_told_so_by_an_honest_server() -> None:
    stage = ready()
    part: Any = stage.parties.clients[0].part
    part.union = replace(part.union, L=bytes(16))
    with pytest.raises(ProtocolError, match="agree"):
        stage.parties.contribute(stage.tables)


def test_what_clients_send_does_not_depend_on_who_owns_what() -> None:
    """Two worlds of equal size: kinds, sizes and order of each client's messages are the same, under any lie."""
    worlds = OWNERS, {"a": (3,), "b": (2, 3), "c": (0, 1, 2), "d": (0,), "e": (0, 1, 2, 3)}
    lies: list[dict[str, Any]] = [
        {},
        {"sums": _sums_scaled},
        {"sums": _no_count},
        {"seeds": lambda _: {}},
        {"payload": lambda kind, payload: bytes(len(payload)) if kind is Kind.MEANS else payload},
    ]
    for lie in lies:
        traces = []
        for owners in worlds:
            stage = Stage.of(tables_of(owners))
            stage.parties.setup()
            for name, value in lie.items():
                setattr(stage.liar, name, value)
            stage.round()
            stage.check_refused(by=range(4) if lie else ())
            stage.check_next_round_works()
            traces.append(stage.sent)
        assert traces[0] == traces[1]


# ---------------------------------------------------------------------------------------------------- announcements


def test_announcements_that_are_not_due_are_refused_by_everybody() -> None:
    """After two rounds, with all clients ready for the third."""
    stage = ready(rounds=3)
    stage.round()
    stage.round()
    stage.parties.contribute(stage.tables)
    at = stage.parties.server.at
    q, u = at.round, at.union
    lies: dict[str, Callable[[], None]] = {
        "the same round": lambda: stage.say("upload", range(4), round=q),
        "an old round": lambda: stage.say("upload", range(4), round=q - 1),
        "a round beyond the session's": lambda: stage.say("upload", range(4), round=4),
        "other members": lambda: stage.say("upload", (0, 1, 2), round=q + 1),
        "too few members": lambda: stage.say("upload", (0, 1), round=q + 1),
        "a union of too few": lambda: stage.say("secret", (0, 1), epoch=u + 1),
        "a union without us": lambda: stage.say("secret", (0, 1, 2), [3], epoch=u + 1),
        "another union": lambda: stage.say("upload", range(4), anchor=bytes(16), round=q + 1),
        "the same round under a later union": lambda: stage.say("upload", range(4), epoch=u + 1),
        "a round under a later union": lambda: stage.say("upload", range(4), epoch=u + 1, round=q + 1),
        "an old union": lambda: stage.say("secret", range(4), epoch=u),
        "another life": lambda: stage.say("secret", range(4), lives={1: bytes(16)}, epoch=u + 1),
        "a second key": lambda: stage.say("commit", range(4), epoch=u + 1),
        "an epoch of names that was": lambda: stage.say("list", range(4), epoch=u + 1, weights=0),
        "training for others": lambda: stage.say("ready", (0, 1, 2)),
        "training in another union": lambda: stage.say("ready", range(4), anchor=bytes(16)),
        "training under a later union": lambda: stage.say("ready", range(4), epoch=u + 1),
        "training for an old round": lambda: stage.say("ready", range(4), round=q - 1),
        "training for a later round": lambda: stage.say("ready", range(4), round=q + 1),
        "the end of another union": lambda: stage.say("end", range(4), anchor=bytes(16)),
        "the end of a later round": lambda: stage.say("end", range(4), round=q + 1),
        "an epoch of names beyond the bound": lambda: stage.say("list", range(4), epoch=u + 1, weights=18),
        "a union of names beyond the bound": lambda: stage.say("secret", range(4), epoch=u + 1, weights=18),
        "a union of names that were": lambda: stage.say("secret", range(4), epoch=u + 1, weights=0),
        "more attempts than there are": lambda: stage.say("secret", range(4), epoch=u + 1, attempt=8),
        "a phase that is not announced": lambda: stage.say("table", range(4), epoch=u + 1),
    }
    for lie, announce in lies.items():
        before = {n: (client.at, list(map(bytes, client.outbox()))) for n, client in stage.parties.clients.items()}
        stage.errors.clear()
        announce()
        told = {3} if lie == "a union without us" else set(range(4))
        told = {0, 1, 2} if lie in ("other members", "training for others") else {0, 1} if "too few" in lie else told
        assert set(stage.errors) == told, lie
        assert all(SERVER in error.suspects for error in stage.errors.values()), lie
        after = {n: (client.at, list(map(bytes, client.outbox()))) for n, client in stage.parties.clients.items()}
        assert after == before, lie  # a refusal changes no state
    stage.errors.clear()
    stage.parties.server.begin("upload", range(4))
    stage.deliver()
    stage.send()
    stage.parties.server.close()
    stage.deliver()
    assert not stage.errors
    stage.check_nobody_is_wrong()


def test_an_upload_is_refused_before_training_and_twice() -> None:
    stage = ready()
    at = stage.parties.server.at
    stage.say("upload", range(4), round=at.round + 1)
    assert set(stage.errors) == set(range(4))
    stage.errors.clear()
    stage.upload()
    stage.say("upload", range(4), round=at.round + 2)
    assert set(stage.errors) == set(range(4))


def test_a_union_while_names_are_asked_is_refused_whoever_has_new_names() -> None:
    """Otherwise only clients with new names would fail: the server would see whose names changed."""
    stage = ready()
    stage.parties.clients[0].part.update(["a", "b", "new"])
    stage.parties.server.begin("list", range(4))
    stage.deliver()
    at = stage.parties.server.at
    stage.say("secret", range(4), epoch=at.union + 1, weights=1)
    assert set(stage.errors) == set(range(4))
    assert len({str(error) for error in stage.errors.values()}) == 1


# ------------------------------------------------------------------------------------------------------ lists of names


def until_lists(stage: Stage) -> None:
    """Up to the point at which holders get the lists."""
    server = stage.parties.server
    stage.parties.exchange.greet()
    server.begin("commit", range(4))
    while server.at.phase != "confirm":
        stage.deliver()
        stage.send()
        server.close()
    stage.deliver()
    stage.send()


def test_a_holder_answers_no_list_that_was_not_signed() -> None:
    stage = Stage.of(tables_of(OWNERS))

    def lie(kind: IntEnum, payload: bytes) -> bytes:
        return payload if kind is not Kind.LISTS else payload[32:64] + payload[:32] + payload[64:]

    stage.liar.payload = lie
    until_lists(stage)
    stage.parties.server.close()
    stage.deliver()
    assert set(stage.errors) == {0, 1}  # the holders
    assert all(error.suspects == (SERVER,) for error in stage.errors.values())
    assert all(not list(stage.parties.clients[n].outbox()) for n in (0, 1))


def test_two_holders_cannot_be_given_two_lists() -> None:
    stage = Stage.of(tables_of(OWNERS))
    until_lists(stage)
    stage.parties.server.close()
    inboxes = stage.parties.server.drain()
    kinds = Kind.KEY, Kind.LISTS, Kind.DIGEST
    lists = dict(stage.liar._lists)
    lists[3] = lists[3][32:] + lists[3][:32]
    for n, inbox in inboxes.items():
        if n == 0:
            inbox = [m for m in inbox if Header.parse(m, SERVER, Kind).kind not in kinds]
        stage.hand(n, inbox)
    stage.hand(0, stage.broadcast(0, Kind.LISTS, [lists[n] for n in range(4)], 0))
    assert set(stage.errors) == {0}
    assert stage.errors[0].suspects == (SERVER,)
    assert "client 3 signed" in str(stage.errors[0])
    assert not list(stage.parties.clients[0].outbox())


# ------------------------------------------------------------------------------------------------------- lost rounds


def test_values_that_were_uploaded_go_to_the_same_participants_or_nobody() -> None:
    stage = ready()
    stage.upload()  # training round 1, all four; the server says nothing
    parties = stage.parties
    parties.server.give_up()
    parties.server.drain()
    parties.union([0, 1, 2])
    stage.ask([0, 1, 2])
    for n in (0, 1, 2):
        with pytest.raises(RoundLost):
            parties.clients[n].contribute(stage.tables[n], 1)
    parties.server.give_up()
    parties.exchange.here = set(range(4))
    parties.union(range(4))
    parties.number = 0  # the same training round again, to the same participants
    parties.round(stage.tables)
    stage.check_nobody_is_wrong()
    assert all(parties.clients[n].part.without_mean == () for n in range(4))
    stage.ask(range(4))
    with pytest.raises(RoundLost):
        parties.clients[0].contribute(stage.tables[0], 0)


def test_who_uploaded_is_bound_even_if_the_server_first_ends_the_union() -> None:
    stage = ready()
    stage.parties.contribute(stage.tables)
    stage.parties.server.begin("upload", range(4))
    stage.deliver()  # nothing was sent yet: it could have been
    stage.parties.server.give_up()
    stage.parties.union([0, 1, 3])
    stage.ask([0, 1, 3])
    with pytest.raises(RoundLost):
        stage.parties.clients[1].contribute(stage.tables[1], 1)
    with pytest.raises(FederationError):
        stage.parties.clients[2].contribute(stage.tables[2], 1)
    stage.parties.clients[1].contribute(stage.tables[1], 2)
