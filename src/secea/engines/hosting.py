"""Host a federation on NVFlare: keys, kits and invitations once; then the server, the roll call, and rounds.

It is what docs/deploy-nvflare.md describes step by step, with files in one folder. NVFlare gives a site that was
restarted no part in a job that runs. So a job ends after its round when somebody is back, and another one goes on.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from secea.atomic import replace_files
from secea.engines import files, invitation, provisioning, running
from secea.engines.driver import Patience
from secea.engines.journal import Journal
from secea.engines.kits import permit
from secea.engines.port import Cause
from secea.engines.progress import RESULT, STATUS, Doing, State, read
from secea.engines.roll import Draft
from secea.engines.run import PAUSE
from secea.engines.site import Site
from secea.errors import FederationError, ParamsError
from secea.wire.keys import Identity

if TYPE_CHECKING:
    import subprocess

    from secea.engines.administrator import Administrator
    from secea.party.session import Session

BACK_SECONDS: Final = 20.0
"""A lost site that NVFlare has heard so long after its loss is back, and has no part in the job."""
OTHERS_SECONDS: Final = 60.0
"""So long a run that goes on waits for all sites; the first one waits for everybody."""
MOST_FRUITLESS: Final = 3
"""After so many jobs in a row that brought no round, an operator has to look into it."""
_LOOK_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 3.0
_SHUTDOWN_SECONDS: Final = 40.0
FINISHED: Final = "FINISHED"
"""NVFlare's word for a job that is over begins so."""

SITE: Final = """\
federation = "../{federation}"
identity = "identity.pem"
state = "state"
log = "audit.jsonl"
"""


class Wish(Enum):
    """What the operator wants."""

    GO_ON = 0
    PAUSE = 1
    """End after this round."""
    STOP = 2
    """End at once."""


Said = Callable[[Mapping[str, Any]], object]
"""Takes what happens: lines of the server's log, and others of the same kind."""


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


class Hosting:
    """A federation that is hosted here. `draft` is its policy as long as there is no federation file."""

    def __init__(
        self, federation: Path, draft: Draft | None, *, server: str, port: int, rounds: int, patience: Patience
    ) -> None:
        invitation.address(server, port)
        self.folder, self.draft = Folder(federation), draft
        self.rounds, self.patience = rounds, patience
        self.policy: Session = self._policy()
        """The session; with keys of nobody, if it is a draft."""
        names = self.policy.roster.names
        for name in names:
            invitation.named(name, "a client is called")
        if server in names:
            raise ParamsError(f"a client is called {server!r}, like the server's address: choose another name for it")
        self.project = provisioning.Project(self.folder.name, server, port, names)
        self.wish = Wish.GO_ON

    def _policy(self) -> Session:
        federation = self.folder.federation
        if self.draft is None:
            return files.read_session(federation)
        if federation.exists():
            raise ParamsError(f"{federation} exists: leave out --site and --param, or choose another file")
        return self.draft.checked()

    # -------------------------------------------------------------------------------------------------- what is needed

    def prepare(self) -> list[tuple[Path, str]]:
        """Make what is not there yet. What was made, and what it is."""
        return list(self._prepared())

    def _prepared(self) -> Iterator[tuple[Path, str]]:
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
        yield from self._provisioned()
        yield from self._invited()

    def _provisioned(self) -> Iterator[tuple[Path, str]]:
        kits = self.folder.kits
        if provisioning.same(self.project, kits) and self.kits.is_dir():
            return
        if kits.exists():
            raise ParamsError(
                f"{kits} has the kits of other sites or of another address: remove it, and hand out new invitations"
            )
        provisioning.provision(self.project, kits)
        kit = self.kits / self.project.server
        provisioning.lead(kit, self.folder.server / "site.toml")
        permit(kit)
        yield kits, "NVFlare's kits of server and administrator, and the certificates: keep them"

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

    def run(self, said: Said) -> State | None:
        """Start the server, wait for the sites, and run the rounds. How it ended; None if nothing had begun."""
        with running.alone(self.folder.root, "host") as place:
            return _Server(self, said, place).run()

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


class _Server:
    """NVFlare's server, as long as it runs."""

    def __init__(self, hosting: Hosting, said: Said, place: running.Place) -> None:
        from secea.engines.administrator import Administrator

        self._h, self._said, self._place = hosting, said, place
        self._admin: Administrator = Administrator(hosting.kits)
        self._process: subprocess.Popen[bytes] | None = None
        self._journal = Journal(hosting.folder.server / "audit.jsonl")
        self._journal.skip()
        self._fruitless, self._why = 0, ""
        self._asked = 0.0
        self._job_id = ""
        """The job that runs."""

    def run(self) -> State | None:
        for name in (STATUS, RESULT, PAUSE):
            (self._h.state / name).unlink(missing_ok=True)
        kit = self._h.kits / self._h.project.server
        self._process = provisioning.start(kit, self._h.folder.server / "nvflare.log")
        self._place.write(self._process.pid)
        try:
            self._admin.login(self._alive)
            self._said({"event": "listening", "server": self._h.project.server, "port": self._h.project.port})
            return self._jobs()
        finally:
            self._end(self._process)

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End the job, the sites, and the server. NVFlare shuts nothing down while a job runs."""
        until = time.monotonic() + _SHUTDOWN_SECONDS
        asked = False
        while self._alive() and time.monotonic() < until:
            if not asked:
                with suppress(FederationError):
                    if self._job_id:
                        self._admin.abort(self._job_id)
                with suppress(FederationError):
                    self._admin.shutdown()
                    asked = True
            time.sleep(_LOOK_SECONDS)
        running.end_process(process)

    def _jobs(self) -> State | None:
        """Job after job, until all rounds are done or the operator wants an end."""
        state = None
        while self._h.wish is Wish.GO_ON and self._wait_for_sites():
            before = state.done if state else 0
            state = self._job()
            if state and state.outcome == "completed":
                return state
            if state and (state.outcome == "paused" or state.done > before):
                self._fruitless = 0
                continue
            self._fruitless += 1
            if self._h.wish is Wish.GO_ON and self._fruitless == MOST_FRUITLESS:
                raise FederationError(f"{MOST_FRUITLESS} jobs in a row brought no round: {self._why or 'see its log'}")
        return state

    def _wait_for_sites(self) -> bool:
        """Wait for everybody; in a run that goes on, for enough. Whether the operator still wants it."""
        names, form, params = self._h.project.sites, self._h.policy.form, self._h.policy.params
        begun, until, told = self._h.begun(), time.monotonic() + OTHERS_SECONDS, None
        while self._h.wish is Wish.GO_ON:
            self._check()
            here = self._admin.connected().keys() & set(names)
            if here != told:
                missing = [name for name in names if name not in here]
                self._said({"event": "connected", "clients": sorted(here), "missing": missing})
                told = here
            enough = begun and time.monotonic() > until and len(here) >= form.fewest(params, form.union_phase, 2)
            if len(here) == len(names) or enough:
                return True
            time.sleep(_ASK_SECONDS / 2)
        return False

    def _check(self) -> None:
        if not self._alive():
            raise FederationError(f"NVFlare's server has ended: see {self._h.folder.server / 'nvflare.log'}")

    def _job(self) -> State | None:
        """One job: rounds until all are done, somebody is back, or the operator wants an end."""
        from secea.engines.nvflare import recipe

        form, params = self._h.policy.form, self._h.policy.params
        (self._h.state / PAUSE).unlink(missing_ok=True)
        (self._h.state / RESULT).unlink(missing_ok=True)
        draft = None if self._h.folder.federation.exists() else self._h.draft
        least = form.fewest(params, form.union_phase, 2)
        job = self._admin.submit(recipe(self._h.rounds, clients=least, patience=self._h.patience, draft=draft))
        self._job_id = job
        self._said({"event": "job", "job": job})
        self._why, aborted = "", False
        while not self._over(job):
            if self._h.wish is Wish.STOP and not aborted:
                self._admin.abort(job)
                aborted = True
            elif self._h.wish is Wish.PAUSE:
                self._pause()
            time.sleep(_LOOK_SECONDS)
        self._job_id = ""
        return _read(self._h.state / RESULT)

    def _over(self, job: str) -> bool:
        """Show what has come, and ask now and then whether the job goes on."""
        self._check()
        self._show()
        if time.monotonic() < self._asked + _ASK_SECONDS:
            return False
        self._asked = time.monotonic()
        over = self._admin.status(job).startswith(FINISHED)
        self._show()
        if not over and self._returned():
            self._pause()
        return over

    def _show(self) -> None:
        for line in (event.details for event in self._journal.new()):
            if line.get("event") == "failed":
                self._why = str(line.get("why", ""))
            if line.get("event") == "declines":
                self._said(line)
                raise FederationError(f"{line.get('client')} did not agree to the federation file")
            self._said(line)

    def _pause(self) -> None:
        pause = self._h.state / PAUSE
        if not pause.exists() and self._h.state.is_dir():
            pause.touch(mode=0o600)

    def _returned(self) -> bool:
        """Whether somebody is connected whom the job has lost, and cannot take back."""
        state = _read(self._h.state / STATUS)
        if state is None or (self._h.state / PAUSE).exists():
            return False
        gone = {
            name: each.since
            for name, each in state.clients.items()
            if each.doing is Doing.LOST and each.cause == Cause.UNREACHABLE and time.time() > each.since + BACK_SECONDS
        }
        if not gone:
            return False
        heard = self._admin.connected()
        back = [name for name, since in gone.items() if heard.get(name, 0.0) > since + BACK_SECONDS]
        if back:
            self._said({"event": "back", "clients": back})
        return bool(back)


def _read(path: Path) -> State | None:
    """The state of a run, if there is one."""
    if not os.path.exists(path):  # noqa: PTH110 - also for a broken link
        return None
    try:
        return read(path)
    except (OSError, ValueError):
        return None  # it is being written by another version, or was removed just now
