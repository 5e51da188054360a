"""`secea watch`: a run as it goes on, in a terminal, and as a page that the browser loads again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from secea.commands import shell
from secea.commands.status import WHERE, code
from secea.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

    from secea.engines.journal import Event
    from secea.engines.sight import Seen, Sight
    from secea.report.live import View

LOOK_SECONDS: Final = 1.0
PRIVATE: Final = 0o600
"""The page names clients, and says why they were lost: it is for its owner, who may share it."""


@click.command(short_help="Watch a federation as it goes on.")
@click.argument("where", metavar="[WHERE]", default=".", type=WHERE)
@click.option(
    "--html", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Also keep a page up to date, which a browser loads again by itself. Only you can read the file.",
)  # fmt: skip
def watch(where: Path, html: Path | None) -> None:
    """Watch the run at one party until it ends.

    WHERE is as for `secea status`, and so is what is shown: who is connected, what each client does and since when,
    the stage and its time limit, rounds, bytes, the time that is left (an estimate), who is waited for, and who was
    lost and why. It is read from the party's own files once a second: no port is opened, and the run does not notice.

    Where the output is no terminal, there is a line for each event in place of a picture.

    It ends with the run, with the same exit code as `secea status`. Ctrl-C ends it at once, with 130, and the run goes
    on. If no run has begun yet, it waits for one.

    The page of --html is one file without a script. It is replaced as a whole whenever something changes; the last one
    does not load itself again.

    \b
    Examples:
      secea watch                               the party in this folder
      secea watch ~/federation --html run.html  open run.html in a browser
      secea watch north > north.txt &           a line for each event
    """  # noqa: D301
    from secea.engines.sight import Sight

    console, page, sight = shell.console(), Page(html), Sight(where)
    try:
        drawn = console.is_terminal and not console.is_dumb_terminal
        seen = (_picture if drawn else _lines)(sight, console, page)
    except BaseException:
        page.leave()
        raise
    sys.exit(code(seen.verdict))


class Page:
    """The file of --html, if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._text, self._troubled = path, "", False
        self._last: View | None = None

    def show(self, view: View, *, watched: bool = True) -> None:
        """Write what is new. If it could be written before, a full disk does not end the watch."""
        from secea.report import save
        from secea.report.live import page

        self._last = view
        text = page(view, watched=watched)
        if self._path is None or text == self._text:
            return
        try:
            save(text, self._path, mode=PRIVATE)
        except DataError as error:
            if not self._text:
                raise
            if not self._troubled:
                click.secho(f"secea: {error}; the page stays as it was", fg="red", err=True)
            self._troubled = True
        else:
            self._text, self._troubled = text, False

    def leave(self) -> None:
        """Nobody watches any more: the page says so."""
        if self._last is not None:
            self.show(self._last, watched=False)


def _looks(sight: Sight) -> Iterator[tuple[Seen, View, list[Event]]]:
    """What there is to see, once a second, with the events that led to it, until nothing more is to be expected."""
    from secea.commands.view import view

    while True:
        events = sight.events()
        seen = sight.look()
        yield seen, view(seen), events
        if seen.over:
            return
        time.sleep(LOOK_SECONDS)


def _picture(sight: Sight, console: Console, page: Page) -> Seen:
    """A picture that is drawn again and again."""
    from rich.live import Live

    from secea.commands.screen import screen

    with Live(console=console, auto_refresh=False) as live:
        for seen, view, _ in _looks(sight):
            page.show(view)
            most = None if seen.over else console.height
            live.update(screen(view, console, most=most), refresh=True)
    return seen


def _lines(sight: Sight, _console: Console, page: Page) -> Seen:
    """First what there is, then a line for each event, and at last how it ended."""
    from secea.commands.screen import line, lines
    from secea.commands.view import told
    from secea.engines.progress import clock

    said = ""
    for seen, view, events in _looks(sight):
        page.show(view)
        if not said:
            _say(*lines(view))
        elif not sight.has_log and view.sentence != said:
            _say(f"{view.at} {line(view.level, view.sentence)}")
        else:
            _say(*(f"{clock(event.time)} {line(*text)}" for event in events if (text := told(event))))
        if said and seen.over:
            _say(*lines(view))
        said = view.sentence
    return seen


def _say(*lines: str) -> None:
    """Lines that whoever reads them gets at once."""
    for each in lines:
        click.echo(each)
    sys.stdout.flush()
