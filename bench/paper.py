"""The paper's own form, literally, with textbook Paillier from `phe`; and our two forms on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

import secea
from bench import contest
from bench.figures import Figure, Grid, Section, ratios
from bench.measure import Tick, Timing, cpus, interleaved, timed, walls
from bench.shapes import Scale, Shape
from secea import Federation, Table
from secea.arithmetic.paillier import Packing
from secea.forms import FormName, QueriesName
from secea.oracles import paillier as oracle

P = oracle.P61
Times = tuple[Timing, Timing]
"""Offline and online."""
LITERAL, LITERAL_ALL = "the paper literally (phe), online", "the paper literally (phe), with offline"
ONLINE, ALL, KEYED = "Paillier form, online", "Paillier form, with offline", "keyed form"
PACKED, PACKED_ALL = "Paillier form, packed, online", "Paillier form, packed, with offline"


class Literal:
    """The whole protocol of the paper with one element in a ciphertext; the union is known, no pads between clients."""

    slots = 1
    """Elements in one ciphertext."""

    def __init__(self, shape: Shape, key_bits: int, keypair: Callable[[int], tuple[Any, Any]]) -> None:
        self.shape, self.params = shape, shape.params(key_bits=key_bits, insecure_small_keys=True)
        self._given = shape.tables()
        self._tables = [dict(zip(t.names, t.matrix.tolist(), strict=True)) for t in self._given]
        self._names = oracle.union(self._tables)
        self._keys = [keypair(key_bits) for _ in self._tables]
        self._sigma = oracle.sigma_prime(self.params, shape.own)
        self.elements = shape.clients * shape.clients * shape.own * oracle.block_length(self.params)
        """Masked elements of a round: N * sum |E_n| * L."""
        self.bytes = 2 * self.elements * key_bits // 4
        """Ciphertexts to the server and from it."""

    def round(self) -> Times:
        """The time offline (the server's encrypted noise) and online; the means are checked."""
        noise, offline = timed(lambda: [[self._noise(n) for _ in table] for n, table in enumerate(self._tables)])
        means, online = timed(lambda: self._online(noise))
        self.shape.check(means, self.params.resolution, self._given)
        return offline, online

    def _noise(self, n: int) -> list[list[Any]]:
        """Server: psi and p*R, encrypted, for one query of client n (eq. 12)."""
        params, (public, _) = self.params, self._keys[n]
        L, rng = oracle.block_length(params), oracle.SYSTEM
        psi = oracle.psi([oracle.uniform(L, P, rng) for _ in range(params.K + 2 * params.T - 1)], params, P)
        return [[public.encrypt(s + P * rng.randrange(P << self._sigma)) for s in psi(at)] for at in params.alpha]

    def _online(self, noise: Sequence[Sequence[list[list[Any]]]]) -> list[Table]:
        params, rng = self.params, oracle.SYSTEM
        sent = [oracle.client_shares(table, self._names, params, P, rng) for table in self._tables]
        y = [oracle.add_shares([shares[v] for shares in sent], P) for v in range(params.N)]
        results = []
        for n, table in enumerate(self._tables):
            rows = [self._mean(e, n, y, masks) for e, masks in zip(table, noise[n], strict=True)]
            results.append(Table(list(table), np.array(rows)))
        return results

    def _mean(self, e: Any, n: int, y: Sequence[Sequence[oracle.Vector]], noise: list[list[Any]]) -> list[float]:
        """One query of client n: answers, the server's masking (eq. 13), and what client n makes of it (eq. 14-16)."""
        params, rng, (public, private) = self.params, oracle.SYSTEM, self._keys[n]
        rho = oracle.rho(e, self._names, [oracle.uniform(len(self._names), P, rng) for _ in range(params.T)], params, P)
        r, Y = oracle.draw_r(P, rng), {}
        for v, at in enumerate(params.alpha):
            answer = [public.encrypt(a) for a in oracle.answer(oracle.query(rho, at), y[v], P)]
            masked = [a * r + s for a, s in zip(answer, noise[v], strict=True)]
            Y[v] = tuple(private.decrypt(c) % P for c in masked)
        rS, rc = oracle.join(oracle.response_blocks(oracle.response(Y, params, P), params), params.dim)
        S, c = oracle.rational(oracle.divide(rS, rc, P), params.N, oracle.largest(params), P)
        return oracle.decode(S, c, params.fraction_bits)


class Ours:
    """One of our forms, after a first round: tables of powers are built."""

    def __init__(self, shape: Shape, key_bits: int, form: FormName) -> None:
        self.shape, self.tables, self._form = shape, shape.tables(), form
        params = shape.params(key_bits=key_bits, insecure_small_keys=True)
        self._queries: QueriesName | None = "full" if form == "paillier" else None
        self.fed = Federation(params, form, self._queries)
        self.fed.setup([table.names for table in self.tables])
        self.round()

    def round(self) -> Times:
        """The time offline and online; the means are checked."""
        _, offline = timed(self.fed.prepare)
        hops = len(self.fed.traffic)
        means, online = timed(lambda: self.fed.round(self.tables))
        self.bytes = sum(hop.size for hop in self.fed.traffic[hops:])
        self.shape.check(means, self.fed.params.resolution, self.tables)
        return offline, online

    @property
    def elements(self) -> int:
        """Masked elements of a round in the Paillier form."""
        return self.shape.clients**2 * self.shape.own * oracle.block_length(self.fed.params)

    @property
    def slots(self) -> int:
        """Elements in one ciphertext."""
        planned = secea.plan(self.fed.params, entities=self.shape.entities, form=self._form, queries=self._queries)
        return Packing(self.fed.params.key_bits, P, planned.sigma_prime).slots


def phe_keypair(bits: int) -> tuple[Any, Any]:
    """A public and a private key of `phe`."""
    from phe import paillier

    keys: tuple[Any, Any] = paillier.generate_paillier_keypair(n_length=bits)
    return keys


def paper(scale: Scale, tick: Tick) -> Section:
    """The literal protocol and our forms on one small federation; per element; and what that is at full size."""
    bits = scale.key_bits
    forms: dict[str, Literal | Ours] = {name: Ours(scale.literal, bits, name) for name in ("paillier", "keyed")}
    forms["packed"] = Ours(scale.packed, bits, "paillier")
    notes = []
    if find_spec("phe"):
        forms["literal"] = Literal(scale.literal, bits, phe_keypair)
    else:
        notes.append("phe is not installed, so the paper's form is missing: pip install '.[bench]'")
    found = interleaved({name: form.round for name, form in forms.items()}, scale.paper_repetitions, tick)
    costs = {
        row: Costs(forms[name], [b if online else a + b for a, b in found[name]])
        for row, name, online in ROWS
        if name in forms
    }
    tick(f"{scale.peers}: a round to compare with")
    grids = {
        "forms": Grid(f"The same means in each form: {scale.literal}, {bits}-bit keys", _whole(costs)),
        "element": Grid(f"One masked element; the Paillier form at {scale.packed}", _per_element(costs)),
        "scale": Grid(f"At {scale.peers}: elements by the formula, times the cost of one", _scaled(scale, costs)),
    }
    return Section(f"Paillier keys of {bits} bits", grids, notes)


@dataclass(frozen=True)
class Costs:
    """What a form took, repetition by repetition."""

    form: Literal | Ours
    timings: list[Timing]

    @property
    def cpu(self) -> list[float]:
        """CPU seconds."""
        return [each.cpu for each in self.timings]

    @property
    def each(self) -> list[float]:
        """CPU seconds of one masked element."""
        return [each / self.form.elements for each in self.cpu]


ROWS: Final = (
    (LITERAL, "literal", True),
    (LITERAL_ALL, "literal", False),
    (ONLINE, "paillier", True),
    (ALL, "paillier", False),
    (KEYED, "keyed", True),
    (PACKED, "packed", True),
    (PACKED_ALL, "packed", False),
)
"""Rows of the tables: the form, and whether it is without its offline part."""
PEERS: Final = {PACKED: LITERAL, PACKED_ALL: LITERAL_ALL}


def _whole(costs: dict[str, Costs]) -> dict[str, dict[str, Figure]]:
    return {
        row: {
            "wall": walls(cost.timings),
            "CPU": cpus(cost.timings),
            "bytes, all hops": Figure.of(cost.form.bytes, "B"),
            "CPU / keyed": ratios(cost.cpu, costs[KEYED].cpu),
        }
        for row, cost in costs.items()
        if row not in PEERS
    }


def _per_element(costs: dict[str, Costs]) -> dict[str, dict[str, Figure]]:
    rows = {row: {"CPU": Figure.of(costs[row].each, "s")} for row in (LITERAL, LITERAL_ALL, *PEERS) if row in costs}
    for row, peer in PEERS.items():
        if peer in costs:
            rows[row]["phe / ours"] = ratios(costs[peer].each, costs[row].each)
        rows[row]["cores busy"] = Figure.of([each.cpu / each.wall for each in costs[row].timings], "")
    return rows


def _scaled(scale: Scale, costs: dict[str, Costs]) -> dict[str, dict[str, Figure]]:
    """By section 9: N * sum |E_n| * L ciphertexts to the server, and as many back."""
    shape, ciphertext = scale.peers, scale.key_bits // 4
    queries, L = shape.clients**2 * shape.own, math.ceil((shape.dim + 1) / shape.params().K)
    ours = contest.keyed(shape.tables(), shape)()
    rows: dict[str, dict[str, Figure]] = {}
    for row in (LITERAL, LITERAL_ALL, *PEERS):
        if row in costs:
            sent = queries * math.ceil(L / costs[row].form.slots)
            seconds = [each * queries * L for each in costs[row].each]
            rows[row] = {
                "CPU": Figure.of(seconds, "s"),
                "bytes": Figure.of(2 * sent * ciphertext, "B"),
                "elements": Figure.of(queries * L, ""),
                "CPU / keyed": Figure.of([each / ours.cpu for each in seconds], "x"),
            }
    return rows | {f"{KEYED}, measured": {"CPU": Figure.of(ours.cpu, "s"), "bytes": Figure.of(ours.bytes, "B")}}
