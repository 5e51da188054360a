"""What a party keeps at its own site, in one JSON file: where its key, its state and its code are.

Nothing of it comes from the server. Paths are relative to the file; the user's module is looked for beside it first.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from secea.engines.files import read_identity, read_session
from secea.engines.host import Host, Participant
from secea.engines.log import Log
from secea.engines.store import Store
from secea.errors import ParamsError
from secea.keys import Identity
from secea.session import Session


@dataclass(frozen=True)
class Site:
    """The contents of a site's file."""

    folder: Path
    federation: str
    """The agreement of all parties: what `secea roster` wrote."""
    identity: str
    """The private key of this party."""
    state: str = "state"
    """The directory of its saved state."""
    log: str = ""
    """Its audit log; none unless named."""
    participant: str = ""
    """`module:function` that gives this client's `Participant`."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Keywords for that function."""

    @classmethod
    def read(cls, path: Path | str) -> Site:
        """A site's file."""
        try:
            return cls(Path(path).resolve().parent, **json.loads(Path(path).read_bytes()))
        except OSError as error:
            raise ParamsError(f"the site's file {path} cannot be read: {error.strerror}") from None
        except (ValueError, TypeError) as error:
            raise ParamsError(f"{path} is no site's file: {error}") from None

    def open(self) -> tuple[Session, Identity, Store, Log]:
        """The session, this party's key, its saved state and its log."""
        session, identity = read_session(self.folder / self.federation), read_identity(self.folder / self.identity)
        store = Store(self.folder / self.state, identity, session.hash)
        return session, identity, store, Log(self.folder / self.log if self.log else None)

    def host(self, name: str) -> Host:
        """The client of that name."""
        session, identity, store, log = self.open()
        if name not in session.roster.names:
            raise ParamsError(f"{name} is not in {self.federation}, which has {', '.join(session.roster.names)}")
        return Host(session, session.roster.names.index(name), identity, self._participant(), store, log)

    def _participant(self) -> Participant:
        module, _, function = self.participant.partition(":")
        if not module or not function:
            raise ParamsError(f"participant must be 'module:function', got {self.participant!r}")
        sys.path.insert(0, str(self.folder))
        participant = getattr(importlib.import_module(module), function)(**self.options)
        if not isinstance(participant, Participant):
            raise ParamsError(f"{self.participant} gave a {type(participant).__name__} instead of a Participant")
        return participant
