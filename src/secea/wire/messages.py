"""What travels: one fixed header for every message, and how its payload falls into chunks.

A message is cut into chunks of about CHUNK_BYTES, so that large ones stream; a chunk is what a network carries and
what the traffic records count. All encodings have fixed width: sizes follow from public parameters alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from secea.errors import SERVER, ProtocolError, party

WIRE_VERSION: Final = 1
ALL: Final = 0xFFFE
"""The receiver of a message that is for everybody."""

DIGEST_BYTES: Final = 16
SALT_BYTES: Final = 16
TAG_BYTES: Final = 16
CHUNK_BYTES: Final = 1 << 21

Buffer = bytes | bytearray | memoryview


_HEADER: Final = struct.Struct("<BBHHHIIIIII16s16s")
HEADER_BYTES: Final = _HEADER.size
_KIND_AT: Final = struct.calcsize("<B")
_CHUNK: Final = struct.Struct("<I")
_CHUNK_AT: Final = struct.calcsize("<BBHHHIIII")
NO_CONTEXT: Final = bytes(DIGEST_BYTES)


def kind_of(message: Buffer, kinds: type[IntEnum]) -> Any:
    """The kind of a message that a party made."""
    return kinds(message[_KIND_AT])


@dataclass(frozen=True, slots=True)
class Header:
    """The label of a message: authenticated, and all of it but the chunk's number goes into the message's key."""

    kind: Any
    """One of the form's kinds: an `IntEnum`."""
    sender: int
    receiver: int
    epoch: int
    """The number of the union: an epoch ends when the union changes."""
    weights: int
    """The number of the epoch of names. The field has kept the name that it has in the vectors."""
    round: int
    attempt: int
    sequence: int
    """Counts the messages that the sender has begun, so that an old snapshot shows."""
    chunks: int
    context: bytes
    """A digest of what the parties must agree on at this point: the members, the union, the contributors."""
    salt: bytes
    """Drawn for every message, so that even a party that was rolled back does not use a key twice."""
    chunk: int = 0

    @property
    def title(self) -> str:
        """A name for the message, for errors."""
        return f"{self.kind.name.lower()} from {party(self.sender)}, chunk {self.chunk + 1} of {self.chunks},"

    def at(self, chunk: int) -> Header:
        """The header of another chunk of the same message."""
        return replace(self, chunk=chunk)

    def pack(self) -> bytes:
        """The header as it travels."""
        return self._packed(self.chunk)

    def _packed(self, chunk: int) -> bytes:
        return _HEADER.pack(
            WIRE_VERSION, self.kind, self.sender, self.receiver, self.attempt, self.epoch, self.weights, self.round,
            self.sequence, chunk, self.chunks, self.context, self.salt,
        )  # fmt: skip

    @staticmethod
    def relabelled(head: bytearray, chunk: int) -> bytearray:
        """The packed header of another chunk, in place."""
        _CHUNK.pack_into(head, _CHUNK_AT, chunk)
        return head

    def label(self) -> bytes:
        """What the message's key is bound to."""
        return self._packed(0)

    @classmethod
    def parse(cls, message: Buffer, carrier: int, kinds: type[IntEnum]) -> Header:
        """The header of a message that `carrier` handed over; or a `ProtocolError` that names the carrier.

        `kinds` are those of the federation's form: nothing else is a message.
        """
        if len(message) < HEADER_BYTES:
            raise ProtocolError((carrier,), f"a message of {len(message)} bytes is shorter than a header")
        version, kind, sender, receiver, attempt, epoch, weights, round_, sequence, chunk, chunks, context, salt = (
            _HEADER.unpack_from(message)
        )
        if version != WIRE_VERSION:
            fault = f"a message of wire version {version}; this is version {WIRE_VERSION}: install the same release"
            raise ProtocolError((carrier,), fault)
        try:
            kind = kinds(kind)
        except ValueError:
            raise ProtocolError((carrier,), f"a message of the unknown kind {kind}") from None
        if not chunk < chunks:
            raise ProtocolError((carrier,), f"a message says that it is chunk {chunk} of {chunks}")
        return cls(kind, sender, receiver, epoch, weights, round_, attempt, sequence, chunks, context, salt, chunk)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a message falls into chunks: whole rows, as many as fit, never across sections; at least one chunk each.

    A message may have several sections of equally many rows (one for each client that it speaks about), one after the
    other or `interleaved`: the first chunk of each, then the second of each. Each chunk may carry a prefix.
    """

    rows: int
    row_bytes: int
    sections: int = 1
    per_chunk: int = 0
    prefix: int = 0
    interleaved: bool = False

    def __post_init__(self) -> None:
        if not self.per_chunk:
            object.__setattr__(self, "per_chunk", max(1, CHUNK_BYTES // max(1, self.row_bytes)))

    @property
    def section_chunks(self) -> int:
        """The chunks of one section."""
        return max(1, -(-self.rows // self.per_chunk))

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return self.sections * self.section_chunks

    def section(self, chunk: int) -> int:
        """The section that a chunk belongs to."""
        return chunk % self.sections if self.interleaved else chunk // self.section_chunks

    def within(self, chunk: int) -> int:
        """The number of a chunk within its section."""
        return chunk // self.sections if self.interleaved else chunk % self.section_chunks

    def span(self, chunk: int) -> slice:
        """The rows of one chunk, within its section."""
        start = self.within(chunk) * self.per_chunk
        return slice(start, min(self.rows, start + self.per_chunk))

    def payload_bytes(self, chunk: int) -> int:
        """The bytes of one chunk before sealing."""
        span = self.span(chunk)
        return self.prefix + int(span.stop - span.start) * self.row_bytes

    @property
    def wire_bytes(self) -> int:
        """The bytes of the whole message as it travels."""
        return self.sections * self.rows * self.row_bytes + self.chunks * (HEADER_BYTES + TAG_BYTES + self.prefix)


assert HEADER_BYTES == 64
assert SERVER not in range(ALL)
