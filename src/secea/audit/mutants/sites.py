"""Either form at a site whose disk is full, or whose randomness is somebody's guess."""

from __future__ import annotations

import random
import tempfile
import time
from contextlib import suppress
from functools import wraps
from typing import Any

from secea.audit.mutants.common import both
from secea.engines import core
from secea.engines.host import Host
from secea.engines.store import Store
from secea.errors import SnapshotError
from secea.party.client import Client
from secea.wire.randomness import Entropy

_save, _init, _store_save, _store_init, _restored = (
    Host._save, Host.__init__, Store.save, Store.__init__, Host._restored,
)  # fmt: skip


def _goes_on_unsaved(self: Host) -> None:
    """A full disk does not stop a federation."""
    with suppress(SnapshotError):
        _save(self)


def _swallows(self: Store, name: str, data: bytes) -> None:
    """Says that it saved."""
    with suppress(SnapshotError):
        _store_save(self, name, data)


def _clock() -> Entropy:
    """Bytes that follow from the time."""
    return random.Random(time.time_ns()).randbytes  # noqa: S311 - what this is about


def _of_the_clock(self: Host, *args: Any) -> None:
    """A first life by the clock."""
    _init(self, *args)
    if _restored(self) is None:
        session, number, identity, participant, *_ = args
        self.client = Client(session, number, identity, participant.names(), _clock())


@wraps(_store_init)
def _nonces_of_the_clock(self: Store, *args: Any) -> None:
    """Prefixes of nonces by the clock."""
    _store_init(self, *args)
    self._entropy = _clock()


SENDS_UNSAVED = both("sends-unsaved", "A host that cannot save goes on.", within=((Host, "_save", _goes_on_unsaved),))
STORE_SWALLOWS = both(
    "store-swallows", "A store keeps to itself that it could not save.", within=((Store, "save", _swallows),)
)
CORE_TELLS_ALL = both(
    "core-tells-all",
    "The process of a site tells others the text of an error.",
    within=((core.Client, "stopped", lambda _, error: f"{type(error).__name__}: {error}".encode()),),
)
BY_THE_CLOCK = both(
    "drawn-by-the-clock", "A host's client draws from a generator that begins with the time.",
    within=((Host, "__init__", _of_the_clock),),
)  # fmt: skip
NONCES_BY_THE_CLOCK = both(
    "nonces-by-the-clock", "State is sealed with nonces that follow from the time.",
    within=((Store, "__init__", _nonces_of_the_clock),),
)  # fmt: skip
NAMED_FILES = both(
    "files-with-names", "Tables and uploads that do not fit into memory are in files that stay.",
    within=((tempfile, "TemporaryFile", lambda: tempfile.NamedTemporaryFile(delete=False)),),  # noqa: SIM115
)  # fmt: skip
