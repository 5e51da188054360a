"""A round of the form "keyed" as the specification has it: every byte, made again in plain integers.

`secea.oracles.keyed` is the arithmetic. Here are the keys: which hash of what makes each of them, and how AES makes
numbers of them. Both are written from docs/protocol-keyed.md and share no code with the parties but HKDF.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.arithmetic.field import M61, RING61, Residues, Ring
from secea.arithmetic.ristretto import ORDER, from_uniform, multiply, scalar_rows
from secea.audit.specification import designated, honest_deviation, upload_columns
from secea.audit.standing import attributes_stand_in, standing_in
from secea.errors import SERVER
from secea.forms.keyed.client import KeyedClient, Round
from secea.forms.keyed.form import Kind
from secea.forms.keyed.numbers import GRID_SHARE_BITS
from secea.forms.keyed.server import KeyedServer
from secea.oracles import keyed as oracle
from secea.party.phases import Agreement
from secea.steps import means, oprf
from secea.table import Name, as_table, keys, name_bytes
from secea.testing import Parties
from secea.wire.keys import expand
from secea.wire.messages import ALL, Buffer
from secea.wire.randomness import KeyStream

Table = dict[Name, NDArray[Any]]


# ------------------------------------------------------------------------------------- key streams, by their rule alone


@lru_cache(1 << 12)
def encryptor(key: bytes) -> Callable[[bytes], bytes]:
    """AES-256 of single blocks."""
    return Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update  # noqa: S305 - one block each


def block(key: bytes, lane: int, prime: int, retry: int, number: int) -> bytes:
    """A block of a key stream: AES of its lane, prime, retry and number."""
    return encryptor(key)(lane.to_bytes(4, "big") + bytes((prime, retry, 0, 0)) + number.to_bytes(8, "big"))


def stream(ring: Ring, b: int, key: bytes, lane: int, count: int, least: int = 0) -> oracle.Vector:
    """Top bits of the words of AES modulo prime b; a word that is not below it is replaced from the next retry."""
    p = ring.primes[b]
    width = 8 if p >> 32 else 4
    each, spare = 16 // width, 8 * width - p.bit_length()
    out = []
    for i in range(count):
        retry = 0
        while True:
            word = block(key, lane, b, retry, i // each)[i % each * width :][:width]
            x = int.from_bytes(word, "little") >> spare
            if least <= x < p:
                break
            retry += 1
        out.append(x)
    return tuple(out)


def words(data: bytes) -> list[int]:
    """Words of 32 bits."""
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def rows_of(flat: Sequence[int], width: int) -> list[oracle.Vector]:
    """Rows of this width."""
    return [tuple(flat[at : at + width]) for at in range(0, len(flat), width)]


def gaussian(seed: bytes, chunk: int, count: int, sigma: float) -> list[int]:
    """Discrete Gaussian numbers from a key stream: AES in counter mode."""
    source = Cipher(algorithms.AES256(seed), modes.CTR(chunk.to_bytes(8, "big") + bytes(8))).encryptor()
    return gaussian_of(lambda size: source.update(bytes(size)), count, sigma)


def gaussian_of(draw: Callable[[int], bytes], count: int, sigma: float) -> list[int]:
    """The same from any bytes, by the rejection of Canonne, Kamath and Steinke (K11).

    Each attempt takes words for all of its candidates, step by step.
    """
    t, found = math.floor(sigma) + 1, list[int]()

    def drawn(many: int) -> list[int]:
        data = draw(8 * many)
        return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]

    def fractions(many: int) -> list[float]:
        return [math.ldexp(word >> 11, -53) for word in drawn(many)]

    while len(found) < count:
        missing = count - len(found)
        u = [word % t for word in drawn(math.floor(1.6 * missing) + 16) if word < 2**64 - 2**64 % t]
        u = [x for x, chance in zip(u, fractions(len(u)), strict=True) if chance < math.exp(-x / t)]
        y = [x + t * math.floor(-math.log(1 - part)) for x, part in zip(u, fractions(len(u)), strict=True)]
        signs = [byte & 1 for byte in draw(len(y))]
        y = [-x if minus else x for x, minus in zip(y, signs, strict=True) if x or not minus]
        far = [(abs(x) - sigma * sigma / t) / sigma for x in y]
        kept = [part < math.exp(-0.5 * x * x) for part, x in zip(fractions(len(y)), far, strict=True)]
        most = math.ceil(12 * sigma)
        found += [x for x, keep in zip(y, kept, strict=True) if keep and abs(x) <= most][:missing]
    return found


def packed(ring: Ring, by_prime: Sequence[oracle.Rows]) -> bytes:
    """As they travel: one prime after the other, four bytes for each element, or as many as a larger prime has."""
    widths = [max(4, -(-p.bit_length() // 8)) for p in ring.primes]
    return b"".join(
        x.to_bytes(width, "little") for rows, width in zip(by_prime, widths, strict=True) for row in rows for x in row
    )


# ---------------------------------------------------------------------------------------------- what really goes around


@dataclass
class Record:
    """One round as it really was, before anything is sealed."""

    at: Agreement = field(default_factory=Agreement)
    rounds: dict[int, Round] = field(default_factory=dict)
    uploads: dict[int, list[bytes]] = field(default_factory=dict)
    sums: list[tuple[Residues, Residues, Residues]] = field(default_factory=list)
    """The server's totals, noise and columns, chunk by chunk."""
    broadcast: list[bytes] = field(default_factory=list)
    U: tuple[int, ...] = ()
    """With drop-outs: whose uploads came whole."""
    openings: dict[int, bytes] = field(default_factory=dict)


@contextmanager
def recorded() -> Iterator[Record]:
    """Write down the round that follows."""
    record = Record()
    payloads, ready, divide = KeyedClient.payloads, KeyedServer.ready, means.divide

    def client_says(
        self: KeyedClient, kind: Kind, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver, parts in payloads(self, kind, receivers, at):
            if kind is Kind.UPLOAD:
                assert self.round is not None
                record.at, record.rounds[self.number] = at, self.round
                record.uploads.setdefault(self.number, []).append(b"".join(parts))
            if kind is Kind.OPENING:
                record.U, record.openings[self.number] = at.members, b"".join(parts)
            yield receiver, parts

    def server_says(self: KeyedServer, kind: Kind, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver, parts in ready(self, kind, at):
            if kind is Kind.MEANS:
                record.broadcast.append(b"".join(parts))
            yield receiver, parts

    def divided(
        ring: Ring, total: Residues, e: Residues, columns: Residues, least: Residues | None = None
    ) -> tuple[Residues, NDArray[np.uint8]]:
        whole = total if least is None else np.concatenate([total, least], axis=2)
        record.sums.append((whole.copy(), e.copy(), columns.copy()))
        return divide(ring, total, e, columns, least)

    with (
        attributes_stand_in((KeyedClient, "payloads", client_says), (KeyedServer, "ready", server_says)),
        standing_in({divide: divided}),
    ):
        yield record


def part_of(parties: Parties, n: int) -> KeyedClient:
    """A client's part."""
    part = parties.clients[n].part
    assert isinstance(part, KeyedClient)
    return part


def key_of(parties: Parties) -> int:
    """k, which nobody holds: the sum of the dealers' constant terms."""
    dealt = [
        oprf.polynomial(parties.session.params.T, KeyStream(expand(part_of(parties, n).naming.key.seed, "polynomial")))
        for n in parties.clients
    ]
    return sum(polynomial[0] for polynomial in dealt) % ORDER


LONG: Final = b"secea long name\n"
SUITE: Final = b"HashToGroup-OPRFV1-\x00-ristretto255-SHA512"


def F(name: Name, k: int) -> bytes:
    """K2 and RFC 9497: Hash(name, k * HashToGroup(name)). A long name is hashed first, and one that looks like that."""
    x = b"s" + str(name).encode()
    if len(x) > 65_535 or x.startswith(LONG):
        x = LONG + hashlib.sha512(x).digest()
    domain = SUITE + bytes([len(SUITE)])
    first = hashlib.sha512(bytes(128) + x + bytes((0, 64, 0)) + domain).digest()
    uniform = hashlib.sha512(first + bytes([1]) + domain).digest()
    point = multiply(from_uniform(np.frombuffer(uniform, np.uint8)[None]), scalar_rows([k]))
    return hashlib.sha512(len(x).to_bytes(2, "big") + x + bytes((0, 32)) + point.tobytes() + b"Finalize").digest()


# -------------------------------------------------------------------------------------------------- what it ought to be


@dataclass
class Expected:
    """The same round by the oracle: from k, the union's secret, the pairs' keys, noise seeds and identities."""

    parties: Parties
    tables: Sequence[Table | None]
    record: Record
    weights: Sequence[Mapping[Name, int]] = ()
    """Of each client's rows, where they have any."""
    k: int = 0
    """The key of the names, where those who dealt it have forgotten what they dealt."""
    own: Mapping[int, Sequence[Name]] = field(default_factory=dict)
    """The entities that clients have in the union, where their tables have others."""
    grids: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    """How coarse tables were in the session; where nothing is said, as coarse as these."""
    R: list[list[oracle.Vector]] = field(default_factory=list)
    """What is broadcast, prime by prime and slot by slot; and what each slot is. `differing` puts them here."""
    kinds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        params, self.at = self.parties.session.params, self.record.at
        self.params, self.m, weighted = params, params.min_owners, params.max_weight is not None
        self.members, self.d, self.T, self.D = self.at.members, params.dim + weighted, params.T, params.dropouts
        self.U = self.record.U if self.D else self.members
        first = part_of(self.parties, self.members[0])
        assert first.union is not None
        self.n, self.union = first.numbers, first.union
        self.width = upload_columns(params.dim, self.n.checks, self.m, weighted=weighted)
        self.turn = designated(self.members, self.at.round)
        self.began = oracle.noise_clients(self.members, self.T, self.at.round, self.D)
        self.noisy = [w for w in self.began if w in self.U]
        k = self.k or key_of(self.parties)
        self.F = {name: F(name, k) for v in self.members for name in self.named(v)}
        tag_key = expand(self.union.secret, "tags", self.union.context)
        hashed = {name: hashlib.blake2b(F, digest_size=8, key=tag_key).digest() for name, F in self.F.items()}
        tags = {name: (int.from_bytes(each, "little") >> 3) % M61 for name, each in hashed.items()}
        self.tags = tags
        self.slot = {name: sorted(tags.values()).index(tag) for name, tag in tags.items()}
        layout = self.parties.session.form.layout(Kind.MEANS, params, self.at, SERVER, ALL)
        self.spans = [layout.span(chunk) for chunk in range(layout.chunks)]
        self.values = {v: self._encoded(v) for v in self.members}
        self.given = {
            v: {self.slot[name] for name in self.named(v) if name in self.table(v) and self.gives(v, name)}
            for v in self.members
        }

    def gives(self, v: int, name: Name) -> bool:
        """Whether client v contributes its row of an entity."""
        return not self.params.partial or not self.weights or self.weights[v][name] > 0

    def named(self, v: int) -> Sequence[Name]:
        """The entities that client v has in the union."""
        return self.own.get(v) or tuple(self.table(v))

    def table(self, v: int) -> Table:
        """What client v contributed, under the keys of its names."""
        given = self.tables[v]
        assert given is not None
        return dict(zip(keys(tuple(given)), given.values(), strict=True))

    def key(self, name: str, *of: int) -> bytes:
        """The key of a stream that all clients share in this round."""
        labels = [self.union.L, *(str(number).encode() for number in (self.at.round, *of))]
        return expand(self.union.secret, name, *labels)

    def secrets(self, chunk: int, b: int) -> oracle.Secrets:
        """rho and the others of a chunk, modulo prime b."""
        span, ring, checks = self.spans[chunk], self.n.ring, range(self.n.checks)
        M = span.stop - span.start

        def draw(name: str, *of: int, least: int = 0) -> oracle.Vector:
            return stream(ring, b, self.key(name, *of), chunk, M, least)

        return oracle.Secrets(
            rho=draw("rho", least=1),
            alpha=[stream(ring, b, self.key("alpha", k), 0, self.d) for k in checks],
            J=[draw("J", k) for k in checks],
            H={w: [draw("H", w, k) for k in checks] for w in self.noisy},
            theta=draw("theta"),
            beta=draw("beta"),
            least=self.least(chunk, b, M) if self.m > 1 else None,
            gamma=[draw("gamma", k, least=1) for k in checks] if self.params.noise else (),
        )

    def least(self, chunk: int, b: int, M: int) -> oracle.Least:
        """What all clients share for a minimum of owners."""
        ring, m = self.n.ring, self.m - 1

        def draw(name: str, each: int, least: int = 0) -> list[oracle.Vector]:
            return rows_of(stream(ring, b, self.key(f"least {name}"), chunk, M * each, least), each)

        a = []
        for drawn in draw("order", 2 * self.n.checks, 1):
            begin = 0
            for x in drawn:
                begin = begin * (ring.primes[b] - 1) + x - 1
            a.append(tuple(1 + (begin + k) % m for k in range(m)))
        theta = stream(ring, b, self.key("least theta"), chunk, M)
        return oracle.Least(a, draw("rho", m, 1), draw("beta", m), theta)

    def everywhere(self, v: int, chunk: int) -> list[oracle.Vector]:
        """C times what client v adds to every slot of a chunk."""
        params, span = self.params, self.spans[chunk]
        each = honest_deviation(params.noise, params.clients, self.T, self.D, len(self.members))
        count = (span.stop - span.start) * self.d
        z = gaussian(self.record.rounds[v].spread_seed, chunk, count, math.ldexp(each, self.n.f))
        return rows_of([self.n.C * x for x in z], self.d)

    def _encoded(self, v: int) -> dict[int, oracle.Vector]:
        """What client v encodes, slot by slot."""
        n, table = self.n, self.table(v)
        identity = self.parties.identities[v].secret
        labels = [*(b"%d" % b for b in range(-(-n.s // 4))), b"grid", b"names"]
        keys = [expand(identity, "fill of the keyed form", label) for label in labels]
        blur = expand(identity, "fill of weights", b"grid")
        given = as_table(table, self.params.dim)
        used, step = self.grids.get(v) or grid.grid_of(given.matrix, given.dtype)
        cap = 2.0 ** (math.floor(math.log2(n.max_abs)) - GRID_SHARE_BITS)
        found = {}
        for name, row in table.items():
            (bits,), (common,) = grid.grid_of_rows(np.array([row], np.float64), used, step)
            entity = int.from_bytes(hashlib.blake2b(name_bytes(name), digest_size=8, key=keys[-1]).digest(), "little")

            def coded(x: float, j: int, bits: int, common: float, cap: float = cap, entity: int = entity) -> int:
                data = ((entity + j) % 2**64).to_bytes(8, "little") + np.float64(x + 0.0).tobytes()
                fields = words(b"".join(encryptor(key)(data) for key in keys[:-2]))[: n.s]
                step_of = oracle.grid(x, bits, common, cap)
                fields += _of_grid(keys[-2], entity + j, step_of, x)
                return oracle.encode(x, fields, step_of, n)

            whole = [coded(float(x), j, int(bits), float(common)) for j, x in enumerate(row)]
            if self.params.max_weight is not None:
                weight = self.weights[v][name]
                part = oracle.share_of_bound(weight, _of_grid(blur, entity, 1.0, float(weight)), self.params.max_weight)
                products = [math.ldexp(float(x), -n.f) * part for x in whole]
                whole = [coded(x, j, 52, 0.0) for j, x in enumerate([*products, n.max_abs * part])]
            if name in self.slot:  # others are not in the union yet
                found[self.slot[name]] = tuple(whole)
        return found

    def G(self, name: Name, b: int) -> oracle.Vector:
        """G of an entity: a hash of F and the session, hashed under a key of the union."""
        kappa = hashlib.blake2b(
            self.F[name], digest_size=32, key=self.parties.session.hash, person=b"secea entity"
        ).digest()
        key = hashlib.blake2b(kappa, digest_size=32, key=expand(self.union.secret, "rows", self.union.L)).digest()
        return stream(self.n.ring, b, key, self.at.round, self.d)

    def noise(self, w: int, chunk: int) -> list[oracle.Vector]:
        """The noise of a client in a chunk."""
        noise, span = self.n.noise, self.spans[chunk]
        seed = self.record.rounds[w].noise_seed

        def one(i: int) -> int:
            data = b"".join(block(seed, chunk, 0, 0, i * noise.blocks + at) for at in range(noise.blocks))
            return oracle.noise(words(data)[: noise.words], len(self.began), self.n)

        return rows_of([one(i) for i in range((span.stop - span.start) * self.d)], self.d)

    def mask_rows(self, seed: bytes, chunk: int, b: int) -> oracle.Rows:
        """What a key of masks adds to a chunk."""
        span, width = self.spans[chunk], self.width
        return rows_of(stream(self.n.ring, b, seed, chunk, (span.stop - span.start) * width), width)

    def pair(self, v: int, u: int) -> bytes:
        """What two clients share for their masks."""
        if self.D:
            theirs = X25519PrivateKey.from_private_bytes(self.scalars(u)[0].to_bytes(32, "little")).public_key()
            mine = X25519PrivateKey.from_private_bytes(self.scalars(v)[0].to_bytes(32, "little"))
            return expand(mine.exchange(theirs), "pair of a batch", self.parties.session.hash)
        union = part_of(self.parties, v).union
        assert union is not None
        return union.pairs[u]

    def masks(self, v: int, chunk: int, b: int) -> dict[int, oracle.Rows]:
        """The masks of client v with each neighbour."""
        found: dict[int, oracle.Rows] = {}
        for pair in oracle.edges(self.members, self.T + self.D + 1):
            if v in pair:
                (u,) = pair - {v}
                seed = expand(self.pair(v, u), "mask", self.union.L, b"%d" % self.at.round)
                found[u] = self.mask_rows(seed, chunk, b)
        return found

    def scalars(self, v: int) -> tuple[int, int]:
        """a and b of a client in this round."""
        batch = part_of(self.parties, v).masking.batch
        assert batch is not None
        return batch.keys[self.at.round - batch.first], batch.seeds[self.at.round - batch.first]

    def own_mask(self, v: int, chunk: int, b: int) -> oracle.Rows:
        """The mask of client v alone."""
        seed = expand(self.scalars(v)[1].to_bytes(32, "little"), "self seed")
        return self.mask_rows(expand(seed, "self mask", self.union.L, b"%d" % self.at.round), chunk, b)

    def total(self, uploads: Mapping[int, Sequence[oracle.Rows]], chunk: int, b: int) -> list[oracle.Vector]:
        """The sum of those who are in it, without what lies over it: from the shares that were given out."""
        p = self.n.ring.primes[b]
        total = oracle.add([uploads[v][b] for v in self.U], p)
        if not self.D:
            return total
        t, found = self.parties.session.params.clients - self.D, {}
        for place, m in enumerate(self.members):
            given = {u: data[32 * place :][:32] for u, data in self.record.openings.items()}
            found[m] = oracle.joined({u: int.from_bytes(given[u], "little") for u in sorted(given)[-t:]})
        own = {self.scalars(v)[1]: self.own_mask(v, chunk, b) for v in self.members}
        prg = {self.scalars(v)[0]: self.masks(v, chunk, b) for v in self.members}
        return oracle.unmask(total, found, own, prg, p)

    def upload(self, v: int, chunk: int, b: int) -> list[oracle.Vector]:
        """What client v uploads."""
        span, p, values = self.spans[chunk], self.n.ring.primes[b], self.values[v]
        y = {
            i - span.start: tuple(self.n.C * x + g for x, g in zip(values[i], self.G(name, b), strict=True))
            for name, i in self.slot.items()
            if i in self.given[v] and span.start <= i < span.stop
        }
        s = self.secrets(chunk, b)
        rows = oracle.upload(y, self.d, s, p)
        if self.params.noise:
            rows = oracle.everywhere(rows, self.everywhere(v, chunk), s, p)
        if s.least is not None:
            more = oracle.least_columns(y.keys(), s.least, p, designated=v == self.turn)
            rows = [(*one, *two) for one, two in zip(rows, more, strict=True)]
        masked = oracle.mask(rows, v, self.masks(v, chunk, b), p)
        return oracle.add([masked, self.own_mask(v, chunk, b)], p) if self.D else masked

    def mean(self, name: Name) -> tuple[list[Fraction], bool]:
        """What an owner reads in the slot of an entity, and whether that is a mean."""
        n, params, at = self.n, self.params, self.slot[name]
        primes = range(len(n.ring.primes))
        G = [self.G(name, b) for b in primes]
        exact = [
            oracle.read(tuple(self.R[b][at][j] for b in primes), tuple(G[b][j] for b in primes), len(self.began), n,
                        len(self.noisy))
            for j in range(self.d)
        ]  # fmt: skip
        heavy = True
        if params.max_weight is not None:
            *exact, share = exact
            share /= Fraction(n.max_abs)
            heavy = share * 4 * params.clients * (params.max_weight + 1) > 1
            exact = [x / share for x in exact] if heavy else exact
        return exact, heavy and self.kinds[at] == 0

    def last_bit(self, dtype: np.dtype[Any]) -> Fraction:
        """How far a mean in floats may be from an exact one, in parts of it."""
        return Fraction(2 if self.params.max_weight is None else 8) * Fraction(float(np.finfo(dtype).eps))


def _of_grid(key: bytes, entity: int, step: float, x: float) -> list[int]:
    """Two words for the number of a grid: each grid is another draw."""
    of = (entity + int(np.float64(step).view(np.uint64))) % 2**64
    return words(encryptor(key)(of.to_bytes(8, "little") + np.float64(x + 0.0).tobytes()))[:2]


def digested(*parts: bytes) -> bytes:
    """16 bytes of BLAKE2b over parts, each after its length in eight bytes."""
    text = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.blake2b(text, digest_size=16, person=b"secea digest").digest()


# --------------------------------------------------------------------------------------------------- lookup tables

WORD: Final = (1 << 64) - 1


def mixed(x: int, key: int) -> int:
    """The finaliser of SplitMix64."""
    z = ((x ^ key) + 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def lookup_table(part: KeyedClient, at: Agreement, F: Mapping[Name, bytes]) -> bytes:
    """What a client sends of its names in a union: for each tag three cells, under a mask with each other member."""
    union, params = part.union, part.params
    assert union is not None
    assert params.max_union is not None
    assert at.attempt == 0
    third = -(-(-(-params.max_union * 14 // 10) + 900) // 3)
    text = hashlib.blake2b(at.context, digest_size=32, person=b"secea union").digest()
    *places, check = (int.from_bytes(text[i : i + 8], "little") for i in range(0, 32, 8))
    tag_key = expand(union.secret, "tags", at.context)
    hashed = {hashlib.blake2b(each, digest_size=8, key=tag_key).digest() for each in F.values()}
    tags = sorted({(int.from_bytes(each, "little") >> 3) % M61 for each in hashed})
    bound = digested(b"secret", union.secret)
    counter = Cipher(algorithms.AES256(expand(union.mask_key, "weights", at.context, bound)), modes.CTR(bytes(16)))
    drawn = counter.encryptor().update(bytes(8 * len(tags)))
    cells = [[0, 0, 0] for _ in range(3 * third)]
    for i, tag in enumerate(tags):
        w = int.from_bytes(drawn[8 * i : 8 * i + 8], "little") >> 3
        entry = w, w * tag, w * ((mixed(tag, check) >> 3) % M61)
        for h, key in enumerate(places):
            cell = cells[h * third + ((mixed(tag, key) >> 32) * third >> 32)]
            cell[:] = [(a + b) % M61 for a, b in zip(cell, entry, strict=True)]
    flat = [x for cell in cells for x in cell]
    for v, pair in union.pairs.items():
        sign = 1 if part.number < v else -1
        mask = stream(RING61, 0, expand(pair, "table", at.context, bound), 0, len(flat))
        flat = [(x + sign * m) % M61 for x, m in zip(flat, mask, strict=True)]
    return b"".join(x.to_bytes(8, "little") for x in flat)
