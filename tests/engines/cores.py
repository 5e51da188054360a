"""The cores of all clients in processes of their own, without an engine between them and the server's side."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from secea.engines.core import Core, CoreError
from secea.engines.driver import Patience
from secea.engines.port import Failure, Order, Reply, Task, Terms, asked, orders
from secea.engines.progress import State
from secea.engines.run import serve
from secea.engines.site import Site
from secea.errors import ProtocolError
from secea.wire.messages import Buffer
from sites import Sites

PATIENCE = Patience(stage=30, training=0)


class Cores:
    """A port on cores."""

    def __init__(self, sites: Sites) -> None:
        self._cores = [Core(sites.file(name)) for name in sites.names]
        self.sent = self.received = 0

    def close(self) -> None:
        """End them all."""
        for core in self._cores:
            core.close()

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `secea.engines.port.Port`."""
        with ThreadPoolExecutor(len(self._cores)) as threads:
            given = orders(tasks, round, inboxes(), terms.said)
            for n, replies in threads.map(lambda n: (n, list(self._obeyed(n, given[n], terms.seconds))), given):
                yield from ((n, reply) for reply in replies)

    def _obeyed(self, n: int, order: Order, timeout: float) -> Iterator[Reply | Failure]:
        try:
            yield from asked(order, lambda part: Reply.parse(self._cores[n].obey(part.to_bytes(), timeout), n))
        except (CoreError, ProtocolError) as error:
            yield Failure(str(error))


@contextmanager
def cores(sites: Sites) -> Iterator[Cores]:
    """A port on the cores of these sites, which end with it."""
    port = Cores(sites)
    try:
        yield port
    finally:
        port.close()


def run(sites: Sites, rounds: int) -> State:
    """So many rounds; the server is in this process."""
    with cores(sites) as port:
        return serve(Site.read(sites.file("server")), port, rounds, PATIENCE, logging.getLogger())
