"""Files that are replaced: whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeAlias

Content: TypeAlias = bytes | Callable[[BinaryIO], object]
"""What a file is to hold, or what writes it."""


def replace_files(contents: Mapping[Path, Content], *, mode: int = 0o666, durable: bool = False) -> None:
    """Write all files aside, and move them to their places: whatever happens, each of them is the old one or the new.

    If one cannot be written, all stay as they were, and an `OSError` names it. `mode` is that of new files, before the
    umask. What is `durable` is on the disk when this returns.
    """
    aside = {target: target.with_name(f"{target.name}.{os.getpid()}.new") for target in contents}
    try:
        for target, content in contents.items():
            with _blaming(target):
                _write(aside[target], content, mode, durable)
        with _uninterrupted() if len(contents) > 1 else contextlib.nullcontext():
            for target, fresh in aside.items():
                with _blaming(target):
                    fresh.replace(target)
    except BaseException:
        for fresh in aside.values():
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
        raise
    if durable:
        for folder in {target.parent for target in contents}:
            _sync(folder)


def _write(path: Path, content: Content, mode: int, durable: bool) -> None:
    path.unlink(missing_ok=True)  # left by a process that was killed, and perhaps of another mode
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """The names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _blaming(target: Path) -> Iterator[None]:
    """What the system refuses is told of the file that the caller knows."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(target)) from None


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C comes too late: a few renames, and everything is done. Only the main thread is interrupted at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
