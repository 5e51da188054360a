"""Who can derive what: every value that parties draw, derive and use as a key, and what an adversary makes of it.

A `Trace` listens to the primitives below the protocol while real parties run: the system's generator, hashes, HKDF,
X25519, the group, Shamir's shares, key streams and sealed messages. Each call is a rule, "who has these values has that
one". What an adversary can derive is the closure of what it drew and saw under these rules (Dolev and Yao's, on the
values of a real run). Nothing here knows what a key is for, so a public value in the place of a secret one shows.

A value is a string of 16 bytes or more. It counts as public if no primitive made it: a key that is computed past all
primitives has no origin, and is objected to.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from secea.arithmetic.ristretto import (
    add,
    from_uniform,
    inverses,
    multiply,
    multiply_base,
    scalar_bytes,
    scalar_of,
)
from secea.arithmetic.streams import add_noise, add_streams, encode, row_streams, stream
from secea.audit import Objection, Subject
from secea.audit.standing import attributes_stand_in, standing_in
from secea.steps import masks, oprf
from secea.table import TableLike
from secea.testing import Parties
from secea.wire.keys import KEY_BYTES, Hello, Sealer
from secea.wire.link import Signer
from secea.wire.messages import HEADER_BYTES, Buffer, Header
from secea.wire.randomness import KeyStream

SHORTEST: Final = 16
LONGEST: Final = 1 << 14
"""Of what is hashed. A longer text counts as public."""
CHUNK_BYTES: Final = 4096
"""Messages of a traced run are cut into small chunks, so that there are several of each."""
NOBODY: Final = -1


@dataclass(frozen=True, slots=True)
class Rule:
    """Who has `need` of the inputs has the output."""

    output: bytes = field(repr=False)
    inputs: frozenset[bytes] = field(repr=False)
    need: int


@dataclass(slots=True, eq=False)
class Use:
    """A key that a party expands, hashes under, or takes as a number."""

    party: int
    how: str
    key: bytes = field(repr=False)
    lane: int
    size: int
    """Elements of a row, of a vector, or bytes."""
    sign: int = 1
    start: int = 0
    """Where in its lane the stretch begins, in bytes."""
    reader: int = 0
    """Which of the readers of key streams this is: each begins at the beginning."""
    covers: Header | None = None
    """The chunk that it went into; None if it was for reading, or for the party itself."""


class Trace:
    """What all parties of a run drew, derived, used and sent."""

    def __init__(self) -> None:
        self.born: dict[bytes, int] = {}
        """What parties drew, and who."""
        self.rules: list[Rule] = []
        self.uses: list[Use] = []
        self.sealed: list[tuple[bytes, Header, bytes]] = []
        """Key, label and payload of each chunk."""
        self.covered: list[tuple[Header, bytes]] = []
        """The beginning of what lies over each chunk: of its ciphertext and its payload, one less the other."""
        self.shown: list[bytes] = []
        """What everybody may read."""
        self.scalars: list[int] = []
        """Numbers modulo the group's order that parties drew."""
        self.dealt: list[tuple[int, dict[int, int]]] = []
        """Secrets that were shared: the threshold, and each client's share."""
        self._values: dict[bytes, set[bytes]] = defaultdict(set)  # by their first bytes
        self._now = threading.local()
        self._kept: dict[tuple[int, str], list[Use]] = {}  # what parties used, and did not send yet

    # ---------------------------------------------------------------------------------------------------- listening

    def known(self, value: bytes) -> bool:
        """Whether a primitive made this value."""
        return value in self._values.get(value[:SHORTEST], ())

    def _made(self, value: bytes) -> bytes:
        if len(value) >= SHORTEST:
            self._values[value[:SHORTEST]].add(value)
        return value

    def inside(self, text: Buffer) -> frozenset[bytes]:
        """The values that a text contains."""
        data, found, at = bytes(text), set(), 0
        while at + SHORTEST <= len(data):
            here = [v for v in self._values.get(data[at : at + SHORTEST], ()) if data.startswith(v, at)]
            found.update(here)
            at += max(map(len, here), default=1)
        return frozenset(found)

    def draw(self, party: int) -> Callable[[int], bytes]:
        """The generator of a party."""

        def entropy(count: int) -> bytes:
            value = os.urandom(count)
            self.born.setdefault(self._made(value), party)
            return value

        return entropy

    def derived(self, output: bytes, *inputs: Buffer, need: int | None = None) -> bytes:
        """A primitive made this output of these inputs."""
        values = frozenset[bytes]().union(*(self.inside(each) for each in inputs if len(each) <= LONGEST))
        values -= {output}
        self.rules.append(Rule(self._made(output), values, len(values) if need is None else need))
        if len(output) > KEY_BYTES:  # a key may be its beginning
            self.rules.append(Rule(self._made(output[:KEY_BYTES]), frozenset({output}), 1))
        return output

    def secret(self, value: bytes) -> None:
        """Whoever acts has this value. If no primitive made it, nobody else has."""
        if not self.known(value):
            self.born[self._made(value)] = getattr(self._now, "party", NOBODY)

    def used(
        self, how: str, key: bytes, lane: int, size: int, sign: int = 1, start: int = 0, reader: int = 0
    ) -> None:  # fmt: skip
        """A party uses a key."""
        use = Use(getattr(self._now, "party", NOBODY), how, bytes(key), lane, size, sign, start, reader)
        self.uses.append(use)
        self._now.__dict__.setdefault("pending", []).append(use)

    @contextmanager
    def acting(self, party: int, phase: str = "") -> Iterator[None]:
        """A party does something, in this thread. What it uses before it seals a chunk of a phase went into it."""
        before = self._now.__dict__.copy()
        self._now.party, self._now.pending, self._now.reads = party, self._kept.pop((party, phase), []), False
        try:
            yield
        finally:
            if not self._now.reads:
                self._kept[party, phase] = self._now.pending
            self._now.__dict__.clear()
            self._now.__dict__.update(before)

    def hears(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """A message arrives: what its receiver uses now is for reading it."""
        self._now.reads = True
        return (message,)

    def sends(self, key: bytes, header: Header, payload: bytes) -> None:
        """A chunk is sealed under a key."""
        self.sealed.append((key, header, payload))
        self.shown.append(header.pack())
        self._went_into(header)

    def shows(self, header: Header, message: bytes) -> None:
        """A chunk is signed, and open to all."""
        self.shown.append(message)
        self._went_into(header)

    def _went_into(self, header: Header) -> None:
        for use in self._now.__dict__.pop("pending", ()):
            use.covers = header
        self._now.pending = []

    # ----------------------------------------------------------------------------------------------------- deriving

    @cached_property
    def _everything(self) -> tuple[list[Rule], dict[bytes, list[int]]]:
        """All rules of a run that is over, each once, and which of them need a value.

        Those of primitives, of sealed messages, and of what everybody may read.
        """
        within = {Rule(v, frozenset({key}), 1) for key, _, payload in self.sealed for v in self.inside(payload)}
        shown = {Rule(v, frozenset(), 0) for text in self.shown for v in self.inside(text)}
        rules, waiting = [*{*self.rules, *within, *shown}], defaultdict[bytes, list[int]](list)
        for number, rule in enumerate(rules):
            for each in rule.inputs:
                waiting[each].append(number)
        return rules, dict(waiting)

    def derivable(self, adversary: Collection[int], also: Collection[bytes] = ()) -> set[bytes]:
        """All values that these parties can derive together, from what they drew and what was sent.

        `also` are values that they have besides.
        """
        rules, waiting = self._everything
        missing = [rule.need for rule in rules]
        have = {value for value, party in self.born.items() if party in adversary}
        have |= {rule.output for rule in rules if not rule.need} | set(also)
        todo = list(have)
        while todo:
            for number in waiting.get(todo.pop(), ()):
                missing[number] -= 1
                if not missing[number] and (output := rules[number].output) not in have:
                    have.add(output)
                    todo.append(output)
        return have

    @cached_property
    def _behind(self) -> dict[bytes, set[bytes]]:
        behind = defaultdict[bytes, set[bytes]](set)
        for rule in self.rules:
            behind[rule.output] |= rule.inputs
        return dict(behind)

    def origins(self, key: bytes) -> set[bytes]:
        """What was drawn that a key depends on, in a run that is over."""
        seen, todo = set[bytes](), [key]
        while todo:
            if (value := todo.pop()) not in seen:
                seen.add(value)
                todo += self._behind.get(value, ())
        return seen & self.born.keys()


# --------------------------------------------------------------------------------------------------------- primitives


class _Hash:
    """One of hashlib's, traced."""

    def __init__(self, trace: Trace, make: Callable[..., Any], data: Buffer = b"", **more: Any) -> None:
        self._trace, self._state, self._parts = (
            trace,
            make(**more),
            [more[key] for key in ("key", "salt") if key in more],
        )
        if more.get("key"):
            trace.used("hash", more["key"], 0, len(data))
        self.update(data)

    def update(self, data: Buffer) -> None:
        self._state.update(data)
        self._parts.append(bytes(data) if len(data) <= LONGEST else b"")

    def copy(self) -> Any:
        other = object.__new__(_Hash)
        other._trace, other._state, other._parts = self._trace, self._state.copy(), [*self._parts]
        return other

    def digest(self, *size: int) -> bytes:
        return self._trace.derived(self._state.digest(*size), b"".join(self._parts))

    def hexdigest(self) -> str:
        return str(self._state.hexdigest())


def _hashes(trace: Trace) -> Any:
    """What stands for hashlib."""

    def traced(name: str) -> Callable[..., _Hash]:
        return lambda data=b"", **more: _Hash(trace, getattr(hashlib, name), data, **more)

    return SimpleNamespace(**{name: traced(name) for name in ("sha256", "sha512", "blake2b", "shake_256")})


def _expansions(trace: Trace) -> dict[Any, Any]:
    """What stands for HKDF."""

    def traced(make: Any) -> Any:
        def made(algorithm: Any, length: int, *parts: bytes) -> Any:
            whole = make(algorithm, length, *parts)

            def derive(secret: bytes) -> bytes:
                out = trace.derived(whole.derive(secret), secret, *parts)
                trace.used("derived", out, 0, len(out))
                return out

            return SimpleNamespace(derive=derive)

        return made

    return {HKDF: traced(HKDF), HKDFExpand: traced(HKDFExpand)}


def _exchanges(trace: Trace) -> Any:
    """What stands for X25519."""

    class Private:
        def __init__(self, secret: bytes) -> None:
            self._secret, self._key = secret, X25519PrivateKey.from_private_bytes(secret)

        @classmethod
        def from_private_bytes(cls, secret: bytes) -> Private:
            return cls(bytes(secret))

        def exchange(self, public: X25519PublicKey) -> bytes:
            return trace.derived(self._key.exchange(public), self._secret)

        def public_key(self) -> Any:
            public = self._key.public_key().public_bytes_raw()
            return SimpleNamespace(public_bytes_raw=lambda: trace.derived(public))  # for everybody

    return Private


def _points(trace: Trace) -> dict[Any, Any]:
    """What stands for the group. A scalar that no primitive made is a secret of who multiplies by it."""

    def multiplied(points: Any, scalars: Any, **more: Any) -> Any:
        out = multiply(points, scalars, **more)
        for point, scalar, row in zip(points, np.broadcast_to(scalars, points.shape), out, strict=True):
            trace.secret(scalar.tobytes())
            trace.derived(row.tobytes(), point.tobytes(), scalar.tobytes())
        return out

    def added(a: Any, b: Any, **more: Any) -> Any:
        out = add(a, b, **more)
        for one, other, row in zip(a, b, out, strict=True):
            trace.derived(row.tobytes(), one.tobytes(), other.tobytes())
        return out

    def mapped(uniform: Any, **more: Any) -> Any:
        out = from_uniform(uniform, **more)
        for text, row in zip(uniform, out, strict=True):
            trace.derived(row.tobytes(), text.tobytes())
        return out

    def raised(scalars: Any, **more: Any) -> Any:
        for scalar in scalars:
            trace.secret(scalar.tobytes())
            trace.used("point", scalar.tobytes(), 0, 1)
        return multiply_base(scalars, **more)

    return {multiply: multiplied, multiply_base: raised, add: added, from_uniform: mapped}


def _scalars(trace: Trace) -> dict[Any, Any]:
    """What stands for numbers modulo the group's order, and for their shares."""
    drawn, dealt = oprf._nonzero, masks.shares

    def reduced(uniform: bytes) -> int:
        scalar = scalar_of(uniform)
        trace.derived(scalar_bytes(scalar), uniform)
        trace.scalars.append(scalar)
        return scalar

    def nonzero(stream: KeyStream, count: int) -> list[int]:
        found = drawn(stream, count)
        for each in found:
            trace.derived(scalar_bytes(each), stream._key)
        trace.scalars += found
        return found

    def inverted(values: Sequence[int]) -> list[int]:
        found = inverses(values)
        for value, inverse in zip(values, found, strict=True):
            trace.derived(scalar_bytes(inverse), scalar_bytes(value))
        return found

    def shared(secret: int, threshold: int, clients: Sequence[int], stream: KeyStream) -> dict[int, int]:
        shares, whole = dealt(secret, threshold, clients, stream), scalar_bytes(secret)
        values = [scalar_bytes(share) for share in shares.values()]
        for value in values:
            trace.derived(value, whole, stream._key)
        trace.derived(whole, *values, need=threshold)
        trace.dealt.append((threshold, dict(shares)))
        return shares

    return {scalar_of: reduced, inverses: inverted, drawn: nonzero, dealt: shared}


def _key_streams(trace: Trace) -> dict[Any, Any]:
    """What stands for compiled key streams, noise and fill."""

    def masked(ring: Any, acc: Any, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
        for key, sign in zip(keys, signs, strict=True):
            trace.used("masks", key, lane, acc[0].size, sign)
        add_streams(ring, acc, keys, signs, lane)

    def vector(ring: Any, key: bytes, lane: int, *shape: int, nonzero: bool = False) -> Any:
        trace.used("vector", key, lane, int(np.prod(shape)))
        return stream(ring, key, lane, *shape, nonzero=nonzero)

    def rows(ring: Any, keys: Any, lane: int, length: int) -> Any:
        for key in keys:
            trace.used("rows", key.tobytes(), lane, length)
        return row_streams(ring, keys, lane, length)

    def noisy(ring: Any, acc: Any, seed: bytes, lane: int, noise: Any) -> None:
        trace.used("noise", seed, lane, acc[0].size)
        add_noise(ring, acc, seed, lane, noise)

    def filled(matrix: Any, entities: Any, keys: Sequence[bytes], *more: Any) -> Any:
        for key in keys:
            trace.used("fill", key, 0, matrix.size)
        return encode(matrix, entities, keys, *more)

    return {add_streams: masked, stream: vector, row_streams: rows, add_noise: noisy, encode: filled}


@contextmanager
def _methods(trace: Trace) -> Iterator[None]:
    """Key streams, sealed and signed messages report to the trace."""
    fill, read, seal, sign, hello = KeyStream.fill, KeyStream.bytes, Sealer.seal, Signer.seal, Hello.to_bytes

    def traced_fill(self: KeyStream, out: memoryview) -> None:
        start, reader = self.__dict__.get("traced_to", 0), self.__dict__.setdefault("traced_as", len(trace.uses))
        trace.used("stream", self._key, self._lane, len(out), start=start, reader=reader)
        self.__dict__["traced_to"] = start + len(out)
        fill(self, out)

    def traced_bytes(self: KeyStream, count: int) -> bytes:
        return trace.derived(read(self, count), self._key)

    def traced_seal(self: Sealer, chunk: int, *payload: Buffer) -> memoryview:
        header, text, message = self.header.at(chunk), b"".join(payload), seal(self, chunk, *payload)
        trace.sends(bytes(self._cipher.key), header, text)
        over = bytes(a ^ b for a, b in zip(text[:SHORTEST], message[HEADER_BYTES:], strict=False))
        trace.covered.append((header, over))
        return message

    def traced_sign(self: Signer, chunk: int, *payload: Buffer) -> bytes:
        message = sign(self, chunk, *payload)
        trace.shows(self._header.at(chunk), message)
        return message

    def traced_hello(self: Hello) -> bytes:
        trace.shown.append(hello(self))
        return hello(self)

    with attributes_stand_in(
        (KeyStream, "fill", traced_fill), (KeyStream, "bytes", traced_bytes), (Sealer, "seal", traced_seal),
        (Signer, "seal", traced_sign), (Hello, "to_bytes", traced_hello),
    ):  # fmt: skip
        yield


@contextmanager
def traced(
    subject: Subject, tables: Sequence[TableLike], *, chunk_bytes: int = CHUNK_BYTES, **more: Any
) -> Iterator[tuple[Trace, Parties]]:
    """Parties whose every draw, derivation, use and message is traced. Chunks are small, so that there are several."""
    trace = Trace()
    instead = {
        hashlib: _hashes(trace),
        X25519PrivateKey: _exchanges(trace),
        **_expansions(trace),
        **_points(trace),
        **_scalars(trace),
        **_key_streams(trace),
    }
    with standing_in(instead, but=__name__, CHUNK_BYTES=chunk_bytes), _methods(trace):
        parties = subject.parties(tables, entropy=trace.draw, **more)
        parties.exchange.clock, parties.exchange.tap = trace.acting, trace.hears
        yield trace, parties
    for use in trace.uses:
        if not trace.known(use.key):
            raise Objection(f"client {use.party} uses a key for {use.how} that comes from nowhere")
