"""What can be read of parties without looking for it: reprs of all that they hold, and what their errors say."""

from __future__ import annotations

import base64
import gc
import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


def forms(secret: bytes) -> Iterator[bytes]:
    """How a secret could show in a text: raw, as Python or JSON shows bytes, in hex, base64 or decimal."""
    yield secret
    yield repr(secret)[2:-1].encode()
    yield secret.hex().encode()
    yield secret.hex(" ").encode()
    for start in range(3):  # base64 of any text around it holds one of these
        yield base64.b64encode(bytes(start) + secret)[-(-4 * start // 3) : -4]
    for order in ("little", "big"):
        yield b"%d" % int.from_bytes(secret, order)
    yield ", ".join(map(str, secret)).encode()


@dataclass
class Secrets:
    """Everything secret that was seen while a federation ran, by what it is."""

    seen: dict[bytes, str] = field(default_factory=dict)

    def add(self, what: str, secret: bytes) -> None:
        """Something that must not show."""
        if len(secret) >= 16:
            self.seen[bytes(secret[:32])] = what

    def leaks(self, texts: Iterable[str]) -> set[str]:
        """What of them shows in a text."""
        text = "\n".join(dict.fromkeys(texts)).encode(errors="surrogateescape")
        return {what for secret, what in self.seen.items() if any(form in text for form in forms(secret[:16]))}

    def drawn(self, _: int) -> Callable[[int], bytes]:
        """The system's randomness for a party: what is as long as a key is one. Salts and lives are shorter."""

        def entropy(count: int) -> bytes:
            data = os.urandom(count)
            if count >= 32:
                self.add("drawn", data)
            return data

        return entropy


def reachable(*roots: object, without: tuple[type, ...] = ()) -> Iterator[object]:
    """Every object of a class of secea that can be reached from these, once."""
    waiting, seen = list(roots), set[int]()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, *without)) or callable(thing):
            continue
        seen.add(id(thing))
        waiting += gc.get_referents(thing)
        if type(thing).__module__.startswith("secea"):
            yield thing


def error_texts(error: BaseException | None) -> Iterator[str]:
    """All that an error says, with those behind it."""
    while error is not None:
        yield from (str(error), repr(error), repr(error.args), repr(vars(error)))
        yield from traceback.format_exception(error)
        error = error.__cause__ or error.__context__
