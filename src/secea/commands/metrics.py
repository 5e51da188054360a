"""`secea metrics`: follow a party's log, and let monitoring have what may be known of it."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from secea.errors import ParamsError, SecEAError

if TYPE_CHECKING:
    from secea.party.session import Session

_LOOK_SECONDS: Final = 0.5


@click.command(short_help="Metrics of a party: for Prometheus, or pushed to a collector.")
@click.argument("where", default=".", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--listen", metavar="HOST:PORT",
    help="Let Prometheus ask here. Only this machine can be given.  [127.0.0.1:9464, unless there is --otlp]",
)  # fmt: skip
@click.option("--otlp", metavar="URL", help="Push to an OpenTelemetry collector, by OTLP over HTTP.")
def metrics(where: Path, listen: str | None, otlp: str | None) -> None:
    """Show what a party does to monitoring: rounds, stages, bytes, losses, refusals, memory.

    WHERE is a site's file or folder, or that of a server; by default the folder one is in. The command reads the
    party's audit log, from its oldest line to the one that is written next, and needs no key. It goes on until it is
    stopped, through any number of runs. Start it before a run or after; what it says is the same.

    It shows no name of an entity, and no number that only one party knows. docs/metrics.md lists all metrics and what
    each tells. How often it pushes is said by OTEL_METRIC_EXPORT_INTERVAL, in milliseconds; headers and certificates
    for a collector are given in the other variables of OpenTelemetry, too.

    \b
    Examples:
      secea metrics                                      at http://127.0.0.1:9464/metrics
      secea metrics north --listen 127.0.0.1:9465        another port
      secea metrics north --otlp http://127.0.0.1:4318   push, and listen nowhere
    """  # noqa: D301
    from secea.engines import telemetry
    from secea.engines.follow import Follower
    from secea.engines.meters import Meters
    from secea.engines.site import Site, site_at

    path = site_at(where)
    site = Site.read(path)
    if site.log is None:
        raise ParamsError(f'{path} names no log, and metrics come from it: add the line log = "audit.jsonl"')
    address = telemetry.Address.of(listen or telemetry.LISTEN) if listen or not otlp else None
    url = telemetry.collector(otlp) if otlp else None
    session, server = site.session, not site.participant
    party = "server" if server else site.name

    def again() -> Session:
        nonlocal session
        try:
            session = Site.read(path).session
        except SecEAError as error:
            _say(f"{error}; going on with the federation file as it was")
        return session

    over = _ended()
    with telemetry.metered(party, address, url, _say) as (meter, begin), closing(Follower(site.log)) as log:
        meters = Meters(meter, session, server=server, again=again)
        meters.take(log.lines())
        begin()
        places = [f"at http://{address}/metrics"] * (address is not None) + [f"to {url}"] * (url is not None)
        click.echo(f"metrics of {party} {' and '.join(places)}, from {site.log}")
        while not over:
            time.sleep(_LOOK_SECONDS)
            meters.take(log.lines())


def _ended() -> list[int]:
    """Has something in it when somebody ends this process in an orderly way, so that the last metrics are still pushed.

    No lock is taken in a handler: it may be that of the very line that was interrupted.
    """
    over = list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
    return over


def _say(text: str) -> None:
    click.echo(f"secea: {text}", err=True)
