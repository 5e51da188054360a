"""Join a federation on NVFlare by an invitation: a key, a kit and settings once; then the site, while it takes part.

Nothing of an invitation is run. The kit is made of the NVFlare that is installed here, and closed (`secea permit`).
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from secea.atomic import replace_files
from secea.engines import files, provisioning, roll, running
from secea.engines.invitation import Invitation
from secea.engines.journal import Journal
from secea.engines.site import Site
from secea.errors import FederationError, ParamsError
from secea.wire.keys import Identity

if TYPE_CHECKING:
    from secea.party.session import Session

DECLINED: Final = "you did not agree to the federation file: nothing of yours was sent"
_LOOK_SECONDS: Final = 0.5
_HEARD_SECONDS: Final = 30.0
Said = Callable[[Mapping[str, Any]], object]
Ask = Callable[["Session"], bool]
"""Shows the operator a federation file, and asks whether its fingerprint is that of the others."""


class Fate(Enum):
    """How it ended for this site."""

    OVER = "over"
    """The run is over, and this site took part to its end."""
    ENDED = "ended"
    """The server's side ended, or was stopped, before that."""
    LEFT = "left"
    """This site's operator ended it."""


@dataclass(frozen=True)
class Bring:
    """What a site brings: a function of its own, and what it is called with."""

    participant: str
    """module:function"""
    arguments: Mapping[str, object]

    def lines(self) -> str:
        """In a site's file."""
        text = f"participant = {json.dumps(self.participant)}\n"
        if self.arguments:
            text += "\n[arguments]\n" + "".join(f"{name} = {json.dumps(v)}\n" for name, v in self.arguments.items())
        return text


class Joining:
    """A site that joins: its files are in `folder`."""

    def __init__(self, invited: Invitation, folder: Path) -> None:
        self.invited, self.folder = invited, folder

    @property
    def identity(self) -> Path:
        """The key of this site, unless another one was given."""
        return self.folder / "identity.pem"

    @property
    def kit(self) -> Path:
        """NVFlare's kit."""
        return self.folder / "kit"

    @cached_property
    def site(self) -> Site:
        """The site, as its file has it."""
        return Site.read(self.folder / "site.toml")

    def prepare(self, bring: Bring | None, identity: Path | None) -> Iterator[tuple[Path, str]]:
        """Make what is not there yet, one thing after another. What was made, and what it is."""
        provisioning.installed()
        file = self.folder / "site.toml"
        if file.exists():
            if bring or identity:
                raise ParamsError(f"{file} exists, and says what this site brings: change it there")
            if self.site.name != self.invited.site:
                raise ParamsError(f"{self.folder} belongs to {self.site.name or 'a server'}: choose another --folder")
        elif bring is None:
            raise ParamsError("what does this site bring? give --table FILE, or --participant MODULE:FUNCTION")
        else:
            self._fits(identity or self.identity)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not file.exists():
            assert bring is not None
            if identity is None and not self.identity.exists():
                files.write_identity(Identity.generate(), self.identity)
                yield self.identity, "this site's key: keep it, and show it to nobody"
                yield files.public_path(self.identity), "its public half"
            replace_files({file: self._site(bring, identity or self.identity).encode()})
            yield file, "this site's settings"
        files.read_identity(self.site.identity)  # it must be there, and private
        yield from self._agreed()
        yield from self._kit()

    def _fits(self, identity: Path) -> None:
        """A `ParamsError` if the invitation has a federation file with another key for this site."""
        if self.invited.agreed:
            roster = files.parse_session(self.invited.agreed.encode(), "the invitation").roster
            keys = dict(zip(roster.names, roster.clients, strict=True))
            if not identity.exists() or files.read_identity(identity).public != keys.get(self.invited.site):
                raise ParamsError(
                    f"the federation file of the invitation has a key for {self.invited.site}: give --identity with the"
                    " file of that key"
                )

    def _site(self, bring: Bring, identity: Path) -> str:
        key = os.path.relpath(identity.absolute(), self.folder.absolute())
        lines = {"name": self.invited.site, "federation": "federation.toml", "identity": key}
        lines |= {"state": "state", "log": "audit.jsonl"}
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items()) + bring.lines()

    def _agreed(self) -> Iterator[tuple[Path, str]]:
        """The federation file of the invitation, for the operator to compare."""
        federation = self.site.federation
        if not self.invited.agreed:
            return
        if federation.exists():
            if self.site.session.hash != files.parse_session(self.invited.agreed.encode(), "the invitation").hash:
                raise ParamsError(
                    f"the invitation is for another federation file than {federation}: join in another --folder"
                )
        else:
            roll.Newcomer(self.site).fitting(self.invited.agreed.encode())
            replace_files({roll.offered(federation): self.invited.agreed.encode()}, mode=0o600)
            yield roll.offered(federation), "the federation file, until you have compared its fingerprint"

    def _kit(self) -> Iterator[tuple[Path, str]]:
        made = self.folder / "invitation"
        text = replace(self.invited, agreed="").text().encode()
        if self.kit.is_dir() and made.exists():
            if made.read_bytes() == text:
                return
            raise ParamsError(f"{self.kit} was made of another invitation: move it away to join with this one")
        provisioning.kit_of(self.invited, self.kit, self.folder / "site.toml")
        replace_files({made: text}, mode=0o600)
        yield self.kit, "NVFlare's kit: it takes secea's jobs alone, and no code"

    # ------------------------------------------------------------------------------------------------------------- run

    def run(self, ask: Ask, said: Said) -> Fate:
        """Take part until the run is over, or somebody ends it. `ask` is called with a federation file to compare.

        A `FederationError` if the operator did not agree.
        """
        with running.alone(self.folder, "join") as place:
            roll.declined(self.site.federation).unlink(missing_ok=True)
            if not self.invited.agreed:  # what was offered in an earlier call
                roll.offered(self.site.federation).unlink(missing_ok=True)
            if not self._compare(ask, lambda: True):
                raise FederationError(DECLINED)
            journal = Journal(self.folder / "audit.jsonl")
            journal.skip()
            process = provisioning.start(self.kit, self.folder / "nvflare.log")
            try:
                place.write(process.pid)
                return self._watched(process, journal, ask, said)
            finally:
                running.end_process(process)

    def _watched(self, process: subprocess.Popen[bytes], journal: Journal, ask: Ask, said: Said) -> Fate:
        last = ""
        while True:
            ended = process.poll() is not None
            for event in journal.new():
                last = event.what if event.what in ("start", "end", "stopped") else last
                said(event.details)
            if ended:
                return Fate.OVER if last == "end" else Fate.ENDED
            if not self._compare(ask, lambda: process.poll() is None):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_HEARD_SECONDS)  # the server hears of it, and ends
                raise FederationError(DECLINED)
            time.sleep(_LOOK_SECONDS)

    def _compare(self, ask: Ask, connected: Callable[[], bool]) -> bool:
        """Let the operator compare what was offered, if anything was. Whether there is nothing against it.

        Only the text that was shown can be agreed on.
        """
        offered = roll.offered(self.site.federation)
        if self.site.federation.exists() or not offered.exists():
            return True
        text = offered.read_bytes()
        session = roll.Newcomer(self.site).fitting(text)
        agreed = ask(session)
        if not connected():  # the federation file may never come to be
            raise FederationError("the connection ended before you answered: join again")
        roll.decide(self.site, text, agreed=agreed)
        return agreed
