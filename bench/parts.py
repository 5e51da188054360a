"""Where CPU time goes: compiled loops, sealing, opening and key streams by a clock of their own, and the rest."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from cryptography.hazmat.primitives.ciphers import Cipher, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secea.arithmetic._kernels import lib

OPEN: Final = "open (AES-GCM)"
SEAL: Final = "seal (AES-GCM)"
STREAM: Final = "key streams (AES-CTR)"
METHODS: Final = {"decrypt_into": OPEN, "decrypt": OPEN, "update_into": STREAM, "update": STREAM}
"""What a method of a cipher is called; a loop of the kernels goes by its own name."""
SEALING: Final = dict.fromkeys(("update_into", "finalize", "authenticate_additional_data"), SEAL)
"""The same for a cipher in Galois counter mode."""


class _Clocked:
    """An object whose calls are timed; what `encryptor` and the like return is clocked as well."""

    def __init__(self, inner: Any, record: list[tuple[str, float]], names: Mapping[str, str] = METHODS) -> None:
        self._inner, self._record, self._names = inner, record, names

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("encryptor", "decryptor"):
            return lambda: _Clocked(found(), self._record, self._names)
        if not callable(found):
            return found
        record, said = self._record, self._names.get(name, f"kernel {name}")

        def call(*arguments: Any) -> Any:
            started = time.thread_time()
            try:
                return found(*arguments)
            finally:
                record.append((said, time.thread_time() - started))

        setattr(self, name, call)
        return call


@contextmanager
def clocked() -> Iterator[list[tuple[str, float]]]:
    """While this lasts, calls of the kernels and of ciphers that are made anew are recorded with their CPU seconds."""
    record: list[tuple[str, float]] = []

    def cipher(algorithm: Any, mode: Any) -> Any:
        return _Clocked(Cipher(algorithm, mode), record, SEALING if isinstance(mode, modes.GCM) else METHODS)

    stand_ins: list[tuple[str, object, Any]] = [
        ("lib", lib, _Clocked(lib, record)),
        ("AESGCM", AESGCM, lambda key: _Clocked(AESGCM(key), record)),
        ("Cipher", Cipher, cipher),
    ]
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("secea.")]
    patches = [
        patch.object(module, name, stand_in)
        for module in modules
        for name, original, stand_in in stand_ins
        if vars(module).get(name) is original
    ]
    for each in patches:
        each.start()
    try:
        yield record
    finally:
        for each in patches:
            each.stop()


def parts(work: Callable[[], object]) -> dict[str, float]:
    """CPU seconds of each part of the work, the largest first; the rest is Python, numpy and copies."""
    with clocked() as record:
        started = time.process_time()
        work()
        total = time.process_time() - started
    spent: dict[str, float] = {}
    for name, seconds in record:
        spent[name] = spent.get(name, 0.0) + seconds
    ordered = dict(sorted(spent.items(), key=lambda item: -item[1]))
    return {**ordered, "Python, numpy, copies": total - sum(spent.values())}
