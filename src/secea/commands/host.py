"""`secea host`: a federation on NVFlare, from keys to the last round, by one command."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from secea.commands import shell
from secea.errors import ParamsError

if TYPE_CHECKING:
    from secea.engines.hosting import Wish

PORT: Final = 8002


@click.command(short_help="Host a federation on NVFlare: keys, invitations, rounds.")
@click.argument("federation", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--site", "sites", multiple=True, metavar="NAME", help="A site that will join; once for each of them.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter: dim, max_entities, ...")
@shell.form_option
@click.option(
    "--address", metavar="HOST[:PORT]",
    help="Where sites reach this machine. With localhost it listens on loopback alone, with any other name on all"
    f" interfaces.  [as before; localhost:{PORT}]",
)  # fmt: skip
@click.option("--rounds", metavar="N", type=click.IntRange(1), help="Rounds in all.  [as before; 1]")
@click.option(
    "--training", metavar="SECONDS", type=click.FloatRange(0),
    help="The time that a site may train in a round.  [as before; 3600]",
)  # fmt: skip
def host(
    federation: Path,
    sites: tuple[str, ...],
    params: tuple[str, ...],
    form: str,
    address: str | None,
    rounds: int | None,
    training: float | None,
) -> None:
    """Host a federation on NVFlare, on this machine: make what is missing, wait for the sites, and run the rounds.

    FEDERATION is the file that all parties agree on. If it does not exist, give the sites and the parameters of
    `secea roster`: the file is then made of the keys that the sites bring, and nothing begins before the operator of
    each site has compared its fingerprint. If it exists (`secea roster` made it), its sites bring the keys that are in
    it, and server/identity.pem beside it must be the server's key.

    Everything is kept beside FEDERATION, and is named when it is made: the server's key, settings, state and log in
    server/, NVFlare's kits in kits/, and in invitations/ a file for each site. It has the key of a connection, so hand
    it over where nobody else reads it. The site runs `secea join` with it.

    A site that is lost may join again: a later round takes it back. Ctrl-C ends after the round that is running, and
    at once if it comes again; so does `secea stop`. The same command goes on with the rounds that are left, also
    without its options. Nobody has to trust who hosts: this machine learns what a server learns (docs/threat-model.md).

    \b
    Examples:
      secea host kg/federation.toml --site north --site south --site west \\
          --param dim=64 --param max_entities=10000 --param max_union=25000 --rounds 50
      secea host kg/federation.toml                           go on; or with a file of secea roster
      secea host kg/federation.toml --address 192.0.2.7:8002  where sites are other machines
    """  # noqa: D301
    from secea.engines.hosting import Hosting
    from secea.engines.roll import Draft

    server, port = _address(address)
    draft = Draft(sites, params, form) if sites or params else None
    if draft is None and not federation.exists():
        raise ParamsError(f"{federation} does not exist: say who takes part, --site NAME and --param dim=... and so on")
    hosting = Hosting(federation, draft, server=server, port=port, rounds=rounds, training=training)
    shell.made(hosting.prepare())
    with _wishes() as wishes:
        state = hosting.run(_say, wishes)
    if state:
        click.echo(shell.printable(state.text()))
    if wishes() is not wishes.nothing:
        click.echo(f"ended; to go on: secea host {federation}")
    elif state is None or state.outcome != "completed":
        raise SystemExit(shell.FAILED)


def _address(text: str | None) -> tuple[str | None, int | None]:
    if text is None:
        return None, None
    host, _, port = text.partition(":")
    try:
        return host, int(port) if port else PORT
    except ValueError:
        raise ParamsError(f"--address {text}: expected HOST or HOST:PORT") from None


class _Wishes:
    """What the operator wants: Ctrl-C and `secea stop` end after the round, SIGTERM and another Ctrl-C at once."""

    def __init__(self) -> None:
        from secea.engines.hosting import Wish

        self.nothing, self._pause, self._stop = Wish.GO_ON, Wish.PAUSE, Wish.STOP
        self._wish = Wish.GO_ON

    def __call__(self) -> Wish:
        return self._wish

    def pause(self, *_: object) -> None:
        """After this round, and at once if it was said before."""
        if self._wish is self.nothing:
            self._wish = self._pause
            click.echo("ends after this round; Ctrl-C again, or secea stop --now: at once", err=True)
        else:
            self._wish = self._stop

    def stop(self, *_: object) -> None:
        """At once."""
        self._wish = self._stop


@contextmanager
def _wishes() -> Iterator[_Wishes]:
    wishes = _Wishes()
    handlers = {signal.SIGINT: wishes.pause, signal.SIGUSR1: wishes.pause}
    with shell.handled(handlers | {signal.SIGTERM: wishes.stop, signal.SIGHUP: wishes.stop}):
        yield wishes


def _say(line: Mapping[str, Any]) -> None:
    if line.get("event") == "offered":
        shell.happened(line, "all sites have brought their keys")
        click.secho(f"fingerprint     {line['fingerprint']}", bold=True)
        click.echo("Compare it with each operator, by telephone say. They see it too, and agree at their own side.")
    elif text := sentence(line):
        shell.happened(line, text)


def sentence(line: Mapping[str, Any]) -> str:
    """What a line of the server's log says to who hosts; nothing for most of them."""
    names = ", ".join(line.get("clients") or [])
    match line.get("event"):
        case "listening":
            return f"listening at {line['server']}:{line['port']}"
        case "connected":
            missing = ", ".join(line["missing"])
            return f"connected: {names or 'nobody'}" + (f"; waiting for {missing}" if missing else "")
        case "job":
            return "NVFlare starts a process for each of them, which takes some 15 s"
        case "agrees":
            return f"{line['client']} agrees"
        case "declines":
            return f"{line['client']} does not agree"
        case "agreed":
            return f"all agree: wrote the federation file, {line['fingerprint']}"
        case "stage" if line.get("training"):
            return f"round {line['round']}: {names} train"
        case "round":
            return f"round {line['number']}: means for {names}"
        case "round lost":
            return f"round lost: {line['why']}"
        case "lost":
            return f"{line['client']} is lost ({line['cause']}): {line['why']}"
        case "waiting":
            return f"waiting for {line['client']} since {line['since']}"
        case "here":
            return f"{line['client']} is here"
        case "back":
            return f"{names}: back; takes part again after this round"
        case "failed":
            return f"failed: {line['why']}"
    return ""
