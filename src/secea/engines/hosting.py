"""Host a federation on NVFlare: keys, kits and invitations once; then the server, the roll call, and rounds.

It is what docs/deploy-nvflare.md describes step by step, with files in one folder. NVFlare gives a site that was
restarted no part in a job that runs. So a job ends after its round when somebody is back, and another one goes on.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from secea.atomic import place, replace_files
from secea.engines import files, invitation, provisioning, running
from secea.engines.kits import permit
from secea.engines.progress import RESULT, State, last
from secea.engines.roll import Draft
from secea.engines.run import counted
from secea.engines.site import Site
from secea.errors import ParamsError
from secea.wire.keys import Identity

if TYPE_CHECKING:
    from secea.party.session import Session

SITE: Final = """\
federation = "../{federation}"
identity = "identity.pem"
state = "state"
log = "audit.jsonl"
"""


Said = Callable[[Mapping[str, Any]], object]
"""Takes what happens: lines of the server's log, and others of the same kind."""


class Wish(Enum):
    """What the operator wants."""

    GO_ON = 0
    PAUSE = 1
    """End after this round."""
    STOP = 2
    """End at once."""


@dataclass(frozen=True)
class Folder:
    """Where the files of a federation are that is hosted here."""

    federation: Path

    @property
    def root(self) -> Path:
        """The folder of the federation file."""
        return self.federation.absolute().parent

    @property
    def server(self) -> Path:
        """The server's site."""
        return self.root / "server"

    @property
    def kits(self) -> Path:
        """NVFlare's provisioning."""
        return self.root / "kits"

    def invitation(self, site: str) -> Path:
        """What a site gets."""
        return self.root / "invitations" / f"{site}{invitation.ENDING}"

    @property
    def name(self) -> str:
        """What NVFlare calls the federation."""
        plain = re.sub("[^A-Za-z0-9_-]", "-", self.federation.stem)
        return plain if invitation.NAME.fullmatch(plain) else "federation"


@dataclass(frozen=True)
class Settings:
    """How a federation is hosted. What was said once holds until something else is said."""

    server: str = "localhost"
    port: int = 8002
    rounds: int = 1
    training: float = 3600.0

    @classmethod
    def of(cls, path: Path, **said: Any) -> Settings:
        """Those in a file, with what is said now."""
        try:
            found = json.loads(path.read_bytes()) if path.exists() else {}
            return cls(**found | {name: value for name, value in said.items() if value is not None})
        except (OSError, ValueError, TypeError):
            raise ParamsError(f"{path} cannot be read: remove it, and say --address and --rounds again") from None


class Hosting:
    """A federation that is hosted here. `draft` is its policy; without it there is a federation file."""

    def __init__(self, federation: Path, draft: Draft | None, **said: Any) -> None:
        self.folder, self.draft = Folder(federation), draft
        self.settings = Settings.of(self._settings, **said)
        self._rounds_said = said.get("rounds") is not None
        invitation.address(self.settings.server, self.settings.port)
        self.policy: Session = self._policy()
        """The session; with keys of nobody, if it is a draft."""
        names = self.policy.roster.names
        for name in names:
            invitation.named(name, "a client is called")
        if self.settings.server in names:
            raise ParamsError(
                f"a client is called {self.settings.server!r}, like the server's address: choose another name for it"
            )
        self.project = provisioning.Project(self.folder.name, self.settings.server, self.settings.port, names)

    @property
    def _settings(self) -> Path:
        return self.folder.server / "hosting.json"

    def _policy(self) -> Session:
        federation = self.folder.federation
        if self.draft is None:
            return files.read_session(federation)
        drafted = self.draft.checked()
        if not federation.exists():
            return drafted
        session = files.read_session(federation)
        if self.draft.with_keys(session.roster).hash != session.hash:
            raise ParamsError(
                f"{federation} exists, and has other sites or parameters: leave out --site and --param to go on with"
                " it, or choose another folder"
            )
        self.draft = None
        return session

    # -------------------------------------------------------------------------------------------------- what is needed

    def prepare(self) -> Iterator[tuple[Path, str]]:
        """Make what is not there yet, one thing after another. What was made, and what it is."""
        provisioning.installed()
        self._check_rounds()
        folder, server = self.folder, self.folder.server
        server.mkdir(parents=True, exist_ok=True, mode=0o700)
        identity = server / "identity.pem"
        if not identity.exists():
            files.write_identity(Identity.generate(), identity)
            yield identity, "the server's key: keep it"
            yield files.public_path(identity), "its public half"
        if self.draft is None and files.read_identity(identity).public != self.policy.roster.server:
            raise ParamsError(
                f"{folder.federation} has another key for the server than {identity}: put the right one there"
            )
        if not (server / "site.toml").exists():
            replace_files({server / "site.toml": SITE.format(federation=folder.federation.name).encode()})
            yield server / "site.toml", "the server's settings"
        if self.site.federation.resolve() != folder.federation.resolve():
            raise ParamsError(
                f"{server / 'site.toml'} is for {self.site.federation.name}: host another federation in another folder"
            )
        yield from self._provisioned()
        replace_files({self._settings: json.dumps(asdict(self.settings)).encode()}, mode=0o600)
        yield from self._invited()

    def _check_rounds(self) -> None:
        """A `ParamsError` if there is nothing to do."""
        before = last(self.state / RESULT)
        asked = self.settings.rounds
        if before and before.outcome == "completed":
            if not self._rounds_said:
                raise ParamsError(f"all {before.asked} rounds are done: --rounds {before.asked} runs as many again")
        elif before and before.done > asked:
            raise ParamsError(f"{before.done} rounds are done: --rounds must be larger, and {asked} was given")

    def _provisioned(self) -> Iterator[tuple[Path, str]]:
        kits, project = self.folder.kits, self.project
        if kits.exists() and not provisioning.same(project, kits):
            raise ParamsError(
                f"{kits} is for {provisioning.described(kits)}. Give that address and these sites; or remove the"
                " folder, and hand out all invitations anew"
            )
        if not kits.exists():
            kits.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(dir=kits.parent, prefix="kits-"))
            try:
                provisioning.provision(project, aside)
                place(aside, kits)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            yield kits, "NVFlare's kits of server and administrator, and the certificates: keep them"
        kit = self.kits / project.server
        provisioning.lead(kit, self.folder.server / "site.toml")
        permit(kit, alone=True)

    @property
    def kits(self) -> Path:
        """The kits themselves."""
        return self.folder.kits / self.project.name / "prod_00"

    def _invited(self) -> Iterator[tuple[Path, str]]:
        agreed = "" if self.draft else files.session_toml(self.policy)
        for name in self.project.sites:
            path = self.folder.invitation(name)
            text = provisioning.invitation(self.project, self.kits, name, agreed).text().encode()
            if not path.exists() or path.read_bytes() != text:
                path.parent.mkdir(exist_ok=True, mode=0o700)
                replace_files({path: text}, mode=0o600)
                yield path, f"hand it to {name}, where nobody else reads it"

    # ----------------------------------------------------------------------------------------------------------- rounds

    def run(self, said: Said, wish: Callable[[], Wish]) -> State | None:
        """Start the server, wait for the sites, and run the rounds. How it ended; None if nothing had begun."""
        from secea.engines.jobs import Jobs

        with running.alone(self.folder.root, "host") as place:
            return Jobs(self, said, wish, place).run()

    @property
    def state(self) -> Path:
        """The server's state directory."""
        return self.folder.server / "state"

    @cached_property
    def site(self) -> Site:
        """The server's site."""
        return Site.read(self.folder.server / "site.toml")

    def begun(self) -> bool:
        """Whether there was a set-up before, so that not everybody has to be there."""
        return self.folder.federation.exists() and any(self.state.glob("server.*.state"))

    def counted(self) -> int:
        """How many rounds are done already."""
        return counted(self.site.store)[0] if self.begun() else 0
