"""`secea join`: a site takes part in a federation on NVFlare, by one command."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from secea.commands import shell
from secea.errors import ParamsError

if TYPE_CHECKING:
    from secea.engines.joining import Bring, Joining
    from secea.engines.site import Site
    from secea.party.session import Session


@click.command(short_help="Join a federation by an invitation.")
@click.argument("invitation", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="Where this site's files are.  [the site's name]",
)  # fmt: skip
@click.option(
    "--table", metavar="FILE", type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="What this site brings: a table, as `secea aggregate` reads it. The means go into the folder.",
)  # fmt: skip
@click.option("--participant", metavar="MODULE:FUNCTION", help="Or a function of yours, which trains.")
@click.option(
    "--identity", metavar="FILE", type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="This site's key, if the federation file has one already.  [a new one]",
)  # fmt: skip
@click.option("--fingerprint", metavar="WORDS", help="Agree to the federation file that has this fingerprint, unasked.")
def join(
    invitation: Path,
    folder: Path | None,
    table: Path | None,
    participant: str | None,
    identity: Path | None,
    fingerprint: str | None,
) -> None:
    """Join a federation with the file INVITATION, which you got from who hosts it (`secea host`).

    The first time this makes the site's folder, and names each file: a key of its own, its settings (site.toml), and
    NVFlare's kit. The kit is made of the NVFlare that is installed here, for this site's connection; nothing in an
    invitation is run. A kit made so takes secea's jobs and no code.

    When all sites have brought their keys, the federation file is shown: who takes part, what is agreed, and its
    fingerprint. Compare the fingerprint with the others, by telephone say, and agree. Everything rests on this: the
    server carries the file, and could show each site another one. Before that, nothing of your data has left.

    Answer yes or no. Then the site takes part until the run is over. With --table, FILE is this site's rows, and the
    means are written beside its settings, as FILE is written. With --participant, your function trains: MODULE lies in
    the site's folder, or is installed (docs/adapters.md).

    Ctrl-C leaves; the same command comes back, and needs no options then. What leaving costs the others: nothing
    between rounds, and at most the round in the middle of one.

    \b
    Examples:
      secea join north.invitation --table north.csv
      secea join north.invitation --participant mine:participant --folder /srv/north
      secea join north.invitation                                       come back
    """  # noqa: D301
    from secea.engines.invitation import read
    from secea.engines.joining import Fate, Joining

    if table and participant:
        raise click.UsageError("--table and --participant are two things to bring: give one of them")
    invited = read(invitation)
    joining = Joining(invited, folder or Path(invited.site))
    shell.made(joining.prepare(_bring(joining, table, participant), identity))

    click.echo(f"{invited.site} joins at {invited.server}:{invited.port}; Ctrl-C leaves")
    with shell.handled(dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1), _leave)):
        try:
            fate = joining.run(lambda session: _ask(session, joining.site, fingerprint), _say)
        except _Leaves:
            fate = Fate.LEFT
    match fate:
        case Fate.OVER:
            click.echo(f"the run is over{_result(joining)}")
        case Fate.LEFT:
            click.echo(f"left; to come back: secea join {invitation}{'' if folder is None else f' --folder {folder}'}")
        case Fate.ENDED:
            shell.fail(
                f"the connection ended before the run did: {joining.folder / 'audit.jsonl'} and"
                f" {joining.folder / 'nvflare.log'} say more; the same command comes back",
                shell.FAILED,
            )


def _bring(joining: Joining, table: Path | None, participant: str | None) -> Bring | None:
    from secea.commands import formats
    from secea.engines.joining import Bring

    if participant:
        if not re.fullmatch(r"[\w.]+:\w+", participant):
            raise ParamsError(f"--participant {participant}: expected MODULE:FUNCTION")
        return Bring(participant, {})
    if table is None:
        return None
    for assumed in formats.read(table).assumed:  # and what is wrong with it is raised
        click.echo(f"note: {table}: {assumed}", err=True)
    result = joining.folder.absolute() / f"means{''.join(table.suffixes[-2:])}"
    if result.exists() and result.samefile(table):
        raise ParamsError(f"{table} is where the means go: choose another name for the table")
    return Bring("secea.commands.bring:table", {"file": str(table.absolute()), "result": str(result)})


class _Leaves(BaseException):
    """The operator wants to leave."""


def _leave(*_: object) -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(each, signal.SIG_IGN)  # it is on its way
    raise _Leaves


def _result(joining: Joining) -> str:
    result = joining.site.arguments.get("result")
    return f": the means are in {result}" if isinstance(result, str) and Path(result).exists() else ""


def _ask(session: Session, site: Site, fingerprint: str | None) -> bool:
    """Show a federation file, and ask its operator."""
    from secea.commands.agreed import offered_lines, weaknesses

    _fits(session, site)
    click.echo(f"\nThe federation file, as it came for {site.name}:")
    for line in offered_lines(session):
        click.echo(line)
    for line in weaknesses(session):
        click.secho(f"weak            {line}", fg="red")
    click.secho(f"fingerprint     {session.fingerprint}", bold=True)
    if fingerprint is not None:
        same = fingerprint.split() == session.fingerprint.split()
        click.echo("It has the fingerprint that you gave." if same else f"You gave another one: {fingerprint}")
        return same
    click.echo("Compare this fingerprint with the other operators, over a channel on which you know them.")
    return _answer("Is it the same for all of them, and do you want this policy? (yes or no)")


def _answer(question: str) -> bool:
    """A word that somebody types after the question."""
    if sys.stdin.isatty():
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before is no answer
    while True:
        click.echo(f"{question} ", nl=False)
        if not (line := sys.stdin.readline()):
            raise ParamsError(
                "nobody is here to answer: compare the fingerprint, and run the command again with --fingerprint"
            )
        if (word := line.strip().lower()) in ("yes", "no"):
            return word == "yes"


def _fits(session: Session, site: Site) -> None:
    """A `ParamsError` if the table of this site does not fit the policy."""
    from secea.commands import formats

    file = site.arguments.get("file")
    if not isinstance(file, str):
        return
    table, params = formats.read(Path(file)).table, session.params
    if table.dim != params.dim:
        raise ParamsError(f"{file} has {table.dim} numbers for each name, and the policy has dim = {params.dim}")
    if params.max_entities is not None and len(table) > params.max_entities:
        raise ParamsError(f"{file} has {len(table)} names, and the policy has max_entities = {params.max_entities}")


def _say(line: Mapping[str, Any]) -> None:
    from secea.engines.core import DESERTED

    match line.get("event"):
        case "start":
            text = f"takes part (run {line.get('run') or '?'})"
        case "training":
            text = f"round {line.get('round')}: trains"
        case "trained":
            text = f"round {line.get('round')}: trained, {line.get('seconds')} s"
        case "left out":
            text = f"left out; the server says: {line.get('why')}"
        case "refused":
            text = f"refused a message: {line.get('why')}"
        case "stopped" if str(line.get("why")).startswith(DESERTED):
            text = "its job has ended; the host may begin another one"
        case "stopped":
            text = f"stopped: {line.get('why')}"
        case "end":
            text = "the last means are here"
        case _:
            return
    shell.happened(line, text)
