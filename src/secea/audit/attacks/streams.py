"""A key stream that is used twice: the server subtracts two messages, and what they hide shows.

The adversary is the server. It sees masked tables of the union and padded answers, and can interpolate answers under
their pads. In the second attack it can also put all clients back to an old state and let them run again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from unittest.mock import patch

import numpy as np

from secea.arithmetic.field import RING61, Residues
from secea.audit import Claim, Mutant, Objection
from secea.audit.recorded import Recorded, random_tables
from secea.client import Client
from secea.client import Phase as ClientPhase
from secea.errors import ProtocolError
from secea.retrieval import reciprocal
from secea.server import Phase, Server
from secea.table import Name
from secea.wire.endpoint import Endpoint, Opened, Stage
from secea.wire.keys import expand
from secea.wire.messages import HEADER_BYTES, Kind
from secea.wire.randomness import KeyStream

SETS: Final = ({"a"}, {"a", "b", "c"}, {"c", "d", "e", "f"}, {"b", "f"})
DIM: Final = 3


def entities_by_answers(run: Recorded, first: dict[int, bytes], second: dict[int, bytes], n: int) -> int:
    """The server: of two rounds' answers to client n, interpolated under the pads, the rows that differ.

    Under the same pads a dummy gives 0 twice: the rows that differ are client n's entities.
    """
    ring, code, L = run.session.ring, run.session.code, run.session.form.block_length
    clients = [v for v in sorted(first) if v != n][: code.need]  # client n's own pad is its own
    blocks = []
    for answers in (first, second):
        values = [ring.from_bytes(answers[v], run.session.query_count, L) for v in clients]
        blocks.append(code.decode(clients, values, degree=code.need - 1))
    return int(ring.subtract(*blocks).any(axis=(0, 1, 3)).sum())


def rows_by_tables(run: Recorded, first: Residues, second: Residues, context: bytes) -> list[int]:
    """The server: the rows of the union all of whose cells differ in two tables of one client."""
    differs = RING61.subtract(first, second)[0].any(axis=1)
    cells = run.session.geometry(run.server.attempt, context).positions(run.server.tags)
    return np.flatnonzero(differs[cells].all(axis=1)).tolist()


def _expose(run: Recorded, what: str, first: dict[int, dict[int, bytes]], second: dict[int, dict[int, bytes]]) -> None:
    sizes = [entities_by_answers(run, first[n], second[n], n) for n in run.clients]
    if sizes == [len(own) for own in SETS]:
        raise Objection(f"{what}: answers subtracted show how many entities each client has: {sizes}")


def _one_label(server: Server, n: int) -> None:
    """Means under the label that was drawn with their stage."""
    assert server.mean_stage is not None
    server.mean_salts[n] = server.mean_stage.salt


def _answers(run: Recorded, seed: int) -> dict[int, dict[int, bytes]]:
    """A round; the answers to each client's queries as the server gets them."""
    run.round(random_tables(SETS, DIM, np.random.default_rng(seed)))
    return {n: run.answers(n, run.server.round) for n in run.clients}


def _tables(run: Recorded) -> list[tuple[Residues, bytes]]:
    """The last table of each client as the server gets it, and its context."""
    found = {hop.header.sender: (run.residues(hop), hop.header.context) for hop in run.of(Kind.TABLE)}
    return [found[n] for n in run.clients]


def _expose_sets(run: Recorded, first: list[tuple[Residues, bytes]], what: str) -> None:
    for n, ((one, _), (other, context)) in enumerate(zip(first, _tables(run), strict=True)):
        if one.shape != other.shape:
            continue  # a stalled union has a larger table: nothing to subtract
        if rows_by_tables(run, one, other, context) == run.clients[n].rows.tolist():
            raise Objection(f"{what}: tables subtracted show which entities client {n} has")


def two_rounds() -> int:
    """Two rounds with other embeddings."""
    run = Recorded(SETS, dim=DIM).setup()
    _expose(run, "two rounds", _answers(run, 1), _answers(run, 2))
    return len(SETS)


def two_epochs() -> int:
    """Two epochs with the same entities."""
    run = Recorded(SETS, dim=DIM).setup()
    first = _tables(run)
    run.server.begin_epoch(run.clients)
    _expose_sets(run.setup(), first, "two epochs")
    return len(SETS)


def a_round_again() -> int:
    """Everyone is put back to before a round, which then runs again with other embeddings."""
    run = Recorded(SETS, dim=DIM).setup()
    saved, first = run.saved(), _answers(run, 1)
    run.back_to(saved)
    run.hops.clear()
    _expose(run, "a round that ran twice", first, _answers(run, 2))
    return len(SETS)


def a_table_again() -> int:
    """Everyone is put back into the set-up, to where the tables of the union are still to be made."""
    run = Recorded(SETS, dim=DIM).until(Phase.SECRET)
    run.up()
    saved = run.saved()
    run.finish()
    first = _tables(run.until(Phase.QUERY))
    run.back_to(saved)
    run.finish()
    _expose_sets(run.setup(), first, "a set-up that ran twice")
    return len(SETS)


def another_table() -> int:
    """A client's entities change while its table is under way; and the table is sent again, under the same masks."""
    run = Recorded(SETS, dim=DIM, max_entities=5, max_union=7).until(Phase.TABLE)
    before = run.sending(0)
    run.clients[0].update(["a", "b"])
    for sent, again in zip(before, run.sending(0), strict=True):
        differ = RING61.subtract(run.residues(sent), run.residues(again))[0].any(axis=1)
        if differ.any():
            raise Objection(
                f"tables under one mask differ in {differ.sum()} of {differ.size} cells: those of what is new"
            )
    return 1


def other_means() -> int:
    """The server is put back to before the answers; this time one client does not answer. The network saw both means.

    It knows who answered, so it knows the first bytes; under one key the ciphertexts differ in them as the texts do.
    """
    sets = (*SETS, {"a"})
    run = Recorded(sets, dim=DIM, dropouts=2).setup()
    run.begin(random_tables(sets, DIM, np.random.default_rng(4)))
    saved, seen = run.until(Phase.ANSWER).server.save(), []
    for answering in (range(5), range(4)):
        server = run.fork(saved)
        for n in answering:
            for hop in run.sending(n):
                server.receive(n, hop.message)
        server.close()
        seen.append({n: bytes(messages[0]) for n, messages in server.drain().items()})
    differ = run.session.answered_to_bytes((4,))[0]
    shown = [n for n in range(5) if seen[0][n][HEADER_BYTES] ^ seen[1][n][HEADER_BYTES] == differ]
    if len(shown) == 5:  # by chance 256 ** -5
        raise Objection("two different means were sealed under one key: the network sees in what they differ")
    return 5


def old_snapshot() -> int:
    """One client alone is put back to before the last round, and goes on: the others must not take what it sends."""
    run = Recorded(SETS, dim=DIM).setup()
    saved = {1: run.clients[1].save()}
    tables = random_tables(SETS, DIM, np.random.default_rng(3))
    run.round(tables)
    run.back_to(saved)
    try:
        run.round(tables)
    except ProtocolError:
        return 1
    raise Objection("a client that was restored from an old snapshot took part as if nothing had happened")


# ------------------------------------------------------------------------------------------------------------ mutants


def _pad_of_a_round(wire: Endpoint, stage: Stage, answering: int, asking: int) -> KeyStream:
    if answering == asking:
        return KeyStream(expand(stage.seed, "pad"))
    peer = asking if answering == wire.number else answering
    return wire.channels[peer].stream("pad", b"%d" % stage.round, b"from %d to %d" % (answering, asking))


_send, _take = Client._send, Endpoint.take


def _weights_anew(self: Client, phase: ClientPhase, *kinds: Kind, seed: bytes = b"") -> None:
    _send(self, phase, *kinds, seed=b"" if Kind.TABLE in kinds else seed)


def _at_once(self: Client, names: Iterable[Name]) -> None:
    self.names = tuple(names)


def unnumbered(self: Endpoint, opened: Opened) -> None:
    """Count a message, and forget its stage's number."""
    _take(self, opened)
    self.heard[opened.header.sender] = 0


CLAIMS: Final = (
    Claim(
        "answers-subtracted",
        "A server that subtracts the answers of two rounds does not see how many entities a client has.",
        "attack",
        two_rounds,
    ),
    Claim(
        "tables-subtracted",
        "A server that subtracts a client's tables of two epochs does not see which entities it has.",
        "attack",
        two_epochs,
    ),
    Claim(
        "answers-after-a-rollback",
        "Nor if it puts everyone back to an old state, and the same round runs again with other embeddings.",
        "attack",
        a_round_again,
    ),
    Claim(
        "tables-after-a-rollback",
        "Nor if it puts everyone back to an old state, and the same union is made again.",
        "attack",
        a_table_again,
    ),
    Claim(
        "tables-after-an-update",
        "Nor if the client's entities change while its table is under way, and it is sent again.",
        "attack",
        another_table,
    ),
    Claim(
        "means-after-a-rollback",
        "Nobody on the network sees in what two means differ that a server made which was put back to an old state.",
        "attack",
        other_means,
    ),
    Claim(
        "rollback-of-one",
        "What a client sends that was restored from an old snapshot is refused by the others.",
        "attack",
        old_snapshot,
    ),
)

MUTANTS: Final = (
    Mutant(
        "pads-of-a-round",
        "Pads depend on the round's number instead of its contributors' salts.",
        lambda: patch.object(reciprocal, "pad", _pad_of_a_round),
        ("answers-after-a-rollback",),
    ),
    Mutant(
        "table-weights-anew",
        "The weights of the union's table are drawn anew where its masks are the same.",
        lambda: patch.object(Client, "_send", _weights_anew),
        ("tables-after-a-rollback",),
    ),
    Mutant(
        "names-changed-at-once",
        "Other entities take effect at once instead of in the next epoch.",
        lambda: patch.object(Client, "update", _at_once),
        ("tables-after-an-update",),
    ),
    Mutant(
        "means-under-one-label",
        "A server that was put back seals its means under the label that it drew before.",
        lambda: patch.object(Server, "_relabel_means", _one_label),
        ("means-after-a-rollback",),
    ),
    Mutant(
        "stages-unnumbered",
        "Receivers do not look at the numbers of stages.",
        lambda: patch.object(Endpoint, "take", unnumbered),
        ("rollback-of-one",),
    ),
)
