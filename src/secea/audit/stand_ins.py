"""What stands in for keys, channels, Paillier's cryptosystem and large fields while exact views are computed.

`Wire` stands for an `Endpoint`: it seals nothing, and its keys are labels. `Clear` stands for Paillier's cryptosystem:
what is seen is what the key's owner decrypts. `TinyScheme` is the product's `Scheme` over a ring of one tiny prime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
from gmpy2 import mpz  # type: ignore[import-untyped]  # it ships no types

from secea.arithmetic.field import Residues, Ring, insecure_ring
from secea.arithmetic.lagrange import Code
from secea.arithmetic.paillier import Packing
from secea.audit.coins import Coins, Stream, key_of
from secea.errors import SERVER
from secea.params import Params
from secea.retrieval import Retrieval
from secea.retrieval.paillier import Paillier
from secea.retrieval.reciprocal import Reciprocal
from secea.session import Scheme
from secea.wire.endpoint import Opened, Stage
from secea.wire.messages import DIGEST_BYTES, NO_CONTEXT, Header, Kind, Layout


class Holder(Protocol):
    """Who has the coins of now."""

    coins: Coins
    params: Params


@dataclass(frozen=True)
class Sent:
    """A message that nobody sealed."""

    header: Header
    payload: bytes

    @property
    def opened(self) -> Opened:
        """As its receiver gets it."""
        return Opened(self.header, memoryview(self.payload), SimpleNamespace())  # type: ignore[arg-type]


class Sealing:
    """Stands for a `Sealer`."""

    def __init__(self, header: Header) -> None:
        self.header = header

    def seal(self, chunk: int, *payload: bytes) -> Sent:
        """Nothing is hidden."""
        return Sent(self.header.at(chunk), b"".join(payload))


class Link:
    """Stands for the `Channel` of two parties: both ends give streams of one label the same name."""

    def __init__(self, holder: Holder, me: int, peer: int) -> None:
        self.holder, self.ends = holder, (min(me, peer), max(me, peer))

    def stream(self, purpose: str, *label: bytes) -> Stream:
        """A stream that both ends know."""
        return self.holder.coins.stream(purpose, *self.ends, *label)


class Wire:
    """Stands for an `Endpoint`."""

    def __init__(self, holder: Holder, number: int) -> None:
        self.number, self.sequence, self.entropy = number, 0, bytes
        self.key = SimpleNamespace(secret=key_of("session key", number))
        self.channels = {v: Link(holder, number, v) for v in (*range(holder.params.N), SERVER) if v != number}

    def stages(
        self, labels: Mapping[Kind, Mapping[str, int]], context: bytes, *, seed: bytes = b""
    ) -> tuple[Stage, ...]:
        """Seeds are labels: the kind, the sender, and the number of the weights or of the round."""
        stages = []
        for kind, label in labels.items():
            drawn = seed or key_of(kind.name.lower(), self.number, label["round"] or label["weights"])
            stages.append(Stage(kind, **label, sequence=0, context=context, salt=NO_CONTEXT, seed=drawn))
        return tuple(stages)

    def sealer(self, stage: Stage, receiver: int, chunks: int = 1) -> Sealing:
        """For a message of a stage."""
        return Sealing(stage.header(self.number, receiver, chunks))

    def require(self, header: Header, **expected: object) -> None:
        """Nobody lies here."""

    def confirmation(self, sender: int, receiver: int, context: bytes) -> bytes:
        """Nobody lies here."""
        return bytes(DIGEST_BYTES)


class Clear:
    """A cipher that hides nothing: what the owner of the key decrypts."""

    ciphertext_bytes = 64

    def short_blinds(self, count: int, entropy: object) -> list[int]:
        """Blinds of no use."""
        return [0] * count

    full_blinds = short_blinds

    def encrypt(self, plaintexts: Sequence[int], blinds: Sequence[int]) -> list[int]:
        """The plaintexts."""
        assert len(plaintexts) == len(blinds)
        return list(plaintexts)

    def scale(self, ciphertexts: Sequence[int], scalars: Sequence[int]) -> list[int]:
        """Each scalar times its run of ciphertexts."""
        run = len(ciphertexts) // len(scalars)
        return [c * int(scalars[i // run]) for i, c in enumerate(ciphertexts)]

    def add(self, left: Sequence[int], right: Sequence[int]) -> list[int]:
        """The sums."""
        return [a + b for a, b in zip(left, right, strict=True)]

    def ciphertexts_to_bytes(self, ciphertexts: Sequence[int]) -> bytes:
        """Of fixed length."""
        return b"".join(int(c).to_bytes(self.ciphertext_bytes, "little") for c in ciphertexts)

    def ciphertexts_from_bytes(self, data: bytes, count: int, **_: bool) -> list[mpz]:
        """The inverse of `ciphertexts_to_bytes`."""
        size = self.ciphertext_bytes
        assert len(data) == count * size
        return [mpz(int.from_bytes(data[i : i + size], "little")) for i in range(0, len(data), size)]


class Narrow(Packing):
    """Packing for the elements of a tiny ring, which have 32 bits."""

    def pack(self, values: Residues) -> list[mpz]:
        """As they are."""
        return super().pack(values.astype(np.uint64))

    def noise(self, psi: Residues, entropy: Any = None) -> list[mpz]:
        """As it is."""
        return super().noise(psi.astype(np.uint64), entropy)


class OpenPaillier(Paillier):
    """7a with a cipher that hides nothing."""

    def key_of(self, wire: Any, n: int) -> Any:
        """Nobody's key."""
        return Clear()


@cache
def tiny_ring(params: Params) -> Ring:
    """The smallest field with room for all points, in which every count has an inverse."""
    p = params.N + params.K + params.T
    while any(p % d == 0 for d in range(2, p)) or params.C % p == 0:
        p += 1
    return insecure_ring(p)


def tiny_form(params: Params, queries: int, name: str) -> Retrieval:
    """The product's form, moved into the tiny ring; noise of 7b has one bit."""
    ring = tiny_ring(params)
    form: Any = (Reciprocal if name == "reciprocal" else OpenPaillier)(params, queries)
    form.ring, form.code = ring, Code(params, ring)
    form.answer_row_bytes = form.block_length * ring.element_bytes
    if name == "reciprocal":
        form.noise_bits, form.f = 1, 0
    else:
        form.packing, form.paillier_bytes = Narrow(32, ring.primes[0], 3), 0
        form.answer_row_bytes = form.packing.plaintexts(form.block_length) * Clear.ciphertext_bytes
    checked: Retrieval = form
    return checked


@dataclass(frozen=True, init=False)
class TinyScheme(Scheme):
    """What all parties know. The queries of the first `followed` contributors alone are re-shared."""

    followed: int
    most_queries: int | None
    """Where it is given, whoever owns more asks for so many of its entities: fewer queries keep laws small."""

    def __init__(self, params: Params, form: str, queries: str, followed: int, most_queries: int | None) -> None:
        object.__setattr__(self, "followed", followed)
        object.__setattr__(self, "most_queries", most_queries)
        super().__init__(params, form, queries)

    @property
    def query_count(self) -> int:
        """B."""
        return super().query_count if self.most_queries is None else self.most_queries

    @cached_property
    def form(self) -> Retrieval:
        """In the tiny ring."""
        return tiny_form(self.params, self.query_count, self._form)

    def layout(self, kind: Kind, M: int, clients: int, *, attempt: int = 0) -> Layout:
        """The product's, with fewer sections."""
        sections = min(clients, self.followed) if kind is Kind.RESHARE else clients
        return super().layout(kind, M, sections, attempt=attempt)
