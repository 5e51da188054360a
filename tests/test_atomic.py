"""Files are replaced whole or not at all: after a failure, a kill, Ctrl-C or a full disk."""

from __future__ import annotations

import ast
import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

import secea
from secea.atomic import replace_files

SOURCE = Path(secea.__file__).parent


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refuse(file: BinaryIO) -> None:
    file.write(b"half of")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("durable", [False, True])
def test_files_get_their_contents_and_nothing_is_left_beside_them(old: Path, durable: bool) -> None:
    other = old.with_name("other")
    replace_files({old: b"new", other: lambda file: file.write(b"written")}, durable=durable)
    assert (old.read_bytes(), other.read_bytes()) == (b"new", b"written")
    assert names(old.parent) == ["file", "other"]


def test_if_one_cannot_be_written_all_stay_as_they_were_and_the_error_names_it(old: Path) -> None:
    other = old.with_name("other")
    with pytest.raises(OSError, match="No space left on device") as error:
        replace_files({old: b"new", other: refuse})
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(other))
    assert (old.read_bytes(), names(old.parent)) == (b"old", ["file"])
    with pytest.raises(FileNotFoundError) as missing:
        replace_files({old: b"new", old.parent / "none" / "other": b"new"})
    assert missing.value.filename == str(old.parent / "none" / "other")
    assert (old.read_bytes(), names(old.parent)) == (b"old", ["file"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_whatever_else_happens_while_it_is_written_leaves_the_old_file(old: Path, error: type[BaseException]) -> None:
    def fail(file: BinaryIO) -> None:
        file.write(b"half of")
        raise error

    with pytest.raises(error):
        replace_files({old: fail})
    assert (old.read_bytes(), names(old.parent)) == (b"old", ["file"])


KILLED = """
import os, signal, sys
from pathlib import Path
from secea.atomic import replace_files

def write(file):
    file.write(b"half of")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)

replace_files({Path(sys.argv[1]): write})
"""


def test_a_kill_leaves_the_old_file(old: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, old], check=False, timeout=60)  # noqa: S603  # our own script
    assert ran.returncode == -signal.SIGKILL
    assert old.read_bytes() == b"old"
    assert len(names(old.parent)) == 2


def test_a_file_has_its_mode_whatever_was_left_or_was_there_before(old: Path) -> None:
    left = old.with_name(f"file.{os.getpid()}.new")
    before = os.umask(0o027)
    try:
        for mode, expected in ((0o600, 0o600), (0o666, 0o640)):
            left.write_bytes(b"half of")
            left.chmod(0o606)
            old.chmod(0o604)
            replace_files({old: b"new"}, mode=mode)
            assert stat.S_IMODE(old.stat().st_mode) == expected
    finally:
        os.umask(before)


def test_what_is_durable_is_on_the_disk_before_it_is_moved_and_so_is_its_name_after(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bytes, bytes]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((path.name, path.read_bytes() if path.is_file() else b"", old.read_bytes()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    replace_files({old: b"new"})
    assert seen == []
    replace_files({old: b"newer"}, durable=True)
    assert seen == [(f"file.{os.getpid()}.new", b"newer", b"new"), (old.parent.name, b"", b"newer")]


class CtrlCError(Exception):
    pass


@pytest.fixture
def heeded() -> Iterator[None]:
    """Ctrl-C is an error, also where whoever started the tests has it ignored."""

    def interrupt(*_: object) -> None:
        raise CtrlCError

    before = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
def test_ctrl_c_between_the_moves_comes_too_late(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, move = old.with_name("other"), Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        moved = move(self, target)
        signal.raise_signal(signal.SIGINT)
        return moved

    monkeypatch.setattr(Path, "replace", interrupted)
    replace_files({old: b"new", other: b"new"})
    assert (old.read_bytes(), other.read_bytes()) == (b"new", b"new")
    with pytest.raises(CtrlCError):
        signal.raise_signal(signal.SIGINT)


def moves(tree: ast.Module) -> Iterator[str]:
    """Calls that put a file in another's place, or on the disk."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            one = len(node.args) == 1 and not node.keywords  # a text's `replace` takes two
            if node.func.attr in ("fsync", "rename") or (node.func.attr == "replace" and one):
                yield ast.unparse(node)


def test_no_other_module_moves_files() -> None:
    product = [path for path in SOURCE.rglob("*.py") if "mutants" not in path.parts]  # which leave out a part of it
    found = {path.name for path in product if any(moves(ast.parse(path.read_text(encoding="utf-8"))))}
    assert found == {"atomic.py", "log.py"}  # a log that is full is put aside whole
    for other in ("fresh.replace(path)", "os.rename(a, b)", "os.fsync(1)"):
        assert list(moves(ast.parse(other))), other
