"""Where a party keeps what it has: its state, the disk, the memory, its log, and its clock."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from secea.engines.health.finding import Finding, ok, size, warning, wrong
from secea.engines.health.machine import Machine
from secea.engines.site import Site
from secea.engines.store import Store, in_use
from secea.errors import SnapshotError
from secea.party.client import Client
from secea.party.server import Server
from secea.party.session import Session
from secea.plan import plan

BASE_BYTES: Final = 60_000_000
"""The memory of Python, numpy and this package."""
FLOAT_BYTES: Final = 8
NAME_BYTES: Final = 128
"""Of an entity's name in what is saved: in the table, and in the client's state."""
SMALL_BYTES: Final = 1 << 16
"""What is saved besides."""
AHEAD_SECONDS: Final = 60.0
"""A file may be so much newer than the clock: disks of other machines have clocks of their own."""


@dataclass(frozen=True)
class Needs:
    """Bytes that the plan of a federation predicts for one party."""

    memory: int
    saved: int
    """In the state directory: a piece is there twice while it is replaced."""
    passing: int
    """In the folder of temporary files."""

    @classmethod
    def of(cls, session: Session, *, server: bool) -> Needs | None:
        """None if the federation file sets no bounds."""
        params, form = session.params, session.form
        if params.max_entities is None or params.max_union is None:
            return None
        held, rows = form.memory(params, params.max_union), params.max_entities * params.dim * FLOAT_BYTES
        if server:
            uploads = plan(params, entities=params.max_union, form=form).sent_by_clients
            return cls(held["server"] + BASE_BYTES, 0, max(uploads.values()))
        saved = held["kept"] + rows + params.max_entities * NAME_BYTES + SMALL_BYTES
        return cls(held["client"] + BASE_BYTES, 2 * saved, rows)


def folder(site: Site) -> Iterator[Finding]:
    """The state directory: it can be written, and nobody else reads it."""
    place = site.state
    if not place.exists():
        parent = _existing(place)
        if trouble := _unwritable(parent) if parent.is_dir() else "that is no folder":
            yield wrong(
                "state", f"{place} cannot be made: {parent}: {trouble}", "choose another folder for `state`, or make it"
            )
        else:
            yield ok("state", f"{place} will be made by the first run")
    elif not place.is_dir():
        yield wrong("state", f"{place} is no folder", "choose another path for `state`")
    elif trouble := _unwritable(place):
        yield wrong("state", f"{place} cannot be written: {trouble}", "give its owner the right to write there")
    elif os.name == "posix" and place.stat().st_mode & 0o077:
        yield warning("state", f"{place} can be read by others; it is encrypted", f"chmod 700 {place}")
    else:
        yield ok("state", f"{place} can be written, by its owner alone")


def room(site: Site, session: Session, machine: Machine, *, server: bool) -> Iterator[Finding]:
    """Disks and memory, against what the plan predicts for this party."""
    needs = Needs.of(session, server=server)
    if needs is None:
        return
    for about, place, need in (
        ("disk", site.state, needs.saved),
        ("temporary files", Path(tempfile.gettempdir()), needs.passing),
    ):
        if need and (place := _existing(place)):
            free = shutil.disk_usage(place).free
            says = f"{size(free)} are free at {place}, and this federation may need {size(need)}"
            if free >= need:
                yield ok(about, says)
            else:
                how = "`state`" if about == "disk" else "TMPDIR"
                yield wrong(about, says, f"make room, or choose another disk: {how}")
    yield from _memory(needs.memory, machine)


def _memory(need: int, machine: Machine) -> Iterator[Finding]:
    predicted = f"this party may need {size(need)}, and the engine's processes more"
    if machine.memory is None:
        return
    if machine.memory < need:
        says = f"this machine has {size(machine.memory)}; {predicted}"
        yield wrong("memory", says, "take a larger machine; `secea plan` says what a smaller federation needs")
    elif machine.available is not None and machine.available < need:
        says = f"{size(machine.available)} of {size(machine.memory)} are free; {predicted}"
        yield warning("memory", says, "end other programs before the run")
    else:
        yield ok("memory", f"{size(machine.available or machine.memory)} are free; {predicted}")


def saved(site: Site, *, server: bool) -> Iterator[Finding]:
    """What was saved: of this session and key, and it can be read."""
    about = "saved state"
    if not site.state.is_dir():
        return
    store = Store(site.state, site.key, site.session.hash, read_only=True)
    try:
        data = store.load("server" if server else "client")
        if data is not None and server:
            Server.restore(site.session, site.key, data)
        elif data is not None:
            Client.restore(site.session, site.key, data)
    except SnapshotError as error:
        yield wrong(about, str(error), "bring back the newest copy of the folder, or begin a new session")
        return
    if data is not None:
        goes_on = ", and a run uses it now" if in_use(site.state) else ""
        yield ok(about, f"it is of this session and key, and can be read{goes_on}")
    elif others := store.strangers():
        yield warning(
            about,
            f"{site.state} has {_counted(len(others), 'file')} of another session or key, and nothing of this one",
            "if this session has run here before, take the key and the federation file that it ran with;"
            " otherwise give each federation file a folder of its own",
        )
    else:
        yield ok(about, "there is none: this session has not run here")


def log(site: Site) -> Iterator[Finding]:
    """The audit log can be written, and nobody else reads it."""
    if site.log is None:
        yield warning(
            "log", "there is none, so that `secea status` has nothing to tell of this site", 'log = "audit.jsonl"'
        )
    elif site.log.is_dir():
        yield wrong("log", f"{site.log} is a folder", "give `log` the name of a file")
    elif trouble := _unwritable(site.log) if site.log.exists() else _no_folder(site.log.parent):
        yield wrong("log", f"{site.log} cannot be written: {trouble}", "choose another path for `log`")
    elif os.name == "posix" and site.log.exists() and site.log.stat().st_mode & 0o077:
        yield warning("log", f"{site.log} can be read by others", f"chmod 600 {site.log}")
    else:
        yield ok("log", f"{site.log} can be written")


def clock(site: Site, machine: Machine) -> Iterator[Finding]:
    """The clock is not before what was saved already."""
    files = [*site.state.glob("*"), *([site.log] if site.log and site.log.is_file() else [])]
    newest = max(files, key=_written, default=None)
    shows = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(machine.now))
    if newest is not None and _written(newest) > machine.now + AHEAD_SECONDS:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(_written(newest)))
        yield wrong(
            "clock", f"it shows {shows}, and {newest} was written at {when}: it has gone back", "set the clock (NTP)"
        )
    else:
        yield ok("clock", f"it shows {shows}")


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it was replaced meanwhile
        return 0.0


def _existing(path: Path) -> Path:
    """The folder itself, or the first one above it that there is."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def _unwritable(place: Path) -> str:
    """Why a file, or a new file in a folder, cannot be written; nothing if it can. Nothing is left there."""
    try:
        if place.is_file():
            os.close(os.open(place, os.O_WRONLY | os.O_APPEND))
        else:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(b"\0")
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _no_folder(folder: Path) -> str:
    """Why no file can be made in a folder; nothing if it can."""
    return _unwritable(folder) if folder.is_dir() else "its folder is missing"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
