"""The paper's own form, literally, with textbook Paillier from `phe`; and our two forms on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from secea import Federation, Table, oracle
from secea.bench.figures import Figure, Grid, Section, ratios
from secea.bench.measure import Tick, Timing, cpus, in_child, interleaved, timed, walls
from secea.bench.shapes import Scale, Shape
from secea.retrieval.paillier import Paillier

P = oracle.P61
LITERAL, LITERAL_ALL = "the paper literally (phe), online", "the paper literally (phe), with offline"
ONLINE, ALL, RECIPROCAL = "Paillier form, online", "Paillier form, with offline", "reciprocal form"


class Literal:
    """The whole protocol of the paper with one element in a ciphertext; the union is known, no pads between clients."""

    def __init__(self, shape: Shape, key_bits: int) -> None:
        from phe import paillier

        self.shape, self.params = shape, shape.params(key_bits=key_bits)
        self._tables = [dict(zip(t.names, t.matrix.tolist(), strict=True)) for t in shape.tables()]
        self._names = oracle.union(self._tables)
        self._keys = [paillier.generate_paillier_keypair(n_length=key_bits) for _ in self._tables]
        self._sigma = oracle.sigma_prime(self.params, shape.own)
        self.elements = shape.clients * shape.clients * shape.own * oracle.block_length(self.params)
        """Masked elements of a round: N * sum |E_n| * L."""
        self.bytes = 2 * self.elements * key_bits // 4
        """Ciphertexts to the server and from it."""

    def round(self) -> tuple[list[Table], Timing, Timing]:
        """The means of all clients; the time offline (the server's encrypted noise), and online."""
        noise, offline = timed(lambda: [[self._noise(n) for _ in table] for n, table in enumerate(self._tables)])
        means, online = timed(lambda: self._online(noise))
        return means, offline, online

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
            results.append(Table(list(table), rows))
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

    def __init__(self, shape: Shape, key_bits: int, retrieval: str) -> None:
        self.shape, self.tables = shape, shape.tables()
        queries = "full" if retrieval == "paillier" else "buckets"
        self.fed = Federation(shape.params(key_bits=key_bits), retrieval=retrieval, queries=queries)
        self.fed.setup([table.names for table in self.tables])
        self.round()

    def round(self) -> tuple[Timing, Timing]:
        """The time offline and online; the means are checked."""
        _, offline = timed(self.fed.prepare)
        hops = len(self.fed.traffic)
        means, online = timed(lambda: self.fed.round(self.tables))
        self.bytes = sum(hop.size for hop in self.fed.traffic[hops:])
        self.shape.check(means, self.fed.params.resolution)
        return offline, online

    @property
    def elements(self) -> int:
        """Masked elements of a round in the Paillier form."""
        form = self.fed.session.form
        assert isinstance(form, Paillier)
        return self.shape.clients**2 * self.fed.session.query_count * form.block_length


def paper(scale: Scale, tick: Tick) -> Section:
    """The literal protocol and our forms on one small federation; per element; and what that is at full size."""
    bits, notes, offline = scale.key_bits, [], {}
    ours = {name: Ours(scale.literal, bits, name) for name in ("paillier", "reciprocal")}
    packed = Ours(scale.packed, bits, "paillier")
    literal = Literal(scale.literal, bits) if find_spec("phe") else None
    offline = {key: list[Timing]() for key in (LITERAL, ONLINE, "packed")}

    def work(key: str, form: Ours) -> Timing:
        before, online = form.round()
        if key in offline:
            offline[key].append(before)
        return online

    def literally() -> Timing:
        assert literal is not None
        means, before, online = literal.round()
        scale.literal.check(means, literal.params.resolution)
        offline[LITERAL].append(before)
        return online

    works = {
        ONLINE: lambda: work(ONLINE, ours["paillier"]),
        RECIPROCAL: lambda: work(RECIPROCAL, ours["reciprocal"]),
        "packed": lambda: work("packed", packed),
    }
    if literal is None:
        notes.append("phe is not installed, so the paper's form is missing: pip install 'secea[bench]'")
    else:
        works = {LITERAL: literally, **works}
    found = interleaved(works, scale.paper_repetitions, tick)
    for name, total in ((LITERAL, LITERAL_ALL), (ONLINE, ALL), ("packed", "packed, all")):
        if name in found:
            found[total] = [a + b for a, b in zip(found[name], offline[name], strict=True)]

    sizes = {ONLINE: ours["paillier"].bytes, ALL: ours["paillier"].bytes, RECIPROCAL: ours["reciprocal"].bytes}
    if literal is not None:
        sizes |= {LITERAL: literal.bytes, LITERAL_ALL: literal.bytes}
    order = [name for name in (LITERAL, LITERAL_ALL, ONLINE, ALL, RECIPROCAL) if name in found]
    whole = {name: _row(found[name], found[RECIPROCAL], sizes[name]) for name in order}
    tick(f"{scale.round}: a round to compare with")
    grids = {
        "forms": Grid(f"The same means in each form: {scale.literal}, {bits}-bit keys", whole),
        "element": Grid(f"One masked element: Paillier form at {scale.packed}", _per_element(found, literal, packed)),
        "scale": Grid(f"At {scale.round}: elements of the formula times the cost of one", _scaled(scale, found, literal, packed)),
    }
    return Section(f"Paillier keys of {bits} bits", grids, tuple(notes))


def _row(timings: list[Timing], best: list[Timing], size: int) -> dict[str, Figure]:
    over = ratios([each.cpu for each in timings], [each.cpu for each in best])
    row = {"wall": walls(timings), "CPU": cpus(timings), "bytes, all hops": Figure.of(size, "B")}
    return row | {"CPU / reciprocal": over}


Found = dict[str, list[Timing]]


def _per_element(found: Found, literal: Literal | None, packed: Ours) -> dict[str, dict[str, Figure]]:
    rows: dict[str, dict[str, Figure]] = {}
    costs = [(ONLINE, "packed", packed.elements, LITERAL), (ALL, "packed, all", packed.elements, LITERAL_ALL)]
    if literal is not None:
        costs = [(name, name, literal.elements, name) for name in (LITERAL, LITERAL_ALL)] + costs
    for row, name, elements, peer in costs:
        each = [timing.cpu / elements for timing in found[name]]
        rows[row] = {"CPU": Figure.of(each, "s")}
        if literal is not None and peer != name:
            theirs = [timing.cpu / literal.elements for timing in found[peer]]
            rows[row]["phe / ours"] = ratios(theirs, each)
        if peer != name:
            rows[row]["cores busy"] = Figure.of([timing.cpu / timing.wall for timing in found[name]], "")
    return rows


def _scaled(scale: Scale, found: Found, literal: Literal | None, packed: Ours) -> dict[str, dict[str, Figure]]:
    """By section 9: N * sum |E_n| * L ciphertexts to the server, and as many back."""
    shape, bits = scale.round, scale.key_bits
    blocks = math.ceil((shape.dim + 1) / shape.params().K)
    elements = shape.clients * shape.clients * shape.own * blocks
    form = packed.fed.session.form
    assert isinstance(form, Paillier)
    per_query = math.ceil(blocks / form.packing.slots) * bits // 4
    rows: dict[str, dict[str, Figure]] = {}
    if literal is not None:
        size = 2 * elements * bits // 4
        rows |= {name: _extrapolated(found[name], literal.elements, elements, size) for name in (LITERAL, LITERAL_ALL)}
    size = 2 * shape.clients * shape.clients * shape.own * per_query
    for row, name in ((ONLINE, "packed"), (ALL, "packed, all")):
        rows[row] = _extrapolated(found[name], packed.elements, elements, size)
    measured = in_child(shape, 1)["rounds"]
    rows[f"{RECIPROCAL}, measured"] = {
        "CPU": Figure.of(measured[0]["cpu"], "s"),
        "bytes": Figure.of(measured[0]["bytes"], "B"),
    }
    best = rows[f"{RECIPROCAL}, measured"]["CPU"].median
    for row in rows.values():
        row["CPU / reciprocal"] = Figure.of([row["CPU"].low / best, row["CPU"].median / best, row["CPU"].high / best], "x")
    return rows


def _extrapolated(timings: list[Timing], measured: int, elements: int, size: int) -> dict[str, Figure]:
    return {
        "CPU": Figure.of([each.cpu / measured * elements for each in timings], "s"),
        "bytes": Figure.of(size, "B"),
        "elements": Figure.of(elements, ""),
    }
