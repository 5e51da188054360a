"""The server's side of a run on NVFlare or Flower: set-up, the given number of rounds, and the end.

The state is kept until the end. A run that was interrupted is continued by the next run that asks for as many rounds.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from secea.engines.driver import Driver, Patience
from secea.engines.memory import resident
from secea.engines.port import Port
from secea.engines.progress import Progress, State
from secea.engines.site import Site
from secea.engines.store import Store
from secea.errors import FederationError, RoundLost, SecEAError, party

MOST_LOST: Final = 8
"""After this many lost rounds in a row the run stops, and an operator has to look into it."""


class CountingPort(Port, Protocol):
    """A port that counts the bytes of orders and of replies."""

    sent: int
    received: int


PAUSE: Final = "pause"
"""A run ends after its present round if its state directory has a file of this name. The next run goes on."""


def serve(
    site: Site, port: CountingPort, rounds: int, patience: Patience, logger: logging.Logger, *, run: str = ""
) -> State:
    """Run `rounds` rounds for the server's site. It locks the site's state, so only one run is possible at a time.

    `run` is the engine's own name of this run. What came of it is also in the state directory, as `result.json`.
    """
    with site.store.held(0):
        return _Run(site, port, rounds, patience, logger, run).all()


class _Run:
    def __init__(
        self, site: Site, port: CountingPort, rounds: int, patience: Patience, logger: logging.Logger, run: str
    ) -> None:
        self._store = site.store
        self._port, self._rounds, self._logger = port, rounds, logger
        self._log = Progress(site.log, site.session.form.kinds, site.session.roster.names, site.state)
        self._log.noted("start", **site.began(), run=run, rounds=rounds)
        try:
            server = site.server()
        except SecEAError as error:
            self._log.noted("failed", why=str(error))
            raise
        save = partial(self._store.save, "server")
        self._driver = Driver(server, port, patience=patience, save=save, log=self._log)
        self._finished, self._last = counted(self._store)
        self._driver.done = self._last
        self._started = time.monotonic()

    def all(self) -> State:
        """Run whatever is left of the run."""
        try:
            with self._log.watched():
                self._all()
        except FederationError as error:
            why = self._log.named(f"{error}{self._lost()}")
            self._log.noted("failed", why=why)
            self._logger.log(logging.ERROR, "secea: %s", self._log.state.text())
            with suppress(FederationError):
                self._driver.farewell()
            raise FederationError(why) from None
        except BaseException as error:  # whatever it was, the state must not say that the run goes on
            self._log.noted("failed", why=str(error) or type(error).__name__)
            raise
        state = self._log.state
        if self._finished < self._rounds:
            self._log.noted("paused")
            self._logger.info("secea: %s", state.text())
            return state
        self._store.forget("rounds")  # clients keep the keys of their names, and the server keeps its counters
        self._log.noted("end")
        self._logger.log(logging.WARNING if state.left_out() else logging.INFO, "secea: %s", state.text())
        return state

    def _all(self) -> None:
        driver = self._driver
        self._set_up()
        self._progress()
        while self._finished < self._rounds:
            if (self._store.folder / PAUSE).exists():
                return
            self._round()
            self._progress()
        driver.finish()
        driver.farewell()

    def _lost(self) -> str:
        """Who was lost, and why, for people: each reason begins with the name."""
        texts = list[str]()
        for n, why in sorted(self._driver.failures.items()):
            texts.append(f"; {party(n)}: {why.removeprefix(f'{party(n)}: ')}")
        return "".join(texts)

    def _round(self) -> None:
        """Repeat until a round gives means. A lost round is logged, and clients continue training."""
        for _ in range(MOST_LOST):
            try:
                self._driver.round()
            except RoundLost as lost:
                self._log.noted("round lost", why=str(lost))
                self._logger.warning("secea: %s", self._log.named(str(lost)))
            else:
                return
        raise FederationError(f"{MOST_LOST} rounds in a row were lost")

    def _set_up(self) -> None:
        """Set up. If that fails, try once more, as part of the first round.

        A client that lost its state, or forgets it because the server did, says so when it is called again.
        """
        try:
            self._driver.setup()
        except FederationError as error:
            self._log.noted("set-up failed", why=str(error))
            self._logger.warning("secea: set-up: %s; once more", self._log.named(str(error)))
            self._round()

    def _progress(self) -> None:
        """Called after the set-up and after each round: count it, and log its cost and who was lost."""
        done = self._driver.done
        if done != self._last:  # otherwise it was only the set-up, which finishes a round that was begun before
            self._finished, self._last = self._finished + 1, done
            self._store.save("rounds", b"%d %d" % (self._finished, done))
        seconds, self._started = time.monotonic() - self._started, time.monotonic()
        lost = {self._log.named(party(n)): self._log.named(why) for n, why in self._driver.failures.items()}
        costs = {"seconds": round(seconds, 3), "sent": self._port.sent, "received": self._port.received}
        self._log.noted("progress", rounds=self._finished, **costs, **resident(), lost=lost)
        self._logger.info("secea: %s of %s rounds; %s; lost: %s", self._finished, self._rounds, costs, lost)


def counted(store: Store) -> tuple[int, int]:
    """How many rounds an earlier run finished, and the number of the last one. They differ if rounds were lost."""
    finished, last = (store.load("rounds") or b"0 0").split()
    return int(finished), int(last)
