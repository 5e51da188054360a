"""Known answers for every layer, as JSON: `python vectors/make.py` writes them, `--check` compares and exits 1.

Everything is a function of what stands in the files: randomness is passed in. Bytes are hex, floats are exact
(`float.hex`), integers are decimal. `vectors/README.md` says what each file holds.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from difflib import unified_diff
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from gmpy2 import mpz  # type: ignore[import-untyped]  # it ships no types

import keyed
import keyed_faults
import plans
import recorded
import scales
from negative import CASES, SENDER, THIRD
from plain import plain
from secea.arithmetic import fixedpoint
from secea.arithmetic.field import RING56, RING61, Residues, Ring, insecure_ring
from secea.arithmetic.lagrange import Code
from secea.arithmetic.paillier import Packing, PrivateKey
from secea.errors import SERVER
from secea.forms.paillier import Paillier
from secea.forms.paillier.buckets import Buckets, Full, bucket_count, place
from secea.forms.paillier.form import SHARE, Kind
from secea.forms.paillier.sharing import Dealer, seeded_clients
from secea.params import Params
from secea.party.phases import Begin
from secea.party.session import Session
from secea.steps import union
from secea.table import Name, name_bytes
from secea.wire.keys import Channel, Hello, Identity, Roster, SessionKey, digest, expand, shared_secret
from secea.wire.messages import ALL, NO_CONTEXT, Header
from secea.wire.randomness import KeyStream

HERE: Final = Path(__file__).parent
Json: TypeAlias = dict[str, Any]


def bytes_of(what: str, count: int) -> bytes:
    """Fixed bytes that look random: the randomness that is passed in."""
    return hashlib.shake_256(what.encode()).digest(count)


def integers(x: Residues) -> list[Any]:
    """Elements as nested lists of integers."""
    listed: list[Any] = x.tolist()
    return listed


# ---------------------------------------------------------------------------------------------------------- encodings

MOST, FULL = 2**32 - 1, b"\xff" * 16
HEADERS: Final = (
    Header(Kind.HELLO, 0, ALL, 0, 0, 0, 0, 0, 1, NO_CONTEXT, bytes_of("incarnation", 16)),
    Header(Kind.SHARE, 2, 7, 3, 1, 42, 1, 99, 5, bytes_of("context", 16), bytes_of("salt", 16), 4),
    Header(Kind.MEAN, SERVER, 1023, MOST, MOST - 1, MOST - 2, 2**16 - 1, MOST - 3, MOST - 4, FULL, FULL),
)  # fmt: skip
FLOATS: Final = (0.0, -0.0, 1.0, -1.0, 64.0, -64.0, 0.1, -1 / 3, 2.5 * 2**-18, 3.5 * 2**-18, 2.0**-30, 63.99999999)


def encodings() -> Json:
    """Headers, announcements, digests, names, field elements, the fixed point."""
    announcements = [
        Begin(0, tuple((n, bytes_of(f"salt {n}", 16)) for n in (0, 1, 4))),
        Begin(SHARE, ((0, NO_CONTEXT), (1, NO_CONTEXT), (258, NO_CONTEXT))),
    ]
    names: list[Name] = ["a", "\u00e9", "e\u0301", "1", 1, 0, -1, 2**64, "\U0001f600"]
    parts: list[list[bytes]] = [[], [b""], [b"", b""], [b"ab"], [b"a", b"b"], [bytes(300), b"end"]]
    return {
        "header": [asdict(h) | {"bytes": h.pack(), "label": h.label()} for h in HEADERS],
        "announcement": [
            {"step": a.phase, "members": [{"client": n, "salt": s} for n, s in a.members], "bytes": a.to_bytes()}
            for a in announcements
        ],
        "digest": [{"parts": p, "digest": digest(*p)} for p in parts],
        "name": [{"name": name, "bytes": name_bytes(name)} for name in names],
        "elements": [elements_of(ring) for ring in (RING61, keyed.RING30, RING56)],
        "fixed_point": [fixed_points(Params(3, dim=1)), fixed_points(Params(3, dim=1, max_abs=100.0, precision=20))],
    }


def elements_of(ring: Ring) -> Json:
    """Integers modulo each prime, and as bytes: fixed width, one prime after the other."""
    values = [0, 1, -1, 2**31, 2**32, 2**61 - 2, 2**61 - 1, -(2**64), ring.primes[-1]]
    x = ring.constant(values)
    return {"primes": ring.primes, "integers": values, "residues": integers(x), "bytes": bytes(ring.to_bytes(x))}


def fixed_points(params: Params) -> Json:
    """Section 2: round half to even."""
    f = params.fraction_bits
    return {
        "max_abs": params.max_abs, "precision": params.precision, "fraction_bits": f, "floats": list(FLOATS),
        "integers": fixedpoint.encode(np.array(FLOATS), f).tolist(),
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- keys


def keys() -> Json:
    """From identities to the bytes of a sealed message, a confirmation and a key stream."""
    numbers = (0, 1, SERVER)
    identities = {n: Identity(bytes_of(f"identity {n}", 32)) for n in (*numbers, 2)}
    roster = Roster(tuple(identities[n].public for n in range(3)), identities[SERVER].public, ("a", "b", "c"))
    params = Params(3, dim=4, max_entities=5, max_union=9)
    session = Session(params, roster, Paillier())
    secrets = {n: SessionKey(bytes_of(f"x25519 {n}", 32)) for n in numbers}
    hellos = {
        n: Hello.make(identities[n], n, session.hash, bytes_of(f"incarnation {n}", 16), secrets[n].public, b"")
        for n in numbers
    }
    parts = [(n, bytes_of(f"part {n}", 32)) for n in range(3)]
    return {
        "roster": {
            "names": roster.names, "clients": roster.clients, "server": roster.server,
            "canonical": roster.canonical(), "fingerprint": roster.fingerprint,
        },
        "session": {
            "params": session.params.canonical(), "retrieval": session.form.name, "queries": "buckets",
            "hash": session.hash,
        },
        "party": [
            {
                "number": n, "identity": identities[n].secret, "identity_public": identities[n].public,
                "x25519": secrets[n].secret, "x25519_public": secrets[n].public,
                "incarnation": hellos[n].incarnation, "hello": hellos[n].to_bytes(),
            }
            for n in numbers
        ],
        "channel": [channel(0, 1, secrets, hellos), channel(1, SERVER, secrets, hellos)],
        "shared_secret": {"parts": [part for _, part in parts], "secret": shared_secret(parts)},
        "expand": [
            {"secret": secret, "purpose": purpose, "label": label, "key": expand(secret, purpose, *label)}
            for secret, purpose, label in (
                (bytes_of("seed", 32), "share", [b"7"]),
                (shared_secret(parts), "rho", [bytes_of("context", 16), b"3", b"0 1 2"]),
                (bytes_of("seed", 32), "placement", list[bytes]()),
            )
        ],
        "stream": [
            {"key": key, "lane": lane, "bytes": KeyStream(key, lane).bytes(40)}
            for key, lane in ((bytes(32), 0), (bytes(32), 1), (bytes_of("stream", 32), 2**32 + 5))
        ],
    }  # fmt: skip


def channel(me: int, peer: int, secrets: dict[int, SessionKey], hellos: dict[int, Hello]) -> Json:
    """What two parties derive from their hellos."""
    ours = Channel.between(me, hellos[me], secrets[me], peer, hellos[peer])
    context, payload = bytes_of("context", 16), [b"first chunk", b"second"]
    header = Header(Kind.SHARE, me, peer, 1, 0, 3, 0, 17, 2, context, bytes_of("salt", 16))
    sealer = ours.sealer(header)
    return {
        "me": me, "peer": peer, "pair_key": ours._pair_key, "context": context,
        "confirmation": ours.confirmation(context, me),
        "mask": ours.stream("mask", context).bytes(32),
        "payloads": payload, "messages": [bytes(sealer.seal(i, chunk)) for i, chunk in enumerate(payload)],
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- pads


def pads() -> Json:
    """Field elements out of key streams, by rejection: the masks of a union, and draws without 0."""

    def drawn(name: str, ring: Ring, lane: int, *shape: int, nonzero: bool = False) -> Json:
        key = bytes_of(f"pad {name}", 32)
        stream = KeyStream(key, lane)
        x = (stream.nonzero if nonzero else stream.elements)(ring, *shape)
        return {
            "name": name, "key": key, "lane": lane, "primes": ring.primes, "shape": shape, "nonzero": nonzero,
            "elements": integers(x),
        }  # fmt: skip

    return {
        "stream": [
            drawn("a mask of the union", RING61, 0, 3, 3),
            drawn("the same, another chunk", RING61, 1, 3, 3),
            drawn("a field in which half of the words are dropped", insecure_ring(2**31 + 11), 0, 12),
            drawn("two small fields, without 0", insecure_ring(5, 7), 0, 12, nonzero=True),
        ]
    }


# ------------------------------------------------------------------------------------------------------------- shares


def shares() -> Json:
    """The Lagrange code: noise at the last betas, shares as seeds, products."""
    files = [
        shared(Params(3, dim=2, collusion=1)),
        shared(Params(5, dim=4, collusion=1)),
        shared(Params(7, dim=3, collusion=2, dropouts=1)),
    ]
    seeded = [
        {
            "clients": N, "collusion": T, "sender": sender, "kind": kind, "epoch": 1, "weights": 2, "round": turn,
            "seeded": seeded_clients(Params(N, dim=1, collusion=T), sender, kind + 1 + 2 + turn),
        }
        for N, T, sender, kind, turn in ((5, 1, 0, Kind.SHARE, 1), (5, 2, 3, Kind.SHARE, 2), (7, 3, 6, Kind.QUERY, 0))
    ]  # fmt: skip
    return {"code": files, "seeded_clients": seeded}


def shared(params: Params) -> Json:
    """Some data in shares, in both ways."""
    ring = RING61
    code, everyone = Code(params, ring), range(params.N)
    name = f"share {params.N} {params.T}"
    data = KeyStream(bytes_of(name, 32)).elements(ring, params.K, 2)
    noise = KeyStream(bytes_of(name + " noise", 32)).elements(ring, params.T, 2)
    seeds = {v: bytes_of(f"{name} seed {v}", 32) for v in range(1, 1 + params.T)}
    dealer = Dealer(code, tuple(everyone), seeds)
    squares = ring.multiply(*[code.encode(data, noise, everyone)] * 2)
    last = list(everyone)[-params.need :]
    return {
        "clients": params.N, "collusion": params.T, "dropouts": params.dropouts, "K": params.K, "need": params.need,
        "beta": params.beta, "alpha": params.alpha, "primes": ring.primes,
        "data": integers(data), "noise": integers(noise), "shares": integers(code.encode(data, noise, everyone)),
        "seeds": [{"client": v, "seed": seed} for v, seed in seeds.items()],
        "receivers": dealer.receivers, "shares_beside_seeds": integers(dealer.deal(0, data)),
        "squares_from": last,
        "squares": integers(code.decode(last, np.ascontiguousarray(squares[:, last]), degree=params.need - 1)),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- unions


def unions() -> Json:
    """Tags, the table of each client, what the server gets, and what it finds."""
    key, seed, max_union, attempt = bytes_of("tags", 32), bytes_of("union", 16), 6, 1
    geometry = union.Geometry.of(max_union, attempt, seed)
    streams = {(a, b): bytes_of(f"mask {a} {b}", 32) for a in range(3) for b in range(a + 1, 3)}
    clients, total = [], RING61.zeros(geometry.cells, union.COLUMNS)
    for n, names in enumerate(recorded.SETS):
        tags, weight_key = union.tags_of(names, key), bytes_of(f"weights {n}", 32)
        table = union.fill(tags, geometry, KeyStream(weight_key))
        filled_cells = nonzero_cells(table)
        peers = ((v, KeyStream(streams[min(n, v), max(n, v)])) for v in range(3) if v != n)
        union.mask(table, n, peers)
        RING61.add_into(total, table)
        clients.append(
            {
                "names": names, "tags": integers(tags), "positions": integers(geometry.positions(tags)),
                "checks": integers(geometry.checks(tags)), "weight_key": weight_key, "table": filled_cells,
                "masked_sha256": hashlib.sha256(RING61.to_bytes(table)).digest(),
            }
        )  # fmt: skip
    peeled = union.peel(total, geometry)
    assert peeled is not None
    return {
        "tag_key": key, "seed": seed, "max_union": max_union, "attempt": attempt, "third": geometry.third,
        "keys": geometry.keys, "masks": [{"low": a, "high": b, "key": k} for (a, b), k in streams.items()],
        "client": clients, "total": nonzero_cells(total), "peeled": integers(peeled),
    }  # fmt: skip


def nonzero_cells(table: Residues) -> list[Json]:
    """The cells that are not empty."""
    used = np.flatnonzero(table[0].any(axis=1))
    return [{"cell": int(c), "values": integers(table[0, c])} for c in used]


# ------------------------------------------------------------------------------------------------------------ buckets


def buckets() -> Json:
    """Which tags stand in which bucket, and where a client puts its own."""
    tags = np.sort(union.tags_of([f"e{i}" for i in range(14)], bytes_of("tags", 32)))
    rows, seed, stream = np.array([0, 3, 4, 9, 13]), bytes_of("buckets", 16), bytes_of("placement", 32)
    shape = Buckets(tags, bucket_count(rows.size), seed)
    placement, full = place(rows, shape, KeyStream(stream)), Full(tags.size, 7)
    paper = place(rows, full, KeyStream(stream))
    assert placement is not None
    assert paper is not None
    return {
        "tags": integers(tags), "buckets": shape.count, "seed": seed, "starts": integers(shape.starts),
        "members": integers(shape.members), "rows": rows.tolist(), "stream": stream,
        "placement": placement.tolist(), "wanted": shape.wanted(placement).tolist(),
        "full": {"queries": full.count, "placement": paper.tolist(), "wanted": full.wanted(paper).tolist()},
        "bucket_count": [{"max_entities": e, "buckets": bucket_count(e)} for e in (0, 1, 3, 4, 5, 100, 200_000)],
    }  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- Paillier


def paillier() -> Json:
    """A key from two primes, and one answer on its way: packed, encrypted, multiplied, masked, decrypted, unpacked."""
    primes = [prime(name, 256) for name in ("p", "q")]
    key, sigma = PrivateKey(*map(mpz, primes)), 40
    public, packing = key.public, Packing(key.public.bits, RING61.primes[0], sigma)
    answers = KeyStream(bytes_of("answers", 32)).elements(RING61, 2, 4)[0]
    psi = KeyStream(bytes_of("psi", 32)).elements(RING61, 2, 4)[0]
    r = KeyStream(bytes_of("r", 32)).nonzero(RING61, 2)[0]
    plaintexts, count = packing.pack(answers), 2 * packing.plaintexts(4)
    short = bytes_of("short", public._short.exponent_bytes * count)
    full = bytes_of("full", public._full.exponent_bytes * count)
    noise_stream = bytes_of("noise", 32)
    noise = packing.noise(psi, KeyStream(noise_stream).bytes)
    sent = public.encrypt(plaintexts, public.short_blinds(count, reader(short)))
    masks = public.encrypt(noise, public.full_blinds(count, reader(full)))
    masked = public.add(public.scale(sent, r), masks)
    decrypted = key.decrypt(masked)
    return {
        "p": primes[0], "q": primes[1], "n": public.to_bytes(), "h_n": int(public.h_n), "field": RING61.primes[0],
        "sigma": sigma, "width": packing.width, "slots": packing.slots, "answers": integers(answers),
        "plaintexts": [int(m) for m in plaintexts], "short_exponents": short,
        "encrypted": public.ciphertexts_to_bytes(sent), "r": integers(r), "psi": integers(psi),
        "noise_stream": noise_stream, "noise": [int(m) for m in noise], "full_exponents": full,
        "masked": public.ciphertexts_to_bytes(masked), "decrypted": [int(m) for m in decrypted],
        "unpacked": integers(packing.unpack(decrypted, 4)),
        "widths": [
            {"bits": bits, "sigma": s, "width": p.width, "slots": p.slots}
            for bits in (2048, 3072) for s in (40, 64) for p in (Packing(bits, RING61.primes[0], s),)
        ],
    }  # fmt: skip


def prime(name: str, bits: int) -> int:
    """The first number from a fixed one on that is a prime, 3 mod 4. Insecure: everyone knows it."""
    x = mpz(int.from_bytes(bytes_of(name, bits // 8), "little") | 3 << (bits - 2) | 3)
    while not x.is_prime(40):
        x += 4
    return int(x)


def reader(data: bytes) -> Callable[[int], bytes]:
    """Randomness that is given: the next bytes, each time."""
    return BytesIO(data).read


# -------------------------------------------------------------------------------------------------------- transcripts


def transcript() -> Json:
    """A small federation: set-up and one round."""
    parties, hops = recorded.recorded()
    places = [recorded.place(parties, hop) for hop in hops]
    assert set(places) == set(recorded.PLACES)
    session = parties.session
    return {
        "retrieval": session.form.name, "queries": "buckets", "params": session.params.canonical(),
        "session_hash": session.hash, "fingerprint": session.roster.fingerprint,
        "table": [
            {"client": n, "name": name, "embedding": row.tolist()}
            for n, table in enumerate(recorded.tables()) for name, row in table.items()
        ],
        "message": [
            {"place": place, "carrier": hop.sender, "taken_by": hop.receiver, **asdict(hop.header),
             "size": len(hop.message), "sha256": hashlib.sha256(hop.message).digest()}
            for place, hop in zip(places, hops, strict=True)
        ],
        "tags": integers(recorded.server_part(parties).tags),
        "mean": [
            {"client": n, "name": name, "mean": row.tolist()}
            for n in sorted(parties.clients) for name, row in recorded.means(parties, n)
        ],
    }  # fmt: skip


def negative() -> Json:
    """One fault each: which message of the transcript is changed, how, and who refuses it with which blame."""
    cases, at = [], defaultdict[str, list[int]](list)
    parties, hops = recorded.recorded()
    for number, hop in enumerate(hops):
        at[recorded.place(parties, hop)].append(number)
    for case in CASES:
        number = at[case.place][case.nth]
        header = hops[number].header
        known = {SENDER: header.sender, THIRD: 3 - header.sender - header.receiver}  # of clients 0, 1, 2
        ((how, what),) = case.change.items()
        if how in ("body_of", "replay"):
            what = at[what[0]][what[1]]
        elif how == "taken_by":
            what = known.get(what, what)
        cases.append(
            {
                "fault": case.fault, "transcript": "paillier", "place": case.place,
                "message": number, "change": {how: what},
                "error": case.error, "suspects": [known.get(n, n) for n in case.suspects],
                "stops": case.stops,
            }
        )  # fmt: skip
    return {"case": cases}


# -------------------------------------------------------------------------------------------------------------- files

FILES: Final[dict[str, Callable[[], Json]]] = {
    "encodings.json": encodings,
    "keys.json": keys,
    "pads.json": pads,
    "shares.json": shares,
    "union.json": unions,
    "buckets.json": buckets,
    "paillier.json": paillier,
    "transcript-paillier.json": transcript,
    "negative.json": negative,
    "keyed-streams.json": keyed.key_streams,
    "keyed-prf.json": keyed.prf,
    "keyed-transcript.json": keyed.transcript,
    "keyed-negative.json": keyed_faults.negative,
    "plans.json": plans.plans,
    "scales.json": scales.scales,
}


def text_of(content: Json) -> str:
    """Lines that a diff can show: one for each field, and one for each entry of a list of objects."""

    def lines(x: Any, indent: str) -> str:
        inner = indent + "  "
        if isinstance(x, dict) and len(json.dumps(x)) + len(inner) > 400:
            fields = (f"{inner}{json.dumps(key)}: {lines(value, inner)}" for key, value in x.items())
            return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
        if isinstance(x, list) and x and isinstance(x[0], dict):
            return "[\n" + ",\n".join(inner + lines(value, inner) for value in x) + f"\n{indent}]"
        return json.dumps(x, ensure_ascii=True)

    return lines(plain(content), "") + "\n"


def differences() -> list[str]:
    """What the files hold beside what they should hold, as lines of a diff."""
    found: list[str] = []
    for name, make in FILES.items():
        path = HERE / name
        before = path.read_text().splitlines(keepends=True) if path.exists() else []
        found += unified_diff(before, text_of(make()).splitlines(keepends=True), f"vectors/{name}", "made anew")
    strange = {path.name for path in HERE.glob("*.json")} - FILES.keys()
    return found + [f"vectors/{name} is made by nobody\n" for name in sorted(strange)]


def main(arguments: Sequence[str]) -> int:
    """Write all files; or, with --check, say where they differ."""
    if list(arguments) == ["--check"]:
        found = differences()
        sys.stdout.writelines(found)
        return 1 if found else 0
    if arguments:
        sys.stderr.write("usage: python vectors/make.py [--check]\n")
        return 2
    for name, make in FILES.items():
        (HERE / name).write_text(text_of(make()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
