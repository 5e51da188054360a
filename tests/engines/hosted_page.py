"""A run as people see it: `python hosted_page.py` writes docs/hosted-run.md, what each process of it printed.

Five processes: a host and four sites. One of the sites is killed and returns; at the end somebody stops the federation.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hosted import Command, Town, waited

PAGE = Path(__file__).parents[2] / "docs" / "hosted-run.md"
NAMES = ("north", "east", "south", "west")
POLICY = ("dim=2", "max_entities=10", "max_union=20", "dropouts=1")
MINE = Path(__file__).with_name("mine.py")

INTRODUCTION = """\
# A hosted federation, as it was seen

Five processes on one machine, over TLS on loopback: `secea host`, and `secea join` at four sites that train for a
second in each round. West is killed with all that it started, and comes back; at the end somebody runs `secea stop`.
`python tests/engines/hosted_page.py` does all of it anew and writes this page. `make slow` does the same and checks
what came of it (`tests/engines/test_hosting.py`). [How it works](deploy-nvflare.md#one-command-each)
"""


def play(town: Town) -> Iterator[tuple[str, Command]]:
    """The run: each command, with what was done there."""
    sites = [word for name in NAMES for word in ("--site", name)]
    host = town.host(*sites, *(word for each in POLICY for word in ("--param", each)), "--rounds", "500")
    host.says("listening at localhost")
    for name in NAMES:
        (town.folder / name).mkdir()
        (town.folder / name / "mine.py").write_bytes(MINE.read_bytes())
        town.join(name, "--participant", "mine:participant")
    north, west = town.sites["north"], town.sites["west"]
    town.all_agree(host)
    waited(lambda: town.rounds() and town.rounds()[-1] == list(NAMES), "a round of all")
    watch = town.run("watch", "kg")
    waited(lambda: len(town.rounds()) >= 3, "three rounds")
    west.kill()
    host.says("west is lost")
    gone = len(town.rounds())
    waited(lambda: len(town.rounds()) > gone, "a round without west")
    again = town.join("west")
    host.says("west: back")
    waited(lambda: town.rounds()[-1] == list(NAMES) and len(town.rounds()) > gone + 1, "a round of all again")
    status = town.run("status", "kg")
    status.code()
    stop = town.run("stop", "kg")
    for command in (stop, host, watch, *town.sites.values()):
        command.code()
    yield "Who hosts", host
    yield "A site, north. Its operator compared the fingerprint, and answered `yes`", north
    yield "West, until it was killed", west
    yield "West again", again
    yield (
        "Meanwhile, `secea watch` where its output is no terminal; it also has stages and replies",
        watch,
    )
    yield "Before the end", status
    yield "The end", stop


def page(town: Town) -> str:
    """All of it, as a page."""
    parts = [INTRODUCTION]
    for what, command in play(town):
        words = " ".join(word.replace(str(town.folder), "~") for word in command.words)
        text = _shortened(command.text.replace(str(town.folder), "~")).rstrip()
        parts.append(f"## {what}\n\n```text\n$ secea {words}\n{text}\n```\n")
    return "\n".join(parts)


def _shortened(text: str) -> str:
    """Without the middle of what is said again in every round."""
    lines, rounds = list[str](), 0
    for line in text.splitlines():
        if re.search(r"has replied|, stage |rounds done", line):
            continue
        rounds = rounds + 1 if re.search(r"round \d+", line) and not re.search("lost|back", line) else 0
        if rounds == 7:
            lines.append("...")
        if rounds < 7:
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Town(Path(folder)) as here:
        text = page(here)
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE).write_text(text, encoding="utf-8")
