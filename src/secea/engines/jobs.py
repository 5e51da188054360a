"""NVFlare's server of a hosted federation, as long as it runs, and the jobs that it gets, one after another."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from secea.engines import provisioning, running
from secea.engines.administrator import Administrator
from secea.engines.driver import Patience
from secea.engines.health import reach
from secea.engines.health.finding import Level
from secea.engines.hosting import Hosting, Said, Wish
from secea.engines.journal import Journal
from secea.engines.nvflare import recipe
from secea.engines.port import Cause
from secea.engines.progress import RESULT, STATUS, ClientState, Doing, State, last
from secea.engines.run import PAUSE
from secea.errors import FederationError, ParamsError

if TYPE_CHECKING:
    import subprocess

BACK_SECONDS: Final = 20.0
"""A lost site that NVFlare has heard so long after its loss is back, and has no part in the job."""
OTHERS_SECONDS: Final = 60.0
"""So long a run that goes on waits for all sites; the first one waits for everybody."""
MOST_PAUSES: Final = 2
"""So often the rounds are interrupted for a site that then takes part in none."""
MOST_FRUITLESS: Final = 3
"""After so many jobs in a row that brought no round, an operator has to look into it."""
_LOOK_SECONDS: Final = 0.5
_ASK_SECONDS: Final = 3.0
_SHUTDOWN_SECONDS: Final = 40.0
FINISHED: Final = "FINISHED"
"""NVFlare's word for a job that is over begins so."""


class Jobs:
    """NVFlare's server, as long as it runs."""

    def __init__(self, hosting: Hosting, said: Said, wish: Callable[[], Wish], place: running.Place) -> None:
        self._h, self._said, self._wish, self._place = hosting, said, wish, place
        self._admin = Administrator(hosting.kits)
        self._process: subprocess.Popen[bytes] | None = None
        self._journal = Journal(hosting.folder.server / "audit.jsonl")
        self._journal.skip()
        self._asked, self._submitted = 0.0, 0.0
        self._job_id, self._why = "", ""
        """The job that runs, and why the last one failed."""
        self._pauses: Counter[str] = Counter()
        """For whom the run was paused, since the last round with them."""

    def run(self) -> State | None:
        """See `Hosting.run`."""
        h, server = self._h, self._h.project
        kit = h.kits / server.server
        if (found := reach.port(kit / "startup", server.port)).level is Level.WRONG:
            raise ParamsError(f"{found.says}: {found.do}")
        for name in (STATUS, RESULT, PAUSE):
            (h.state / name).unlink(missing_ok=True)
        try:
            self._process = provisioning.start(kit, h.folder.server / "nvflare.log")
            self._place.write(self._process.pid)
            self._login()
            self._said({"event": "listening", "server": server.server, "port": server.port})
            return self._jobs()
        finally:
            (h.state / PAUSE).unlink(missing_ok=True)
            if self._process:
                self._end(self._process)

    def _login(self) -> None:
        if self._admin.login(lambda: self._alive() and self._wish() is Wish.GO_ON) or self._wish() is not Wish.GO_ON:
            return
        server, log = self._h.project, self._h.folder.server / "nvflare.log"
        found = reach.server(self._admin.kit / "startup", server.server, server.port)
        raise FederationError(f"NVFlare's server cannot be reached from this machine: {found.says}; {log} may say more")

    def _alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """End the job, the sites, and the server. NVFlare shuts nothing down while a job runs."""
        until = time.monotonic() + _SHUTDOWN_SECONDS
        asked = not self._admin.connected_once
        while self._admin.connected_once and self._alive() and time.monotonic() < until:
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
        state, best, fruitless = None, self._h.counted(), 0
        while self._wish() is Wish.GO_ON and self._wait_for_sites():
            called = not self._h.folder.federation.exists()
            state = self._job()
            if state and state.outcome == "completed":
                return state
            fruitless += 1
            if (state and state.done > best) or (called and self._h.folder.federation.exists()):
                fruitless = 0
            best = max(best, state.done if state else 0)
            if self._wish() is Wish.GO_ON and fruitless == MOST_FRUITLESS:
                raise FederationError(
                    f"{MOST_FRUITLESS} jobs in a row brought no round: {self._why or 'see nvflare.log and audit.jsonl'}"
                )
        return state

    def _wait_for_sites(self) -> bool:
        """Wait for everybody; in a run that goes on, for enough. Whether the operator still wants it."""
        names, form, params = self._h.project.sites, self._h.policy.form, self._h.policy.params
        begun, until, told = self._h.begun(), time.monotonic() + OTHERS_SECONDS, None
        while self._wish() is Wish.GO_ON:
            self._check()
            here = self._admin.connected().keys() & set(names)
            if here != told:
                missing = [name for name in names if name not in here]
                self._said({"event": "connected", "clients": sorted(here), "missing": missing})
                told = here
            enough = begun and time.monotonic() > until and len(here) >= form.fewest(params, form.union_phase, 2)
            if len(here) == len(names) or enough:
                return True
            time.sleep(_LOOK_SECONDS)
        return False

    def _check(self) -> None:
        if not self._alive():
            raise FederationError(f"NVFlare's server has ended: see {self._h.folder.server / 'nvflare.log'}")

    def _job(self) -> State | None:
        """One job: rounds until all are done, somebody is back, or the operator wants an end."""
        h, form, params = self._h, self._h.policy.form, self._h.policy.params
        for name in (PAUSE, RESULT, STATUS):
            (h.state / name).unlink(missing_ok=True)
        draft = None if h.folder.federation.exists() else h.draft
        least = form.fewest(params, form.union_phase, 2)
        patience = Patience(training=h.settings.training)
        self._submitted = time.time()
        job = self._admin.submit(recipe(h.settings.rounds, clients=least, patience=patience, draft=draft))
        self._job_id = job
        self._said({"event": "job", "job": job})
        self._why, aborted = "", False
        while not self._over(job):
            calling = h.draft is not None and not h.folder.federation.exists()
            if not aborted and (self._wish() is Wish.STOP or (self._wish() is Wish.PAUSE and calling)):
                self._admin.abort(job)
                aborted = True
            elif self._wish() is Wish.PAUSE:
                self._pause()
            time.sleep(_LOOK_SECONDS)
        self._job_id = ""
        return last(h.state / RESULT)

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
            match line.get("event"):
                case "failed":
                    self._why = str(line.get("why", ""))
                case "round":
                    for name in line.get("clients") or ():
                        self._pauses.pop(name, None)
            self._said(line)
            if line.get("event") == "declines":
                raise FederationError(f"{line.get('client')} did not agree to the federation file")

    def _pause(self) -> None:
        pause = self._h.state / PAUSE
        if not pause.exists() and self._h.state.is_dir():
            pause.touch(mode=0o600)

    def _returned(self) -> bool:
        """Whether somebody is connected whom this job has lost, and cannot take back."""
        state = last(self._h.state / STATUS)
        if state is None or state.started < self._submitted or (self._h.state / PAUSE).exists():
            return False
        heard = self._admin.connected()
        back = [name for name, each in state.clients.items() if _is_back(each, heard.get(name, 0.0))]
        back = [name for name in back if self._pauses[name] < MOST_PAUSES]
        if back:
            self._pauses.update(back)
            self._said({"event": "back", "clients": back})
        return bool(back)


def _is_back(client: ClientState, heard: float) -> bool:
    """Whether a client is lost as one that nobody could reach, and NVFlare has heard it well after that."""
    lost = client.doing is Doing.LOST and client.cause == Cause.UNREACHABLE
    return lost and heard > client.since + BACK_SECONDS
