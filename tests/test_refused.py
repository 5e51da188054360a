"""What parties of either form refuse, whom they blame and what becomes of the attempt; and tables that fit together."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import gmpy2  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
from numpy.typing import NDArray

from loopback import N, World, obeying
from secea.arithmetic.paillier import PublicKey
from secea.engines.driver import MOST_UNABLE
from secea.engines.port import Order, Reply, Task
from secea.errors import SERVER, FaultyPeer, FederationError, ParamsError, ProtocolError, Stale
from secea.forms.keyed import Keyed
from secea.forms.keyed import Kind as KeyedKind
from secea.forms.keyed.handover import Following, Handover
from secea.forms.paillier import Paillier
from secea.forms.paillier.form import NO_PLACEMENT, Kind
from secea.forms.paillier.retrieval import public_key
from secea.params import Params
from secea.party.client import ROWS_BYTES, Client
from secea.party.form import Form
from secea.party.phases import REST, STOPPED, Begin, Route, Row
from secea.party.server import Server
from secea.steps import oprf
from secea.testing import Parties, Recorder
from secea.wire import messages
from secea.wire.keys import KEY_BYTES
from secea.wire.link import broadcast_name
from secea.wire.messages import DIGEST_BYTES, Buffer, Header
from secea.wire.randomness import KeyStream
from test_party import outbox, refused, resealed, state
from tiers import slow

SMALL: dict[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
DIM = 2
MOST_CHUNKS = 2**32 - 1
KEYED_UNION = 32
KILOBYTE = 1024
Tables = list[dict[str, NDArray[np.float64]]]


def tables_of(clients: int, entities: int = 6) -> Tables:
    """Every entity has two owners or more, and nobody has all."""
    rng = np.random.default_rng(clients)
    return [
        {f"e{i}": rng.uniform(-3, 3, DIM) for i in range(entities) if (i + n) % clients not in (0, 1) or not i}
        for n in range(clients)
    ]


def parties_of(form: Form, tables: Tables, **params: Any) -> Parties:
    return Parties.of(tables, form, **SMALL, **params)


def brought_to(phase: str, parties: Parties, tables: Tables, members: Sequence[int]) -> None:
    """Parties of the paper's form at the beginning of a phase: nothing of it was sent."""
    server, exchange = parties.server, parties.exchange
    exchange.greet()
    server.begin("secret", members)
    exchange.deliver()
    while server.at.phase not in (phase, REST):
        exchange.step()
    if phase in ("share", "answer"):
        parties.number += 1
        server.begin("share", server.at.members)
        for n in server.at.members:
            parties.clients[n].contribute(tables[n], parties.number)
    if phase == "answer":
        exchange.step()
    assert {parties.clients[n].at.phase for n in server.at.members} == {server.at.phase} == {phase}


def to_the_end(parties: Parties, tables: Tables) -> None:
    """What was begun goes on; a round follows where none is among it. The means are right."""
    while parties.server.at.phase != REST:
        parties.exchange.step()
    members = parties.server.at.members
    if not parties.clients[members[0]].part.has_means:
        parties.contribute([tables[n] if n in members else None for n in range(len(tables))])
        parties.exchange.run(parties.session.form.round_phase, members)
    parties.exchange.check_finished()
    for n in members:
        found = parties.means(n, tables[n])
        for name, row in zip(tables[n], found, strict=True):
            expected = np.mean([tables[v][name] for v in members if name in tables[v]], axis=0)
            assert np.allclose(row, expected, atol=parties.session.params.resolution), (n, name)


def all_sent(parties: Parties) -> None:
    """What clients have to send has come to the server."""
    for n in parties.server.at.members:
        for message in outbox(parties, n):
            parties.server.receive(n, message)


def ended(client: Client, message: Buffer, *suspects: int, match: str) -> None:
    """The message is refused with this blame, and ends the attempt of the client: it has no means and says nothing."""
    before = client.at
    with pytest.raises(FaultyPeer, match=match) as caught:
        client.receive(message)
    assert type(caught.value) is FaultyPeer
    assert caught.value.suspects == suspects
    assert client.at == replace(before, phase=STOPPED)
    assert list(client.outbox()) == []
    assert not client.part.has_means


def cheaply(work: Callable[[], None]) -> None:
    """It takes less memory than a fraction of a full chunk."""
    tracemalloc.start()
    try:
        work()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * KILOBYTE


def announced(parties: Parties, to: int, phase: str, members: Iterable[int], **numbers: int) -> bytes:
    """The server's authentic announcement of a phase to one client."""
    server, form = parties.server, parties.session.form
    index = [row.phase for row in parties.session.rows].index(phase)
    begin = Begin(index, tuple((v, server.link.incarnation(v)) for v in members))
    due = form.next_numbers(phase, server.at, again=False) | numbers
    label = server.link.label(form.kinds["BEGIN"], due, server.part.anchor(phase, server.at))
    return bytes(server.link.sealer(label, to).seal(0, begin.to_bytes()))


# ------------------------------------------------------------------------------------------------- who is said to count


def word_on(parties: Parties, *members: int) -> bytes:
    """The server's authentic word to client 0 that the messages of these count."""
    server, form = parties.server, parties.session.form
    salts = [(n, parties.clients[n].due.sends[0].salt if n in server.at.members else bytes(16)) for n in members]
    label = server.link.label(form.kinds["BEGIN"], form.label(form.kinds["BEGIN"], server.at), server.at.context)
    return bytes(server.link.sealer(label, 0).seal(0, Begin(server.row.settles, tuple(salts)).to_bytes()))


each_word = pytest.mark.parametrize("phase", ["secret", "query", "share"])


@each_word
@pytest.mark.parametrize(("clients", "T", "D"), [(5, 1, 2), slow((7, 2, 1))])
def test_a_word_that_counts_fewer_than_two_beside_the_colluders_is_refused(
    phase: str, clients: int, T: int, D: int
) -> None:
    tables = tables_of(clients)
    parties = parties_of(Paillier(), tables, collusion=T, dropouts=D)
    brought_to(phase, parties, tables, range(clients))
    client = parties.clients[0]
    for count in range(1, T + 2):
        why = f"announces {count} clients; fewer than {T + 2} would expose someone"
        refused(client, word_on(parties, *range(count)), FaultyPeer, SERVER, match=why)
    client.receive(word_on(parties, *range(T + 2)))
    assert client.at.members == tuple(range(T + 2))


@each_word
def test_a_word_that_counts_more_than_were_announced_is_refused_and_the_right_one_is_taken(phase: str) -> None:
    tables = tables_of(5)
    parties = parties_of(Paillier(), tables, dropouts=1)
    brought_to(phase, parties, tables, range(4))
    why = rf"says that the messages of \[0, 1, 2, 3, 4\] count in the phase '{phase}'"
    refused(parties.clients[0], word_on(parties, *range(5)), FaultyPeer, SERVER, match=why)
    refused(parties.clients[0], word_on(parties, *range(6)), FaultyPeer, SERVER, match="cannot be read")
    to_the_end(parties, tables)


def test_a_share_of_whose_queries_do_not_count_does_not_count_either() -> None:
    tables = tables_of(5)
    parties = parties_of(Paillier(), tables, dropouts=1)
    parties.exchange.losses[4] = "query"
    brought_to("share", parties, tables, range(5))
    assert parties.server.at.members == (0, 1, 2, 3)
    why = r"says that the messages of \[0, 1, 2, 4\] count in the phase 'share'"
    refused(parties.clients[0], word_on(parties, 0, 1, 2, 4), FaultyPeer, SERVER, match=why)
    to_the_end(parties, tables)


def test_keyed_a_round_is_for_all_of_the_union_and_for_nobody_else() -> None:
    tables = tables_of(5)
    parties = parties_of(Keyed(), tables, collusion=1)
    parties.setup()
    parties.union(range(4))
    parties.contribute(tables)
    client = parties.clients[0]
    for members, why in (
        ((0, 1), "announces 2 participants; we take part with 3 or more"),
        ((0, 1, 2), "other members than it has"),
        ((0, 1, 2, 3, 4), "other members than it has"),
        ((0, 1, 2, 4), "other members than it has"),
    ):
        refused(client, announced(parties, 0, "upload", members), FaultyPeer, SERVER, match=why)
    parties.exchange.run("upload", range(4))
    to_the_end(parties, tables)


def test_keyed_with_drop_outs_a_sum_is_of_so_many_and_of_those_of_the_union_alone() -> None:
    tables = tables_of(5)
    parties = parties_of(Keyed(batch=2), tables, collusion=1, dropouts=2)
    parties.setup()
    parties.union(range(4))
    parties.exchange.run("batch", range(4))
    parties.contribute(tables)
    parties.server.begin("upload", range(4))
    parties.exchange.deliver()
    client = parties.clients[0]
    for members, why in (
        ((0, 1), "announces 2 participants; we take part with 3 or more"),
        ((0, 1, 2, 4), "wants to open round 1, to which we did not upload"),
        ((0, 1, 2, 3, 4), "wants to open round 1, to which we did not upload"),
    ):
        refused(client, announced(parties, 0, "agree", members), FaultyPeer, SERVER, match=why)
    to_the_end(parties, tables)


# ----------------------------------------------------------------------------------------------------- who cannot go on


def aborts(client: Client, server: Server, text: bytes, chunks: int = 1) -> bytes:
    """A client's authentic word that it cannot go on, with another text."""
    label = client.link.label(Kind.ABORT, Paillier().label(Kind.ABORT, server.at), server.at.context)
    return bytes(client.link.sealer(label, SERVER, chunks).seal(0, text))


@pytest.mark.parametrize(
    ("text", "chunks", "why"),
    [
        (b"placemenT", 1, "cannot be right: it says nothing that is known"),
        (bytes(len(NO_PLACEMENT)), 1, "cannot be right: it says nothing that is known"),
        (b"", 1, "has 0 bytes, which is not what is due"),
        (NO_PLACEMENT[:-1], 1, "has 8 bytes, which is not what is due"),
        (NO_PLACEMENT + b" of e1", 1, "has 15 bytes, which is not what is due"),
        (bytes(1 << 16), 1, "has 65536 bytes, which is not what is due"),
        (NO_PLACEMENT, 2, "has 9 bytes, which is not what is due"),
        (NO_PLACEMENT, MOST_CHUNKS, "has 9 bytes, which is not what is due"),
    ],
    ids=["another text", "zeros", "nothing", "less", "more", "much more", "of two chunks", "of many chunks"],
)
def test_who_says_in_other_words_that_it_cannot_go_on_is_blamed_and_its_query_counts(
    text: bytes, chunks: int, why: str
) -> None:
    tables = tables_of(3)
    parties = parties_of(Paillier(), tables)
    brought_to("query", parties, tables, range(3))
    server = parties.server
    refused(server, aborts(parties.clients[1], server, text, chunks), FaultyPeer, 1, match=why)
    assert server.cannot() == set()
    to_the_end(parties, tables)
    assert (server.at.union, server.at.attempt) == (1, 0)


@pytest.mark.parametrize("phase", ["secret", "table", "share", "answer"])
def test_who_says_in_another_phase_that_it_cannot_go_on_is_not_heard(phase: str) -> None:
    tables = tables_of(3)
    parties = parties_of(Paillier(), tables)
    brought_to(phase, parties, tables, range(3))
    message = aborts(parties.clients[1], parties.server, NO_PLACEMENT)
    refused(parties.server, message, Stale, 1, match=f"is not due in the phase '{phase}'")
    to_the_end(parties, tables)
    assert (parties.server.at.union, parties.server.at.attempt) == (1, 0)


def both_sent(parties: Parties, n: int) -> None:
    """All queries have come to the server, and then client n says that it cannot go on."""
    all_sent(parties)
    parties.server.receive(n, aborts(parties.clients[n], parties.server, NO_PLACEMENT))
    assert parties.server.cannot() == {n}


def test_of_a_client_that_is_disregarded_nothing_is_used_and_nothing_is_passed_on() -> None:
    tables, recorder = tables_of(4), Recorder(Kind)
    parties = parties_of(Paillier(), tables, tap=recorder)
    brought_to("query", parties, tables, range(4))
    server = parties.server
    both_sent(parties, 3)
    recorder.hops.clear()
    server.disregard(3)
    assert (server.cannot(), server.missing(), server.enough) == (set(), (3,), True)
    assert {sender for _, sender, _ in server._held} == {0, 1, 2}
    server.close()
    assert (server.at.phase, server.at.members) == (REST, (0, 1, 2))
    parties.exchange.here = {0, 1, 2}
    parties.exchange.deliver()
    assert {hop.receiver for hop in recorder.hops} == {0, 1, 2}
    assert {hop.header.sender for hop in recorder.hops if hop.header.kind is Kind.QUERY} == {0, 1, 2}
    assert not [hop for hop in recorder.hops if hop.header.sender == 3]
    assert {parties.clients[n].at for n in range(3)} == {server.at}
    to_the_end(parties, tables)


def test_where_one_cannot_go_on_after_its_query_no_query_is_passed_on_and_all_try_again() -> None:
    tables, recorder = tables_of(4), Recorder(Kind)
    parties = parties_of(Paillier(), tables, tap=recorder)
    brought_to("query", parties, tables, range(4))
    both_sent(parties, 3)
    recorder.hops.clear()
    parties.server.close()
    at = parties.server.at
    assert (at.phase, at.union, at.attempt, at.members) == ("secret", 2, 1, (0, 1, 2, 3))
    parties.exchange.deliver()
    assert {hop.header.kind for hop in recorder.hops} == {Kind.BEGIN}
    to_the_end(parties, tables)


def test_who_queries_and_says_again_and_again_that_it_cannot_go_on_is_lost_with_the_reason(tmp_path: Path) -> None:
    world = World(tmp_path, Paillier(), entities=6, **SMALL)
    said: list[int] = []

    def both(order: Order, reply: Reply) -> Reply:
        client = world.hosts[2].client
        if client.at.phase != "query" or not reply.messages or order.task is Task.HELLO:
            return reply
        said.append(client.at.union)
        return replace(reply, messages=[*reply.messages, aborts(client, world.driver.server, NO_PLACEMENT)])

    obeying(world, 2, both)
    world.driver.setup()
    assert said == list(range(1, MOST_UNABLE + 2))
    assert world.driver.failures == {2: "it says again and again that it cannot go on"}
    at = world.driver.server.at
    assert (at.phase, at.union, at.attempt, at.members) == (REST, MOST_UNABLE + 1, MOST_UNABLE, (0, 1, 3))
    assert world.round() == [0, 1, 3]
    passed = [
        Header.parse(message, SERVER, Kind) for n, order, _ in world.port.seen for message in order.messages if n != 2
    ]
    assert {header.sender for header in passed if header.kind is Kind.QUERY} == {0, 1, 3}


# ---------------------------------------------------------------------------------------------------------- ciphertexts


def no_unit(key: PublicKey) -> dict[str, int]:
    """Numbers that no encryption under a key gives."""
    minus = next(a for a in range(2, 1000) if gmpy2.jacobi(a, key.n) == -1)
    n = int(key.n)
    return {
        "0": 0, "n": n, "a multiple of n": 12345 * n, "the last multiple of n": n * (n - 1), "n squared": n * n,
        "1 beyond n squared": n * n + 1, "of Jacobi symbol -1": minus, "a large one of it": minus + n * (n - 1),
    }  # fmt: skip


NO_UNITS = ("0", "n", "a multiple of n", "the last multiple of n", "n squared", "1 beyond n squared")
each_no_unit = pytest.mark.parametrize("case", [*NO_UNITS, "of Jacobi symbol -1", "a large one of it"])


def spoilt(key: PublicKey, ciphertexts: bytes, index: int, case: str) -> bytes:
    """The same ciphertexts with one that is none."""
    size = key.ciphertext_bytes
    at = index * size
    return ciphertexts[:at] + no_unit(key)[case].to_bytes(size, "little") + ciphertexts[at + size :]


@each_no_unit
def test_an_answer_with_a_number_that_is_no_ciphertext_is_refused_and_the_right_one_still_counts(case: str) -> None:
    tables = tables_of(3)
    parties = parties_of(Paillier(), tables)
    brought_to("answer", parties, tables, range(3))
    server = parties.server
    for message in outbox(parties, 1):
        header = server.link.parse(message, 1)
        payload = bytes(server.link.open(header, message).payload)
        key = public_key(server.link.introduction(header.chunk), 256)  # one chunk for each who asks
        proof, body = payload[:DIGEST_BYTES], payload[DIGEST_BYTES:]
        for index in (0, len(body) // key.ciphertext_bytes - 1):
            lie = resealed(parties, server, header, proof + spoilt(key, body, index, case))
            why = f"cannot be right: ciphertext {index} is not below n.2, or no unit of Jacobi symbol 1"
            refused(server, lie, FaultyPeer, 1, match=why)
        server.receive(1, message)
    assert header.chunk == 2
    for n in (0, 2):
        for message in outbox(parties, n):
            server.receive(n, message)
    server.close()
    parties.exchange.deliver()
    to_the_end(parties, tables)


def held_means(parties: Parties) -> list[bytes]:
    """The chunks of client 0's means, which did not come to it; everything else did."""
    held: list[bytes] = []

    def tap(sender: int, receiver: int, message: Buffer) -> Iterator[Buffer]:
        if receiver == 0 and Header.parse(message, sender, Kind).kind is Kind.MEAN:
            held.append(bytes(message))
        else:
            yield message

    parties.exchange.tap = tap
    parties.exchange.step()
    assert parties.server.at.phase == REST
    return held


@each_no_unit
def test_means_with_a_number_that_is_no_ciphertext_end_the_attempt(case: str) -> None:
    tables = tables_of(3)
    parties = parties_of(Paillier(), tables)
    brought_to("answer", parties, tables, range(3))
    (message,), client = held_means(parties), parties.clients[0]
    header = client.link.parse(message, SERVER)
    payload, key = bytes(client.link.open(header, message).payload), public_key(client.part.introduction, 256)
    prefix = 1 + 3 * DIGEST_BYTES
    lie = resealed(parties, client, header, payload[:prefix] + spoilt(key, payload[prefix:], 1, case))
    ended(client, lie, SERVER, match=r"cannot be right: ciphertext 1 is not below n.2, or no unit of Jacobi symbol 1")
    with pytest.raises(ProtocolError, match="is not due"):
        client.receive(message)  # the right ones come too late
    assert not client.part.has_means


@pytest.mark.parametrize("chunks", [1, 3, 5, MOST_CHUNKS])
def test_means_in_another_number_of_chunks_end_the_attempt(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    tables, form = tables_of(3, entities=9), Paillier()
    parties = parties_of(form, tables)
    numbers = form.numbers(parties.session.params)
    monkeypatch.setattr(messages, "CHUNK_BYTES", numbers.answer_row_bytes * -(-numbers.count // 4))
    brought_to("answer", parties, tables, range(3))
    held, client = held_means(parties), parties.clients[0]
    header = client.link.parse(held[0], SERVER)
    assert (header.chunks, len(held)) == (4, 4)
    payload = bytes(client.link.open(header, held[0]).payload)
    lie = resealed(parties, client, replace(header, chunks=chunks), payload)
    ended(client, lie, SERVER, match=rf"sends means in {chunks} chunks, this one of {len(payload)} bytes")
    for message in held:
        with pytest.raises(ProtocolError, match="is not due"):
            client.receive(message)
    assert not client.part.has_means


# --------------------------------------------------------------------------------------------------- many small chunks


def held_tags(parties: Parties) -> bytes:
    """The union, which came to nobody."""
    all_sent(parties)
    parties.server.close()
    (message,) = parties.server.drain()[0]
    assert Header.parse(message, SERVER, Kind).kind is Kind.TAGS
    return bytes(message)


@pytest.mark.parametrize("chunks", [6, MOST_CHUNKS])
@pytest.mark.parametrize("elements", [0, 1, 6], ids=["nothing in each", "one in each", "all in each"])
def test_a_union_in_many_small_chunks_ends_the_attempt_with_the_first_of_them(chunks: int, elements: int) -> None:
    tables = tables_of(3)
    parties = parties_of(Paillier(), tables, max_entities=1 << 16, max_union=1 << 16)
    brought_to("table", parties, tables, range(3))
    client, message = parties.clients[0], held_tags(parties)
    header = client.link.parse(message, SERVER)
    payload = bytes(client.link.open(header, message).payload)
    assert (header.chunks, len(payload)) == (1, 48)
    lie = resealed(parties, client, replace(header, chunks=chunks), payload[: 8 * elements])
    cheaply(lambda: ended(client, lie, SERVER, match=f"sends {elements} tags in {chunks} chunks"))


def test_a_union_without_an_end_is_refused_with_the_first_tag_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tables_of(3)
    parties = parties_of(Paillier(), tables, max_entities=6, max_union=7)
    brought_to("table", parties, tables, range(3))
    client, message = parties.clients[0], held_tags(parties)
    header = replace(client.link.parse(message, SERVER), chunks=MOST_CHUNKS)
    monkeypatch.setattr(messages, "CHUNK_BYTES", 16)  # full chunks have two tags
    for chunk in range(3):
        client.receive(resealed(parties, client, header.at(chunk), bytes(16)))
    ended(client, resealed(parties, client, header.at(3), bytes(16)), SERVER, match="sends more than max_union=7 tags")


def keyed_at_table(tables: Tables) -> Parties:
    parties = parties_of(Keyed(), tables, max_entities=KEYED_UNION, max_union=KEYED_UNION)
    parties.exchange.greet()
    parties.exchange.run("commit", range(len(tables)), until="table")
    return parties


def broadcast(parties: Parties, chunks: int, rows: int) -> tuple[bytes, Callable[[bytes], bytes]]:
    """The key of a union of so many rows for client 0, and what seals its first chunk."""
    link, at, key = parties.server.link, parties.server.at, bytes(KEY_BYTES)
    key_label = link.label(KeyedKind.KEY, at.numbers, at.context)
    label = replace(link.label(KeyedKind.TAGS, at.numbers, at.context), chunks=chunks)
    said = link.sealer(key_label, 0).seal(0, key, broadcast_name(label), rows.to_bytes(ROWS_BYTES, "little"))
    return bytes(said), lambda payload: bytes(link.broadcaster(label, chunks, key).seal(0, payload))


@pytest.mark.parametrize("rows", [KEYED_UNION + 1, (1 << 32) - 1, (1 << 64) - 1])
def test_keyed_a_union_beyond_its_bound_is_refused_with_its_key(rows: int) -> None:
    tables = tables_of(3)
    parties = keyed_at_table(tables)
    said, _ = broadcast(parties, MOST_CHUNKS, rows)
    why = f"announces a union of {rows} entities; at most {KEYED_UNION} are allowed"
    cheaply(lambda: refused(parties.clients[0], said, FaultyPeer, SERVER, match=why))
    to_the_end(parties, tables)


@pytest.mark.parametrize("chunks", [KEYED_UNION, MOST_CHUNKS])
@pytest.mark.parametrize("elements", [0, 1, KEYED_UNION], ids=["nothing in each", "one in each", "all in each"])
def test_keyed_a_union_in_many_small_chunks_is_refused_with_the_first_of_them(chunks: int, elements: int) -> None:
    parties = keyed_at_table(tables_of(3))
    client = parties.clients[0]
    said, chunk = broadcast(parties, chunks, KEYED_UNION)
    client.receive(said)
    message = chunk(bytes(8 * elements))
    why = f"has {8 * elements} bytes, which is not what is due"
    cheaply(lambda: refused(client, message, FaultyPeer, SERVER, match=why))


@pytest.mark.parametrize("form", [Keyed(), Paillier()], ids=["keyed", "paillier"])
@pytest.mark.parametrize("chunks", [2, MOST_CHUNKS])
def test_a_lookup_table_in_other_chunks_is_refused_with_the_first_of_them(form: Form, chunks: int) -> None:
    tables = tables_of(3)
    parties = parties_of(form, tables)
    parties.exchange.greet()
    parties.exchange.run(form.setup_phase, range(3), until="table")
    server, (message,) = parties.server, outbox(parties, 1)
    header = server.link.parse(message, 1)
    payload = bytes(server.link.open(header, message).payload)
    for size in (0, 8, 16, len(payload) // 2, len(payload)):
        lie = resealed(parties, server, replace(header, chunks=chunks), payload[:size])
        why = f"has {size} bytes, which is not what is due"
        cheaply(lambda: refused(server, lie, FaultyPeer, 1, match=why))  # noqa: B023
    to_the_end(parties, tables)


# ------------------------------------------------------------------------------------------------------- used-up rounds


def used_up(form: Form, tables: Tables) -> Parties:
    """After both rounds of a session of two."""
    parties = parties_of(form, tables, rounds=2)
    parties.setup()
    for _ in range(2):
        parties.round(tables)
    assert parties.server.at.round == 2
    return parties


OVER = "all 2 rounds of this session are used: begin a new one"


@pytest.mark.parametrize("form", [Keyed(), Paillier()], ids=["keyed", "paillier"])
def test_the_server_begins_no_round_beyond_those_of_the_session(form: Form) -> None:
    parties = used_up(form, tables_of(3))
    before = state(parties.server)
    with pytest.raises(FederationError, match=OVER) as caught:
        parties.server.begin(form.round_phase, range(3))
    assert type(caught.value) is FederationError
    assert state(parties.server) == before
    assert parties.server.drain() == {}


def test_a_client_contributes_to_no_round_beyond_those_of_the_session() -> None:
    tables = tables_of(3)
    parties = used_up(Paillier(), tables)
    client = parties.clients[0]
    assert client.asked
    before, means = state(client), parties.means(0, tables[0])
    with pytest.raises(FederationError, match=OVER) as caught:
        client.contribute(tables[0], 3)
    assert type(caught.value) is FederationError
    assert state(client) == before
    assert np.array_equal(parties.means(0, tables[0]), means)
    assert outbox(parties, 0) == []


def test_keyed_nobody_is_asked_to_train_for_a_round_that_the_session_does_not_have(tmp_path: Path) -> None:
    world = World(tmp_path, rounds=1)
    world.driver.setup()
    world.round()
    with pytest.raises(FederationError, match="all 1 rounds of this session are used"):
        world.driver.round()
    assert [len(world.got[n]) for n in range(N)] == [1] * N


def test_keyed_a_client_refuses_to_train_for_a_round_that_the_session_does_not_have() -> None:
    parties = used_up(Keyed(), tables_of(3))
    client = parties.clients[0]
    message = announced(parties, 0, "ready", range(3))
    refused(client, message, FaultyPeer, SERVER, match="has numbers that this session does not have")
    assert not client.asked


@pytest.mark.parametrize("round", [3, MOST_CHUNKS])
@pytest.mark.parametrize(
    ("form", "why"),
    [
        (Keyed(), "announces round {} of a session for 2: begin a new session"),
        (Paillier(), "has numbers that this session does not have"),
    ],
    ids=["keyed", "paillier"],
)
def test_a_client_refuses_an_announcement_beyond_the_rounds_of_the_session(form: Form, why: str, round: int) -> None:
    parties = used_up(form, tables_of(3))
    message = announced(parties, 0, form.union_phase, range(3), round=round)
    refused(parties.clients[0], message, FaultyPeer, SERVER, match=why.format(round))


def test_keyed_a_client_uploads_to_no_round_beyond_those_of_the_session() -> None:
    parties = used_up(Keyed(), tables_of(3))
    client = parties.clients[0]
    message = announced(parties, 0, "upload", range(3))
    refused(client, message, FaultyPeer, SERVER, match="announces round 3 of a session for 2: begin a new session")
    assert client.at.phase != "upload"


# ----------------------------------------------------------------------------------------------------- entities changed


def test_who_says_twice_in_a_round_that_its_entities_changed_is_lost_and_the_others_finish_it(tmp_path: Path) -> None:
    world = World(tmp_path, Paillier(), entities=6, **SMALL)
    world.driver.setup()
    said: list[int] = []

    def changed(order: Order, reply: Reply) -> Reply:
        if order.task is not Task.ROUND:
            return reply
        said.append(world.driver.server.at.union)
        return replace(reply, standing=replace(world.hosts[2].client.standing, settled=0).to_bytes())

    obeying(world, 2, changed)
    assert world.round() == [0, 1, 3]
    assert said == [1, 2]
    assert world.driver.failures == {2: "it says again that its entities changed"}
    assert (world.driver.done, world.driver.server.lost) == (2, frozenset({1})), "what it had sent counted"
    assert world.round() == [0, 1, 3]
    assert (world.driver.done, world.driver.server.lost) == (3, frozenset({1}))


def test_who_changes_its_entities_again_and_again_in_a_round_is_lost_and_the_others_finish_it(tmp_path: Path) -> None:
    world = World(tmp_path, Paillier(), entities=6, **SMALL)
    world.driver.setup()
    changes: list[int] = []
    obey = world.hosts[2].obey

    def changing(order: Order) -> Reply:
        if order.task is Task.ROUND:
            changes.append(world.driver.server.at.union)
            world.sets[2] = ["e1", f"new {len(changes)}"]
        return obey(order)

    world.hosts[2].obey = changing  # type: ignore[method-assign]
    assert world.round() == [0, 1, 3]
    assert changes == [1, 2]
    assert world.driver.failures == {2: "it says again that its entities changed"}


def test_who_changes_its_entities_once_in_each_round_takes_part_in_all_of_them(tmp_path: Path) -> None:
    world = World(tmp_path, Paillier(), entities=6, **SMALL)
    world.driver.setup()
    for turn in range(2):
        world.sets[2] = ["e1", f"new {turn}"]
        assert world.round() == [0, 1, 2, 3]
        assert world.driver.failures == {}


# ----------------------------------------------------------------------------------------------------- tables of phases


def shapes(form: Form, most: int = 7) -> Iterator[Params]:
    """All parameters that a form can work with, of so many clients."""
    for clients in range(2, most + 1):
        for collusion in (None, *range(1, clients)):
            for dropouts in range(clients):
                params = Params(clients, 2, collusion=collusion, dropouts=dropouts, max_entities=4, max_union=8)
                try:
                    yield form.checked(params)
                except ParamsError:
                    continue


def following(clients: int, collusion: int, *, newcomers: int, left: int) -> Following:
    """The keyed form of a session that follows another one."""
    joint = oprf.commit(oprf.polynomial(collusion, KeyStream(bytes(32))))
    stay = clients - newcomers
    numbers = (*range(stay), *[None] * newcomers, *range(stay, stay + left))
    return Following(before=Handover(bytes(32), joint, numbers, left))


def problems(form: Form, rows: Sequence[Row]) -> list[str]:
    """What does not fit together in a table of phases."""
    phases, found = [row.phase for row in rows], []
    words = [row.settles for row in rows if row.settles]
    announced_rows = {i for i, row in enumerate(rows) if row.announced}
    used = {form.setup_phase, form.union_phase, form.ready_phase, form.round_phase, form.end_phase, form.names_phase}
    found += [f"{phase} has two rows" for phase in phases if phases.count(phase) > 1]
    found += [f"there is no {phase}" for phase in used - {""} if phase not in phases]
    found += [f"the word {word} announces a phase" for word in words if word in announced_rows]
    found += [f"the word {word} is said of two phases" for word in words if words.count(word) > 1]
    for row in rows:
        kinds: list[IntEnum] = [*row.sends, *row.answers, *([row.instead] if row.instead else [])]
        found += [f"{row.phase}: {kind.name} has no route" for kind in kinds if kind not in form.routes]
        found += [f"{row.phase}: {kind!r} is no kind of the form" for kind in kinds if kind not in set(form.kinds)]
        if row.settles and len(row.sends) != 1:
            found.append(f"{row.phase}: a word counts messages of {len(row.sends)} kinds")
        if row.settles > 255:
            found.append(f"{row.phase}: a word has one byte")
        # What the server reads itself cannot be taken back from a client that says later that it cannot go on.
        if (row.settles or row.instead) and {form.routes.get(kind) for kind in row.sends} != {Route.EACH}:
            found.append(f"{row.phase}: not all of it goes from client to client")
        if row.instead and form.routes.get(row.instead) is not Route.SERVER:
            found.append(f"{row.phase}: {row.instead.name} does not go to the server")
        if row.silent and (row.announced or not row.settles):
            found.append(f"{row.phase}: what is silent ends with a word, and is not announced")
        if row.then not in (*phases, REST):
            found.append(f"{row.phase}: nothing is called {row.then}")
        if row.on_loss not in phases and (row.on_loss or row.sends):
            found.append(f"{row.phase}: {row.on_loss!r} cannot begin after a loss")
        if row.on_loss and not rows[phases.index(row.on_loss)].announced:
            found.append(f"{row.phase}: {row.on_loss} is not announced")
        if row.decides and not row.announced:
            found.append(f"{row.phase}: who takes part is not announced")
    return found


def test_the_tables_of_phases_of_all_forms_fit_together_for_all_parameters() -> None:
    seen = dict[str, set[tuple[Row, ...]]]()
    forms: list[Form] = [Keyed(), Paillier(), Paillier("full")]
    forms += [following(4, 2, newcomers=new, left=left) for new in (0, 1) for left in (0, 1)]
    for form in forms:
        for params in shapes(form):
            rows = form.table(params)
            assert problems(form, rows) == [], (form, params)
            seen.setdefault(type(form).__name__, set()).add(rows)
    assert {name: len(tables) for name, tables in seen.items()} == {"Keyed": 2, "Paillier": 1, "Following": 4}
