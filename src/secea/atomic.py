"""Replace files atomically: each one as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeAlias

Content: TypeAlias = bytes | Callable[[BinaryIO], object]
"""The content of a file, or a function that writes it."""


def replace_files(contents: Mapping[Path, Content], *, mode: int = 0o666, durable: bool = False) -> None:
    """Write all files under temporary names, then move them into place. Each file is always either the old or the new.

    If one cannot be written, all stay as they were, and an `OSError` names it. `mode` is that of new files, before the
    umask. With `durable`, everything is on the disk when this returns.
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


def place(folder: Path, target: Path) -> None:
    """Move a folder that was made aside into its place, which must be free."""
    folder.rename(target)


def _write(path: Path, content: Content, mode: int, durable: bool) -> None:
    path.unlink(missing_ok=True)  # left by a killed process, perhaps with another mode
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
    """Make sure that the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _blaming(target: Path) -> Iterator[None]:
    """Make an `OSError` name the file that the caller knows, not the temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(target)) from None


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C for the few renames until everything is done. Only the main thread can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
