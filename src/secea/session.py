"""What all parties of a session know: parameters, roster, field, code, and how messages fall into chunks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secea.errors import ParamsError
from secea.field import M61, RING61, Ring
from secea.fixedpoint import reconstruction_is_unique
from secea.keys import Roster, digest
from secea.lagrange import Code
from secea.messages import WIRE_VERSION, Announcement, Layout
from secea.params import Params
from secea.sharing import block_length
from secea.union import COLUMNS, Geometry


@dataclass(frozen=True)
class Session:
    """One roster and one Params. Its hash binds everything public; two parties with different hashes refuse each other."""

    params: Params
    roster: Roster
    ring: Ring = field(default=RING61)

    def __post_init__(self) -> None:
        if not self.params.bounded:
            raise ParamsError("a session needs max_entities and max_union: set both in Params")
        if len(self.roster.clients) != self.params.clients:
            raise ParamsError(f"the roster has {len(self.roster.clients)} clients, Params has {self.params.clients}")
        if self.ring.primes == (M61,) and not reconstruction_is_unique(self.params):
            raise ParamsError(
                f"precision {self.params.precision} is too fine for {self.params.clients} clients: 2*N^2*max_abs*2^f"
                " must stay below 2^61; lower precision"
            )

    @cached_property
    def hash(self) -> bytes:
        """32 bytes over wire version, Params with bounds, field, and roster."""
        text = f"secea session {WIRE_VERSION}\n{self.params.canonical()}\n{self.ring.primes}\n"
        return hashlib.sha256(text.encode() + self.roster.canonical()).digest()

    @cached_property
    def code(self) -> Code:
        """The polynomial code."""
        return Code(self.params, self.ring)

    @property
    def paillier_bytes(self) -> int:
        """The bytes of the Paillier key in a hello."""
        return 0

    @property
    def max_union(self) -> int:
        """The public bound on the union."""
        assert self.params.max_union is not None
        return self.params.max_union

    @property
    def max_entities(self) -> int:
        """The public bound on one client's entities."""
        assert self.params.max_entities is not None
        return self.params.max_entities

    @property
    def block_length(self) -> int:
        """L."""
        return block_length(self.params, self.params.dim + 1)

    def geometry(self, attempt: int, context: bytes) -> Geometry:
        """The lookup table of a union: its seed is public and new in every attempt."""
        return Geometry.of(self.max_union, attempt, context)

    def table_layout(self, geometry: Geometry) -> Layout:
        """The chunks of a lookup table."""
        return Layout(geometry.cells, COLUMNS * RING61.element_bytes)

    def tags_layout(self, M: int) -> Layout:
        """The chunks of the union's tags."""
        return Layout(M, RING61.element_bytes)

    def share_layout(self, M: int) -> Layout:
        """The chunks of a share."""
        return Layout(M, self.block_length * self.ring.element_bytes)


# Contexts: what the parties must agree on at each point, as a digest that goes into every later key. Each one is bound to
# the one before it, so that no message made under one history opens under another.


def members_context(epoch: int, attempt: int, greeting: Announcement) -> bytes:
    """After the members of an epoch were announced."""
    return digest(b"members", b"%d %d" % (epoch, attempt), greeting.to_bytes())


def union_context(before: bytes, secrets: Announcement) -> bytes:
    """After it was announced whose parts make the shared secret."""
    return digest(b"union", before, secrets.to_bytes())


def rounds_context(before: bytes, tags: NDArray[np.uint64]) -> bytes:
    """After the union is known."""
    return digest(b"rounds", before, tags.astype("<u8").tobytes())
