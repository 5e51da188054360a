"""What takes time in the keyed form, as samples for `secea plan`: the steps of the parties, over made-up numbers.

A sample of a round works on the slots of one chunk. Others work on a few names. How often a party does the same follows
from the parameters alone. Sealing, signing and sending are no part of it: every form has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import discrete, streams
from secea.arithmetic.field import RING61, Residues, Ring
from secea.arithmetic.ristretto import valid
from secea.errors import SERVER
from secea.forms.keyed.form import Kind
from secea.forms.keyed.masking import hash_of, key_of, of_small_order, pair_of, public_of, voted
from secea.forms.keyed.numbers import Numbers, honest
from secea.forms.keyed.shared import RoundSecrets, rows_under_keys
from secea.forms.keyed.tables import Tables
from secea.params import Params
from secea.party.form import Chore
from secea.party.phases import Agreement
from secea.steps import masks, means, oprf, union
from secea.table import Table, as_table
from secea.wire.keys import Identity
from secea.wire.randomness import KeyStream

if TYPE_CHECKING:
    from secea.forms.keyed.form import Keyed

Work = Callable[[], object]
NAMES: Final = 63
"""Names of a sample of the PRF, with the check point a multiple of what a processor works on at once."""
TAGS: Final = 2000
"""Names of a sample of the union, at most."""
KEY: Final = bytes(range(32))
"""Stands for all keys and seeds: they do not change what a step takes."""


@dataclass(frozen=True)
class Desk:
    """The numbers that samples of a round work on: one chunk of slots, and a client that owns its share of them."""

    form: Keyed
    params: Params
    entities: int

    @cached_property
    def numbers(self) -> Numbers:
        """How numbers are encoded."""
        return self.form.numbers(self.params)

    @property
    def ring(self) -> Ring:
        """The field, or the product of fields."""
        return self.numbers.ring

    @property
    def at(self) -> Agreement:
        """A round of all clients."""
        everyone = tuple(range(self.params.clients))
        return Agreement(self.form.round_phase, everyone, everyone, union=1, names=1, round=1, size=self.entities)

    @cached_property
    def slots(self) -> int:
        """Slots of a chunk."""
        layout = self.form.layout(Kind.MEANS, self.params, self.at, SERVER)
        return max(1, min(self.entities, layout.per_chunk))

    @cached_property
    def own(self) -> int:
        """How many of these a client owns."""
        return max(1, self.slots * min(self.entities, self.params.max_entities or 0) // max(1, self.entities))

    @property
    def width(self) -> int:
        """The columns of an upload."""
        return self.form.width(self.params)

    @property
    def noisy(self) -> int:
        """Noise clients."""
        return self.form.noise_count(self.params, self.params.clients)

    @property
    def secrets(self) -> RoundSecrets:
        """What all clients share."""
        params, n = self.params, self.numbers
        return RoundSecrets(n.ring, params.columns, n.checks, KEY, KEY, 1, params.min_owners, bool(n.spread))

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The slots of own entities."""
        return np.linspace(0, self.slots - 1, self.own).astype(np.int64)

    def matrix(self, rows: int) -> NDArray[np.float32]:
        """Embeddings."""
        words = np.frombuffer(KeyStream(KEY).bytes(4 * rows * self.params.dim), "<i4")
        return (words * (self.params.max_abs / 2**31)).astype(np.float32).reshape(rows, -1)

    def elements(self, *shape: int) -> Residues:
        """Elements of the ring."""
        return streams.stream(self.ring, KEY, 0, *shape)

    def keys(self) -> NDArray[np.uint8]:
        """A key for each own entity."""
        return np.frombuffer(KeyStream(KEY).bytes(32 * self.own), np.uint8).reshape(-1, 32)

    def label(self, name: str, *of: object) -> str:
        """The name of a chore, with all that its time depends on."""
        of = (*of, *self.params.options)
        return f"{name}, {self.slots} x {self.width} modulo {self.ring.primes}{''.join(f', {each}' for each in of)}"

    # ------------------------------------------------------------------------------------------------------- a round

    def contribute(self) -> Work:
        """A client copies a table, notes what it is, and encodes its rows."""
        tables = Tables(self.params, self.numbers, 0, Identity(KEY))
        names = tuple(f"e{i}" for i in range(self.own))
        weights = None if self.params.max_weight is None else np.ones(self.own, np.int64)
        table = Table(names, self.matrix(self.own), weights)
        rows = np.arange(self.own, dtype=np.int32)

        def work() -> object:
            for _ in range(2):  # before a round begins, and when a client is asked
                given = tables.checked(as_table(table, self.params.dim), names)
            mine = Table.trusted(names, np.array(given.matrix), given.weights)
            return tables.fingerprint(mine, rows, 1), tables.encoded(mine, names)

        return work

    def upload(self) -> Work:
        """A client computes a chunk of its upload."""
        values, keys, n = np.zeros((self.own, self.params.columns), np.int64), self.keys(), self.numbers
        order = np.arange(self.own)[::-1]

        def work() -> object:
            shared = self.secrets.of(0, self.slots, ())
            y = rows_under_keys(n.ring, keys, 1, self.params.columns)
            streams.add_scaled(n.ring, y, values[order], n.C)
            rows = means.contribution(n.ring, y, self.places, shared)
            if n.spread:
                z = n.ring.zeros(self.slots, self.params.columns)
                deviation = n.spread_of(honest(self.params, self.params.clients))
                drawn = discrete.gaussian(KeyStream(KEY).bytes, z[0].size, deviation)
                streams.add_scaled(n.ring, z, drawn.reshape(z.shape[1:]), n.C)
                means.add_everywhere(n.ring, rows, z, shared)
            if shared.least is not None:
                least = means.least_columns(n.ring, self.places, shared.least, designated=True)
                rows = np.concatenate([rows, least], axis=2)
            return n.ring.to_bytes(rows)

        return work

    def masked(self, keys: int) -> Callable[[], Work]:
        """So many key streams are added to a chunk."""

        def prepare() -> Work:
            rows, seeds = self.elements(self.slots, self.width), dict.fromkeys(range(1, keys + 1), KEY)
            return lambda: masks.add_masks(self.ring, rows, keys // 2, seeds, 0)

        return prepare

    def noise(self) -> Work:
        """A noise client computes its columns."""
        n, noise = self.numbers, self.numbers.noise_of(self.noisy)

        def work() -> object:
            e = n.ring.zeros(self.slots, self.params.columns)
            streams.add_noise(n.ring, e, KEY, 0, noise)
            pads = self.secrets.pads(0, 0, self.slots)
            return n.ring.to_bytes(means.noise_columns(n.ring, e, self.secrets.alpha(), pads))

        return work

    def drawn(self) -> Work:
        """The server draws the noise of one noise client."""
        e, noise = self.ring.zeros(self.slots, self.params.columns), self.numbers.noise_of(self.noisy)
        return lambda: streams.add_noise(self.ring, e, KEY, 0, noise)

    def add(self) -> Work:
        """The server adds a chunk of one upload. With drop-outs it is checked when it comes and when it is added."""
        total = self.elements(self.slots, self.width)
        payload = bytes(self.ring.to_bytes(total))

        def work() -> object:
            if self.params.dropouts:
                self.ring.from_bytes(payload, self.slots, self.width)
            return self.ring.add_into(total, self.ring.from_bytes(payload, self.slots, self.width))

        return work

    def divide(self) -> Work:
        """The server divides the sums of a chunk."""
        total = streams.stream(self.ring, KEY, 0, self.slots, self.width, nonzero=True)
        columns = self.elements(self.slots, self.numbers.checks)

        def work() -> object:
            e = self.ring.zeros(self.slots, self.params.columns)
            plain = self.params.columns + self.numbers.checks + 2
            least = total[:, :, plain:] if self.params.min_owners > 1 else None
            rows, slots = means.divide(self.ring, total[:, :, :plain], e, columns, least)
            return self.ring.to_bytes(rows), slots.data

        return work

    def read(self) -> Work:
        """A client checks a chunk of means, and reads its own."""
        n, dim, noisy = self.numbers, self.params.columns, range(self.noisy)
        payload = bytes(n.ring.to_bytes(self.elements(self.slots, dim + n.checks)))
        keys, empty, order = self.keys(), np.zeros(self.slots, np.uint8), np.arange(self.own)[::-1]
        found = np.zeros((self.own, dim))

        def work() -> object:
            rows = n.ring.from_bytes(payload, self.slots, dim + n.checks)
            shared = self.secrets.of(0, self.slots, noisy)
            right = means.right(n.ring, rows, empty, shared, self.params.clients)
            x = np.ascontiguousarray(rows[:, self.places, :dim])
            n.ring.subtract_into(x, rows_under_keys(n.ring, keys, 1, dim))
            each = n.read(x, self.noisy, self.noisy)
            found[order] = each
            return right, np.maximum(each.max(axis=1), -each.min(axis=1))

        return work


def chores(form: Keyed, params: Params, entities: int) -> dict[str, Chore]:
    """All of them."""
    return _round(form, params, entities) | _names(form, params) | _union(params, entities) | _openings(form, params)


def _round(form: Keyed, params: Params, entities: int) -> dict[str, Chore]:
    desk = Desk(form, params, entities)
    N, W, D, degree = params.clients, desk.noisy, params.dropouts, form.degree(params)
    chunks, tables = entities / desk.slots, min(entities, params.max_entities or 0) / desk.own
    n, own = desk.numbers, f"{desk.own} own"
    noise = f"noise of {n.s} and {len(n.noise.digits)} digits"

    def each(client: float = 0.0, server: float = 0.0) -> dict[tuple[str, str], float]:
        return {("round", "client"): client * chunks, ("round", "server"): server * chunks}

    streams = min(N - 1, degree) + bool(D)
    found = {
        desk.label("contribute", own, n.s): Chore(desk.contribute, {("round", "client"): tables}),
        desk.label("upload", own): Chore(desk.upload, each(1)),
        desk.label("masks", streams): Chore(desk.masked(streams), each(1)),
        desk.label("noise", noise): Chore(desk.noise, each(W / N)),
        desk.label("drawn", noise): Chore(desk.drawn, each(server=W)),
        desk.label("add", bool(D)): Chore(desk.add, each(server=N)),
        desk.label("divide"): Chore(desk.divide, each(server=1)),
        desk.label("read", own, W): Chore(desk.read, each(1)),
    }
    if D:
        found[desk.label("unmask", N)] = Chore(desk.masked(N), each(server=1))
    return found


# --------------------------------------------------------------------------------------------------------------- names


def _names(form: Keyed, params: Params) -> dict[str, Chore]:
    """The PRF: every client has a list blinded and read, and T+1 of them answer all lists."""
    T = params.T
    lists = form.list_size(params, 1) / NAMES

    def client(times: float) -> dict[tuple[str, str], float]:
        return {("setup", "client"): times * lists}

    return {
        "blind": Chore(_blind, client(1)),
        "evaluate": Chore(_evaluate, client(T + 1)),  # N lists, answered by T+1 of N clients
        f"unblind, {T}": Chore(lambda: _unblind(T), client(1)),
    }


INPUTS: Final = tuple(b"entity %d" % i for i in range(NAMES))


def _blind() -> Work:
    return lambda: oprf.list_hash(oprf.blind(INPUTS, NAMES, KEY).points)


def _evaluate() -> Work:
    points = oprf.blind(INPUTS, NAMES, KEY).points
    share = oprf.share_for(oprf.polynomial(1, KeyStream(KEY)), 0)

    def work() -> object:
        assert valid(points).all()
        return {bytes(point): 0 for point in points}, oprf.evaluate(points, share, (0, 1), 0)

    return work


@lru_cache(maxsize=1)
def _answered(T: int) -> tuple[Any, ...]:
    """A list, the commitments to the key, and the answers of T+1 holders."""
    dealt, holders = oprf.polynomial(T, KeyStream(KEY)), range(T + 1)
    blinding = oprf.blind(INPUTS, NAMES, KEY)
    answers = {j: oprf.evaluate(blinding.points, oprf.share_for(dealt, j), holders, j) for j in holders}
    return blinding, answers, oprf.commit(dealt)


def _unblind(T: int) -> Work:
    blinding, answers, joint = _answered(T)
    return lambda: oprf.finish(blinding, answers, joint)


def _union(params: Params, entities: int) -> dict[str, Chore]:
    """The lookup table: every client fills and masks one, the server adds them and takes the sum apart."""
    N, own = params.clients, min(entities, params.max_entities or 0)
    some = max(1, min(TAGS, entities))
    cells = union.Geometry.of(entities, 0, KEY).cells / union.Geometry.of(some, 0, KEY).cells
    mine, every = ("setup", "client"), ("setup", "server")
    return {
        f"tags, {some}": Chore(lambda: _tags(some), {mine: own / some}),
        f"masks of a table, {some} and {N - 1}": Chore(lambda: _table_masks(some, N - 1), {mine: cells}),
        f"sum of tables, {some}": Chore(lambda: _table_sum(some), {every: N * cells}),
        f"peel, {some}": Chore(lambda: _peel(some), {every: cells}),
    }


def _filled(some: int) -> tuple[NDArray[np.uint64], union.Geometry, Residues]:
    geometry = union.Geometry.of(some, 0, KEY)
    tags = np.unique(union.tags_of([*range(some)], KEY))
    return tags, geometry, union.fill(tags, geometry, KeyStream(KEY))


def _tags(some: int) -> Work:
    """A client fills its table, and finds its slots in the union."""
    keys = [hashlib.sha512(b"%d" % i).digest() for i in range(some)]
    geometry = union.Geometry.of(some, 0, KEY)

    def work() -> object:
        own = union.tags_of_keys(keys, KEY)
        table = union.fill(np.unique(own), geometry, KeyStream(KEY))
        own = union.tags_of_keys(keys, KEY)
        slots = np.searchsorted(np.sort(own), own)
        entity = (hashlib.blake2b(each, digest_size=32, key=KEY).digest() for each in keys)
        rows = b"".join(hashlib.blake2b(each, digest_size=32, key=KEY).digest() for each in entity)
        return table, rows, np.argsort(slots, kind="stable")

    return work


def _table_masks(some: int, peers: int) -> Work:
    table, seeds = _filled(some)[2], dict.fromkeys(range(1, peers + 1), KEY)

    def work() -> object:
        masks.add_masks(RING61, table, 0, seeds, 0)
        return RING61.to_bytes(table)

    return work


def _table_sum(some: int) -> Work:
    table = _filled(some)[2]
    data, rows = bytes(RING61.to_bytes(table)), slice(0, table.shape[1])
    return lambda: RING61.add_rows(table, rows, RING61.from_bytes(data, *table.shape[1:]))


def _peel(some: int) -> Work:
    _, geometry, table = _filled(some)
    return lambda: union.peel(table, geometry)


# ------------------------------------------------------------------------------------------------------------ openings


def _openings(form: Keyed, params: Params) -> dict[str, Chore]:
    """With drop-outs: mask keys made and shared ahead, votes, and what the server recovers from shares."""
    if not params.dropouts:
        return {}
    N, t = params.clients, form.threshold(params)
    mine, client, server = ("setup", "client"), ("round", "client"), ("round", "server")
    return {
        f"shares of mask keys, {t} of {N}": Chore(lambda: _shared(t, N), {mine: form.batch}),
        "key of a pair": Chore(_paired, {client: form.degree(params)}),
        "vote": Chore(_voted, {client: t, server: N}),
        f"recover, {t}": Chore(lambda: _recovered(t), {server: N}),
    }


def _shared(threshold: int, clients: int) -> Work:
    """One round of a batch: two secrets shared, published, and what others share checked."""
    stream, everyone = KeyStream(KEY), range(clients)

    def work() -> object:
        drawn = masks.scalars(stream, 2)
        given = [masks.shares(secret, threshold, everyone, stream) for secret in drawn]
        for _ in range(2):  # when it is sent, and when all have come
            public = key_of(drawn[0]).public_key().public_bytes_raw() + hash_of(drawn[1])
        data = KEY + KEY
        for _ in everyone:
            of_small_order(public_of(public, 0)[0])
            any(int.from_bytes(data[i : i + 32], "little") < 0 for i in range(0, len(data), 32))
        return given

    return work


def _paired() -> Work:
    key = key_of(1 << 200)
    public = key.public_key().public_bytes_raw()
    return lambda: masks.pair_seed(pair_of(key, public, 1, KEY), KEY, 1)


def _voted() -> Work:
    identity, said = Identity(KEY), bytes(200)
    vote = identity.sign(said)
    return lambda: voted(identity.public, vote, said)


def _recovered(threshold: int) -> Work:
    some, given = range(threshold), dict.fromkeys(range(threshold), 1 << 200)
    return lambda: hash_of(masks.recovered(given, masks.weights_at_zero(some)))
