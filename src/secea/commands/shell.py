"""What all commands have in common: errors as one line for people, exit codes, JSON, and a console.

Nothing heavy is imported here: `secea --help` and shell completion come through this module.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from secea.errors import DataError, MissingExtra, NothingMeasured, ParamsError, SecEAError, SnapshotError, TableError
from secea.forms import DEFAULT, NAMES

if TYPE_CHECKING:
    from rich.console import Console

FAILED, UNUSABLE, UNABLE, UNMEASURED, INTERRUPTED, BROKEN_PIPE = 1, 3, 4, 5, 130, 141
EXIT_CODES: Final = """\b
Exit codes:
  0    done
  1    a claim does not hold, or the federation failed
  2    the command line is wrong
  3    something that was given cannot be used: a parameter, a table, data, a key
  4    this machine cannot do it: a missing extra, a full disk, no permission
  5    done, but nothing could be measured or shown: there is no test data, or no run has begun
  130  interrupted (Ctrl-C)"""
FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
NOT_A_TERMINAL: Final = 110
"""Columns, where nobody has a window to fit."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")


class _Collusion(click.Option):
    """Its default depends on drop-outs, in a command that has any."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        if record and any(option.name == "dropouts" for option in ctx.command.params):
            return record[0], record[1].replace("[all others]", "[all others, less 2 for each drop-out]")
        return record


collusion_option = click.option(
    "--collusion", cls=_Collusion, metavar="T", type=int,
    help="T, the number of clients that may conspire with the server.  [all others]  Form paillier: the number that may"
    " conspire with each other, fewer than half of them.  [1]",
)  # fmt: skip
form_option = click.option(
    "--form", type=click.Choice(NAMES), default=DEFAULT, show_default=True,
    help="keyed protects a client even if the server and all others conspire, and takes two clients or more."
    " paillier is the paper's: slow, and its exact means show the number of owners.",
)  # fmt: skip

normalize_option = click.option(
    "--normalize", metavar="A,B,...", default="",
    help="How names are made alike before they are compared: steps out of nfc (Unicode forms), strip (blanks at both"
    " ends) and casefold.  [as they are]",
)  # fmt: skip
min_owners_option = click.option(
    "--min-owners",
    metavar="N",
    type=int,
    default=1,
    show_default=True,
    help="No mean for an entity of fewer owners: they keep their own rows.",
)
partial_option = click.option(
    "--partial", is_flag=True, help="Rows of weight 0 are left out openly: all see which slots nobody gave."
)
weights_option = click.option(
    "--weights", multiple=True, metavar="COLUMN|FILE",
    help="Means are weighted: by a column of every table, or by a file for each table, in their order, with a whole"
    " number for each name.",
)  # fmt: skip
_LAYOUT = (
    click.option(
        "--header/--no-header", default=None,
        help="Whether the first line of a .csv or .tsv is a heading.  [found out]",
    ),
    click.option(
        "--name-column", metavar="NAME|NUMBER", help="The column of the names: its label, or its number from 1 on."
        "  [the first, or pandas' index]",
    ),
    click.option(
        "--columns", metavar="A,B,...", default="",
        help="The columns of the embedding, by label or number.  [all others with numbers]",
    ),
    click.option(
        "--format", type=click.Choice(["csv", "tsv", "vec", "npz", "parquet"]), default="csv", show_default=True,
        help="What standard input holds, where a TABLE is -.",
    ),
)  # fmt: skip


def layout_options(command: Callable[..., None]) -> Callable[..., None]:
    """What the columns of tables in files are."""
    for option in reversed(_LAYOUT):
        command = option(command)
    return command


noise_option = click.option(
    "--noise", metavar="X", type=float, default=0.0, show_default=True,
    help="Standard deviation of noise on the sum of an entity's rows, which all clients add together.",
)  # fmt: skip


def exit_code(error: SecEAError) -> int:
    """Who has to do something about it."""
    refused = error.__context__  # the system's own error, if ours describes one
    if isinstance(error, MissingExtra) or (isinstance(refused, OSError) and refused.errno in (*FULL, *FORBIDDEN)):
        return UNABLE
    if isinstance(error, NothingMeasured):
        return UNMEASURED
    return UNUSABLE if isinstance(error, ParamsError | TableError | SnapshotError | DataError) else FAILED


def told(error: OSError) -> str:
    """What the system refused, and what to do about it."""
    what = (error.strerror or str(error)).lower()
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in FULL:
        return f"{where}{what}; make room, or write to another place"
    if error.errno in FORBIDDEN:
        return f"{where}{what}; choose a place that you may write to, or change its permissions"
    if error.errno == errno.EADDRINUSE:
        return f"{where}{what}; stop what uses the port, or choose another one"
    return f"{where}{what}"


def fail(text: str, code: int) -> NoReturn:
    """One line on standard error, and the end."""
    click.secho("\n".join(map(printable, f"secea: {text}".split("\n"))), fg="red", err=True)
    sys.exit(code)


def _hush() -> None:
    """Nobody reads any more: what is still to be flushed goes nowhere."""
    with suppress(OSError):  # it is no file
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)


class Commands(click.Group):
    """What is expected to go wrong ends in one line and an exit code, without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which one meets them."""
        return list(self.commands)

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        """The same while the command line is read."""
        try:
            return super().make_context(*words, **more)
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its output is complete when this returns."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            try:
                result = super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except SecEAError as error:
            fail(str(error), exit_code(error))
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)
        except MemoryError:
            fail("there is not enough memory for this; `secea plan` says how much is needed", UNABLE)
        except BrokenPipeError:
            _hush()
            sys.exit(BROKEN_PIPE)
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # rich makes 1 of it
                sys.exit(BROKEN_PIPE)
            raise
        except OSError as error:
            if error.filename is None and error.errno in FULL:
                _hush()  # it was the output: what is left of it cannot be written either
            fail(told(error), UNABLE)
        return result


def echo_json(value: object) -> None:
    """For other programs."""
    click.echo(json.dumps(value, indent=2))


def made(files: Iterable[tuple[Path, str]]) -> None:
    """Name each file that a command made, and what it is."""
    for path, what in files:
        click.echo(f"wrote {path}  ({what})")


def happened(line: Mapping[str, Any], text: str) -> None:
    """Show something that a log has, with its time. What others sent cannot steer the terminal."""
    when = time.strftime("%H:%M:%S", time.localtime(line.get("time")))
    click.echo(f"{when}  {printable(text)}")


def printable(text: str) -> str:
    """The same text as one line, without what steers a terminal: what others sent may be in it."""
    return "".join(each if each.isprintable() else "?" for each in text)


@contextmanager
def handled(handlers: Mapping[signal.Signals, Callable[..., object]]) -> Iterator[None]:
    """While this lasts, these signals do this."""
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def console(*, stderr: bool = False) -> Console:
    """As wide as the terminal; of fixed width, and without colour, where output goes elsewhere."""
    from rich.console import Console

    wide = None if (sys.stderr if stderr else sys.stdout).isatty() else NOT_A_TERMINAL
    return Console(width=wide, stderr=stderr, highlight=False, markup=False, emoji=False)


def working(what: str) -> AbstractContextManager[object]:
    """A note on a terminal while something runs, and nothing elsewhere."""
    there = console(stderr=True)
    return there.status(what) if there.file.isatty() else nullcontext()
