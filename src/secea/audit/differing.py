"""What of a round of the form "keyed" is not as `specified` makes it again: union, uploads, sums, broadcast, means."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secea.audit.specified import Expected, Record, Table, digested, packed, part_of
from secea.forms.keyed.client import KeyedClient
from secea.oracles import keyed as oracle
from secea.table import Name, as_table, keys
from secea.testing import Parties
from secea.wire.keys import expand


def differs(
    parties: Parties,
    tables: Sequence[Table | None],
    record: Record,
    weights: Sequence[Mapping[Name, int]] = (),
) -> Iterator[str]:
    """What of a round is not as specified: uploads, sums and broadcast to the bit, means but for rounding."""
    spelled = [dict(zip(keys(tuple(own)), own.values(), strict=True)) for own in weights]
    due = Expected(parties, tables, record, spelled)
    for v in due.members:
        part, mine = part_of(parties, v), part_of(parties, v).union
        assert mine is not None
        given = as_table(due.table(v), due.params.dim)
        encoded = part.tables.encoded(given.weighing(weights[v]) if weights else given, part.names)
        if encoded[mine.order].tolist() != [list(row) for _, row in sorted(due.values[v].items())]:
            yield f"what client {v} encodes"
    yield from bytes_differ(parties, due)
    for v in due.U:
        yield from _means_differ(part_of(parties, v), due)


def bytes_differ(parties: Parties, due: Expected) -> Iterator[str]:
    """What of a union, of uploads, of sums and of a broadcast is not as specified. `due` then has what is broadcast."""
    record = due.record
    yield from union_differs(parties, due)
    ring = due.n.ring
    primes = list(enumerate(ring.primes))
    if not len(record.broadcast) == len(record.sums) == len(due.spans):
        yield "the number of chunks"
        return
    due.R, due.kinds = [[] for _ in primes], []
    for v in due.members:
        mine = part_of(parties, v).union
        assert mine is not None
        if mine.slots.tolist() != sorted(due.slot[name] for name in due.named(v)):
            yield f"the slots of client {v}"
    for chunk, broadcast in enumerate(record.broadcast):
        e = {w: due.noise(w, chunk) for w in due.noisy}
        uploads = {v: [due.upload(v, chunk, b) for b, _ in primes] for v in due.members}
        columns: dict[int, list[list[oracle.Vector]]] = {w: [] for w in due.noisy}
        sent, marks = [], [0] * (due.spans[chunk].stop - due.spans[chunk].start)
        for b, p in primes:
            s = due.secrets(chunk, b)
            for w in due.noisy:
                columns[w].append(oracle.noise_column(e[w], s.H[w], s, p))
            total = due.total(uploads, chunk, b)
            noise, column = oracle.add(list(e.values()), p), oracle.add([columns[w][b] for w in due.noisy], p)
            for what, real, plain in zip(
                ("sum", "noise", "columns"), record.sums[chunk], (total, noise, column), strict=True
            ):
                if real[b].tolist() != [list(row) for row in plain]:
                    yield f"the {what} of chunk {chunk}"
            rows, what_is = oracle.divide(total, noise, column, p, due.m)
            if not all(oracle.right(rows[i], what_is[i], i, len(due.U), s, p) for i in range(len(rows))):
                yield f"the check of chunk {chunk}"
            sent.append(rows)
            due.R[b] += rows
            marks = [max(a, c) for a, c in zip(marks, what_is, strict=True)]
        for v in due.U:
            tail = packed(ring, columns[v]) + record.rounds[v].noise_seed if v in due.noisy else b""
            if record.uploads[v][chunk] != packed(ring, uploads[v]) + tail:
                yield f"chunk {chunk} of the upload of client {v}"
        if broadcast != packed(ring, sent) + bytes(marks):
            yield f"chunk {chunk} of the broadcast"
        due.kinds += marks


def _means_differ(part: KeyedClient, due: Expected) -> Iterator[str]:
    """What of a client's means is not what was sent, read as specified."""
    assert part.result is not None
    v, found, most = part.number, part.result.matrix, Fraction(due.n.max_abs)
    assert found is not None
    if set(part.names) != set(due.table(v)):
        yield f"which entities client {v} has"
        return
    last_bit = due.last_bit(found.dtype)
    for k, name in enumerate(part.result.names):
        exact, there = due.mean(name)
        if bool(part.result.there[k]) != there or bool(part.result.below[k]) != (due.kinds[due.slot[name]] == 2):
            yield f"which means client {v} has"
        for x, right, own in zip(found[k].tolist(), exact, due.table(v)[name], strict=True):
            if there and abs(Fraction(x) - max(-most, min(most, right))) > abs(right) * last_bit:
                yield f"a mean of client {v}"
            if not there and x != own:
                yield f"a row of client {v} that stays"


def union_differs(parties: Parties, due: Expected) -> Iterator[str]:
    """What of the last union is not as specified: the shared secret, what pairs share, the list and its digest."""
    unions = {v: part_of(parties, v).union for v in due.members}
    own = {v: each for v, each in unions.items() if each is not None}
    parts = b"".join(v.to_bytes(2, "little") + own[v].part for v in sorted(own))
    secret = hashlib.sha256(b"secea shared secret" + parts).digest()
    keys = {v: X25519PrivateKey.from_private_bytes(each.mask_key) for v, each in own.items()}
    tags = sorted(due.tags.values())
    listed = b"".join(tag.to_bytes(8, "little") for tag in tags)
    for v, each in own.items():
        shared = {
            u: expand(keys[v].exchange(keys[u].public_key()), "pair of masks", parties.session.hash, each.context)
            for u in own if u != v
        }  # fmt: skip
        expected = {
            "the shared secret": (each.secret, secret),
            "what pairs share": (dict(each.pairs), shared),
            "the number of slots": (due.at.size, len(tags)),
            "L": (each.L, digested(b"L", each.context, listed, digested(b"L of a secret", secret))),
        }
        yield from (f"{what} of client {v}" for what, (real, right) in expected.items() if real != right)
