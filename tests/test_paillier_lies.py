"""Deviating parties of the paper's form: what clients do not believe, and which wrong answers are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loopback import World as Engine
from secea.arithmetic.field import RING61, Residues
from secea.engines.port import Order, Task
from secea.errors import (
    SERVER,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    ProtocolError,
    Stale,
)
from secea.forms.paillier import Paillier
from secea.forms.paillier.buckets import EMPTY
from secea.forms.paillier.client import PaillierClient
from secea.forms.paillier.form import QUERY, SECRET, SHARE, Kind, answered_to_bytes
from secea.forms.paillier.retrieval import Encrypter
from secea.forms.paillier.server import PaillierServer
from secea.params import Params
from secea.party.phases import REST, STOPPED, Agreement, Begin, Standing
from secea.testing import Parties, Recorder
from secea.wire.messages import ALL, DIGEST_BYTES, Buffer, Header

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
P = 2**61 - 1
Floats = NDArray[np.float64]
Lie = Callable[[int, Residues], Residues]
"""(who asked, right answers [1, rows, L]) -> what is added to them."""
Parts = tuple[int, Sequence[Buffer]]

# -------------------------------------------------------------------------------------------------- a form of deviators


class Liar:
    """Encrypts other answers than the right ones."""

    def __init__(self, real: Encrypter, asker: int, lie: Lie) -> None:
        self._real, self._asker, self._lie = real, asker, lie

    def cover(self, chunk: int, answers: Residues) -> bytes:
        return self._real.cover(chunk, RING61.add(answers, self._lie(self._asker, answers)))


class LyingClient(PaillierClient):
    """Its answers, or the shares that it deals, are wrong where a test says so."""

    lie: Lie | None = None
    cheated: int | None = None
    """Who gets wrong shares."""

    def _encrypter(self, seed: bytes, n: int) -> Encrypter:
        real = super()._encrypter(seed, n)
        return real if self.lie is None else Liar(real, n, self.lie)  # type: ignore[return-value]

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver, parts in super().payloads(kind, receivers, at):
            if kind is Kind.SHARE and receiver == self.cheated:
                parts = (bytes(len(b"".join(parts))),)
            yield receiver, parts


class LyingServer(PaillierServer):
    """Says something else of means and unions where a test says so."""

    lie: Callable[[IntEnum, int, bytes], bytes] | None = None

    def ready(self, kind: IntEnum, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver, parts in super().ready(kind, at):
            whole = b"".join(bytes(part) for part in parts)
            yield receiver, (whole if self.lie is None else self.lie(kind, receiver, whole),)


class Deviating(Paillier):
    """The form with parts that can lie."""

    def client(self, *given: Any, **more: Any) -> PaillierClient:
        params, _, _, number, _, names, entropy = given
        return LyingClient(self, params, number, names, entropy)

    def server(self, params: Params, session: bytes) -> PaillierServer:
        return LyingServer(self, params)


OWNERS = {"a": (0, 2, 4), "b": (0, 1, 5), "c": (1, 2, 3), "d": (3, 4), "e": (6, 1)}


class Stage:
    """All parties, tables from a printed seed, and the truth."""

    def __init__(self, clients: int, *, tap: Any = None, **params: Any) -> None:
        print(f"seed {clients}, {params}")
        self.rng = np.random.default_rng(clients)
        self.tables = [
            {name: self.rng.uniform(-9, 9, 2) for name, who in OWNERS.items() if n in who} for n in range(clients)
        ]
        self.recorder = Recorder(Kind)
        self.parties = Parties.of(self.tables, Deviating(), tap=tap or self.recorder, dim=2, **SMALL, **params)
        self.everyone = tuple(range(clients))

    @property
    def server(self) -> LyingServer:
        part = self.parties.server.part
        assert isinstance(part, LyingServer)
        return part

    def part(self, n: int) -> LyingClient:
        part = self.parties.clients[n].part
        assert isinstance(part, LyingClient)
        return part

    def whole(self) -> None:
        """A set-up and a round."""
        self.parties.setup()
        self.round()

    def round(self) -> None:
        """The means are right, though somebody may have lied."""
        self.check(self.parties.round(self.tables))

    def check(self, found: dict[int, NDArray[Any]], among: Iterable[int] | None = None) -> None:
        rows: dict[str, list[Floats]] = {}
        for n in self.everyone if among is None else among:
            for name, row in self.tables[n].items():
                rows.setdefault(name, []).append(row)
        for n, means in found.items():
            expected = [np.mean(rows[name], axis=0) for name in self.tables[n]]
            assert np.allclose(means, np.array(expected).reshape(-1, 2), atol=self.parties.session.params.resolution)

    def fails(self) -> ProtocolError:
        """A round in which somebody refuses something: the first refusal."""
        with pytest.raises(ProtocolError) as caught:
            self.parties.round(self.tables)
        return caught.value

    def no_means(self, *clients: int) -> None:
        for n in clients or self.everyone:
            assert not self.part(n).has_means, n

    def honest_again(self) -> None:
        """Nobody lies any more: a new epoch, and a round."""
        self.parties.exchange.tap = self.recorder
        self.server.lie = None
        for n in self.everyone:
            self.part(n).lie = self.part(n).cheated = None
        for client in self.parties.clients.values():
            client.stop()
        self.parties.server.give_up()
        self.parties.server.drain()
        for n in self.everyone:
            self.parties.server.lost_touch(n)  # hellos may not have come
        self.parties.exchange.greet()
        self.parties.union(self.everyone)
        self.round()
        assert all(self.part(n).faults == [] for n in self.everyone)

    def blamed(self) -> dict[int, list[tuple[int, ...]]]:
        return {n: sorted(fault.suspects for fault in self.part(n).faults) for n in self.everyone}

    def resealed(self, receiver: int, message: Buffer, payload: bytes | None = None, **label: Any) -> bytes:
        """The same message to its receiver with another payload, as its sender could seal it."""
        client = self.parties.clients[receiver]
        header = client.link.parse(message, SERVER)
        sender = self.parties.server.link if header.sender == SERVER else self.parties.clients[header.sender].link
        if payload is None:
            payload = bytes(client.link.open(header, message).payload)
        header = replace(header, **label)
        return bytes(sender.sealer(header, receiver, header.chunks).seal(header.chunk, payload))


# -------------------------------------------------------------------------------------------------- wrong answers (7c)


def everything(asker: int, answers: Residues) -> Residues:
    rng = np.random.default_rng(asker)
    return RING61.constant(rng.integers(1, 2**60, answers.shape[1:]))


def one_element(asker: int, answers: Residues) -> Residues:
    error = RING61.zeros(*answers.shape[1:])
    error[:, -1, 0] = 1
    return error


def only_to(who: int, lie: Lie) -> Lie:
    return lambda asker, answers: lie(asker, answers) if asker == who else RING61.zeros(*answers.shape[1:])


LIES = [everything, one_element]


def surplus(stage: Stage) -> int:
    """Answers beyond those that are needed."""
    params = stage.parties.session.params
    return params.N - params.need


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize(("clients", "params"), [(5, {"dropouts": 1}), (7, {"collusion": 2, "dropouts": 1})], ids=str)
def test_with_two_extra_answers_a_wrong_one_is_found_and_the_means_are_right_without_it(
    clients: int, params: dict[str, int], lie: Lie
) -> None:
    stage = Stage(clients, **params)
    assert surplus(stage) == 2
    stage.parties.setup()
    for liar in (0, clients - 1):
        stage.part(liar).lie = lie
        stage.round()
        # everyone names the liar or the server; the liar knows that its answer to itself was as it should be
        assert stage.blamed() == {n: [(SERVER,) if n == liar else (liar, SERVER)] for n in stage.everyone}
        stage.part(liar).lie = None
    stage.round()
    assert stage.blamed() == {n: [] for n in stage.everyone}


def test_an_answer_that_is_wrong_towards_one_client_alone_is_found_by_that_client_alone() -> None:
    stage = Stage(5, dropouts=1)
    stage.parties.setup()
    stage.part(2).lie = only_to(4, one_element)
    stage.round()
    assert stage.blamed() == {n: [(2, SERVER)] if n == 4 else [] for n in stage.everyone}


def test_with_four_extra_answers_two_wrong_ones_are_found() -> None:
    stage = Stage(7, dropouts=3)
    assert surplus(stage) == 4
    stage.parties.setup()
    for liar in (1, 5):
        stage.part(liar).lie = everything
    stage.round()
    for n, found in stage.blamed().items():
        assert found == sorted((SERVER,) if n == liar else (liar, SERVER) for liar in (1, 5))


@pytest.mark.parametrize("lie", LIES)
def test_with_one_extra_answer_a_wrong_one_is_noticed_and_no_mean_is_released(lie: Lie) -> None:
    stage = Stage(4)
    assert surplus(stage) == 1
    stage.parties.setup()
    stage.part(2).lie = lie
    error = stage.fails()
    assert error.suspects[0] == SERVER
    assert len(error.suspects) == 4  # all who answered, but the one that says so
    stage.no_means()
    stage.honest_again()


def test_lost_clients_use_up_what_finds_wrong_answers() -> None:
    stage = Stage(6, dropouts=3)
    assert surplus(stage) == 3
    for lost, found in (((), True), ((0,), True), ((0, 1), False)):
        stage.parties.exchange.here = set(stage.everyone)
        if lost:
            stage.parties.union(stage.everyone)
        else:
            stage.parties.setup()
        stage.part(4).lie = everything
        stage.parties.exchange.losses = dict.fromkeys(lost, "answer")
        # who is lost in the middle has not answered the last client, whose means lack its answer
        if found:
            stage.parties.contribute(stage.tables)
            stage.parties.exchange.run("share", stage.everyone)
            left = [n for n in stage.everyone if n not in lost]
            stage.check({n: stage.parties.means(n, stage.tables[n]) for n in left})
            assert all(stage.blamed()[n] == [(SERVER,) if n == 4 else (4, SERVER)] for n in left)
        else:
            assert set(stage.fails().suspects) == {SERVER, 2, 3, 4}  # says client 5, with one extra answer
            stage.no_means(5)
        stage.parties.exchange.losses = {}
        stage.part(4).lie = None
        for client in stage.parties.clients.values():
            client.stop()
        stage.parties.server.give_up()
        stage.parties.server.drain()


def test_without_an_extra_answer_random_ones_are_out_of_range() -> None:
    stage = Stage(3)
    assert surplus(stage) == 0
    stage.parties.setup()
    stage.part(1).lie = everything
    assert stage.fails().suspects[0] == SERVER
    stage.no_means()
    stage.honest_again()


def shift(stage: Stage, liar: int, *, all_rows: bool) -> Lie:
    """A small shift of the first number of each row that is no dummy, which nobody but the asker knows; or of all."""
    params = stage.parties.session.params
    points, beta = [int(params.alpha[n]) for n in stage.everyone], int(params.beta[0])
    weight = 1
    for u, alpha in enumerate(points):
        if u != liar:
            weight = weight * (beta - alpha) * pow(points[liar] - alpha, -1, P) % P
    unit = pow(weight, -1, P) * 2**12 % P

    def lie(asker: int, answers: Residues) -> Residues:
        epoch = stage.part(asker).epoch
        assert epoch is not None
        error = RING61.zeros(*answers.shape[1:])
        error[0, np.ones(len(epoch.placement), bool) if all_rows else epoch.placement != EMPTY, 0] = unit
        return error

    return lie


def test_limit_without_an_extra_answer_a_small_shift_of_the_right_queries_passes() -> None:
    stage = Stage(3)
    stage.parties.setup()
    stage.part(1).lie = shift(stage, 1, all_rows=False)
    found = stage.parties.round(stage.tables)
    with pytest.raises(AssertionError):
        stage.check(found)
    assert stage.blamed() == {n: [] for n in stage.everyone}


def test_the_same_shift_of_all_queries_is_caught_by_the_dummies_and_by_one_extra_answer() -> None:
    for clients, all_rows, who in ((3, True, (0, 2)), (4, False, (0, 1, 2, 3))):  # client 1 has no dummies
        stage = Stage(clients)
        stage.parties.setup()
        stage.part(1).lie = shift(stage, 1, all_rows=all_rows)
        assert stage.fails().suspects[0] == SERVER
        stage.no_means(*who)


def test_limit_a_client_that_deals_a_wrong_share_makes_its_receiver_a_suspect() -> None:
    stage = Stage(5, dropouts=1)
    stage.parties.setup()
    at = replace(stage.parties.server.at, round=1)
    form = stage.parties.session.form
    assert isinstance(form, Paillier)
    seeded = form.seeded(Kind.SHARE, stage.parties.session.params, at, 0)
    victim = next(v for v in stage.everyone[1:] if v not in seeded)  # a seed is as good as any other
    stage.part(0).cheated = victim
    stage.round()
    assert stage.blamed()[(victim + 1) % 5] == [(victim, SERVER)]


# ------------------------------------------------------------------------------------------------ a server's own words

FULL, FEWER = (0, 1, 2, 3, 4), (0, 1, 2, 3)


def two_words(stage: Stage, word: int) -> Any:
    """A tap: clients 1 to 3 are told of the first four, and get nothing of the fifth; the others are told of all."""
    told: set[int] = set()

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        if sender != SERVER or receiver not in (1, 2, 3):
            return (message,)
        client = stage.parties.clients[receiver]
        header = client.link.parse(message, SERVER)
        if header.kind is not Kind.BEGIN:
            return () if receiver in told and header.sender == 4 else (message,)
        begin = Begin.parse(client.link.open(header, message).payload, 5)
        if begin.phase != word or (client.at.phase == "greeting") != (word == 0):
            return (message,)
        told.add(receiver)
        fewer = Begin(begin.phase, tuple(each for each in begin.members if each[0] in FEWER))
        return (stage.resealed(receiver, message, fewer.to_bytes()),)

    return tap


@pytest.mark.parametrize("word", [0, SECRET, QUERY, SHARE])
def test_two_words_on_who_counts_give_nobody_a_mean(word: int) -> None:
    """Contexts differ from then on: whatever one side sends or answers, the other side and the server refuse."""
    stage = Stage(5, dropouts=2)
    stage.parties.exchange.tap = two_words(stage, word)
    with pytest.raises(FaultyPeer, match=r"client 1: .* was made for another union or other members"):
        stage.whole()  # says the state machine of the server; one that goes on passes on what clients say
    clients = stage.parties.clients
    contexts = [clients[n].at.context for n in stage.everyone]
    assert contexts[0] == contexts[4] != contexts[1] == contexts[2] == contexts[3]
    for n in stage.everyone:
        for message in clients[n].outbox():
            v = Header.parse(message, n, Kind).receiver
            if v != SERVER and (n in (0, 4)) != (v in (0, 4)):
                with pytest.raises(FaultyPeerOrRelay, match="was made for other members"):
                    clients[v].receive(message)
    stage.no_means()
    stage.honest_again()


def answering(stage: Stage) -> list[tuple[int, Header, bytes]]:
    """After two words on shares: what every client answers, opened by a server that does not mind the context."""
    parties = stage.parties
    parties.setup()
    parties.server.begin("share", stage.everyone)
    for n in stage.everyone:
        parties.clients[n].contribute(stage.tables[n], 1)
    for n in stage.everyone:
        for message in parties.clients[n].outbox():
            parties.server.receive(n, message)
    parties.server.close()
    parties.exchange.tap = two_words(stage, SHARE)
    parties.exchange.deliver()
    found = []
    for n in stage.everyone:
        for message in parties.clients[n].outbox():
            header = parties.server.link.parse(message, n)
            opened = parties.server.link.open(header, message)
            parties.server.link.take(opened)
            found.append((n, header, bytes(opened.payload)))
    return found


@pytest.mark.parametrize("who", [FULL, (0, 4), FEWER])
def test_means_over_two_sets_of_contributors_are_refused_by_their_proofs(who: tuple[int, ...]) -> None:
    """Client 0 is told of all five; those who were told of four answer for these, and their proofs say so."""
    stage = Stage(5, dropouts=2)
    answers = {n: payload for n, header, payload in answering(stage) if header.chunk == 0 and n in who}
    client, link = stage.parties.clients[0], stage.parties.server.link
    form, params = stage.parties.session.form, stage.parties.session.params
    assert isinstance(form, Paillier)
    scrambler = stage.server._scrambler(bytes(32), 0)
    masked = scrambler.mask(
        0, {n: payload[DIGEST_BYTES:] for n, payload in answers.items()}, form.numbers(params).count
    )
    proofs = [payload[:DIGEST_BYTES] for payload in answers.values()]
    label = link.label(Kind.MEAN, form.label(Kind.MEAN, client.at), client.at.context)
    message = link.sealer(label, 0).seal(0, answered_to_bytes(params, answers), *proofs, *masked)
    why = "says that .* answered" if len(who) < 3 else "answered for other contributors"
    with pytest.raises(ProtocolError, match=why) as caught:
        client.receive(message)
    assert caught.value.suspects == ((SERVER,) if len(who) < 3 else (1, SERVER))
    assert client.at.phase == STOPPED
    stage.no_means()


MEAN_LIES: dict[str, tuple[Callable[[bytes, bytes], bytes], str]] = {
    "fewer than a quorum answered": (lambda mean, _: bytes([0b11]) + mean[1:], "says that"),
    "a stranger answered": (lambda mean, _: bytes([0b100111]) + mean[1:], "says that"),
    "another answered": (lambda mean, _: bytes([0b10111]) + mean[1:], "bytes"),
    "a proof is wrong": (lambda mean, _: mean[:20] + bytes([mean[20] ^ 1]) + mean[21:], "other contributors"),
    "our own proof is wrong": (lambda mean, _: mean[:1] + b"x" + mean[2:], "other bytes on with our own answer"),
    "one byte less": (lambda mean, _: mean[:-1], "chunks, this one of"),
    "means of another": (lambda _, other: other, "other contributors|other bytes"),
    "ciphertexts of another": (lambda mean, other: mean[:81] + other[81:], "cannot be right|impossible|fit together"),
    "zeros": (lambda mean, _: mean[:81] + bytes(len(mean) - 81), "cannot be right|impossible|fit together"),
    "answers exchanged": (
        lambda mean, _: mean[:81] + mean[81:][len(mean[81:]) // 5 :] + mean[81:][: len(mean[81:]) // 5],
        "cannot be right|impossible|fit together",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MEAN_LIES)
def test_means_that_the_server_made_up_are_refused_and_end_the_attempt(case: str) -> None:
    """Five answers are passed on to client 0: one byte says whose, then five proofs of 16 bytes, then ciphertexts."""
    stage = Stage(5, dropouts=1)
    stage.parties.setup()
    change, why = MEAN_LIES[case]
    seen: dict[int, bytes] = {}

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        if sender != SERVER or Header.parse(message, SERVER, Kind).kind is not Kind.MEAN:
            return (message,)
        client = stage.parties.clients[receiver]
        seen[receiver] = bytes(client.link.open(client.link.parse(message, SERVER), message).payload)
        return () if receiver == 0 else (message,)

    held: list[bytes] = []

    def keep(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        if sender == SERVER and receiver == 0 and Header.parse(message, SERVER, Kind).kind is Kind.MEAN:
            held.append(bytes(message))
        return tap(sender, receiver, message)

    stage.parties.exchange.tap = keep
    with pytest.raises(ProtocolError, match="did not send all of mean"):
        stage.parties.round(stage.tables)
    client, (message,) = stage.parties.clients[0], held
    with pytest.raises(ProtocolError, match=why) as caught:
        client.receive(stage.resealed(0, message, change(seen[0], seen[1])))
    assert SERVER in caught.value.suspects
    assert client.vouched
    assert client.at.phase == STOPPED
    with pytest.raises(ProtocolError):
        client.receive(message)  # the right one comes too late
    stage.no_means(0)
    stage.honest_again()


def test_a_server_that_changes_an_answer_is_as_suspect_as_the_client_that_gave_it() -> None:
    stage = Stage(5, dropouts=1)
    stage.parties.setup()

    def lie(kind: IntEnum, receiver: int, mean: bytes) -> bytes:
        if kind is not Kind.MEAN or receiver != 0:
            return mean
        size = (len(mean) - 81) // 5  # the ciphertexts of each who answered
        at, one = 81 + 2 * size, 64  # those of client 2; one ciphertext takes 64 bytes
        return mean[:at] + mean[at + one : at + 2 * one] + mean[at : at + one] + mean[at + 2 * one :]

    stage.server.lie = lie
    stage.round()
    assert stage.blamed() == {n: [(2, SERVER)] if n == 0 else [] for n in stage.everyone}


# -------------------------------------------------------------------------------------------------------------- unions

UNION_LIES: dict[str, tuple[Callable[[NDArray[np.uint64]], NDArray[np.uint64]], str]] = {
    "without ours": (lambda tags: tags[:0], "lacks"),
    "not in order": (lambda tags: tags[::-1], "not in order"),
    "one twice": (lambda tags: np.repeat(tags, 2)[: tags.size], "not in order|lacks"),
    "too many": (lambda tags: np.arange(99, dtype=np.uint64), "more than max_union"),
}


@pytest.mark.parametrize("case", UNION_LIES)
def test_a_union_that_cannot_be_is_refused_and_ends_the_attempt(case: str) -> None:
    stage = Stage(4)
    change, why = UNION_LIES[case]
    stage.server.lie = lambda kind, receiver, data: (
        change(np.frombuffer(data, "<u8")).astype("<u8").tobytes() if kind is Kind.TAGS else data
    )
    with pytest.raises(FaultyPeer, match=why) as caught:
        stage.parties.setup()
    assert caught.value.suspects == (SERVER,)
    assert any(client.at.phase == STOPPED for client in stage.parties.clients.values())
    stage.honest_again()


def test_limit_a_union_is_refused_exactly_where_it_lacks_a_tag_of_the_client() -> None:
    """A deviating server learns from it how many own a tag, and who; each question ends an attempt of everybody's."""
    owners = [{n for n in who if n < 4} for who in OWNERS.values()]
    for lacking in range(len(owners)):
        stage = Stage(4)

        def lie(kind: IntEnum, receiver: int, data: bytes, lacking: int = lacking) -> bytes:
            return data[: 8 * lacking] + data[8 * lacking + 8 :] if kind is Kind.TAGS else data

        stage.server.lie = lie
        with pytest.raises(FaultyPeer, match="lacks 1 of our"):
            stage.parties.setup()
        assert {n for n in stage.everyone if stage.parties.clients[n].at.phase == STOPPED} in owners


def test_a_union_for_one_client_alone_comes_to_nothing() -> None:
    """Client 0 gets a tag more than the others: its context is another, and nobody takes what it sends."""
    stage = Stage(4)

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        if (sender, receiver) != (SERVER, 0) or Header.parse(message, SERVER, Kind).kind is not Kind.TAGS:
            return (message,)
        link = stage.parties.clients[0].link
        data = bytes(link.open(link.parse(message, SERVER), message).payload)
        tags = np.frombuffer(data, "<u8")
        other = np.unique(np.append(tags, np.uint64(1))) if tags.size < 4 else np.append(tags[:-1], tags[-1] + 1)
        return (stage.resealed(0, message, other.astype("<u8").tobytes()),)

    stage.parties.exchange.tap = tap
    with pytest.raises(ProtocolError) as caught:
        stage.whole()
    assert set(caught.value.suspects) & {0, SERVER}
    stage.no_means()
    stage.honest_again()


# ---------------------------------------------------------------------------------------------- drops, swaps, replays

TO_CLIENTS = [Kind.HELLO, Kind.BEGIN, Kind.TAGS, Kind.QUERY, Kind.SHARE, Kind.MEAN]


@pytest.mark.parametrize("kind", TO_CLIENTS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("turn", [0, -1], ids=["the first", "the last"])
def test_whatever_the_server_does_not_deliver_there_is_no_wrong_mean_and_it_is_suspected(kind: Kind, turn: int) -> None:
    stage = Stage(4)
    stage.parties.setup()
    stage.round()
    count = sum(hop.header.kind is kind and hop.receiver == 2 for hop in stage.recorder.hops)
    dropped, seen = Stage(4), 0
    wanted = turn % count

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        nonlocal seen
        if receiver != 2 or Header.parse(message, sender, Kind).kind is not kind:
            return (message,)
        seen += 1
        return () if seen == wanted + 1 else (message,)

    dropped.parties.exchange.tap = tap
    with pytest.raises((ProtocolError, FederationError)):
        dropped.whole()
    assert seen > wanted
    client, overdue = dropped.parties.clients[2], dropped.parties.clients[2].overdue()
    assert client.at.phase in ("greeting", STOPPED) or (overdue is not None and SERVER in overdue.suspects)
    dropped.no_means(2)
    dropped.honest_again()


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.QUERY, Kind.SHARE], ids=lambda kind: kind.name)
def test_two_clients_messages_to_one_receiver_cannot_stand_for_each_other(kind: Kind) -> None:
    stage, tried = Stage(4), list[int]()

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        header = Header.parse(message, sender, Kind)
        if sender == SERVER and receiver != ALL and header.kind is kind and header.receiver == receiver:
            other = next(v for v in stage.everyone if v not in (receiver, header.sender))
            before = stage.parties.clients[receiver].at
            forged = replace(header, sender=other).pack() + bytes(message[64:])
            with pytest.raises((FaultyPeerOrRelay, Stale)) as caught:
                stage.parties.clients[receiver].receive(forged)
            assert caught.value.suspects == (other, SERVER)
            assert not stage.parties.clients[receiver].vouched
            assert stage.parties.clients[receiver].at == before
            tried.append(receiver)
        return (message,)

    stage.parties.exchange.tap = tap
    stage.parties.setup()
    stage.round()
    assert set(tried) == set(stage.everyone)


def test_replays_of_an_earlier_round_and_of_an_earlier_epoch_change_nothing() -> None:
    stage = Stage(4)
    stage.parties.setup()
    stage.round()
    stage.parties.union(stage.everyone)
    old = list(stage.recorder.hops)
    stage.parties.contribute(stage.tables)
    before = {n: client.at for n, client in stage.parties.clients.items()}
    for hop in old:
        if hop.sender == SERVER:
            client = stage.parties.clients[hop.receiver]
            with pytest.raises(ProtocolError):
                client.receive(hop.message)
            assert not client.vouched
        else:
            with pytest.raises(ProtocolError):
                stage.parties.server.receive(hop.sender, hop.message)
    assert {n: client.at for n, client in stage.parties.clients.items()} == before
    stage.parties.exchange.run("share", stage.everyone)
    stage.check({n: stage.parties.means(n, stage.tables[n]) for n in stage.everyone})


@pytest.mark.parametrize("kind", [Kind.TAGS, Kind.MEAN], ids=lambda kind: kind.name)
def test_unions_and_means_of_before_are_refused_even_if_the_server_seals_them_anew(kind: Kind) -> None:
    stage = Stage(4)
    old: dict[int, bytes] = {}

    def keep(asked: IntEnum, receiver: int, data: bytes) -> bytes:
        return old.setdefault(receiver, data) if asked is kind else data

    stage.server.lie = keep
    stage.parties.setup()
    stage.round()
    with pytest.raises(ProtocolError, match=r"lacks|other contributors|other bytes") as caught:
        stage.whole() if kind is Kind.TAGS else stage.round()
    assert SERVER in caught.value.suspects
    stage.honest_again()


# -------------------------------------------------------------------------------------------------------- an engine


def test_limit_the_server_is_told_whose_entities_changed(tmp_path: Path) -> None:
    world = Engine(tmp_path, Paillier(), entities=6, **SMALL)
    world.driver.setup()
    world.round()
    world.port.seen.clear()
    world.sets[2] = ["new"]
    world.round()
    unsettled = set()
    for n, _, reply in world.port.seen:
        if not Standing.parse(reply.standing, 1000, 0).settled:
            unsettled.add(n)
    assert unsettled == {2}


def test_a_forged_order_to_train_costs_no_round(tmp_path: Path) -> None:
    """The form has no message for it; whoever gives the order early gets nothing that the server would not get."""
    world = Engine(tmp_path, Paillier(), entities=6, **SMALL)
    world.driver.setup()
    world.round()
    host = world.hosts[1]
    for number in (0, 1, 7, 2**32 - 1):
        assert host.obey(Order(Task.ROUND, number)).messages == []
    assert host.client.at.phase == REST
    sent = host.obey(Order(Task.ROUND, 2)).messages
    assert host.obey(Order(Task.ROUND, 2)).messages == sent != []
    with suppress(FederationError):
        world.round()
    assert world.round() == [0, 1, 2, 3]
