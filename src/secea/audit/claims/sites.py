"""Claims about what a site relies on: its disk, which may be full, its user's code, and the system's randomness."""

from __future__ import annotations

import errno
import inspect
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from secea.arrays import in_a_temporary_file
from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.claims.hosts import ME, SETS, Site
from secea.audit.mutants import hosts
from secea.audit.mutants import sites as mutants
from secea.audit.standing import Within, attributes_stand_in
from secea.engines import core, files
from secea.engines import site as engines_site
from secea.engines.driver import Driver
from secea.engines.exchange import Exchange
from secea.engines.federation import Federation
from secea.engines.host import Participant
from secea.engines.port import Failure, Order, Reply, Task, Terms
from secea.engines.store import Store
from secea.errors import SERVER, FederationError, RoundLost, SnapshotError, TableError
from secea.forms import form_of
from secea.params import Params
from secea.party.client import Client
from secea.party.form import HELD_BYTES
from secea.party.phases import REST
from secea.party.server import Server
from secea.wire.keys import Identity
from secea.wire.messages import Buffer

# ------------------------------------------------------------------------------------------------------------- the disk


def _full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


FAULTS: Final[tuple[Within, ...]] = ((os, "fsync", _full), (Path, "replace", _full))
"""Where a full or broken disk shows: when a file is written through, or moved into its place."""


def _begun(site: Site) -> None:
    parties = site.parties
    parties.exchange.greet()
    parties.server.begin(parties.session.form.setup_phase, range(len(SETS)))
    parties.exchange.deliver()


def _stepped(site: Site, steps: int) -> bool:
    """In the middle of a set-up, after so many phases. Whether there are so many."""
    _begun(site)
    for _ in range(steps):
        site.parties.exchange.step()
    return site.parties.server.at.phase != REST


def _asked(site: Site) -> bool:
    """Asked for training."""
    site.parties.setup()
    if site.parties.session.asks:
        site.parties.server.begin(site.parties.session.form.ready_phase, range(len(SETS)))
        site.parties.exchange.deliver()
    return True


def _uploads(site: Site) -> bool:
    """About to upload, in a form where that is a phase of its own."""
    form = site.parties.session.form
    if form.round_phase == form.ready_phase:
        return False
    site.parties.setup()
    site.ask()
    site.parties.server.begin(form.round_phase, range(len(SETS)))
    site.parties.exchange.deliver()
    return True


def _points(subject: Subject) -> Iterator[Callable[[Site], bool]]:
    """Ways to bring a host to where it has something to send."""
    with TemporaryDirectory() as folder:
        site, steps = Site(subject, Path(folder)), 0
        _begun(site)
        while site.parties.server.at.phase != REST:
            yield partial(_stepped, steps=steps)
            site.parties.exchange.step()
            steps += 1
    yield _asked
    yield _uploads


class Listening:
    """A port that notes whether anything was asked of it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self.used = exchange, False

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`."""
        self.used = True
        return self._exchange.exchange(tasks, round, inboxes, terms)


def _cannot_save(_: bytes) -> None:
    raise SnapshotError("the disk is full")


@claim("attack", KEYED, PAILLIER, mutants=(mutants.SENDS_UNSAVED, mutants.STORE_SWALLOWS))
def unsaved(subject: Subject) -> int:
    """Both forms: what cannot be saved is not sent, by no host in any phase, and by no server.

    Else a full disk and a restart make a client forget what it uploaded, and to whom.
    """
    cases = 0
    for fault in FAULTS:
        for point in _points(subject):
            with TemporaryDirectory() as folder:
                site = Site(subject, Path(folder))
                if not point(site):
                    continue
                with attributes_stand_in(fault):
                    sent = site.obeys().messages
                if sent:
                    raise Objection(f"a host sends {len(sent)} messages, though it could not save where it is")
                cases += 1
    parties = subject.parties([{"a": [1.0]}] * len(SETS), collusion=1)
    port = Listening(parties.exchange)
    with suppress(SnapshotError):
        Driver(parties.server, port, save=_cannot_save).setup()
    if port.used:
        raise Objection("a server sends what it could not save")
    assert cases > 2 * 3
    return cases + 1


@claim("record", KEYED, PAILLIER, mutants=(mutants.NAMED_FILES,))
def files_aside(subject: Subject) -> int:
    """Both forms: what a host or a server has in files aside, tables and uploads, is in no folder: nobody opens it.

    Nor does it stay when they end.
    """
    with TemporaryDirectory() as above, TemporaryDirectory() as aside:
        site = Site(subject, Path(above) / "state")
        server, _ = _of_files(site)
        table = np.memmap(Path(above) / "table", np.float64, "w+", shape=(9, 2))
        with attributes_stand_in((tempfile, "tempdir", aside)):
            held = server.part.held(HELD_BYTES + 1)
            held.put(memoryview(b"a chunk"))
            room = server.part.room
            kept: dict[str, object] = {
                "a host's copy of a table": site.host.client.part.copied(table),
                "a server's sums": room.zeros((3, 4), np.dtype(np.uint64)),
                "a server's broadcasts": room.kept(b"a message"),
                "uploads that are not whole": held,
                "tables that were read": in_a_temporary_file((9, 2), np.dtype(np.float64)),
            }
            if named := list(Path(aside).iterdir()):
                raise Objection(f"one of {', '.join(kept)} is in a file that has a name: {named[0].name}")
            assert isinstance(kept["a host's copy of a table"], np.memmap)
            held.close()
    return len(kept)


# ---------------------------------------------------------------------------------------------------- the user's errors


def _raises(error: Exception) -> Callable[..., Any]:
    def call(*_: object) -> Any:
        raise error

    return call


def _told(site: Site) -> bytes:
    """Everything that the site's process says when it is its turn."""
    ours, theirs = socket.socketpair()
    order = Order(Task.ROUND, site.host.client.at.round + 1)
    with ours, TemporaryDirectory() as folder, ExitStack() as alone:
        client = core.Client(Path(folder) / "site.toml", alone)
        client.__dict__["_host"] = site.host  # in place of one from that file
        with theirs, suppress(Exception):  # the core ends with the user's error
            core.do(client, [core.Asked(bytearray(order.to_bytes()), theirs, 9.0, time.monotonic() + 9.0)])
        said = b""
        while more := ours.recv(1 << 16):
            said += more
    return said


@claim("attack", KEYED, PAILLIER, mutants=(mutants.CORE_TELLS_ALL, hosts.TELLS_ALL))
def errors_at_cores(subject: Subject) -> int:
    """Both forms: whatever a user's own code raises, others hear of it no more than its type."""
    secret = SETS[0][0]
    errors = [kind(f"no row for {secret!r}") for kind in (ValueError, KeyError, TableError, FederationError, RoundLost)]
    with TemporaryDirectory() as folder:
        for number, error in enumerate(errors):
            site = Site(subject, Path(folder) / f"{number}")
            _asked(site)
            site.host._participant = Participant(lambda: SETS[ME], _raises(error))
            said = _told(site)
            if secret.encode() in said:
                raise Objection(f"the text of a {type(error).__name__} in a user's code leaves the site: {said!r}")
            assert type(error).__name__.encode() in said, said
    return len(errors)


# ------------------------------------------------------------------------------------------------------- the randomness


LIVES: Final = ("a host", "a host in its second life")


def sources(x: object, path: str, seen: set[int]) -> Iterator[tuple[str, object]]:
    """Whatever an object, or anything in it, calls its entropy."""
    if id(x) in seen:
        return
    seen.add(id(x))
    inner = dict(x) if isinstance(x, Mapping) else dict(enumerate(x)) if isinstance(x, tuple) else {}
    if type(x).__module__.startswith("secea."):
        slots = [name for each in type(x).__mro__ for name in getattr(each, "__slots__", ())]
        inner = {name: getattr(x, name) for name in slots if hasattr(x, name)} | getattr(x, "__dict__", {})
    for name, value in inner.items():
        if str(name).strip("_") == "entropy" and not isinstance(value, Mapping):
            yield f"{path}.{name}", value
        else:
            yield from sources(value, f"{path}.{name}", seen)


def _of_files(site: Site) -> tuple[Server, Store]:
    """The server of the same federation, and its store, as engines make them from files."""
    session = replace(site.parties.session, form=form_of(site.parties.session.form.name))
    with TemporaryDirectory() as above:
        folder = Path(above)
        files.write_identity(site.parties.identities[SERVER], folder / "key")
        files.write_session(session, folder / "federation.json")
        made = engines_site.Site(folder / "federation.json", folder / "key", folder / "state")
        return made.server(), made.store


@claim("record", KEYED, PAILLIER, mutants=(mutants.BY_THE_CLOCK, mutants.NONCES_BY_THE_CLOCK))
def drawn_by_the_system(subject: Subject) -> int:
    """Both forms: hosts, servers, federations and stores draw from the operating system, and from nothing else.

    In each life. What parties make of the source that they are given is compared to the byte by `transcripts`.
    """
    found: dict[str, object] = {}
    for made in (Client.__init__, Client.restore, Server.__init__, Server.restore, Identity.generate, Store.__init__):
        found[made.__qualname__] = inspect.signature(made).parameters["entropy"].default
    with TemporaryDirectory() as folder:
        site = Site(subject, Path(folder))
        for life in LIVES:
            found.update(sources(site.host, life, set()))
            site.obeys()  # and saves
            site.born()
        assert site.host._restored() is not None
    found.update(sources(_of_files(site), "a server", set()))
    federation = Federation(Params(clients=len(SETS), dim=1, collusion=1), subject.form)
    found.update(sources(federation, "a federation", set()))
    if subject.form.name == KEYED:  # the keys of the other form take long
        federation.setup(SETS)
        found.update(sources(federation, "a federation", set()))
    for what, source in found.items():
        if source is not os.urandom:
            raise Objection(f"what {what} gives does not come from the operating system")
    wanted = {
        *(f"{life}.client.part._entropy" for life in LIVES),
        "a server.0.part.link.entropy",
        "a server.1._entropy",
    }
    assert wanted <= found.keys(), found.keys()
    return len(found)
