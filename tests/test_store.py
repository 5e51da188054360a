"""Saved state on disk: whole or not at all, for its owner alone, and unreadable without the identity."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from secea.engines import store as store_module
from secea.engines.files import read_identity, read_public, read_session, write_identity, write_session
from secea.engines.store import Store
from secea.errors import ParamsError, SnapshotError
from secea.forms import NAMES, form_of
from secea.params import Params
from secea.party.session import Session
from secea.wire.keys import Identity, Roster

ME = Identity(bytes(range(32)))


def test_what_is_saved_is_loaded_and_the_last_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_PART_BYTES", 10)
    store = Store(tmp_path / "state", ME, b"session")
    assert store.load("client") is None
    for size in (0, 1, 9, 10, 11, 20, 35):
        store.save("client", bytes(range(size)))
        assert Store(tmp_path / "state", ME, b"session").load("client") == bytes(range(size))


def test_only_its_owner_can_read_it_and_nothing_shows_in_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "state", ME, b"session")
    store.save("client", b"a secret of this party")
    (path,) = (tmp_path / "state").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert b"secret" not in path.read_bytes()
    first = path.read_bytes()
    store.save("client", b"a secret of this party")
    assert path.read_bytes() != first, "two saves look different"


def test_a_file_under_another_name_or_a_damaged_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_PART_BYTES", 10)
    store = Store(tmp_path, ME, b"session")
    store.save("client", bytes(35))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.with_name(path.name.replace("client", "server")).write_bytes(whole)
    with pytest.raises(SnapshotError):
        store.load("server")
    for at in range(len(whole)):
        for bad in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            path.write_bytes(bad)
            with pytest.raises(SnapshotError):
                store.load("client")
    part = 10 + 16  # parts that are left out at the end, or change places
    start = len(whole) - 3 * part - (5 + 16)
    first, second = whole[start : start + part], whole[start + part : start + 2 * part]
    path.write_bytes(whole[:start] + second + first + whole[start + 2 * part :])
    with pytest.raises(SnapshotError):
        store.load("client")


def test_state_of_another_session_or_key_is_not_seen_cannot_be_read_and_stays(tmp_path: Path) -> None:
    store = Store(tmp_path / "state", ME, b"session")
    store.save("client", b"old")
    (path,) = store.folder.iterdir()
    for other in (Store(store.folder, Identity(bytes(32)), b"session"), Store(store.folder, ME, b"another")):
        assert other.load("client") is None
        other._path("client").write_bytes(path.read_bytes())
        with pytest.raises(SnapshotError, match="is damaged"):
            other.load("client")
        other.save("client", b"new")
        assert (store.load("client"), other.load("client")) == (b"old", b"new")
        other.forget("client")
        assert list(store.folder.iterdir()) == [path]


def test_state_is_used_by_one_at_a_time_and_by_the_next_one_when_it_is_free(tmp_path: Path) -> None:
    first, second = (Store(tmp_path / "state", ME, b"session") for _ in range(2))
    with first.held(0), pytest.raises(SnapshotError, match=r"uses the state in .*: one run at a time"):
        second.held(0.2).__enter__()
    with second.held(0):
        second.save("client", b"old")
        shutil.rmtree(second.folder)
        with first.held(0):  # another directory, though of the same name
            assert first.load("client") is None


def test_a_forked_child_does_not_keep_the_state_of_a_process_that_was_killed(tmp_path: Path) -> None:
    first, second = (Store(tmp_path / "state", ME, b"session") for _ in range(2))
    ours, theirs = os.pipe()
    holder = os.fork()
    if not holder:
        with first.held(0):
            if not (child := os.fork()):
                signal.pause()
            os.write(theirs, child.to_bytes(4, "little"))
            signal.pause()
    child = int.from_bytes(os.read(ours, 4), "little")
    try:
        with pytest.raises(SnapshotError, match="one run at a time"):
            second.held(0).__enter__()
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        os.kill(child, 0)  # it lives
        with second.held(0):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(ours)
        os.close(theirs)


def test_a_forked_child_that_leaves_the_block_closes_nothing_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "state", ME, b"session")
    held = store.held(0)
    held.__enter__()
    (lock,) = store_module._held
    if not (child := os.fork()):
        code = 1
        try:
            if os.open(os.devnull, os.O_RDONLY) == lock:  # the number is free, and taken for something else
                held.__exit__(None, None, None)
                os.fstat(lock)
                code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(SnapshotError, match="one run at a time"):  # what the child did freed nothing
        Store(tmp_path / "state", ME, b"session").held(0).__enter__()
    held.__exit__(None, None, None)


def test_a_directory_that_goes_as_it_is_locked_is_made_and_locked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Store(tmp_path / "state", ME, b"session") for _ in range(2))
    lock = fcntl.flock

    def removed(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        (tmp_path / "state").rmdir()  # the one that had it is done
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed)
    with first.held(1), pytest.raises(SnapshotError, match="one run at a time"):
        second.held(0).__enter__()


def test_a_full_disk_leaves_the_old_state_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, ME, b"session")
    store.save("client", b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SnapshotError, match="No space left on device; nothing was sent"):
        store.save("client", b"new")
    monkeypatch.undo()
    assert store.load("client") == b"old"
    assert [path.suffix for path in tmp_path.iterdir()] == [".state"]


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotError, match="cannot be used"):
        Store(tmp_path / "file", ME, b"session")


# -------------------------------------------------------------------------------------------------- keys and agreements


def agreement(tmp_path: Path, form: str = "paillier") -> Session:
    keys = []
    for name in ("server", "north", "south", "west"):
        write_identity(Identity.generate(), tmp_path / f"{name}.key")
        keys.append(read_public(tmp_path / f"{name}.key.pub"))
    roster = Roster(tuple(keys[1:]), keys[0], ("north", "south", "west"))
    return Session(Params(3, dim=4, max_entities=5, max_union=9), roster, form_of(form))


def test_keys_are_read_as_they_were_written_and_private_ones_are_for_their_owner(tmp_path: Path) -> None:
    write_identity(ME, tmp_path / "me.key")
    assert read_identity(tmp_path / "me.key") == ME
    assert read_public(tmp_path / "me.key.pub") == ME.public
    assert (tmp_path / "me.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ParamsError, match="is not overwritten"):
        write_identity(ME, tmp_path / "me.key")
    (tmp_path / "me.key").chmod(0o644)
    with pytest.raises(ParamsError, match="chmod 600"):
        read_identity(tmp_path / "me.key")
    with pytest.raises(ParamsError, match="must not leave its owner"):
        read_public(tmp_path / "me.key")


def test_what_is_no_key_and_no_agreement_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("hello")
    path.chmod(0o600)
    for read in (read_identity, read_public, read_session):
        with pytest.raises(ParamsError, match="text is no"):
            read(path)
        with pytest.raises(ParamsError, match="cannot be read"):
            read(tmp_path / "missing")


def test_an_agreement_is_read_as_it_was_written_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    session, path = agreement(tmp_path), tmp_path / "federation.json"
    write_session(session, path)
    again = read_session(path)
    assert again.hash == session.hash
    assert again.roster.names == ("north", "south", "west")
    path.write_text(path.read_text().replace('"dim": 4', '"dim": 5'))
    with pytest.raises(ParamsError, match="was changed"):
        read_session(path)


@pytest.mark.parametrize("form", NAMES)
def test_the_file_of_an_earlier_version_is_still_read(tmp_path: Path, form: str) -> None:
    """It called the form a retrieval, and had the option of the paper's beside it."""
    session, path = agreement(tmp_path, form), tmp_path / "federation.json"
    write_session(session, path)
    new = json.loads(path.read_text())
    assert new["form"] == session.form.name == form
    old = {name: value for name, value in new.items() if name != "form"} | {"retrieval": form}
    if "queries" in new["options"]:
        old["queries"] = old.pop("options")["queries"]
    path.write_text(json.dumps(old))
    assert read_session(path).hash == session.hash
    path.write_text(json.dumps({name: value for name, value in new.items() if name != "form"}))
    with pytest.raises(ParamsError, match="is no federation file: 'form' is missing"):
        read_session(path)


def test_a_form_that_is_gone_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "federation.json"
    write_session(agreement(tmp_path), path)
    path.write_text(path.read_text().replace('"form": "paillier"', '"form": "reciprocal"'))
    with pytest.raises(ParamsError, match="the form 'reciprocal', which this version does not have"):
        read_session(path)
