"""A party's own machine, described by its own operator in one TOML file. No other party has a say in it.

    name = "hospital-b"                  # who this is in the federation file; the server has no name
    federation = "federation.toml"       # what all parties agreed on
    identity = "identity.pem"            # this party's private key
    state = "state"                      # a directory for what has to survive a crash
    log = "audit.jsonl"                  # optional
    participant = "kg:participant"       # module:function that gives a `Participant`; beside this file, or installed

    [arguments]                          # optional: what that function is called with
    triples = "/srv/kg/triples.tsv"

Paths are relative to the file.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import secea
from secea.engines import spool
from secea.engines.files import key_fingerprint, read_identity, read_session
from secea.engines.host import Host, Participant
from secea.engines.log import Log
from secea.engines.store import Store
from secea.errors import ParamsError, SnapshotError
from secea.party.server import Server
from secea.party.session import Session
from secea.wire.keys import Identity

_PATHS = ("federation", "identity", "state", "log")

BUSY_SECONDS: Final = 30.0
"""How long a client waits for an earlier process of its site that may be about to end."""


def site_at(path: Path | str) -> Path:
    """The file of the site that a user means: this file, the one in this folder, or that of the server hosted there."""
    path = Path(path)
    places = (path / "site.toml", path / "server" / "site.toml") if path.is_dir() else (path,)
    if found := next((place for place in places if place.is_file()), None):
        return found
    raise ParamsError(f"{path} has no site.toml: give a site's file, or the folder that it is in")


@dataclass(frozen=True)
class Site:
    """What one party has on its machine."""

    federation: Path
    identity: Path
    state: Path
    name: str = ""
    participant: str = ""
    log: Path | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    folder: Path = Path()

    @classmethod
    def read(cls, path: Path | str) -> Site:
        """Read a site's TOML file."""
        folder = Path(path).absolute().parent
        try:
            text = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ParamsError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ParamsError(f"{path} is not TOML: {error}") from None
        known = {each.name for each in fields(cls)} - {"folder"}
        if unknown := sorted(text.keys() - known):
            raise ParamsError(f"{path} has no use for {unknown[0]!r}; it may have {', '.join(sorted(known))}")
        if missing := [name for name in ("federation", "identity", "state") if name not in text]:
            raise ParamsError(f"{path} does not say where to find: {', '.join(missing)}")
        if wrong := [name for name in text.keys() - {"arguments"} if not isinstance(text[name], str)]:
            raise ParamsError(f"{path}: {wrong[0]} must be a text")
        return cls(**{name: folder / value if name in _PATHS else value for name, value in text.items()}, folder=folder)

    @cached_property
    def session(self) -> Session:
        """The session that all parties agreed on."""
        return read_session(self.federation)

    @cached_property
    def key(self) -> Identity:
        """The party's private key."""
        return read_identity(self.identity)

    @cached_property
    def store(self) -> Store:
        """The saved state, which survives a crash of this party."""
        return Store(self.state, self.key, self.session.hash)

    @cached_property
    def audit(self) -> Log:
        """The party's own audit log."""
        return Log(self.log, self.session.form.kinds, self.session.roster.names)

    def began(self) -> dict[str, str]:
        """What the log says when a party begins: who it is, what runs, and for which session."""
        return {
            "secea": secea.__version__,
            "party": self.name or "the server",
            "key": key_fingerprint(self.key.public),
            "form": self.session.form.name,
            "session": self.session.fingerprint,
        }

    def host(self) -> Host:
        """The client of this site: restored where it stopped, or a new one."""
        if self.name not in self.session.roster.names:
            raise ParamsError(f"{self.name!r} is not in {self.federation}, which names {self.session.roster.names}")
        number = self.session.roster.names.index(self.name)
        return Host(self.session, number, self.key, self.brings(), self.store, self.audit)

    def brings(self) -> Participant:
        """What the site's own function gives."""
        module, _, function = self.participant.partition(":")
        if str(self.folder) not in sys.path:
            sys.path.insert(0, str(self.folder))
        try:
            make: Callable[..., Participant] = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError, ValueError) as error:
            raise ParamsError(f"participant = {self.participant!r}: {error}; give it as module:function") from None
        return make(**self.arguments)

    def server(self) -> Server:
        """The server of this site: restored where it stopped, or a new one."""
        saved = self.store.load("server")
        try:
            server = Server.restore(self.session, self.key, saved) if saved else Server(self.session, self.key)
        except SnapshotError as error:
            raise SnapshotError(f"{self.state}: {error}") from None
        spool.use_files(server)
        return server
