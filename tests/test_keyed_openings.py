"""Drop-outs under attack: of all uploads only one sum opens, whatever the server says and whoever helps it.

Which masks hide what, for every U and every coalition, is a claim of the audit (`graph-of-masks`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import Residues
from secea.arithmetic.ristretto import ORDER
from secea.audit.attacks.book import Book
from secea.audit.attacks.stage import announcement, broadcast
from secea.errors import SERVER, FaultyPeer, ProtocolError, RoundLost
from secea.forms.keyed import Keyed, Kind
from secea.forms.keyed import masking as masking_module
from secea.forms.keyed import opening as opening_module
from secea.forms.keyed.client import KeyedClient, Released
from secea.forms.keyed.masking import Batch, Masking, key_of, pair_of, public_of, seed_of
from secea.party import client as client_module
from secea.party.phases import REST, STOPPED, Agreement
from secea.steps import masks, means
from secea.testing import Parties
from secea.wire.keys import Identity
from secea.wire.messages import Buffer, Header
from secea.wire.randomness import KeyStream
from tiers import always

DIM = 2
Tables = list[dict[str, NDArray[np.float64]]]


def tables_of(clients: int, seed: int = 3) -> Tables:
    """One entity of all, one of each pair of neighbours, one of each."""
    rng = np.random.default_rng([seed, clients])
    names = [{"all", f"pair {n}", f"pair {(n + 1) % clients}", f"own {n}"} for n in range(clients)]
    return [{name: rng.uniform(-3, 3, DIM) for name in sorted(own)} for own in names]


def truth(tables: Tables, among: Iterable[int], name: str) -> NDArray[np.float64]:
    rows = [tables[n][name] for n in among if name in tables[n]]
    found: NDArray[np.float64] = np.mean(rows, axis=0)
    return found


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Book:
    """Every share that every client gives out, told apart by its bytes alone."""
    book, got, payload = Book(), Masking._got_batch, Masking.payload

    def got_batch(self: Masking, at: Agreement, came: Any) -> Agreement:
        after = got(self, at, came)
        assert self.batch is not None
        book.learn(self.number, self.batch)
        return after

    def watched(self: Masking, kind: Any, receiver: int, at: Agreement) -> Iterator[Sequence[Buffer]]:
        for parts in payload(self, kind, receiver, at):
            if kind is Kind.OPENING:
                book.note(self.number, b"".join(map(bytes, parts)))
            yield parts

    monkeypatch.setattr(Masking, "_got_batch", got_batch)
    monkeypatch.setattr(Masking, "payload", watched)
    return book


@dataclass
class Stage:
    """Real clients around a server that says what it likes."""

    tables: Tables
    parties: Parties
    errors: list[tuple[int, ProtocolError]] = field(default_factory=list)

    @classmethod
    def of(cls, clients: int, dropouts: int, collusion: int, batch: int = 4) -> Stage:
        tables = tables_of(clients)
        parties = Parties.of(tables, Keyed(batch=batch), dropouts=dropouts, collusion=collusion)
        parties.setup()
        return cls(tables, parties)

    @property
    def everyone(self) -> tuple[int, ...]:
        return tuple(range(len(self.tables)))

    @property
    def t(self) -> int:
        form = self.parties.session.form
        assert isinstance(form, Keyed)
        return form.threshold(self.parties.session.params)

    def at(self, n: int) -> Agreement:
        return self.parties.clients[n].at

    def part(self, n: int) -> KeyedClient:
        part = self.parties.clients[n].part
        assert isinstance(part, KeyedClient)
        return part

    def batch(self, n: int) -> tuple[Batch, int]:
        """The mask keys of client n, and which of them are those of its round."""
        batch = self.part(n).masking.batch
        assert batch is not None
        return batch, self.at(n).round - batch.first

    # ------------------------------------------------------------------------------------------- what a server can say

    def hand(self, n: int, *messages: Buffer) -> bool:
        """Whether the client took them all."""
        for message in messages:
            try:
                self.parties.clients[n].receive(message)
            except ProtocolError as error:
                self.errors.append((n, error))
                return False
        return True

    def say(self, phase: str, members: Iterable[int], to: int, **numbers: Any) -> bool:
        """An announcement to one client, with any members and numbers, for the union that it is in."""
        return self.hand(to, announcement(self.parties, phase, members, to, **numbers))

    def show(self, n: int, votes: Sequence[tuple[int, bytes]]) -> bool:
        """A broadcast of votes, for one client alone. Whether it goes on."""
        text = b"".join(v.to_bytes(2, "little") + vote for v, vote in votes)
        return self.hand(n, *broadcast(self.parties, n, Kind.VOTES, text))

    def sent(self, n: int, kind: Kind) -> bytes | None:
        """What client n has to send of a kind now, as the server reads it."""
        link, whole = self.parties.server.link, b""
        for message in self.parties.clients[n].outbox():
            header = Header.parse(message, n, Kind)
            if header.kind is kind:
                opened = link.open(header, message)
                whole += bytes(opened.payload)
        return whole or None

    # ------------------------------------------------------------------------------------------------ steps of a round

    def ask(self, members: Iterable[int]) -> None:
        """The server asks for what was trained."""
        self.parties.server.begin("ready", members)
        self.parties.exchange.deliver()

    def upload(self) -> dict[int, bytes]:
        """Everyone has trained, and uploads: the server has all of it."""
        self.parties.contribute(self.tables)
        self.parties.server.begin("upload", self.parties.server.at.members)
        self.parties.exchange.deliver()
        uploads = {n: self.sent(n, Kind.UPLOAD) for n in self.parties.server.at.members}
        return {n: upload for n, upload in uploads.items() if upload is not None}

    def votes(self, U: Iterable[int], of: Iterable[int] | None = None) -> dict[int, bytes]:
        """Who signs that U is in the sum, of those who are asked."""
        U = tuple(U)
        signed = {n: self.sent(n, Kind.VOTE) for n in (U if of is None else of) if self.say("agree", U, n)}
        return {n: vote for n, vote in signed.items() if vote is not None}

    def openings(self, votes: Mapping[int, bytes]) -> dict[int, bytes]:
        """The server shows t votes to those who voted: what they open."""
        shown = list(votes.items())[: self.t]
        opened = {n: self.sent(n, Kind.OPENING) for n in votes if self.show(n, shown)}
        return {n: data for n, data in opened.items() if data is not None}

    def check_next_round(self) -> None:
        """Whatever was said before: a new union, and all have right means."""
        self.parties.server.give_up()
        self.parties.server.drain()
        self.parties.union(self.everyone)
        found = self.parties.round(self.tables)
        close = self.parties.session.params.resolution
        for n, table in enumerate(self.tables):
            for name, row in zip(table, found[n], strict=True):
                assert np.abs(row - truth(self.tables, self.everyone, name)).max() < close


# ----------------------------------------------------------------------------------------------------------- Shamir

scalars = st.integers(0, ORDER - 1)
seeds = st.binary(min_size=32, max_size=32)
law = settings(max_examples=40)


@st.composite
def circles(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A threshold, and at least so many clients."""
    clients = sorted(draw(st.sets(st.integers(0, 1023), min_size=2, max_size=12)))
    return draw(st.integers(2, len(clients))), clients


def value_at(points: Mapping[int, int], x: int) -> int:
    """The polynomial of least degree through some points, somewhere: in plain integers."""
    total = 0
    for i, y in points.items():
        over = under = 1
        for j in points:
            if j != i:
                over, under = over * (x - j), under * (i - j)
        total += y * over * pow(under, -1, ORDER)
    return total % ORDER


@law
@given(secret=scalars, circle=circles(), seed=seeds, data=st.data())
def test_any_t_shares_give_the_secret(secret: int, circle: tuple[int, list[int]], seed: bytes, data: Any) -> None:
    t, clients = circle
    dealt = masks.shares(secret, t, clients, KeyStream(seed))
    some = data.draw(st.permutations(clients))[:t]
    assert masks.recovered(dealt, masks.weights_at_zero(some)) == secret
    more = data.draw(st.permutations(clients))[: data.draw(st.integers(t, len(clients)))]
    assert masks.recovered(dealt, masks.weights_at_zero(more)) == secret


@law
@given(secret=scalars, circle=circles(), seed=seeds)
def test_shares_are_a_polynomial_of_degree_t_minus_1_in_plain_integers(
    secret: int, circle: tuple[int, list[int]], seed: bytes
) -> None:
    t, clients = circle
    rest = masks.scalars(KeyStream(seed), t - 1)
    plain = {v: (secret + sum(c * (v + 1) ** (k + 1) for k, c in enumerate(rest))) % ORDER for v in clients}
    assert masks.shares(secret, t, clients, KeyStream(seed)) == plain


@law
@given(secret=scalars, other=scalars, circle=circles(), seed=seeds, data=st.data())
def test_fewer_than_t_shares_fit_every_secret_in_exactly_one_way(
    secret: int, other: int, circle: tuple[int, list[int]], seed: bytes, data: Any
) -> None:
    """Through t-1 shares and any value at 0 goes one polynomial of degree t-1: so t-1 shares say nothing.

    Its coefficients are the dealer's draws, and each set of draws is as likely as any other.
    """
    t, clients = circle
    dealt = masks.shares(secret, t, clients, KeyStream(seed))
    some = data.draw(st.permutations(clients))[: t - 1]
    points = {v + 1: dealt[v] for v in some} | {0: other}
    # Newton's form: the coefficients are unique, and there are t of them.
    xs = list(points)
    coefficients = [points[x] for x in xs]
    for k in range(1, t):
        for i in range(t - 1, k - 1, -1):
            over = coefficients[i] - coefficients[i - 1]
            coefficients[i] = over * pow(xs[i] - xs[i - k], -1, ORDER) % ORDER

    def newton(x: int) -> int:
        value = 0
        for place, c in zip(reversed(xs), reversed(coefficients), strict=True):
            value = (value * (x - place) + c) % ORDER
        return value

    assert all(newton(v + 1) == dealt[v] for v in some)
    assert newton(0) == other
    assert all(newton(x) == value_at(points, x) for x in (ORDER - 1, 17))


@law
@given(secret=scalars, circle=circles(), seed=seeds)
def test_t_minus_1_shares_do_not_give_the_secret_but_would_of_a_lower_threshold(
    secret: int, circle: tuple[int, list[int]], seed: bytes
) -> None:
    t, clients = circle
    for threshold in (t, t - 1):
        dealt = masks.shares(secret, threshold, clients, KeyStream(seed))
        found = masks.recovered(dealt, masks.weights_at_zero(clients[: t - 1]))
        assert (found == secret) == (threshold < t)


# ----------------------------------------------------------------------------------------------- a server that deviates


def recovered(stage: Stage, opened: Mapping[int, bytes], of: int, *, with_help: Iterable[int] = ()) -> dict[str, int]:
    """What the server has of (a, b) of one client in this round, with the shares of those who conspire."""
    (batch, index), at = stage.batch(of), stage.at(next(iter(opened), of))
    place = at.participants.index(of)
    blocks = {n: data[32 * place : 32 * place + 32] for n, data in opened.items()}
    found = {}
    for half, kind in enumerate("ab"):
        true = (batch.keys, batch.seeds)[half][index]
        span = slice(64 * index + 32 * half, 64 * index + 32 * half + 32)
        held = {n: stage.batch(n)[0].shares[of][span] for n in stage.everyone}
        shares = {n: held[n] for n in with_help}
        shares |= {n: block for n, block in blocks.items() if block == held[n]}
        given = {n: int.from_bytes(share, "little") for n, share in shares.items()}
        if len(given) >= stage.t:
            secret = masks.recovered(given, masks.weights_at_zero(sorted(given)[: stage.t]))
            assert secret == true
            found[kind] = secret
    return found


def bare(stage: Stage, upload: bytes, of: int, b: int, a: Mapping[int, int]) -> Residues:
    """An upload without its self mask and without the masks of pairs whose other half is known."""
    part, at, (batch, index) = stage.part(of), stage.at(of), stage.batch(of)
    assert part.union is not None
    ring, L, width = part.numbers.ring, part.union.L, DIM + part.numbers.checks + 2
    rows: Residues = ring.from_bytes(upload[: at.size * width * ring.element_bytes], at.size, width).copy()
    over = [(masks.self_seed(seed_of(b), L, at.round), 1)]
    for n, key in a.items():
        pair = pair_of(key_of(key), public_of(batch.public[of], index)[0], of, part.session)
        over.append((masks.pair_seed(pair, L, at.round), 1 if of < n else -1))
    streams.add_streams(ring, rows, [key for key, _ in over], [-sign for _, sign in over], 0)
    return rows


@pytest.fixture
def naked(monkeypatch: pytest.MonkeyPatch) -> list[Residues]:
    """The rows of all uploads before they were masked."""
    rows: list[Residues] = []
    honest = means.contribution

    def watched(*args: Any) -> Residues:
        made = honest(*args)
        rows.append(made.copy())
        return made

    monkeypatch.setattr(means, "contribution", watched)
    return rows


def no_votes_needed(self: Masking, at: Agreement, votes: bytes) -> None:
    """A mutant: whatever the server shows is enough."""


def open_to_all(stage: Stage, U: Iterable[int]) -> dict[int, bytes]:
    """The honest way."""
    return stage.openings(stage.votes(U))


def test_before_the_first_upload_there_is_nothing_to_open(ledger: Book) -> None:
    """Round 0 has no keys; asked for it, clients must not count backwards in their batch."""
    stage = Stage.of(4, 1, 1)
    for U in ((0, 1, 2), stage.everyone):
        assert not stage.votes(U)
    assert not ledger.asked
    stage.check_next_round()


def test_asked_for_round_0_a_client_without_that_check_gives_shares_of_another_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Masking, "check_begin", lambda *_: None)
    stage = Stage.of(4, 1, 1)
    with pytest.raises(AssertionError):
        open_to_all(stage, (0, 1, 2))


@pytest.mark.parametrize(("clients", "D", "T"), [(4, 1, 1), (5, 1, 2), (6, 2, 1)])
def test_a_server_may_leave_out_who_is_there_and_has_the_sum_of_the_others_alone(
    clients: int, D: int, T: int, ledger: Book, naked: list[Residues]
) -> None:
    stage = Stage.of(clients, D, T)
    uploads = stage.upload()
    out = clients - 1
    U = stage.everyone[:-1]
    opened = open_to_all(stage, U)
    assert set(opened) == set(U)
    for v in U:
        assert set(recovered(stage, opened, v, with_help=range(T))) == {"b"}
    assert set(recovered(stage, opened, out, with_help=range(T))) == {"a"}
    assert not ledger.both()
    keys: dict[int, int] = {}
    seeds: dict[int, int] = {}
    for v in stage.everyone:  # the server takes off all that it has, and all that its T friends know
        found = recovered(stage, opened, v, with_help=range(T))
        keys |= {v: found["a"]} if "a" in found else {}
        seeds |= {v: found["b"]} if "b" in found else {}
    for n in range(T):
        batch, index = stage.batch(n)
        keys[n] = batch.keys[index]
    for v in range(T, clients):
        near = masks.neighbours(stage.everyone, T + D + 1, v)
        rows = bare(stage, uploads[v], v, seeds.get(v, 0), {n: keys[n] for n in near if n in keys})
        assert not any(np.array_equal(rows, true) for true in naked)
    stage.check_next_round()


def different_u(stage: Stage) -> dict[int, bytes]:
    """Each of five clients of six is shown another U, so that three keys of pairs open: what they give."""
    left_out = {0: {2, 4}, 2: {4, 5}, 3: {2, 5}, 4: {2, 5}, 5: {2, 4}}
    opened = {}
    for n, out in left_out.items():
        votes = stage.votes(set(stage.everyone) - out, [n])
        assert set(votes) == {n}
        stage.show(n, [(v, votes[n]) for v in range(stage.t)])
        if data := stage.sent(n, Kind.OPENING):
            opened[n] = data
    return opened


def test_six_clients_that_see_different_u_open_nothing(ledger: Book) -> None:
    """N=6, D=2, T=1: the published attack."""
    stage = Stage.of(6, 2, 1)
    stage.upload()
    assert not different_u(stage)
    assert not ledger.asked
    stage.check_next_round()


def test_without_votes_different_u_lay_one_upload_bare(naked: list[Residues], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Masking, "_check_votes", no_votes_needed)
    stage = Stage.of(6, 2, 1)
    uploads, friend = stage.upload(), 1
    opened = different_u(stage)
    keys = {v: recovered(stage, opened, v, with_help=[friend])["a"] for v in (2, 4, 5)}
    batch, index = stage.batch(friend)
    keys[friend] = batch.keys[index]
    assert set(masks.neighbours(stage.everyone, 4, 0)) == set(keys)
    b = recovered(stage, opened, 0, with_help=[friend])["b"]
    rows = bare(stage, uploads[0], 0, b, keys)
    assert any(np.array_equal(rows, true) for true in naked)


def test_two_groups_with_two_u_open_nothing(ledger: Book) -> None:
    stage = Stage.of(5, 1, 2)
    stage.upload()
    one = stage.votes((0, 1, 2, 3), of=(0, 1))
    two = stage.votes((0, 1, 2, 3, 4), of=(2, 3, 4))
    assert (set(one), set(two)) == ({0, 1}, {2, 3, 4})
    for n in one:
        assert not stage.show(n, [*one.items(), *list(two.items())[:2]])
    for n in two:
        assert not stage.show(n, [*two.items(), next(iter(one.items()))])
    assert not ledger.asked
    assert all(stage.at(n).phase == STOPPED for n in stage.everyone)
    stage.check_next_round()


def test_a_round_is_opened_once(ledger: Book) -> None:
    stage = Stage.of(5, 1, 2)
    stage.upload()
    assert len(open_to_all(stage, stage.everyone)) == 5
    for U in ((0, 1, 2, 3), stage.everyone):
        assert not stage.votes(U)
    assert not ledger.both()


def test_who_voted_does_not_vote_again(ledger: Book) -> None:
    stage = Stage.of(5, 1, 2)
    stage.upload()
    assert len(stage.votes(stage.everyone)) == 5
    assert not stage.votes((0, 1, 2, 3))
    assert not ledger.asked


def test_opened_twice_one_client_has_both_of_its_secrets_out(ledger: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: a client that does not remember what it opened."""
    honest = Masking.check_begin
    monkeypatch.setattr(Masking, "check_begin", lambda self, at, uploaded: honest(self, at, at.round))
    stage = Stage.of(5, 1, 2)
    stage.upload()
    first = open_to_all(stage, stage.everyone)
    second = open_to_all(stage, (0, 1, 2, 3))
    assert {v for _, v in ledger.both()} == {4}
    assert recovered(stage, first, 4).keys() | recovered(stage, second, 4).keys() == {"a", "b"}


# -------------------------------------------------------------------------------------------------------------- votes

Votes = list[tuple[int, bytes]]


def _none(stage: Stage, votes: Votes) -> Votes:
    return []


def _one_less(stage: Stage, votes: Votes) -> Votes:
    return votes[:-1]


def _doubled(stage: Stage, votes: Votes) -> Votes:
    return [*votes[:-1], votes[0]]


def _forged(stage: Stage, votes: Votes) -> Votes:
    return [*votes[:-1], (votes[-1][0], bytes(64))]


def _under_another_name(stage: Stage, votes: Votes) -> Votes:
    return [*votes[:-1], (votes[-1][0], votes[0][1])]


def _of_one_who_is_not_in_the_sum(stage: Stage, votes: Votes) -> Votes:
    """A friend that is not in U signs all the same."""
    return [*votes[:-1], (4, stage.parties.identities[4].sign(_said(stage, 0)))]


def _of_nobody(stage: Stage, votes: Votes) -> Votes:
    return [*votes[:-1], (99, votes[0][1])]


def _of_the_server(stage: Stage, votes: Votes) -> Votes:
    return [*votes[:-1], (SERVER, stage.parties.identities[SERVER].sign(_said(stage, 0)))]


def _of_another_u(stage: Stage, votes: Votes) -> Votes:
    at = stage.at(0)
    other = masking_module.statement(stage.parties.session.hash, replace(at, members=stage.everyone), (0, 1, 2, 3))
    return [*votes[:-1], (3, stage.parties.identities[3].sign(other))]


def _of_another_session(stage: Stage, votes: Votes) -> Votes:
    return [*votes[:-1], (3, stage.parties.identities[3].sign(_said(stage, 0, session=bytes(32))))]


def _of_another_noise_list(stage: Stage, votes: Votes) -> Votes:
    return [*votes[:-1], (3, stage.parties.identities[3].sign(_said(stage, 0, noisy=(0, 1, 2))))]


def _said(stage: Stage, n: int, **other: Any) -> bytes:
    form, params = stage.parties.session.form, stage.parties.session.params
    assert isinstance(form, Keyed)
    at = stage.at(n)
    given = {"session": stage.parties.session.hash, "noisy": form.noise_clients(params, at)} | other
    return masking_module.statement(given["session"], at, given["noisy"])


VOTE_LIES: list[Callable[[Stage, Votes], Votes]] = [
    _none, _one_less, _doubled, _forged, _under_another_name, _of_one_who_is_not_in_the_sum, _of_nobody,
    _of_the_server, _of_another_u, _of_another_session, _of_another_noise_list,
]  # fmt: skip
SAME_SIZE = [lie for lie in VOTE_LIES if lie not in (_none, _one_less)]


def lied_votes(lie: Callable[[Stage, Votes], Votes]) -> Stage:
    stage = Stage.of(5, 1, 1)
    stage.upload()
    votes = list(stage.votes((0, 1, 2, 3)).items())
    assert len(votes) == stage.t == 4
    for n in range(4):
        stage.show(n, lie(stage, votes))
    return stage


@pytest.mark.parametrize("lie", VOTE_LIES, ids=lambda lie: lie.__name__)
def test_nothing_is_opened_without_t_votes_for_this_very_sum(
    lie: Callable[[Stage, Votes], Votes], ledger: Book
) -> None:
    stage = lied_votes(lie)
    assert [n for n, _ in stage.errors] == [0, 1, 2, 3]
    assert all(error.suspects == (SERVER,) for _, error in stage.errors)
    assert all(stage.sent(n, Kind.OPENING) is None for n in stage.everyone)
    assert not ledger.asked
    stage.check_next_round()


@pytest.mark.parametrize("lie", SAME_SIZE, ids=lambda lie: lie.__name__)
def test_a_client_that_does_not_look_at_votes_opens(
    lie: Callable[[Stage, Votes], Votes], ledger: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Masking, "_check_votes", no_votes_needed)
    stage = lied_votes(lie)
    assert all(stage.sent(n, Kind.OPENING) for n in range(4))


def test_right_votes_open() -> None:
    stage = lied_votes(lambda _, votes: votes)
    assert not stage.errors
    assert all(stage.sent(n, Kind.OPENING) for n in range(4))


def test_whatever_is_signed_says_what_it_is_and_only_votes_say_that_they_are_votes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signed: list[bytes] = []
    sign = Identity.sign

    def recorded(self: Identity, data: bytes) -> bytes:
        signed.append(data)
        return sign(self, data)

    monkeypatch.setattr(Identity, "sign", recorded)
    stage = Stage.of(5, 1, 1)
    stage.upload()
    assert len(stage.votes((0, 1, 2, 3))) == 4
    vote = _said(stage, 0)
    what = {data: re.match(rb"secea [a-z ]+ 1\n", data) for data in signed}
    assert vote in what
    assert all(what.values())
    assert [data for data, label in what.items() if label and b"vote" in label[0]] == [vote]


def old_votes(stage: Stage, U: Sequence[int]) -> None:
    """Votes of one round are shown in the next one, in the same union and with the same U."""
    stage.upload()
    first = stage.votes(U)
    server = stage.parties.server
    server.give_up()
    server.drain()
    stage.parties.union(stage.everyone)
    stage.upload()
    assert len(stage.votes(U)) == len(U)
    for n in U:
        stage.show(n, list(first.items())[: stage.t])


def test_votes_of_an_earlier_round_open_nothing(ledger: Book) -> None:
    stage = Stage.of(5, 1, 2)
    old_votes(stage, (0, 1, 2, 3))
    assert len(stage.errors) == 4
    assert not any(stage.sent(n, Kind.OPENING) for n in stage.everyone)
    assert not ledger.asked


def test_without_its_context_a_vote_is_good_for_later_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: votes that bind members alone. (Who adds noise changes with the round, and is left out as well.)"""
    honest = masking_module.statement
    monkeypatch.setattr(
        masking_module, "statement", lambda session, at, noisy: honest(session, replace(at, context=b""), ())
    )
    stage = Stage.of(5, 1, 2)
    old_votes(stage, (0, 1, 2, 3))
    assert not stage.errors
    assert all(stage.sent(n, Kind.OPENING) for n in range(4))


# ------------------------------------------------------------------------------------ which rounds mask keys are for


def test_a_clients_mask_keys_are_for_the_rounds_of_their_batch_and_for_its_members() -> None:
    stage = Stage.of(5, 1, 1, batch=3)
    masking, at = stage.part(0).masking, replace(stage.at(0), phase="upload", round=1)
    batch, _ = stage.batch(0)
    later = replace(batch, first=5)
    assert [q for q in range(12) if q in later] == [5, 6, 7]
    assert not any(q in replace(later, public={}) for q in range(12))  # until everybody's have come
    masking.check_begin(at, 0)
    for other in (replace(at, participants=(0, 1, 2, 3)), replace(at, round=4), replace(at, round=0)):
        with pytest.raises(ValueError, match="no mask keys"):
            masking.check_begin(other, 0)


def test_the_server_has_mask_keys_for_the_rounds_of_the_last_batch_and_its_members() -> None:
    stage = Stage.of(5, 1, 1, batch=3)
    session, at = stage.parties.session, replace(stage.at(0), round=4, members=(0, 1, 2, 4))
    assert isinstance(session.form, Keyed)
    opening = opening_module.Opening(session.form, session.params, session.hash)
    assert not any(opening.covers(q, at.members) for q in range(12))
    opening.got_batch(at, {(Kind.BATCH, v): b"" for v in at.members})
    assert [q for q in range(12) if opening.covers(q, at.members)] == [5, 6, 7]
    assert not any(opening.covers(q, others) for q in range(12) for others in ((0, 1, 2), stage.everyone))
    opening.forget()
    assert not any(opening.covers(q, at.members) for q in range(12))


def test_a_share_is_held_against_what_was_published() -> None:
    assert masking_module.same_share(b"a share", b"a share")
    assert not masking_module.same_share(b"a share", b"b share")
    for scalar in (1 << 10, 1 << 100):
        public, hashed = key_of(scalar).public_key().public_bytes_raw(), masking_module.hash_of(scalar)
        for other in (0, 1 << 10, 1 << 100):
            assert opening_module._has_key(public, other) == (other == scalar)
            assert opening_module._has_hash(hashed, other) == (other == scalar)


# ------------------------------------------------------------------------------------------------------ announcements


def test_mask_keys_are_made_with_all_participants_of_a_union_and_not_during_a_round() -> None:
    stage = Stage.of(4, 1, 1)
    batch, _ = stage.batch(0)
    assert not stage.say("batch", (0, 1, 2), 0)
    stage.upload()
    assert not stage.say("batch", stage.everyone, 0)
    assert [str(error) for _, error in stage.errors if "mask keys that are not due" not in str(error)] == []
    assert stage.part(0).masking.batch is batch
    other = Stage.of(4, 1, 1)
    assert other.say("batch", other.everyone, 0)


def test_no_sum_is_opened_of_others_than_the_participants(ledger: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage.of(5, 1, 1)
    stage.parties.union(range(4))
    stage.parties.contribute(stage.tables)
    stage.parties.server.begin("upload", range(4))
    stage.parties.exchange.deliver()
    assert not stage.votes(stage.everyone, of=range(4))
    monkeypatch.setattr(Masking, "check_begin", lambda *_: None)
    assert set(stage.votes(stage.everyone, of=range(4))) == set(range(4))


def test_no_sum_of_fewer_than_t_clients_is_opened(ledger: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage.of(5, 1, 1)
    stage.upload()
    for size in range(1, stage.t):
        for U in combinations(stage.everyone, size):
            assert not stage.votes(U), U
    monkeypatch.setattr(Keyed, "fewest", lambda *_: 2)  # the mutant
    assert len(stage.votes((0, 1, 2))) == 3


def test_no_sum_without_t_plus_1_noise_clients_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where t did not stand in the way."""
    monkeypatch.setattr(Keyed, "fewest", lambda *_: 2)
    stage = Stage.of(6, 1, 2)
    stage.upload()
    form, params = stage.parties.session.form, stage.parties.session.params
    assert isinstance(form, Keyed)
    noisy = form.noise_clients(params, stage.at(0))
    assert len(noisy) == 4
    U = sorted({*stage.everyone} - {*noisy[:2]})
    assert not stage.votes(U)
    assert all("noise" in str(error) for _, error in stage.errors)
    monkeypatch.setattr(Keyed, "noise_clients", lambda self, params, at: tuple(range(6)))  # the mutant
    assert len(stage.votes(U)) == 4


LATER = ("secret", "list", "union")


def begin_later(stage: Stage, what: str) -> None:
    """Something else begins after an upload: a union, an epoch of names, or a whole new union with its batch."""
    server = stage.parties.server
    server.give_up()
    server.drain()
    if what == "union":
        stage.parties.union(stage.everyone)
        return
    server.begin(what, stage.everyone)
    stage.parties.exchange.deliver()


@pytest.mark.parametrize("what", LATER)
def test_who_began_something_else_opens_no_earlier_upload(what: str, ledger: Book) -> None:
    stage = Stage.of(4, 1, 1)
    stage.upload()
    begin_later(stage, what)
    for U in (stage.everyone, (0, 1, 2)):
        assert not stage.votes(U)
    assert not ledger.asked


@pytest.mark.parametrize("what", ["secret", "union"])  # while names are asked nothing is opened anyway
def test_a_client_that_keeps_its_last_upload_in_mind_would_vote_under_a_later_union(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Masking, "check_begin", lambda *_: None)
    stage = Stage.of(4, 1, 1)
    stage.upload()
    begin_later(stage, what)
    with_vote = stage.votes((0, 1, 2))
    assert len(with_vote) == 3


def test_an_earlier_round_is_not_opened_in_a_later_one(ledger: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage.of(4, 1, 1)
    stage.parties.round(stage.tables)
    stage.upload()
    q = stage.at(0).round
    for number in (q - 1, q + 1, 0):
        assert not any(stage.say("agree", stage.everyone, n, round=number) for n in stage.everyone)
    monkeypatch.setattr(client_module, "_next", lambda *_: True)  # the mutant: its numbers are not looked at
    monkeypatch.setattr(Masking, "check_begin", lambda *_: None)
    assert stage.say("agree", stage.everyone, 0, round=q - 1)


def test_what_was_uploaded_is_never_uploaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage.of(4, 1, 1)
    parties = stage.parties
    for members in (stage.everyone, (0, 1, 2)):
        stage.upload()
        parties.server.give_up()
        parties.server.drain()
        parties.union(members)
        stage.ask(members)
        for n in members:
            with pytest.raises(RoundLost):
                parties.clients[n].contribute(stage.tables[n], parties.number)
            with pytest.raises(RoundLost):
                parties.clients[n].contribute(stage.tables[n], parties.number - 1)
        parties.server.give_up()
    parties.exchange.here = set(stage.everyone)
    stage.check_next_round()
    stage.ask(stage.everyone)
    for n in stage.everyone:  # what was opened does not go out again either
        with pytest.raises(RoundLost):
            parties.clients[n].contribute(stage.tables[n], parties.number)
    stage.part(0).released = Released()  # the mutant
    parties.clients[0].contribute(stage.tables[0], parties.number)


def test_a_second_upload_is_not_sent_before_the_first_was_opened() -> None:
    stage = Stage.of(4, 1, 1)
    stage.upload()
    for n in stage.everyone:
        assert not stage.say("upload", stage.everyone, n, round=stage.at(n).round + 1)
        assert not stage.say("batch", stage.everyone, n)


def second_smaller(stage: Stage) -> list[bool]:
    """A round with a smaller U, finished; then another one in the same union: who is ready for it, and uploads."""
    parties = stage.parties
    parties.contribute(stage.tables)
    parties.exchange.losses = {3: "upload"}
    parties.exchange.run("upload", stage.everyone)
    parties.exchange.losses, parties.exchange.here = {}, set(stage.everyone)
    q, taken = stage.at(0).round, []
    for n in (0, 1, 2):
        assert parties.clients[n].at.phase == REST
        for members in ((0, 1, 2), stage.everyone):
            taken.append(stage.say("ready", members, n))
            if taken[-1]:
                parties.clients[n].contribute(stage.tables[n], 2)
            taken.append(stage.say("upload", members, n, round=q + 1))
    return taken


def test_a_union_serves_one_smaller_sum() -> None:
    assert not any(second_smaller(Stage.of(4, 1, 1)))


def test_a_client_that_forgets_the_smaller_sum_uploads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = KeyedClient.enter

    def forgetful(self: KeyedClient, at: Agreement) -> None:
        enter(self, at)
        if self.union is not None:
            self.union = replace(self.union, spent=False)

    monkeypatch.setattr(KeyedClient, "enter", forgetful)
    assert second_smaller(Stage.of(4, 1, 1)) == 3 * [False, False, True, True]  # asked of all, it gives them all


# -------------------------------------------------------------------------------------------------------- many lies


def lie_at_random(stage: Stage, rng: np.random.Generator, steps: int) -> None:
    """A server that says whatever it likes to whomever, and shows any votes that it ever got."""
    server, parties, kept = stage.parties.server, stage.parties, dict[int, list[bytes]]()

    def some(least: int) -> list[int]:
        size = int(rng.integers(least, len(stage.tables) + 1))
        return sorted(map(int, rng.choice(len(stage.tables), size, replace=False)))

    for _ in range(steps):
        match int(rng.integers(8)):
            case 0 | 1:
                if server.at.phase != REST or any(stage.at(n).phase != REST for n in stage.everyone):
                    server.give_up()
                    server.drain()
                    parties.union(stage.everyone)
                if not server.part.prepared(server.at):
                    parties.exchange.run("batch", stage.everyone)
                stage.upload()
            case 2:
                for n in some(1):
                    stage.say("batch", stage.everyone, n)
            case 3 | 4:
                U = some(stage.t - 1)
                for n in some(1):
                    if n in U and stage.say("agree", U, n, round=max(0, stage.at(n).round - int(rng.random() < 0.1))):
                        kept.setdefault(n, []).append(stage.sent(n, Kind.VOTE) or b"")
            case 5:
                stage.openings(stage.votes(some(stage.t)))
            case _:
                for n in some(1):
                    voters = [v for v in kept if kept[v]]
                    if stage.at(n).phase == "agree" and len(voters) >= stage.t:
                        stage.show(n, [(v, kept[v][-1]) for v in voters[: stage.t]])
                        stage.sent(n, Kind.OPENING)


@pytest.mark.parametrize("seed", always(range(1), range(12)))
def test_a_client_never_gives_both_shares_of_one_client_and_round(seed: int, ledger: Book) -> None:
    clients, D, T = [(4, 1, 1), (5, 1, 2), (6, 2, 1), (3, 1, 1)][seed % 4]
    stage = Stage.of(clients, D, T, batch=3)
    lie_at_random(stage, np.random.default_rng(seed), 60)
    print(f"seed {seed}: {ledger.asked} openings")
    assert not ledger.both()
    assert ledger.asked
    stage.check_next_round()


def test_random_lies_find_both_shares_where_a_client_forgets(ledger: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Masking.check_begin
    monkeypatch.setattr(Masking, "check_begin", lambda self, at, uploaded: honest(self, at, at.round))
    for seed in range(4):
        stage = Stage.of(4, 1, 1, batch=3)
        try:
            lie_at_random(stage, np.random.default_rng(seed), 60)
        except (AssertionError, RoundLost):
            continue
    assert ledger.both()


# ---------------------------------------------------------------------------------------------- clients that deviate


def run_round(stage: Stage, losses: Mapping[int, str] | None = None) -> dict[int, Any]:
    """One honest exchange; whoever deviates was patched before."""
    parties = stage.parties
    parties.exchange.losses = dict(losses or {})
    return parties.round(stage.tables)


def check_means(stage: Stage, found: Mapping[int, Any], U: Iterable[int]) -> None:
    for n in U:
        for name, row in zip(stage.tables[n], found[n], strict=True):
            assert np.abs(row - truth(stage.tables, U, name)).max() < stage.parties.session.params.resolution


def spoil(opening: bytes) -> bytes:
    """All shares of an opening are other scalars."""
    blocks = [int.from_bytes(opening[i : i + 32], "little") for i in range(0, len(opening), 32)]
    return b"".join((block * block % ORDER).to_bytes(32, "little") for block in blocks)


GARBAGE: dict[str, Callable[[bytes], bytes]] = {
    "other scalars": spoil,
    "no scalars": lambda opening: b"\xff" * len(opening),
    "zeros": lambda opening: bytes(len(opening)),
    "turned around": lambda opening: opening[32:] + opening[:32],
}


def wrong_openings(stage: Stage, who: Iterable[int], how: Callable[[bytes], bytes], patch: pytest.MonkeyPatch) -> None:
    honest, wrong = Masking._opening, set(who)
    patch.setattr(
        Masking,
        "_opening",
        lambda self, at: how(honest(self, at)) if self.number in wrong else honest(self, at),
    )


@pytest.mark.parametrize("how", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("wrong", always([[0], [0, 3]], [[0], [3], [6], [0, 1], [0, 3], [5, 6]]))
def test_wrong_openings_change_nothing_while_t_right_ones_are_there(
    wrong: list[int], how: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage.of(7, 2, 2)
    wrong_openings(stage, wrong, how, monkeypatch)
    check_means(stage, run_round(stage), stage.everyone)


def test_of_the_first_sets_of_shares_one_is_without_any_given_client_and_all_sets_follow() -> None:
    for count in range(2, 9):
        clients = [3 * n + 1 for n in range(count)]
        for size in range(1, count + 1):
            every = list(opening_module._sets(clients, size))
            assert all(len(set(some)) == size for some in every)
            assert {frozenset(some) for some in every} == set(map(frozenset, combinations(clients, size)))
            first = every[:count]
            assert size == count or all(any(n not in some for some in first) for n in clients)


@pytest.mark.parametrize("wrong", [0, 9])
def test_one_wrong_opening_is_found_among_many_clients(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More sets of shares have the wrong one in them than are ever tried."""
    stage = Stage.of(12, 4, 1)
    wrong_openings(stage, [wrong], spoil, monkeypatch)
    check_means(stage, run_round(stage), stage.everyone)


def test_where_sets_are_tried_in_order_one_wrong_opening_costs_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening_module, "_sets", combinations)
    stage = Stage.of(12, 4, 1)
    wrong_openings(stage, [0], spoil, monkeypatch)
    with pytest.raises(RoundLost):
        run_round(stage)


@pytest.mark.parametrize("how", GARBAGE.values(), ids=GARBAGE)
def test_with_fewer_than_t_right_openings_the_round_is_lost_and_the_next_one_works(
    how: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage.of(5, 1, 1)
    with monkeypatch.context() as patch:
        wrong_openings(stage, [1, 2], how, patch)
        with pytest.raises(RoundLost):
            run_round(stage)
    stage.check_next_round()


def test_shares_are_held_against_what_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of the tests above: whatever the first shares give is taken, and nobody accepts the means."""
    monkeypatch.setattr(opening_module, "_has_hash", lambda *_: True)
    stage = Stage.of(5, 1, 1)
    wrong_openings(stage, [0], spoil, monkeypatch)
    with pytest.raises(ProtocolError, match="slots are not"):
        run_round(stage)


def dealt_wrongly(masking: Masking, receivers: Iterable[int]) -> None:
    honest = masking._dealt
    wrong = set(receivers)
    masking._dealt = lambda: {  # type: ignore[method-assign]
        v: spoil(data) if v in wrong else data for v, data in honest().items()
    }


@pytest.mark.parametrize("lost", [{}, {4: "upload"}], ids=["nobody", "another one"])
def test_wrong_shares_to_one_client_change_nothing_while_t_right_ones_are_there(lost: dict[int, str]) -> None:
    stage = Stage.of(6, 2, 1)
    dealt_wrongly(stage.part(2).masking, [0])
    stage.parties.union(stage.everyone)
    found = run_round(stage, lost) if not lost else None
    if found is not None:
        check_means(stage, found, stage.everyone)
        return
    stage.parties.contribute(stage.tables)
    stage.parties.exchange.losses = lost
    stage.parties.exchange.run("upload", stage.everyone)
    U = tuple(n for n in stage.everyone if n not in lost)
    check_means(stage, {n: stage.parties.means(n, stage.tables[n]) for n in U}, U)


def test_wrong_shares_to_too_many_lose_the_round_name_the_dealer_and_the_next_one_works() -> None:
    stage = Stage.of(5, 1, 1)
    masking = stage.part(2).masking
    dealt_wrongly(masking, [0, 1])
    stage.parties.union(stage.everyone)
    with pytest.raises(RoundLost, match="client 2"):
        run_round(stage)
    del masking._dealt
    stage.check_next_round()


def test_a_batch_whose_hash_does_not_fit_its_seed_loses_the_round_and_names_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage.of(5, 1, 1)
    with monkeypatch.context() as patch:
        honest = Masking._published

        def published(self: Masking) -> bytes:
            made = honest(self)
            return made[:32] + bytes(32) + made[64:] if self.number == 3 else made

        patch.setattr(Masking, "_published", published)
        stage.parties.union(stage.everyone)
        with pytest.raises(RoundLost, match="client 3"):
            run_round(stage)
    stage.check_next_round()


P25519 = 2**255 - 19
SMALL = sorted(masking_module._SMALL_ORDER)
SMALL_KEYS = [
    (u + twice * P25519 | top << 255).to_bytes(32, "little")
    for u in SMALL
    for twice in (0, 1)
    for top in (0, 1)
    if u + twice * P25519 < 2**255
]


@pytest.mark.parametrize("key", SMALL_KEYS, ids=lambda key: key.hex()[:8])
def test_keys_of_small_order_give_nothing_but_zeros_and_are_known(key: bytes) -> None:
    assert masking_module.of_small_order(key)
    with pytest.raises(FaultyPeer, match="small order"):
        pair_of(key_of(12345), key, 1, b"")


@law
@given(scalar=st.integers(1, ORDER - 1))
def test_other_keys_are_not_of_small_order(scalar: int) -> None:
    assert not masking_module.of_small_order(key_of(scalar).public_key().public_bytes_raw())


def batch_with(stage: Stage, change: Callable[[bytes], bytes], what: str, patch: pytest.MonkeyPatch) -> None:
    """Client 3 makes a batch that is wrong in what it publishes, or in what it deals."""
    published, dealt = Masking._published, Masking._dealt
    if what == "published":
        patch.setattr(
            Masking,
            "_published",
            lambda self: change(published(self)) if self.number == 3 else published(self),
        )
    else:
        patch.setattr(
            Masking,
            "_dealt",
            lambda self: {v: change(d) if self.number == 3 and v != 3 else d for v, d in dealt(self).items()},
        )
    stage.parties.union(stage.everyone)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("published", lambda data: data[:64] + SMALL_KEYS[-1] + data[96:]),
        ("published", lambda data: bytes(32) + data[32:]),
        ("dealt", lambda data: data[:32] + ORDER.to_bytes(32, "little") + data[64:]),
        ("dealt", lambda data: data[:-32] + b"\xff" * 32),
    ],
    ids=["a small key", "a zero key", "the order as a share", "a share that is no scalar"],
)
def test_a_batch_that_cannot_be_right_is_refused_before_anything_is_uploaded(
    what: str, change: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage.of(5, 1, 1)
    with monkeypatch.context() as patch:
        with pytest.raises(FaultyPeer) as caught:
            batch_with(stage, change, what, patch)
        assert caught.value.suspects == (3,)
        assert all(stage.at(n).phase == STOPPED for n in stage.everyone if n != 3)
    stage.check_next_round()
    with monkeypatch.context() as patch:  # the mutant: nobody looks
        patch.setattr(masking_module, "of_small_order", lambda _: False)
        patch.setattr(masking_module, "ORDER", 1 << 256)
        batch_with(stage, change, what, patch)
