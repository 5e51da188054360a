"""`secea plan --policy`: the federation file in plain words, for people who sign it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from secea.commands.fits import duration, size
from secea.engines import files
from secea.engines.agreement import ABOUT, written
from secea.engines.costs import TITLES
from secea.errors import ParamsError
from secea.party.session import Session
from secea.report import save
from secea.report.policy import Chapter, Line, page

if TYPE_CHECKING:
    from rich.console import Console

    from secea.party.disclosure import Statement

ALIKE: Final = {
    "nfc": "letters that Unicode can write in two ways are one (nfc)",
    "strip": "blanks at both ends do not count (strip)",
    "casefold": "capital and small letters are the same (casefold)",
}
"""What each step of `Params.normalize` does, for people."""


def chapters(
    session: Session, found: dict[str, Any], path: Path, clip: tuple[float, float] | None = None
) -> tuple[Chapter, ...]:
    """All there is to say. `found` is what `secea plan` says of the session; `clip`: with an epsilon, and its delta."""
    said = session.form.disclosure(session.params)
    terms = (*_terms(session, said.accuracy), *(_epsilon(session, *clip) if clip else ()))
    return (
        Chapter("Who takes part", "Each party has a key of its own. Compare the fingerprints with their owners.", (
            Line("the server", (files.key_fingerprint(session.roster.server),), literal=True),
            *(
                Line(f"{n} {_shown(name)}", (files.key_fingerprint(key),), literal=True)
                for n, (name, key) in enumerate(zip(session.roster.names, session.roster.clients, strict=True))
            ),
        )),
        Chapter(
            "Who learns what",
            "A slot is a place in the list of all entities, the union, without a name. Below each party stands what is"
            " assumed of it.",
            tuple(map(_line, said.parties)),
        ),
        Chapter(
            "What the options change",
            "" if said.options else "None is in use: no minimum of owners, no weights, no rows left out, no noise.",
            tuple(map(_line, said.options)),
        ),
        Chapter("What is not hidden, and not prevented", "", (Line("limits", said.limits),)),
        Chapter("How exact, how long", "", terms),
        Chapter(
            "What it costs",
            "Bytes are exact, for a union of the largest size. Times are estimates: of the machine on which this page"
            f" was made, and a network of {found['mbit']:g} Mbit/s.",
            (Line("is it practical?", (found["verdict"]["sentence"], *found["verdict"]["instead"])), *_costs(found)),
        ),
        Chapter("The policy, line by line", f"As in {path.name}.", tuple(_policy(session))),
        Chapter("What you agree to", "", (
            Line("compare", (
                "Every party gets the same file, and compares its fingerprint with the others over another channel: a"
                f" telephone call will do. `secea roster {path.name}` shows it, and refuses a file that was edited.",
            )),
            Line("signed by keys", (
                "The fingerprint covers every key, name and value here. In every session each party's first message"
                " carries the hash behind it, signed with that party's key. Parties that agreed on anything else refuse"
                " each other.",
            )),
        )),
    )  # fmt: skip


def _shown(name: str) -> str:
    """A client's name, without characters that a terminal or a page would obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)


def _line(said: Statement) -> Line:
    return Line(said.about, said.says, said.assumed)


def _terms(session: Session, accuracy: tuple[str, ...]) -> Iterator[Line]:
    params = session.params
    yield Line("accuracy", accuracy)
    yield Line("rounds", (
        f"At most {params.rounds:,} in a session. Over all of them statistical security is {params.sigma} bits.",
    ))  # fmt: skip
    rule = params.normalize  # a file holds no function
    alike = [meant for step, meant in ALIKE.items() if not callable(rule) and step in rule]
    yield Line("names", (
        f"Names of entities are made alike before they are compared: {', '.join(alike)}."
        if alike
        else "Names of entities are compared byte by byte, as UTF-8 text: other spellings are other entities.",
    ))  # fmt: skip


def _epsilon(session: Session, clip: float, delta: float) -> Iterator[Line]:
    """What the noise of the policy is worth, if all clip their rows."""
    from secea import privacy

    params = session.params
    if not params.noise:
        raise ParamsError("--clip gives an epsilon for noise, and this policy has none: noise = 0")
    rows = params.max_entities or 1
    row, table = (privacy.epsilon_of(params, delta, clip, rows=many) for many in (1, rows))
    yield Line("epsilon", (
        f"{row:.3g} for one row of one client, over all {params.rounds:,} rounds, at delta {delta:g}, if every client"
        f" clips how far its rows move in a round to {clip:g}. The file does not bind clients to that.",
        f"{table:.3g} for all {rows:,} rows that a client may have.",
        *privacy.assumptions(params, clip),
    ))  # fmt: skip


def _costs(found: dict[str, Any]) -> Iterator[Line]:
    for phase, title in (("setup", "set-up, once"), ("round", "a round")):
        each, server = found["phases"][phase]["client"], found["phases"][phase]["server"]
        yield Line(title, (
            f"Each client sends {size(each['sent'])} ({each['sent']:,} bytes) and gets {size(each['received'])}, and"
            f" computes for {duration(each['cpu_seconds'])}.",
            f"The server sends {size(server['sent'])} and gets {size(server['received'])}, and computes for"
            f" {duration(server['cpu_seconds'])}. It takes {duration(found['phases'][phase]['seconds'])} in all.",
        ))  # fmt: skip
    memory = found["memory"]
    if engine := found["engine"]:
        yield Line("engine", (f"{TITLES[engine['name']]}: what it adds is among times and memory.",))
    yield Line("memory", (f"Each client {size(memory['client'])}, the server {size(memory['server'])}.",))
    if found["options_cost"]:
        first, *_, last = found["options_cost"]
        yield Line("options", (
            f"A client sends {size(last['client_sends_in_round'])} in a round, and would send"
            f" {size(first['client_sends_in_round'])} without them.",
        ))  # fmt: skip


def _policy(session: Session) -> Iterator[Line]:
    values = {"form": session.form.name} | asdict(session.params) | asdict(session.form)  # type: ignore[call-overload]
    for name, about in ABOUT.items():
        if values.get(name) is not None:
            meant, _, _ = about.partition("; without this line")
            yield Line(f"{name} = {written(values[name])}", (f"{meant[0].upper()}{meant[1:]}.",))


def summary(session: Session) -> str:
    """One line."""
    params = session.params
    return (
        f"{params.clients} clients, of which T = {params.T} may conspire and D = {params.dropouts} drop out · up to"
        f" {params.max_union:,} entities, {params.max_entities:,} of one client · form {session.form.name}"
    )


def as_json(session: Session, found: dict[str, Any], told: tuple[Chapter, ...]) -> dict[str, Any]:
    """For other programs."""
    roster = session.roster
    return {
        "fingerprint": session.fingerprint,
        "server": {"key": roster.server.hex(), "fingerprint": files.key_fingerprint(roster.server)},
        "clients": [
            {"name": name, "key": key.hex(), "fingerprint": files.key_fingerprint(key)}
            for name, key in zip(roster.names, roster.clients, strict=True)
        ],
        "disclosure": asdict(session.form.disclosure(session.params)),
        "page": [asdict(chapter) for chapter in told],
        **found,
    }


def write(session: Session, told: tuple[Chapter, ...], out: Path) -> None:
    """The page as one file, which loads nothing."""
    signers = ("the server", *map(_shown, session.roster.names))
    text = page("What this federation is, and who learns what", summary(session), session.fingerprint, told, signers)
    save(text, out)


def show(session: Session, told: tuple[Chapter, ...], console: Console) -> None:
    """The same in a terminal."""
    from rich.table import Table as Grid

    console.print(summary(session), style="bold")
    for chapter in told:
        console.print(f"\n{chapter.title}", style="bold")
        if chapter.lead:
            console.print(chapter.lead, style="dim")
        grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        grid.add_column(width=28, overflow="fold")
        grid.add_column(overflow="fold")
        for line in chapter.lines:
            for i, says in enumerate(line.says):
                about = "" if i else f"{line.about}{f' ({line.note})' if line.note else ''}"
                grid.add_row(about, f"- {says}" if len(line.says) > 1 else says)
        if chapter.lines:
            console.print(grid)
    console.print(f"\nfingerprint  {session.fingerprint}", style="bold")
    console.print("We have compared this fingerprint, and agree:")
    for name in ("the server", *map(_shown, session.roster.names)):
        console.print(f"  {name:<24} name ____________________  signature ____________________  date __________")
