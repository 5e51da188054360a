"""`secea status`: what goes on at one party, from its own files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from secea.commands import shell

if TYPE_CHECKING:
    from secea.engines.sight import Verdict

WHERE: Final = click.Path(path_type=Path)
NOTHING_YET: Final = shell.UNMEASURED


def code(verdict: Verdict) -> int:
    """The exit code for what a run comes to."""
    from secea.engines.sight import Verdict

    if verdict is Verdict.NOTHING:
        return NOTHING_YET
    return 0 if verdict.fine else shell.FAILED


@click.command(short_help="Say what a federation does now, or how it ended.")
@click.argument("where", metavar="[WHERE]", default=".", type=WHERE)
@shell.json_option
def status(where: Path, as_json: bool) -> None:
    """Say what the run at one party does now, or how it ended.

    WHERE is a site's file, the folder that it is in, or the folder of a hosted federation; by default the current one.
    At the server it tells rounds, the stage, what each client does and since when, who was lost and why, bytes, and
    what is left. At a site it tells what the site's own log says: whether it trains, whether the server left it out and
    why, what it refused, and how it ended. No key is read, and nothing is written or locked.

    A run whose process died without a word is not shown as running: it is "silent" when nothing has been heard of it
    for 45 seconds, and nobody uses its state.

    \b
    The exit code is for programs:
      0  running, completed, or paused
      1  failed, stopped, or silent
      3  there is nothing that could be read
      5  no run has begun here yet

    \b
    Examples:
      secea status                              of the party in this folder
      secea status north/site.toml --json       for other programs
      secea status ~/federation || mail ...     when somebody has to look
    """  # noqa: D301 - click takes the character itself: it keeps the lines that follow as they are
    from secea.engines.sight import Sight

    sight = Sight(where)
    sight.events()
    seen = sight.look()
    if as_json:
        shell.echo_json(seen.as_json())
    else:
        from secea.commands.screen import screen
        from secea.commands.view import view

        console = shell.console()
        console.print(screen(view(seen), console))
    sys.exit(code(seen.verdict))
