"""Known answers of the keyed form: its key streams, its PRF, a whole transcript. `make.py` writes them.

The keyed faults, one each, stand in `keyed_faults.py`. Everything is a function of what stands in the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any, Final, TypeAlias, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secea.arithmetic import grid, portable, streams
from secea.arithmetic.field import PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from secea.arithmetic.ristretto import scalar_bytes
from secea.arithmetic.streams import Noise
from secea.engines.exchange import Exchange
from secea.errors import SERVER
from secea.forms.keyed import Keyed, Kind
from secea.params import Params
from secea.party.phases import Common, Route
from secea.steps import masks, oprf, union
from secea.table import Name, name_bytes
from secea.testing import Hop, Parties, Recorder, insecure_seeded
from secea.wire.keys import Opener, expand
from secea.wire.messages import ALL
from secea.wire.randomness import Entropy, KeyStream

Json: TypeAlias = dict[str, Any]
RING30: Final = Ring(PRIMES30[:3])
SEED: Final = 9497
SMALL_BYTES: Final = 256
"""Payloads up to this size stand in the transcript."""

Table: TypeAlias = dict[Name, list[float]]
ROUNDS: Final[tuple[list[Table], ...]] = (
    [
        {"a": [1.5, -2.25], "b": [0.1, 3.0], 7: [64.0, -64.0]},
        {"b": [0.3, -0.0], "\u00e9": [1 / 3, 2.0**-30], 7: [-63.75, 6.0]},
        {},
    ],
    [
        {"a": [1.5, -2.5], "b": [0.15, 1.0], 7: [0.0, -0.0]},
        {"b": [0.2, 2.0], "\u00e9": [0.25, 5e-324], 7: [12.125, 6.0]},
        {},
    ],
)
"""What the three clients of the transcript hold in each round; the third has no entities."""


def fixed(what: str, count: int = 32) -> bytes:
    """Fixed bytes that look random: the randomness that is passed in."""
    return hashlib.shake_256(b"keyed " + what.encode()).digest(count)


def integers(x: Residues) -> list[Any]:
    """Elements as nested lists of integers."""
    listed: list[Any] = x.tolist()
    return listed


# ---------------------------------------------------------------------------------------------------------- the parties


class InOrder(Exchange):
    """Clients one after the other, so that a transcript has one order."""

    def _map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [work(item) for item in items]


def federation(tables: Sequence[Table], form: Keyed | None = None, **params: Any) -> tuple[Parties, Recorder]:
    """Parties whose randomness follows from SEED, and a record of what passes between them."""
    recorder = Recorder(Kind)
    parties = Parties.of(tables, form or Keyed(), collusion=1, dim=2, entropy=insecure_seeded(SEED), **params)
    parties.exchange = InOrder(parties.server, parties.clients, tap=recorder)
    return parties, recorder


@cache
def recorded() -> tuple[Parties, tuple[Hop, ...], tuple[list[list[list[float]]], ...]]:
    """The federation of the transcript after its last round, all its messages, and each round's means."""
    parties, recorder = federation(ROUNDS[0])
    means = list(played(parties))
    hops = tuple(recorder.hops)
    ended, recorder = federation(ROUNDS[0])  # once more: at the end clients forget their union
    list(played(ended))
    end(ended)
    return parties, (*hops, *recorder.hops[len(hops) :]), tuple(means)


def played(parties: Parties) -> Iterator[list[list[list[float]]]]:
    """Set-up and rounds: what each round gives."""
    parties.setup()
    for tables in ROUNDS:
        found = parties.round(tables)
        yield [found[n].tolist() for n in sorted(found)]


def end(parties: Parties) -> None:
    """The server says that the run is over."""
    parties.server.begin("end", parties.server.at.members)
    parties.exchange.deliver()


def link_of(parties: Parties, n: int) -> Any:
    """The end of a party's connections."""
    return parties.server.link if n == SERVER else parties.clients[n].link


def opened(parties: Parties, hops: Sequence[Hop], hop: Hop) -> bytes:
    """The payload of a message, with the keys of whoever may read it."""
    header = hop.header
    if header.kind.name == Common.HELLO:
        return hop.message[64:]
    if header.receiver == ALL and header.sender != SERVER:
        return hop.message[64:-64]
    if header.receiver == ALL:
        return bytes(Opener(broadcast_key(parties, hops, hop), header).open(header, hop.message))
    key = link_of(parties, header.sender).channels[header.receiver].derive("seal", header.label())
    return bytes(Opener(key, header).open(header, hop.message))


def broadcast_key(parties: Parties, hops: Sequence[Hop], hop: Hop) -> bytes:
    """The key that came before a broadcast to the same client."""
    before = [each for each in hops[: index_of(hops, hop)] if each.receiver == hop.receiver]
    return opened(parties, hops, next(each for each in reversed(before) if each.header.kind.name == Common.KEY))[:32]


def index_of(hops: Sequence[Hop], hop: Hop) -> int:
    """The place of this very message."""
    return next(i for i, each in enumerate(hops) if each is hop)


# ------------------------------------------------------------------------------------------------------- keyed-streams


CHOICES: Final = ((2, 1, 24), (5, 4, 24), (8, 7, 24), (9, 2, 23), (12, 3, 24), (13, 1, 25), (41, 20, 24))
"""Clients, collusion and precision: elements of seven bytes, of eight, and of several primes."""


def key_streams() -> Json:
    """Streams, noise, fill, tags and every key of a union and a round."""
    return {
        "block": [
            {"key": key, "lane": lane, "prime": prime, "number": number,
             "block": portable.blocks_of(key, lane, prime, number, 1)}
            for key, lane, prime, number in (
                (bytes(32), 0, 0, 0), (fixed("block"), 1, 2, 3), (fixed("block"), 2**32 - 1, 15, 2**40 + 5),
            )
        ],
        "stream": [
            drawn("one prime", RING61, 0, 7),
            drawn("one prime, another chunk", RING61, 1, 7),
            drawn("three light primes", RING30, 5, 9),
            drawn("one word in two is drawn again, in place", insecure_ring(2**29 + 11), 3, 24),
            drawn("two tiny fields, without 0: many retries", insecure_ring(5, 7), 2**32 - 1, 40, nonzero=True),
            drawn("without 0", RING61, 9, 3, nonzero=True),
            drawn("the prime of seven bytes", RING56, 0, 7),
            drawn("the prime of seven bytes, without 0", RING56, 2**32 - 1, 5, nonzero=True),
        ],
        "masks": [added(ring, lane) for ring, lane in ((RING61, 0), (RING30, 7), (RING56, 1))],
        "rows": [rows(ring, q) for ring, q in ((RING61, 1), (RING30, 1000), (RING56, 70_000))],
        "noise": [
            noise("one digit", RING61, 0, Noise(6, (6,), 7301444403)),
            noise("two digits, the same integer modulo three primes", RING30, 1, Noise(6, (51480, 7), 14602888806)),
            noise("above 64 bits", RING30, 2, Noise(10, (60060, 6783, 30015), 2**61 + 12345)),
            noise("an odd number of words", RING61, 3, Noise(1, (60,), 1)),
            noise("one digit, modulo the prime of seven bytes", RING56, 4, Noise(6, (840,), 3565158)),
            noise("above 64 bits, modulo the prime of seven bytes", RING56, 5, Noise(10, (60060, 6783), 2**61 + 12345)),
        ],
        "encode": [
            encoded("float64, fill alone", 51, 6, 256, [52, 52], [0.0, 0.0], 1.0),
            encoded("float32: its own grid", 51, 6, 256, [23, 23], [0.0, 0.0], 1.0),
            encoded("bf16, at most the coarsest grid", 40, 6, 256, [7, 7], [0.0, 0.0], 0.25),
            encoded("a common step of 2^-8", 40, 10, 2**11, [52, 52], [2.0**-8] * 2, 1.0),
            encoded("another f, the same draws", 44, 10, 2**11, [52, 52], [2.0**-8] * 2, 1.0),
            encoded("a step that is no power of two", 40, 6, 256, [23, 23], [1e-3, 1e-3], 1.0),
            encoded("each row has its own grid", 40, 6, 256, [52, 9], [0.0, 0.0109], 1.0),
        ],
        "neighbours": [
            {"members": members, "degree": degree, "of": [masks.neighbours(members, degree, n) for n in members]}
            for members, degree in (((0, 1), 2), ((0, 1, 2, 4, 5, 8), 3), (tuple(range(7)), 3), (tuple(range(9)), 4))
        ],
        "numbers": [numbers(*choice) for choice in CHOICES],
        "tags": {
            "prf": (prf := [fixed(f"F {i}", 64) for i in range(5)]), "key": fixed("tag key"),
            "tags": integers(union.tags_of_keys(prf, fixed("tag key"))),
        },
        "entities": {
            "names": HASHED, "key": fixed("entities"), "hashes": integers(grid.entities(HASHED, fixed("entities"))),
        },
        "union": union_keys(),
    }  # fmt: skip


def drawn(name: str, ring: Ring, lane: int, *shape: int, nonzero: bool = False) -> Json:
    """A stream of elements."""
    key = fixed(name)
    elements = streams.stream(ring, key, lane, *shape, nonzero=nonzero)
    return {
        "name": name, "key": key, "lane": lane, "primes": ring.primes, "nonzero": nonzero,
        "elements": integers(elements),
    }  # fmt: skip


def added(ring: Ring, lane: int) -> Json:
    """Masks with four peers, on top of something."""
    keys, signs = [fixed(f"mask {v}") for v in range(4)], [1, -1, -1, 1]
    start = streams.stream(ring, fixed("start"), 0, 2, 3)
    total = start.copy()
    streams.add_streams(ring, total, keys, signs, lane)
    return {
        "primes": ring.primes, "lane": lane, "keys": keys, "signs": signs,
        "start": integers(start), "total": integers(total),
    }  # fmt: skip


def rows(ring: Ring, q: int) -> Json:
    """G: a row for each key."""
    keys = [fixed(f"row {i}") for i in range(3)]
    packed = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 32)
    return {
        "primes": ring.primes, "keys": keys, "q": q, "elements": integers(streams.row_streams(ring, packed, q, 5)),
    }  # fmt: skip


def noise(name: str, ring: Ring, lane: int, of: Noise) -> Json:
    """The noise of a few elements."""
    total = ring.zeros(2, 3)
    streams.add_noise(ring, total, fixed(name), lane, of)
    return {
        "name": name, "seed": fixed(name), "lane": lane, "primes": ring.primes, "s": of.s, "digits": of.digits,
        "wide": of.wide, "elements": integers(total),
    }  # fmt: skip


HASHED: Final[tuple[Name, ...]] = ("a", "\u00e9", 7, -1, "7")
VALUES: Final = (0.0, -0.0, 1.0, -1.0, 0.1, -1 / 3, 2.5 * 2**-18, 2.0**-30, 5e-324, 63.99999999, -64.0, 1.25)


def encoded(name: str, f: int, s: int, w: int, used: list[int], step: list[float], cap: float) -> Json:
    """Fixed point with its fill; the same values and keys in every entry."""
    matrix = np.array([VALUES, [x / 3 for x in VALUES]])
    keys = [fixed(f"fill {b}") for b in range(portable.fill_keys(s) - 1)] + [fixed("fill of the grid")]
    hashes = np.array([2**64 - 3, 12345], np.uint64)
    found = streams.encode(matrix, hashes, keys, f, s, w, np.array(used, np.int32), np.array(step), cap)
    return {
        "name": name, "f": f, "s": s, "w": w, "used": used, "step": step, "cap": cap, "keys": keys,
        "entities": hashes.tolist(), "floats": matrix.tolist(), "integers": found.tolist(),
    }  # fmt: skip


def numbers(clients: int, collusion: int, precision: int) -> Json:
    """What is chosen for some parameters."""
    params = Params(clients, dim=16, collusion=collusion, precision=precision, max_entities=100, max_union=200)
    n, W = Keyed().numbers(params), Keyed().noise_count(params, clients)
    return {
        "clients": clients, "collusion": collusion, "precision": precision, "dim": 16, "max_entities": 100,
        "max_union": 200,
        "primes": n.ring.primes, "C": n.C, "f": n.f, "s": n.s, "w": n.w, "digits": n.noise.digits,
        "wide": n.noise.wide, "sigma": n.sigma, "checks": n.checks,
        "noise_clients": W, "wides": [n.noise_of(noisy).wide for noisy in range(1, W + 1)],
    }  # fmt: skip


def union_keys() -> Json:
    """Every key that the clients of the transcript derive, as the first of them holds it."""
    parties = recorded()[0]
    parts: dict[int, Any] = {n: client.part for n, client in parties.clients.items()}
    me, at, tags = parts[0], parties.clients[0].at, cast(Any, parties.server.part).tags
    q, secrets = at.round, me.secrets(at)
    own = [me.names[i] for i in me.union.order]
    return {
        "session": parties.session.hash, "context": me.union.context,
        "client": [
            {"client": n, "part": part.union.part, "mask_key": part.union.mask_key,
             "mask_public": X25519PrivateKey.from_private_bytes(part.union.mask_key).public_key().public_bytes_raw(),
             "identity": parties.identities[n].secret, "fill_keys": part.tables.fill}
            for n, part in parts.items()
        ],
        "secret": me.union.secret, "tag_key": expand(me.union.secret, "tags", me.union.context),
        "tags": integers(tags), "L": me.union.L,
        "pairs": [{"peer": v, "pair": pair, "q": q, "seed": masks.pair_seed(pair, me.union.L, q)}
                  for v, pair in me.union.pairs.items()],
        "ready": [{"client": n, "round": part.union.said[0], "element": part.union.said[1]}
                  for n, part in parts.items()],
        "own": [
            {"name": str(name), "prf": (prf := me.naming.names.prf[name]), "kappa": me._kappa(prf), "slot": int(slot),
             "tag": int(tags[slot]), "row_key": key.tobytes(), "entity": int(entity),
             "input": oprf.input_of(name_bytes(name))}
            for name, slot, key, entity in zip(
                own, me.union.slots, me.union.keys, grid.entities(own, me.tables.fill[-1]), strict=True
            )
        ],
        "round_keys": [
            {"purpose": name, "of": of, "q": q, "key": secrets.key(name, *of)}
            for name, of in (("rho", ()), ("alpha", (0,)), ("J", (0,)), ("H", (1, 0)), ("theta", ()), ("beta", ()))
        ],
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- keyed-prf

LONG: Final = (b"long ", 20_000)
"""A name of 100,000 bytes: a pattern, so many times."""
NAMES: Final[tuple[tuple[bytes, int], ...]] = (
    (b"sa", 1), (b"i7", 1), (b"s", 1), (b"", 1), (b"x", 65_535), (b"x", 65_536), LONG, (b"secea long name\n", 1),
)  # fmt: skip

RFC9497: Final[Json] = {
    "from": "RFC 9497, appendix A.1.1: ristretto255-SHA512, mode OPRF",
    "secret_key": "5ebcea5ee37023ccb9fc2d2019f9d7737be85591ae8652ffa9ef0f4d37063b0e",
    "blind": "64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706",
    "evaluation": [
        {
            "input": "00",
            "blinded": "609a0ae68c15a3cf6903766461307e5c8bb2f95e7e6550e1ffa2dc99e412803c",
            "evaluated": "7ec6578ae5120958eb2db1745758ff379e77cb64fe77b0b2d8cc917ea0869c7e",
            "output": "527759c3d9366f277d8c6020418d96bb393ba2afb20ff90df23fb7708264e2f3"
            "ab9135e3bd69955851de4b1f9fe8a0973396719b7912ba9ee8aa7d0b5e24bcf6",
        },
        {
            "input": "5a" * 17,
            "blinded": "da27ef466870f5f15296299850aa088629945a17d1f5b7f5ff043f76b3c06418",
            "evaluated": "b4cbf5a4f1eeda5a63ce7b77c7d23f461db3fcab0dd28e4e17cecb5c90d02c25",
            "output": "f4a74c9c592497375e796aa837e907b1a045d34306a749db9f34221f7e750cb4"
            "f2a6413a6bf6fa5e19ba6348eb673934a722a7ede2e7621306d18951e7cf2c73",
        },
    ],
}


def prf() -> Json:
    """A key dealt by four clients, T = 2; lists, answers, and F whoever answers."""
    clients, T, session = 4, 2, fixed("session")
    seeds = [fixed(f"dealer {n}") for n in range(clients)]
    polynomials = [oprf.polynomial(T, KeyStream(expand(seed, "polynomial"))) for seed in seeds]
    commitments = [oprf.commit(each) for each in polynomials]
    joint = oprf.joint(commitments)
    shares = [oprf.key_share([oprf.share_for(each, j) for each in polynomials]) for j in range(clients)]
    return {
        "rfc9497": RFC9497, "session": session, "clients": clients, "collusion": T,
        "dealer": [
            {"dealer": n, "seed": seeds[n], "polynomial": list(map(scalar_bytes, each)),
             "commitments": commitments[n], "commitments_hash": oprf.commitments_hash(commitments[n]),
             "proof": oprf.prove(each, commitments[n], session, n, KeyStream(expand(seeds[n], "proof"))),
             "shares": [oprf.share_for(each, j) for j in range(clients)]}
            for n, each in enumerate(polynomials)
        ],
        "joint": joint, "public_key": oprf.public_key(joint), "key_shares": shares,
        "public_shares": [oprf.public_share(joint, j) for j in range(clients)],
        "list": [
            listed("names of all lengths", NAMES, len(NAMES) + 3, (0, 1, 2), shares, joint),
            listed("the same, other holders", NAMES[:3], 3, (1, 2, 3), shares, joint),
            listed("no names", (), 2, (0, 2, 3), shares, joint),
        ],
        "signatures": [
            {"clients": N, "collusion": T_, "needed": oprf.signatures_needed(N, T_)}
            for N, T_ in ((2, 1), (3, 1), (3, 2), (5, 2), (10, 2), (10, 9))
        ],
    }  # fmt: skip


def listed(
    what: str,
    names: Sequence[tuple[bytes, int]],
    size: int,
    holders: tuple[int, ...],
    shares: Sequence[bytes],
    joint: bytes,
) -> Json:
    """A client's list, the answers of some holders, and F."""
    inputs = [oprf.input_of(pattern * times) for pattern, times in names]
    blinding = oprf.blind(inputs, size, fixed(what))
    answers = {j: oprf.evaluate(blinding.points, shares[j], holders, j) for j in holders}
    found = oprf.finish(blinding, answers, joint)
    return {
        "name": what, "size": size, "seed": fixed(what), "points": [row.tobytes() for row in blinding.points],
        "list_hash": oprf.list_hash(blinding.points), "places": blinding._places.tolist(),
        "answer": [
            {"holder": j, "weight": scalar_bytes(oprf.holder_weight(holders, j)),
             "points": [row.tobytes() for row in each]}
            for j, each in answers.items()
        ],
        "output": [
            {"pattern": pattern, "times": times, "input_sha256": hashlib.sha256(x).digest(), "F": F}
            for (pattern, times), x, F in zip(names, inputs, found, strict=True)
        ],
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------- keyed-transcript


def transcript() -> Json:
    """Three clients, a set-up, two rounds and the end; a round that one drops out of; and one round of thirteen."""
    parties, hops, means = recorded()
    tags: Any = parties.server.part
    n = Keyed().numbers(parties.session.params)
    return {
        "seed": SEED, "params": parties.session.params.canonical(), "form": Keyed().canonical(parties.session.params),
        "session_hash": parties.session.hash, "fingerprint": parties.session.fingerprint,
        "round": [
            {"round": number, "client": n, "name": name, "embedding": row, "mean": mean}
            for number, (tables, found) in enumerate(zip(ROUNDS, means, strict=True), 1)
            for n, table in enumerate(tables)
            for (name, row), mean in zip(table.items(), found[n], strict=True)
        ],
        "message": [message_of(parties, hops, hop) for hop in hops],
        "tags": integers(tags.tags),
        "C": n.C, "f": n.f, "noise": {"s": n.s, "digits": n.noise.digits, "wide": n.noise.wide},
        "dropouts": dropouts(),
        "many": many(),
    }  # fmt: skip


def message_of(parties: Parties, hops: Sequence[Hop], hop: Hop) -> Json:
    """One message on one leg; its payload where that is small and the leg is its last."""
    size = {"size": len(hop.message), "sha256": hashlib.sha256(hop.message).digest()}
    payload = opened(parties, hops, hop)
    relayed = hop.receiver == SERVER and Keyed.routes.get(hop.header.kind) in (Route.EACH, Route.ALL)
    shown = {"payload": payload} if len(payload) <= SMALL_BYTES and not relayed else {}
    return {"carrier": hop.sender, "taken_by": hop.receiver, **asdict(hop.header), **size, **shown}


FOUR: Final[list[Table]] = [
    {"a": [1.5, -2.25], "b": [0.125, 3.0]}, {"a": [0.5, 0.25], "c": [-8.0, 1 / 3]}, {"b": [0.3, -0.0]},
    {"a": [64.0, -64.0], "c": [1.0, 2.0], "d": [5.0, 6.0]},
]  # fmt: skip
VANISHED: Final = 3
DROPOUT_KINDS: Final = (
    Kind.BEGIN, Kind.BATCH, Kind.SECRETS, Kind.READY, Kind.UPLOAD, Kind.VOTE, Kind.VOTES, Kind.OPENING, Kind.MEANS,
)  # fmt: skip


@cache
def recorded_dropout() -> tuple[Parties, tuple[Hop, ...], dict[int, list[bytes]]]:
    """Four clients after a round in which one vanished, all their messages, and what mask keys were made of."""
    parties, recorder = federation(FOUR, Keyed(batch=2), dropouts=1)
    drawn: dict[int, list[bytes]] = {n: [] for n in parties.clients}
    parts: dict[int, Any] = {n: client.part for n, client in parties.clients.items()}
    for n, part in parts.items():
        part.masking._entropy = keeping(part.masking._entropy, drawn[n])
    parties.setup()
    parties.contribute(FOUR)
    parties.exchange.losses = {VANISHED: "upload"}
    parties.exchange.run("upload", range(4))
    return parties, tuple(recorder.hops), drawn


def dropouts() -> Json:
    """Four clients, of whom one vanishes in the middle of its upload: batches, votes, openings, and the means."""
    parties, hops, drawn = recorded_dropout()
    parts: dict[int, Any] = {n: client.part for n, client in parties.clients.items()}
    me, params = parts[0], parties.session.params
    n = me.numbers
    return {
        "params": params.canonical(), "form": parties.session.form.canonical(params),
        "session_hash": parties.session.hash, "q": 1, "lost": [VANISHED],
        "round": [{"client": v, "name": name, "embedding": row} for v, table in enumerate(FOUR)
                  for name, row in table.items()],
        "client": [
            {"client": v, "scalars_from": drawn[v][0], "polynomials_from": drawn[v][1],
             "a": [scalar_bytes(a) for a in part.masking.batch.keys],
             "b": [scalar_bytes(b) for b in part.masking.batch.seeds]}
            for v, part in parts.items()
        ],
        "message": [message_of(parties, hops, hop) for hop in hops if hop.header.kind in DROPOUT_KINDS],
        "secret": me.union.secret, "L": me.union.L, "context": me.union.context,
        "tags": integers(cast(Any, parties.server.part).tags),
        "C": n.C, "f": n.f,
        "noise": {"s": n.s, "digits": n.noise.digits, "wide": n.noise.wide,
                  "clients": Keyed().noise_clients(params, replace(parties.server.at, members=tuple(range(4))))},
        "own": [
            {"client": v, "name": str(part.names[i]), "slot": int(slot), "row_key": key.tobytes(),
             "mean": parties.means(v, FOUR[v])[list(FOUR[v]).index(part.names[i])].tolist()}
            for v, part in parts.items() if v != VANISHED
            for i, slot, key in zip(part.union.order, part.union.slots, part.union.keys, strict=True)
        ],
    }  # fmt: skip


def keeping(entropy: Entropy, kept: list[bytes]) -> Entropy:
    """A source of bytes, and what it gave."""

    def draw(count: int) -> bytes:
        kept.append(entropy(count))
        return kept[-1]

    return draw


MANY: Final = 13


def many() -> Json:
    """One round of thirteen clients: two check columns and three primes."""
    tables: list[Table] = [{"a": [float(n), -1.0], "b" if n % 2 else "c": [0.5, 2.0**-n]} for n in range(MANY)]
    parties, recorder = federation(tables, precision=25)
    parties.setup()
    means = parties.round(tables)
    n = Keyed().numbers(parties.session.params)
    sent = {hop.header.kind: hop for hop in reversed(recorder.hops) if hop.receiver in (SERVER, 0)}
    client: Any = parties.clients[0].part
    return {
        "params": parties.session.params.canonical(), "primes": n.ring.primes, "C": n.C, "f": n.f,
        "embedding": [{"client": v, "table": [[name, row] for name, row in each.items()]}
                      for v, each in enumerate(tables)],
        "noise": {"s": n.s, "digits": n.noise.digits, "wide": n.noise.wide,
                  "clients": Keyed().noise_clients(parties.session.params, parties.clients[0].at)},
        "payload": [
            {"kind": kind, "sender": sent[kind].header.sender, "message_sha256": hashlib.sha256(sent[kind].message)
             .digest(), "payload": opened(parties, recorder.hops, sent[kind])}
            for kind in (Kind.UPLOAD, Kind.MEANS)
        ],
        "own": [{"name": str(client.names[i]), "slot": int(slot), "row_key": key.tobytes()}
                for i, slot, key in zip(client.union.order, client.union.slots, client.union.keys, strict=True)],
        "secret": client.union.secret, "L": client.union.L, "q": 1,
        "mean": means[0].tolist(),
    }  # fmt: skip
