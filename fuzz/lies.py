"""Lies with a shape: what a party could say, behind the seal, that a check somewhere is there for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from places import NUMBERS, Place
from secea.arithmetic.field import M61, P56, PRIMES30
from secea.arithmetic.ristretto import ORDER, multiply_base, scalar_rows
from secea.errors import SERVER
from secea.forms.keyed.masking import _SMALL_ORDER
from secea.party.client import Client
from secea.party.phases import Common
from secea.wire.messages import ALL, HEADER_BYTES

BLOCKS: Final[dict[str, bytes]] = {
    "the identity": bytes(32),
    "no canonical point": b"\xff" * 32,
    "no point": b"\x01" + bytes(31),
    "a negative point": (2**255 - 20).to_bytes(32, "little"),
    "another point": multiply_base(scalar_rows([7])).tobytes(),
    "the group's order": ORDER.to_bytes(32, "little"),
    "the order less one": (ORDER - 1).to_bytes(32, "little"),
    "the largest scalar": b"\xff" * 31 + b"\x0f",
    **{f"key {i} of small order": u.to_bytes(32, "little") for i, u in enumerate(sorted(_SMALL_ORDER))},
    "a key of small order, not reduced": (2**255 - 19).to_bytes(32, "little"),
    "a key of small order with its top bit": (1 << 255 | 1).to_bytes(32, "little"),
}
"""In place of points, scalars, keys, hashes and seeds."""
WORDS: Final[dict[str, bytes]] = {
    "2^61-1": M61.to_bytes(8, "little"),
    "2^61-2": (M61 - 1).to_bytes(8, "little"),
    "2^56-5": P56.to_bytes(7, "little"),
    "2^56-6": (P56 - 1).to_bytes(7, "little"),
    "2^64-1": b"\xff" * 8,
    "0": bytes(8),
    "a light prime": PRIMES30[0].to_bytes(4, "little"),
    "2^32-1": b"\xff" * 4,
}
"""In place of elements, tags and counts."""
LENGTHS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "nothing": lambda said: b"",
    "a byte less": lambda said: said[:-1],
    "a byte more": lambda said: said + b"\0",
    "a block less": lambda said: said[:-32],
    "a block more": lambda said: said + BLOCKS["another point"],
    "twice": lambda said: said + said,
    "much": lambda said: said + bytes(1 << 16),
}
ORDERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "words backwards": lambda said: b"".join(said[at : at + 8] for at in range(0, len(said), 8)[::-1]),
    "blocks rotated": lambda said: said[32:] + said[:32],
    "the first block twice": lambda said: said[:32] + said[:32] + said[64:],
    "the first word twice": lambda said: said[:8] + said[:8] + said[16:],
    "the first vote twice": lambda said: said[:66] + said[:66] + said[132:],
    "a vote of a stranger": lambda said: b"\x09\x00" + said[2:],
    "a member less": lambda said: said[:-18],
    "the last member twice": lambda said: said + said[-18:],
    "another life": lambda said: said[:-16] + bytes(16),
    "a member that there is not": lambda said: said[:-18] + b"\x63\x00" + said[-16:],
    "only the first member": lambda said: said[:19],
    "another phase": lambda said: bytes([said[0] ^ 1]) + said[1:] if said else said,
    "no phase": lambda said: b"\xff" + said[1:],
    "a mark of 2": lambda said: said[:-1] + b"\x02",
    "zeros": lambda said: bytes(len(said)),
    "ones": lambda said: b"\xff" * len(said),
}


def _replaced(said: bytes, at: int, new: bytes) -> bytes:
    return said[:at] + new + said[at + len(new) :]


def _spots(said: bytes, step: int, size: int) -> list[int]:
    """The first place for something of this size, and the last."""
    count = (len(said) - size) // step + 1
    return sorted({0, count - 1}) if count > 0 else []


def payloads(said: bytes) -> Iterator[tuple[str, bytes]]:
    """Each with a name."""
    for table in (LENGTHS, ORDERS):
        for name, change in table.items():
            yield name, change(said)
    for entries, step in ((BLOCKS, 32), (WORDS, 8)):
        for name, new in entries.items():
            for spot in _spots(said, step, len(new)):
                yield f"{name} at {spot}", _replaced(said, step * spot, new)
            if len(said) >= len(new):
                yield f"{name} at the end", said[: -len(new)] + new


def headers(place: Place) -> Iterator[tuple[str, dict[str, Any]]]:
    """Changes of a header, each with a name."""
    for name in NUMBERS:
        most = 2**16 - 1 if name == "attempt" else 2**32 - 1
        now = getattr(place.hop.header, name)
        for value in sorted({now + 1, max(now - 1, name == "chunks"), most, 2**31 % (most + 1)} - {now, 0}):
            yield f"{name} {value}", {name: value}
    at = place.kinds.index(place.hop.header.kind)
    for kind in {place.kinds[0], place.kinds[at - 1], place.kinds[(at + 1) % len(place.kinds)]}:
        yield f"kind {kind.name.lower()}", {"kind": kind}
    yield "another context", {"context": b"\7" * 16}
    yield "another salt", {"salt": b"\7" * 16}
    for receiver in (0, 1, 2, SERVER):
        if place.hop.header.receiver not in (ALL, receiver) and place.hop.header.sender != receiver:
            yield f"for {receiver}", {"receiver": receiver}


def announcements(place: Place, client: Client, said: bytes) -> Iterator[tuple[str, bytes]]:
    """The server begins any other phase, with the numbers and in the context that are right for it."""
    session, at = place.parties.session, client.at
    everyone, mine = said[1:], client.number.to_bytes(2, "little") + client.link.hello.incarnation
    for number, row in enumerate(session.rows):
        numbers = session.form.next_numbers(row.phase, at, again=False)
        for epoch in {numbers["weights"], numbers["weights"] + 1}:
            header = place.header(**(numbers | {"weights": epoch}), context=client.part.anchor(row.phase, at))
            for who, members in (("everybody", everyone), ("all but one", everyone[:-18]), ("it alone", mine)):
                yield f"{row.phase}, names {epoch}, {who}", place.resealed(header, bytes([number]) + members)


def lies(place: Place) -> Iterator[tuple[str, bytes]]:
    """All lies at a place, each with a name. Its true sender sealed or signed most of them; some anyone can tell."""
    said = place.payload()
    for name, payload in payloads(said):
        yield name, place.resealed(place.hop.header, payload)
    for name, change in headers(place):
        yield name, place.resealed(place.header(**change), said)
    body, receiver = place.hop.message[HEADER_BYTES:], place.hop.receiver
    for name, header in (
        ("a sender that there is not", place.header(sender=77)),
        ("its receiver's own", place.header(sender=receiver)),
        ("a chunk after the last", place.header(chunk=place.hop.header.chunks)),
    ):
        yield name, header.pack() + body
    for i, hop in enumerate(islice(place.rest, 4)):
        yield f"what comes {i + 1} later", hop.message
    if place.hop.header.kind.name == Common.BEGIN and isinstance(place.party, Client):
        yield from announcements(place, place.party, said)
    if place.hop.header.kind.name == Common.KEY:
        for rows in (0, 1, 2**32, 2**64 - 1):
            yield f"{rows} rows", place.resealed(place.hop.header, said[:-8] + rows.to_bytes(8, "little"))
