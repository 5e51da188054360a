"""What a server learns that bribes one client: outside the model, and so no claim but a documented limit.

The adversary is the server and client 0 together, both following the protocol. `bribed` carries it out in either form
of retrieval; `embeddings_stay_free` shows what it cannot reach.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import fixedpoint
from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.lagrange import Code
from secea.audit.recorded import Recorded, Tables, random_tables
from secea.params import Params
from secea.retrieval.paillier import Paillier, private_key
from secea.retrieval.reciprocal import Reciprocal, pad
from secea.server import Phase
from secea.wire.messages import Kind

SETS: Final = ({"a", "b"}, {"a", "c", "d", "e"}, {"b", "c", "e", "f"}, {"c", "d", "f"})
DIM: Final = 3


@dataclass(frozen=True)
class Spoils:
    """What the server and client 0 found out."""

    counts: dict[tuple[int, int], int]
    """The count behind each query (client, number)."""
    sums: dict[int, NDArray[np.float64]]
    """The sums of entities that client 0 does not own, by their rows of the union."""
    run: Recorded
    tables: Tables


def bribed(name: str) -> Spoils:
    """A federation whose server and client 0 put together what they have; no other secret is used."""
    run = Recorded(SETS, form=name, dim=DIM, max_entities=6, max_union=6).setup()
    tables = random_tables(SETS, DIM, np.random.default_rng(9))
    run.begin(tables)
    run.until(Phase.ANSWER)
    stage = run.clients[0].pending[0]
    run.exchange()
    form = run.session.form
    if isinstance(form, Reciprocal):
        counts = _opened_counts(run)
        answers = {}
        for v, body in run.answers(0, run.server.round).items():
            padded = form.ring.from_bytes(body, run.session.query_count, form.block_length)
            pads = pad(run.clients[0].wire, stage, v, 0).lane(0).elements(form.ring, *padded.shape[1:])
            answers[v] = form.ring.subtract(padded, pads)
        weights = _weighted_queries(run, counts)
        scale = math.ldexp(1.0, -form.f)
    else:
        assert isinstance(form, Paillier)
        key = private_key(run.clients[0].paillier)
        answers, weights = {}, {0: run.clients[0].queries[0]}
        for v, body in run.answers(0, run.server.round).items():
            ciphertexts = key.public.ciphertexts_from_bytes(body, len(body) // key.public.ciphertext_bytes)
            answers[v] = form.packing.unpack(key.decrypt(ciphertexts), form.block_length)[None]
            if v:
                weights[v] = run.residues(next(run.of(Kind.QUERY, sender=0, receiver=v)))[:, :, 0]
        scale = math.ldexp(1.0, -run.params.fraction_bits)
        counts = _decoded_counts(run, answers)
    return Spoils(counts, _solved(run, answers, weights, scale), run, tables)


def _opened_counts(run: Recorded) -> dict[tuple[int, int], int]:
    """The server has o = rho * count for each query of each client, and client 0 has rho."""
    ring, code, clients = run.session.ring, run.session.code, sorted(run.clients)
    opened = [
        np.concatenate([run.residues(h) for h in run.of(Kind.OPENING, sender=v)], axis=1)[:, :, 0] for v in clients
    ]
    o = ring.combine(code.matrix(code.at(clients[: code.need]), code.beta[:1]), opened[: code.need])[:, 0]
    rho = run.clients[0]._rho()
    counts = ring.multiply(o, ring.inverse(rho.reshape(o.shape)))[0].reshape(len(clients), -1)
    return {(n, j): int(c) for n, row in enumerate(counts) for j, c in enumerate(row)}


def _decoded_counts(run: Recorded, answers: dict[int, Residues]) -> dict[tuple[int, int], int]:
    """With Paillier client 0 decodes the answers to its own queries without r: (sum, count)."""
    code, clients = run.session.code, sorted(answers)
    decoded = code.decode(clients, [answers[v] for v in clients], degree=code.need - 1)[0, 0]  # K is 1
    return {(0, j): int(c) for j, c in enumerate(decoded[:, DIM])}


def _weighted_queries(run: Recorded, counts: dict[tuple[int, int], int]) -> dict[int, Residues]:
    """All shares of client 0's weighted queries: it has its own, and with T = 1 nothing else is unknown."""
    ring, code, me = run.session.ring, run.session.code, run.clients[0]
    assert me.weighted is not None
    assert code.T == 1
    data = ring.zeros(me.shape.positions)
    wanted, asked = me.shape.wanted(me.placement), np.flatnonzero(me.placement >= 0)
    data[:, wanted] = ring.constant([run.params.C // counts[0, int(j)] for j in asked])
    known = code.data_points + code.at([0])
    own = np.ascontiguousarray(me.weighted[:, 0])
    return {
        v: ring.combine(code.matrix(known, code.at([v])), [*[data] * code.K, own])[:, 0] if v else own
        for v in run.clients
    }


def _solved(
    run: Recorded, answers: dict[int, Residues], weights: dict[int, Residues], scale: float
) -> dict[int, NDArray[np.float64]]:
    """Each answer is a linear equation in client v's shares of the sums: solve those with one unknown, one by one."""
    ring, code, shape = run.session.ring, run.session.code, run.clients[0].shape
    assert shape.members is not None
    members, bucket_of = shape.members, shape.query_of(slice(0, shape.positions))
    order, known = [], set[int]()
    while lone := [
        k for k in range(members.size) if _unknown(members[bucket_of == bucket_of[k]], known) == {members[k]}
    ]:
        order.append(lone[0])
        known.add(int(members[lone[0]]))
    p, shares = np.array(ring.primes, object)[:, None], {}
    for v, answer in answers.items():
        left, weight = answer.astype(object), weights[v].astype(object)
        shares[v] = ring.zeros(run.server.M, answer.shape[2])
        for k in order:
            inverse = [[pow(w, -1, q)] for w, q in zip(weight[:, k].tolist(), ring.primes, strict=True)]
            share = left[:, bucket_of[k]] * np.array(inverse, object) % p
            shares[v][:, members[k]] = share
            for at in np.flatnonzero(members == members[k]):
                left[:, bucket_of[at]] = (left[:, bucket_of[at]] - weight[:, [at]] * share) % p
    clients = sorted(answers)[: code.K + code.T]
    values = _floats(run, code.decode(clients, [shares[v] for v in clients])[:, 0], scale)
    return {row: values[row, :DIM] for row in known - set(run.clients[0].rows.tolist())}


def _unknown(rows: NDArray[np.int64], known: set[int]) -> set[int]:
    return set(rows.tolist()) - known


def _floats(run: Recorded, total: Residues, scale: float) -> NDArray[np.float64]:
    if run.session.form.paillier_bytes:
        return fixedpoint.centred(run.session.ring, total).astype(np.float64) * scale
    return run.session.ring.join(total, scale)


def true_counts(spoils: Spoils) -> dict[tuple[int, int], int]:
    """The counts behind all queries, from the clients' secrets: to see if the spoils are right; 0 or 1 for a dummy."""
    dummy = 1 if isinstance(spoils.run.session.form, Reciprocal) else 0
    truth = {}
    for n, client in spoils.run.clients.items():
        for j, row in enumerate(client.placement.tolist()):
            name = client.names[int(np.searchsorted(client.rows, row))] if row >= 0 else None
            truth[n, j] = dummy if name is None else sum(name in own for own in SETS)
    return truth


def true_sums(spoils: Spoils) -> dict[int, NDArray[np.float64]]:
    """The sums by rows of the union, in plain numpy."""
    sums: dict[int, Any] = {}
    for n, client in spoils.run.clients.items():
        for name, row in zip(client.names, client.rows.tolist(), strict=True):
            sums[row] = sums.get(row, 0) + spoils.tables[n][str(name)]
    return sums


def embeddings_stay_free(params: Params, bribed: int = 1) -> bool:
    """Whether no linear function of what they have on one entity shows anything about a single client's embedding.

    Suppose the worst: they know all shares of the sum of two other clients' polynomials, and the bribed clients' shares
    of each. One client's blocks are hidden if all of them are linearly independent of that.
    """
    code, width = Code(params, Ring(Reciprocal(params, 3).ring.primes[:1])), params.K + params.T
    shares = code.matrix(params.beta, code.alpha)[0].astype(object)
    nothing = np.zeros(width, object)
    known = [np.concatenate([row, row]) for row in shares]
    for row in shares[:bribed]:
        known += [np.concatenate([row, nothing]), np.concatenate([nothing, row])]
    blocks = [np.concatenate([row, nothing]) for row in np.eye(width, dtype=int).astype(object)[: params.K]]
    p = code.ring.primes[0]
    return _rank([*known, *blocks], p) == _rank(known, p) + params.K


def _rank(rows: list[Any], p: int) -> int:
    """The rank of rows of integers modulo p."""
    left, rank = [row % p for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            continue
        rank += 1
        scaled = pivot * pow(int(pivot[column]), -1, p) % p
        left = [(row - row[column] * scaled) % p for row in left if row is not pivot]
    return rank
