"""A party's saved state on disk: encrypted, readable only by its owner, and replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secea.atomic import replace_files
from secea.errors import SnapshotError
from secea.wire.keys import Identity, digest, expand
from secea.wire.messages import TAG_BYTES, Buffer
from secea.wire.randomness import Entropy

_MAGIC: Final = b"secea state 1\n"
_NONCE_BYTES: Final = 12
_PREFIX_BYTES: Final = 8
_PART_BYTES: Final = 1 << 24
_LOOK_SECONDS: Final = 0.05

_LOCKS: Final = Path("/proc/locks")
_LOCKED: Final = re.compile(r"^\d+: FLOCK +\w+ +\w+ +-?\d+ [0-9a-f]+:[0-9a-f]+:(\d+) ", re.MULTILINE)

_held: set[int] = set()
"""Descriptors that lock a folder for this process."""


def _let_go() -> None:
    """Release all locks in a forked process. It uses no state, and must not keep the lock when its parent has ended."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def in_use(folder: Path) -> bool | None:
    """Whether a process that can be seen from here holds this folder, or file. None where the system does not say.

    It takes no lock, and so disturbs nobody.
    """
    try:
        number = folder.stat().st_ino
    except OSError:
        return False
    try:
        return str(number) in _LOCKED.findall(_LOCKS.read_text())
    except OSError:
        return None


class Store:
    """Named pieces of state in a directory, sealed under a key that is derived from the party's identity.

    State of another session, or of the same party under another key, is neither read nor deleted.
    """

    def __init__(
        self,
        folder: Path | str,
        identity: Identity,
        session: bytes,
        entropy: Entropy = os.urandom,
        *,
        read_only: bool = False,
    ) -> None:
        """`read_only`: the folder is neither made nor changed, and may be missing."""
        self.folder, self._entropy = Path(folder), entropy
        self._cipher = AESGCM(expand(identity.secret, "storage"))
        self._session = session
        self._owner = digest(b"state", session, identity.public).hex()
        if not read_only:
            self._make_folder()

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder.chmod(0o700)
        except OSError as error:
            raise SnapshotError(f"the state directory {self.folder} cannot be used: {error.strerror}") from None

    @contextlib.contextmanager
    def held(self, patience: float) -> Iterator[None]:
        """Lock this state against other processes. A `SnapshotError` if one still uses it after `patience` seconds."""
        end = time.monotonic() + patience
        while not (lock := self._lock()):
            if time.monotonic() > end:
                raise SnapshotError(f"another process uses the state in {self.folder}: one run at a time")
            time.sleep(_LOOK_SECONDS)
        _held.add(lock)
        try:
            yield
        finally:
            if lock in _held:  # not in a process that was forked in the meantime
                _held.remove(lock)
                os.close(lock)

    def _lock(self) -> int:
        """A descriptor of the folder, locked until it is closed or this process ends. 0 if another process has it."""
        try:
            import fcntl
        except ImportError:
            raise SnapshotError(
                "a folder of state cannot be locked on this system: engines need Linux or macOS"
            ) from None
        self._make_folder()
        with contextlib.suppress(FileNotFoundError):  # another process removed it before we could lock it
            descriptor = os.open(self.folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), self.folder.stat()):
                    return descriptor
            except BlockingIOError:
                pass
            os.close(descriptor)
        return 0

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.{self._owner}.state"

    def save(self, name: str, data: Buffer | Iterator[Buffer]) -> None:
        """Replace a piece of state, which may come in pieces.

        After a crash at any point, either the old or the new one is there, complete.
        """

        def write(file: BinaryIO) -> None:
            file.write(_MAGIC)
            file.writelines(self._sealed(name, data if isinstance(data, Iterator) else iter([data])))

        try:
            replace_files({self._path(name): write}, mode=0o600, durable=True)
        except OSError as error:
            raise SnapshotError(f"state cannot be saved in {self.folder}: {error.strerror}; nothing was sent") from None

    def _sealed(self, name: str, data: Iterator[Buffer]) -> Iterator[bytes]:
        """A random prefix, then the parts, each sealed with its number and whether it is the last one."""
        prefix = self._entropy(_PREFIX_BYTES)
        yield prefix
        for i, (part, last) in enumerate(_parts(data)):
            yield self._cipher.encrypt(prefix + i.to_bytes(4, "little"), part, self._label(name, last=last))

    def load(self, name: str) -> bytes | None:
        """A piece of state, or None if there is none."""
        try:
            with self._path(name).open("rb") as file:
                return b"".join(self._opened(name, file))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SnapshotError(f"state cannot be read from {self.folder}: {error.strerror}") from None
        except InvalidTag:
            raise SnapshotError(f"{self._path(name)} is damaged; if you remove it, this party begins again") from None

    def _opened(self, name: str, file: BinaryIO) -> Iterator[bytes]:
        magic, prefix = file.read(len(_MAGIC)), file.read(_PREFIX_BYTES)
        step = _PART_BYTES + TAG_BYTES
        part = file.read(step)
        for i in itertools.count():
            follows = file.read(step)
            nonce = prefix + i.to_bytes(4, "little")
            if magic != _MAGIC or len(nonce) != _NONCE_BYTES or len(part) < TAG_BYTES:
                raise InvalidTag
            yield self._cipher.decrypt(nonce, part, self._label(name, last=not follows))
            if not follows:
                return
            part = follows

    def strangers(self) -> list[Path]:
        """Saved pieces in the same folder that belong to another session, or to another key."""
        return sorted(path for path in self.folder.glob("*.state") if not path.name.endswith(f".{self._owner}.state"))

    def forget(self, name: str) -> None:
        """Delete a piece of state."""
        self._path(name).unlink(missing_ok=True)

    def _label(self, name: str, *, last: bool) -> bytes:
        return self._session + bytes([last]) + name.encode()


def _parts(data: Iterator[Buffer]) -> Iterator[tuple[bytearray, bool]]:
    """The same bytes in parts of one size, each with whether it is the last one. Only that may be shorter."""
    part = bytearray()
    for piece in data:
        rest = memoryview(piece)
        while len(part) + len(rest) > _PART_BYTES:
            room = _PART_BYTES - len(part)
            yield part + rest[:room], False
            part, rest = bytearray(), rest[room:]
        part += rest
    yield part, True
