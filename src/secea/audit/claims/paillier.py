"""Claims about the paper's form: what clients get as shares and decrypt, and what the server sees of the union."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import M61, RING61, Residues
from secea.audit import PAILLIER, Objection, Subject, claim
from secea.audit.laws import SPARE, Coset, coset, coset_of, same
from secea.audit.mutants import paillier as mutants
from secea.audit.tails import kolmogorov, uniform
from secea.errors import ProtocolError
from secea.forms.paillier import Paillier
from secea.forms.paillier.buckets import EMPTY
from secea.forms.paillier.client import PaillierClient
from secea.forms.paillier.form import Kind, answered_bytes
from secea.forms.paillier.numbers import Numbers
from secea.forms.paillier.sharing import share_from_seed
from secea.params import Params
from secea.steps import union
from secea.testing import Parties, Watch
from secea.wire.keys import expand
from secea.wire.messages import DIGEST_BYTES
from secea.wire.randomness import SEED_BYTES

Tables = Sequence[Mapping[str, NDArray[np.float64]]]
FEDERATIONS: Final = ((3, 1, 1), (4, 1, 1), (5, 1, 2), (5, 2, 1), (7, 2, 2))
"""Clients, collusion, dim."""
SHARING: Final = (mutants.ONE_NOISE_LESS, mutants.ONE_SEED, mutants.AT_BETA, mutants.NO_NOISE)


def part_of(parties: Parties, n: int) -> PaillierClient:
    """Client n with all that it knows."""
    part = parties.clients[n].part
    assert isinstance(part, PaillierClient)
    return part


def form_of(subject: Subject) -> Paillier:
    """The form that is examined."""
    assert isinstance(subject.form, Paillier)
    return subject.form


def random_tables(sets: Sequence[Sequence[str]], dim: int) -> list[dict[str, NDArray[np.float64]]]:
    """Made-up embeddings."""
    rng = np.random.default_rng(len(sets))
    return [{name: rng.normal(size=dim) for name in own} for own in sets]


# ------------------------------------------------------------------------------------------------- shares of one dealer


def share_of(parties: Parties, kind: Kind, chunks: Sequence[bytes]) -> Residues:
    """A share as its receiver has it, [1, elements]: whole, or from a seed."""
    at, form, params = parties.clients[0].at, parties.session.form, parties.session.params
    assert isinstance(form, Paillier)
    width = form.numbers(params).block_length if kind is Kind.SHARE else 1
    whole = b"".join(chunks)
    if len(whole) == SEED_BYTES:
        parts = list(share_from_seed(whole, RING61, form.whole(kind, params, at), width))
        return np.concatenate([part.reshape(1, -1) for part in parts], axis=1)
    return RING61.from_bytes(whole, len(whole) // RING61.element_bytes)


def dealt(parties: Parties, kind: Kind, draws: int) -> NDArray[np.uint64]:
    """What client 0 deals in the phase that it is in, drawn again and again: [draws, receivers, elements]."""
    client, found = parties.clients[0], []
    others = [v for v in client.at.members if v != 0]
    for _ in range(draws):
        client.part.enter(client.at)
        chunks: dict[int, list[bytes]] = {v: [] for v in others}
        for v, parts in client.part.payloads(kind, others, client.at):
            chunks[v].append(b"".join(parts))
        found.append(np.stack([share_of(parties, kind, chunks[v])[0] for v in others]))
    return np.stack(found)


def dealing(subject: Subject, kind: Kind, clients: int, collusion: int, dim: int, own: Mapping[str, Any]) -> Parties:
    """A federation whose client 0 is about to deal its queries, or its embeddings; the union is always the same."""
    rest = {name: np.ones(dim) for name in "abc"}
    tables = [own, *[rest] * (clients - 1)]
    parties = subject.parties(tables, dim=dim, collusion=collusion)
    parties.exchange.greet()
    parties.exchange.run("secret", range(clients), until="query" if kind is Kind.QUERY else "rest")
    if kind is Kind.SHARE:
        parties.server.begin("share", range(clients))
        parties.clients[0].contribute(own, 1)
    return parties


def worlds(dim: int) -> list[dict[str, NDArray[np.float64]]]:
    """What client 0 may have."""
    one, two = np.arange(1.0, dim + 1), np.arange(2.0, dim + 2) / 4
    return [{"a": one}, {"a": two, "b": one, "c": two}]


def check_shares(subject: Subject, kind: Kind) -> int:
    """In each federation, for each coalition: the law of its shares is the same whatever client 0 has."""
    cases = 0
    for clients, collusion, dim in FEDERATIONS if subject.thorough else FEDERATIONS[::2] + FEDERATIONS[3:4]:
        seen = []
        for own in worlds(dim):
            parties = dealing(subject, kind, clients, collusion, dim, own)
            elements = dealt(parties, kind, 1).shape[2]
            seen.append(dealt(parties, kind, collusion * elements + 1 + SPARE))
        for some in combinations(range(clients - 1), collusion):
            laws = [coset_of([draw[list(some)].reshape(-1) for draw in draws]) for draws in seen]
            cases += same(laws, f"N={clients}, T={collusion}, clients {[v + 1 for v in some]}")
    return cases


@claim("exact view", PAILLIER, mutants=SHARING)
def shares(subject: Subject) -> int:
    """Paillier: T clients learn nothing about a client's embeddings from the shares of them that it deals."""
    return check_shares(subject, Kind.SHARE)


@claim("exact view", PAILLIER, mutants=SHARING[:3])
def queries(subject: Subject) -> int:
    """Paillier: T clients learn nothing about what a client asks for from the shares of its queries."""
    return check_shares(subject, Kind.QUERY)


@claim("exact view", PAILLIER, mutants=SHARING[:2])
def seeds(subject: Subject) -> int:
    """Paillier: clients learn no more from shares that travel as seeds than from the paper's shares.

    All of them together have one law: that of a polynomial through the data and T random values.
    """
    cases = 0
    for clients, collusion, dim in FEDERATIONS if subject.thorough else FEDERATIONS[2:4]:
        own = worlds(dim)[1]
        parties = dealing(subject, Kind.SHARE, clients, collusion, dim, own)
        elements = dealt(parties, Kind.SHARE, 1).shape[2]
        draws = dealt(parties, Kind.SHARE, collusion * elements + 1 + SPARE)
        code, others = form_of(subject).numbers(parties.session.params).code, range(1, clients)
        decoded = [code.decode(others, draw[None]) for draw in draws]
        if any((each != decoded[0]).any() for each in decoded):
            raise Objection(f"N={clients}, T={collusion}: shares do not lie on a polynomial through the data")
        if len(coset_of([draw.reshape(-1) for draw in draws]).rows) != collusion * elements:
            raise Objection(f"N={clients}, T={collusion}: shares that travel as seeds have another law")
        cases += 1
    return cases


# --------------------------------------------------------------------------------------------------- what is decrypted


@dataclass(frozen=True)
class Decrypted:
    """What client 0 has of a round: the integers of all masked answers, and of its own answer, [.., queries, L]."""

    masked: NDArray[np.object_]
    own: NDArray[np.object_]
    asked: NDArray[np.int64]
    """The queries that are no dummies, in the order of their entities."""

    def opened(self, numbers: Numbers) -> NDArray[np.object_]:
        """r * (sum, count) of each query, which interpolation gives: [queries, K*L]."""
        values = (self.masked % M61).astype(np.uint64)[None]
        blocks = numbers.code.decode(range(len(self.masked)), values, degree=numbers.code.need - 1)
        return np.asarray(blocks[0].transpose(1, 0, 2).reshape(values.shape[2], -1), object)


def slots(numbers: Numbers, plaintexts: Sequence[Any]) -> NDArray[np.object_]:
    """The integers in the slots of plaintexts, [rows, L]: not reduced modulo p."""
    packing, L = numbers.packing, numbers.block_length
    low = (1 << packing.width) - 1
    found = [int(m) >> packing.width * i & low for m in plaintexts for i in range(packing.slots)]
    rows: NDArray[np.object_] = np.array(found, object).reshape(-1, packing.plaintexts(L) * packing.slots)
    return rows[:, :L]


def decrypted(parties: Parties, watch: Watch) -> Decrypted:
    """From the messages of the last round that client 0 can open."""
    part, N = part_of(parties, 0), parties.session.params.clients

    def read(body: bytes) -> NDArray[np.object_]:
        public = part.key.public
        return slots(
            part.numbers, part.key.decrypt(public.ciphertexts_from_bytes(body, len(body) // public.ciphertext_bytes))
        )

    mean = watch.sealed(Kind.MEAN, receiver=0)[-1].payload[answered_bytes(part.params) + N * DIGEST_BYTES :]
    own = [each for each in watch.sealed(Kind.ANSWER, sender=0) if each.header.chunk == 0][-1].payload[DIGEST_BYTES:]
    assert part.epoch is not None
    asked = np.flatnonzero(part.epoch.placement != EMPTY)
    names = [str(part.names[int(np.searchsorted(part.epoch.rows, row))]) for row in part.epoch.placement[asked]]
    masked = read(mean)
    return Decrypted(masked.reshape(N, -1, masked.shape[1]), read(own), asked[np.argsort(names)])


def equal_means(clients: int, dim: int) -> list[Tables]:
    """Worlds in which client 0 has the same entities and gets the same means, over other owners with other values."""
    a, b, u = np.arange(1.0, dim + 1), np.arange(2.0, dim + 2) / 4, np.arange(3.0, dim + 3) / 8
    me, rest = {"a": a, "b": b}, [{"c": u}] * (clients - 3)
    return [
        [me, {"c": u}, {"c": 2 * u}, *rest],
        [me, {"a": a, "c": 3 * u}, {"b": b}, *rest],
        [me, {"a": a + 1, "b": b}, {"a": a - 1, "c": u}, *rest],
    ]


def decryption_law(subject: Subject, clients: int, dim: int, tables: Tables) -> Coset:
    """Of the shares that client 0 gets in a round, and of what it decrypts over r * count, which it can compute."""
    watch = Watch()
    parties = subject.parties(tables, dim=dim, collusion=1, watch=watch)
    parties.setup()
    numbers = form_of(subject).numbers(parties.session.params)

    def view() -> NDArray[np.object_]:
        watch.heard.clear()
        parties.round(tables)
        seen = [
            share_of(parties, Kind.SHARE, [each.payload for each in watch.sealed(Kind.SHARE, sender=v, receiver=0)])
            for v in range(1, clients)
        ]
        round_ = decrypted(parties, watch)
        inverse = [pow(int(o), -1, M61) for o in round_.opened(numbers)[round_.asked, dim]]
        scaled = round_.masked[:, round_.asked] * np.array(inverse, object)[None, :, None] % M61
        return np.concatenate([*(share.reshape(-1).astype(object) for share in seen), scaled.reshape(-1)])

    return coset(view)


@claim("exact view", PAILLIER, mutants=(mutants.NO_PSI, mutants.ONE_NOISE_LESS))
def decryption(subject: Subject) -> int:
    """Paillier: a client learns its means, and nothing else, from what it decrypts and the shares that it gets."""
    cases = 0
    for clients, dim in ((3, 1), (5, 1)) if subject.thorough else ((3, 1),):
        given = equal_means(clients, dim)[None if subject.thorough else 1 :]
        cases += same([decryption_law(subject, clients, dim, tables) for tables in given], f"N={clients}")
    return cases


@claim("attack", PAILLIER, mutants=(mutants.NO_PSI, mutants.REUSED_PSI, mutants.REUSED_R))
def masked_counts(subject: Subject) -> int:
    """Paillier: a client does not find the server's r by comparing two of its queries, or by solving for it."""
    watch, tables = Watch(), equal_means(3, 1)[2]
    parties = subject.parties(tables, dim=1, collusion=1, watch=watch)
    parties.setup()
    numbers, ratios = form_of(subject).numbers(parties.session.params), []
    for _ in range(3):
        watch.heard.clear()
        parties.round(tables)
        seen = decrypted(parties, watch)
        a, b = seen.asked
        o, Y, A = seen.opened(numbers)[:, 1], seen.masked[0], seen.own
        ratios.append(int(o[a]) * pow(int(o[b]), -1, M61) % M61)
        supposed = {"there is no psi": [int(Y[j, 0]) * pow(int(A[j, 0]), -1, M61) for j in (a, b)]}
        supposed["psi is the same"] = _solved(A[a], -A[b], Y[a] - Y[b])
        for what, r in supposed.items():
            counts = [int(o[j]) * pow(int(x), -1, M61) % M61 if x % M61 else 0 for j, x in zip((a, b), r, strict=True)]
            if all(1 <= c <= 3 for c in counts):
                raise Objection(f"client 0 supposes that {what}, and finds the counts {counts}")
    if len(set(ratios)) < len(ratios):
        raise Objection("two queries are masked by one r: client 0 sees how their counts compare")
    return 3 * len(ratios)


def _solved(x: Any, y: Any, z: Any) -> list[int]:
    """The r and s with r*x + s*y = z modulo p, of two coordinates each; zeros where there are none."""
    under = int(x[0] * y[1] - x[1] * y[0]) % M61
    over = pow(under, -1, M61) if under else 0
    return [int(z[0] * y[1] - z[1] * y[0]) * over % M61, int(x[0] * z[1] - x[1] * z[0]) * over % M61]


# ------------------------------------------------------------------------------------------------------ p*R, enumerated


def plaintexts(subject: Subject, p: int, sigma: int, r: int, answer: int, psi: int) -> dict[int, Fraction]:
    """The plaintext r*A + psi + p*R, and how likely each is over all R."""
    params = Params(3, 1, 1, max_entities=1, max_union=1, key_bits=256, insecure_small_keys=True)
    packing = replace(form_of(subject).numbers(params).packing, p=p, sigma=sigma)
    found: dict[int, Fraction] = {}
    for a, b in product(range(p), range(1 << sigma)):
        words = iter([0, a])  # what fills unused slots, and the two parts of R

        def entropy(count: int, words: Iterator[int] = words, b: int = b) -> bytes:
            word = next(words, None)
            return bytes([b]) * count if word is None else word.to_bytes(8, "little") * (count // 8)

        (noise,) = packing.noise(np.array([psi], np.uint64), entropy)
        m = int(r * packing.pack(np.array([answer], np.uint64))[0] + noise) % (1 << packing.width)
        found[m] = found.get(m, Fraction(0)) + Fraction(1, p << sigma)
    return found


@claim("exact view", PAILLIER, mutants=(mutants.NOT_LIFTED,))
def integers(subject: Subject) -> int:
    """Paillier: a client learns r*answer + psi modulo p from what it decrypts; of the integer at most 2^-sigma."""
    p, sigma, cases = 5, 3, 0
    for answer in range(1, p):
        views = {(r, psi): plaintexts(subject, p, sigma, r, answer, psi) for r in range(1, p) for psi in range(p)}
        for one, other in combinations(views, 2):
            if (one[0] * answer + one[1] - other[0] * answer - other[1]) % p == 0:
                every = views[one].keys() | views[other].keys()
                apart = (
                    sum(
                        (abs(views[one].get(x, Fraction(0)) - views[other].get(x, Fraction(0))) for x in every),
                        Fraction(0),
                    )
                    / 2
                )
                cases += 1
                if apart > Fraction(1, 1 << sigma):
                    raise Objection(
                        f"answer {answer}: r and psi {one} and {other} give one residue, and plaintexts {apart} apart"
                    )
    return cases


# --------------------------------------------------------------------------------------------------------- statistics


@claim("statistics", PAILLIER, mutants=(mutants.NOT_LIFTED,))
def decrypted_integers(subject: Subject) -> int:
    """Paillier: a client sees uniform integers where it decrypts, in quotient and remainder by p."""
    watch, tables = Watch(), random_tables([list("ab"), list("acde"), list("bcef")], 5)
    parties = subject.parties(tables, collusion=1, max_entities=6, max_union=6, watch=watch)
    parties.setup()
    parties.round(tables)
    packing, Y = form_of(subject).numbers(parties.session.params).packing, decrypted(parties, watch).masked
    quotients = (Y.reshape(-1) // M61 / (M61 << packing.sigma)).astype(np.float64).clip(0, 1)
    kolmogorov("decrypted quotients", quotients)
    kolmogorov("decrypted remainders", (Y[0].reshape(-1) % M61 / M61).astype(np.float64))  # others' are tied to these
    return 2


@claim("statistics", PAILLIER, mutants=(mutants.NO_NOISE, mutants.BIASED))
def uniform_shares(subject: Subject) -> int:
    """Paillier: a client sees uniform elements where it gets shares of queries and embeddings."""
    sets = [[f"{e}" for e in range(700) if e % 3 != n] for n in range(3)]
    tables, watch, tests = random_tables(sets, 5), Watch(), 0
    parties = subject.parties(tables, collusion=1, watch=watch)
    parties.setup()
    parties.server.begin("share", range(3))
    for n, client in parties.clients.items():
        client.contribute(tables[n], 1)
        list(client.outbox())
    for kind in (Kind.QUERY, Kind.SHARE):
        whole = [each for each in watch.sealed(kind) if len(each.payload) != SEED_BYTES]
        seen = [RING61.from_bytes(each.payload, len(each.payload) // RING61.element_bytes) for each in whole]
        tests += uniform(f"{kind.name.lower()} at its receiver", RING61, np.concatenate(seen, axis=1))
    return tests


# ----------------------------------------------------------------------------------------------------------- the union


def tables_of(watch: Watch, cells: int) -> dict[int, Residues]:
    """The last lookup table of each client, as the server opens it: [1, cells, 3]."""
    found: dict[int, Residues] = {}
    for each in watch.sealed(Kind.TABLE):
        if each.header.chunk == 0:
            found[each.header.sender] = RING61.from_bytes(each.payload, cells, union.COLUMNS)
    return found


def made_union(subject: Subject, sets: Sequence[str]) -> tuple[Parties, Watch, union.Geometry]:
    """A set-up of three clients with one letter for each entity, and the shape of its lookup tables."""
    watch = Watch()
    parties = subject.parties([{name: np.ones(1) for name in own} for own in sets], dim=1, collusion=1, watch=watch)
    parties.setup()
    (header,) = {
        each.header.at(0) for each in watch.sealed(Kind.TABLE, sender=0) if each.header.epoch == parties.server.at.union
    }
    assert parties.session.params.max_union is not None
    geometry = union.Geometry.of(parties.session.params.max_union, header.attempt, header.context)
    return parties, watch, geometry


OWNERS: Final = (("ab", "c", ""), ("ab", "ac", "bc"), ("ab", "abc", "abc"), ("ab", "", "bc"))
"""Ways to own the same union; client 0 has the same."""


@claim("attack", PAILLIER, mutants=(mutants.WEIGHT_ONE, mutants.ONE_MASK, mutants.NO_MASKS))
def union_tables(subject: Subject) -> int:
    """Paillier: the server learns the union from masked tables, and not who owns what: only their sum opens."""
    for sets in OWNERS:
        parties, watch, geometry = made_union(subject, sets)
        tables = tables_of(watch, geometry.cells)
        tags = parties.server.part.tags  # type: ignore[attr-defined]
        positions = geometry.positions(tags)
        free = np.ones(geometry.cells, bool)
        free[positions] = False
        for factors in product(range(-2, 3), repeat=3):
            total = sum((tables[n][0].astype(object) * c for n, c in enumerate(factors)), np.zeros(1, object)) % M61
            if factors == (1, 1, 1):
                weights = [
                    int(total[cell, 0])
                    for cell, seen in zip(*np.unique(positions, return_counts=True), strict=True)
                    if seen == 1
                ]
                if any(w <= len(sets) for w in weights):
                    raise Objection(
                        f"sets {sets}: the weights in the sum of all tables are {weights}: how many own each"
                    )
            elif len(set(factors)) > 1 and (total[free] == 0).all(axis=1).mean() > 0.5:
                raise Objection(f"sets {sets}: the tables times {factors} add up to something without masks")
    return len(OWNERS)


@claim("record", PAILLIER, mutants=(mutants.TOTAL_SHOWN,))
def union_total(subject: Subject) -> int:
    """Paillier: a client learns the sorted tags of the union, and nothing of the total of the tables."""
    for sets in OWNERS:
        watch, tables = Watch(), [{name: np.ones(1) for name in own} for own in sets]
        parties = subject.parties(tables, dim=1, collusion=1, watch=watch)
        with suppress(ProtocolError):  # clients refuse what they do not know; what was said was said
            parties.setup()
        part, told = part_of(parties, 0), watch.sealed(Kind.TAGS)
        assert part.epoch is not None
        context = watch.sealed(Kind.TABLE)[-1].header.context
        tags = np.sort(union.tags_of(list("abc"), expand(part.epoch.secret, "tags", context)))
        last = max(each.header.epoch for each in told)
        if any(each.payload != tags.astype("<u8").tobytes() for each in told if each.header.epoch == last):
            raise Objection(f"sets {sets}: the server tells clients something else than the tags of the union")
    return len(OWNERS)
