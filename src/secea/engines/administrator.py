"""NVFlare's administrator, as far as hosting needs one: who is connected, a job's begin and end, the shutdown."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from nvflare.collab import CollabRecipe
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from secea.engines.provisioning import ADMINISTRATOR
from secea.errors import FederationError

LOGIN_SECONDS: Final = 90.0
COMMAND_SECONDS: Final = 20.0
CONNECT_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 1.0

_T = TypeVar("_T")


class Administrator:
    """Talks to the server of a deployment. A `FederationError` says that it does not answer."""

    def __init__(self, kits: Path) -> None:
        self.kit, self._session = kits / ADMINISTRATOR, None
        self.connected_once = False
        """Whether the server has ever answered."""

    def login(self, alive: Callable[[], bool]) -> bool:
        """Wait for the server, as long as `alive` says so. Whether it is there."""
        until = time.monotonic() + LOGIN_SECONDS
        while alive() and time.monotonic() < until:
            with contextlib.suppress(Exception):  # it raises many kinds while the server starts
                self._ask(lambda session: session.get_system_info())
                self.connected_once = True
                return True
            time.sleep(_WAIT_SECONDS)
        return False

    def connected(self) -> dict[str, float]:
        """Who is connected, and when each was heard last."""
        info = self._said(lambda session: session.get_system_info())
        return {each.name: float(each.last_connect_time or 0) for each in info.client_info}

    def submit(self, recipe: CollabRecipe) -> str:
        """Submit a job. Its number."""
        with tempfile.TemporaryDirectory() as folder, _quiet():
            recipe.export(folder)
            self._said(lambda session: session.get_system_info())  # a session that is too old is renewed
            try:
                return str(self._ask(lambda session: session.submit_job(str(Path(folder) / recipe.name))))
            except Exception as error:  # not once more: it may have arrived
                raise FederationError(f"NVFlare's server did not take the job: {error}") from None

    def status(self, job: str) -> str:
        """What NVFlare says of a job."""
        return str(self._said(lambda session: session.get_job_meta(job)).get("status", ""))

    def abort(self, job: str) -> None:
        """End a job at once."""
        self._said(lambda session: session.abort_job(job))

    def shutdown(self) -> None:
        """End the server and all sites that are connected."""
        self._said(lambda session: session.shutdown("all", wait=False))

    def _said(self, ask: Callable[[Session], _T]) -> _T:
        """What it answers, if need be on a new connection."""
        try:
            return self._ask(ask)
        except Exception:  # the session is too old, or the connection broke
            self._session = None
        try:
            return self._ask(ask)
        except Exception as error:
            raise FederationError(f"NVFlare's server does not answer: {error}") from None

    def _ask(self, ask: Callable[[Session], _T]) -> _T:
        with _quiet():
            if self._session is None:
                self._session = new_secure_session(
                    ADMINISTRATOR, str(self.kit), timeout=CONNECT_SECONDS, command_timeout=COMMAND_SECONDS
                )
            return ask(self._session)


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """NVFlare prints what it does."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            yield said
    finally:
        logging.disable(before)
