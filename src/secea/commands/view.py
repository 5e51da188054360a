"""A run in words: what `secea status` and `secea watch` show, made of what is seen and of nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from secea.commands.fits import duration, size
from secea.engines.journal import Event, SiteState
from secea.engines.progress import ClientState, Doing, State
from secea.engines.sight import Seen, Verdict
from secea.report.live import ClientRow, Level, Note, View

WAITED_SECONDS: Final = 10.0
"""Whoever takes no longer than this is not called waited for."""
ANSWERS_SECONDS: Final = 10.0
"""A site that was heard so recently answers."""
MOST_TEXT: Final = 400
"""Characters of a text from a log, or from a peer."""
MOST_LOST: Final = 3
"""Lost rounds whose reasons are shown."""

LEVELS: Final = {
    Verdict.NOTHING: Level.PLAIN, Verdict.RUNNING: Level.FINE, Verdict.COMPLETED: Level.FINE,
    Verdict.PAUSED: Level.WARNING, Verdict.FAILED: Level.BAD, Verdict.STOPPED: Level.BAD, Verdict.SILENT: Level.BAD,
}  # fmt: skip
DOES: Final = {
    Doing.UNKNOWN: "not heard of yet", Doing.HERE: "has replied", Doing.WORKS: "works", Doing.TRAINS: "trains",
    Doing.LOST: "lost",
}  # fmt: skip


def plain(text: str) -> str:
    """A text in one line, of some length, without characters that a terminal or a page would obey."""
    shown = "".join(c if c.isprintable() else " " if c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return shown if len(shown) <= MOST_TEXT else f"{shown[:MOST_TEXT]}\N{HORIZONTAL ELLIPSIS}"


def moment(then: float, now: float) -> str:
    """A time of day, with its date if that is another one."""
    day, today = (time.strftime("%Y-%m-%d", time.localtime(each)) for each in (then, now))
    return time.strftime("%H:%M:%S" if day == today else "%Y-%m-%d %H:%M:%S", time.localtime(then))


def lasted(seconds: float) -> str:
    """How long something took, or has taken so far, in whole seconds."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 120 else duration(whole)


def view(seen: Seen) -> View:
    """All there is to say of what was seen."""
    return _server(seen, seen.state) if isinstance(seen.state, State) else _site(seen, seen.state)


def _subject(party: str, session: str, run: str) -> str:
    parts = [plain(party)]
    if session:
        parts.append(f"session {' '.join(plain(session).split()[:2])} \N{HORIZONTAL ELLIPSIS}")
    if run:
        parts.append(f"run {plain(run)}")
    return " \N{MIDDLE DOT} ".join(parts)


def _silent(seen: Seen) -> str:
    whose = "nobody is seen who uses its state" if seen.used is False else "its process is gone"
    return (
        f"it has not ended, and nothing has been heard since {moment(seen.heard, seen.now)} ({lasted(seen.quiet)} ago);"
        f" {whose}. Its process died, or lost its machine."
    )


# -------------------------------------------------------------------------------------------------------- the server


def _server(seen: Seen, state: State) -> View:
    return View(
        subject=_subject("the server", state.session, state.run),
        at=moment(seen.now, seen.now),
        level=LEVELS[seen.verdict],
        word=seen.verdict,
        sentence=_server_sentence(seen, state),
        stage=_stage(seen, state) if seen.verdict is Verdict.RUNNING else "",
        done=state.done,
        asked=state.asked,
        facts=tuple(_server_facts(seen, state)),
        notes=tuple(_server_notes(seen, state)),
        clients=tuple(_row(name, each, seen) for name, each in sorted(state.clients.items(), key=_urgency)),
        over=seen.over,
    )


def _server_sentence(seen: Seen, state: State) -> str:
    match seen.verdict:
        case Verdict.NOTHING:
            return "no run has begun here yet."
        case Verdict.RUNNING:
            return f"{state.done} of {state.asked} rounds are done."
        case Verdict.SILENT:
            return f"{_silent(seen)} Start it again with as many rounds: it goes on where it was."
        case _:
            return plain(state.text().removeprefix(f"{state.outcome}: ")).rstrip(".") + (
                f". It ended at {moment(state.ended, seen.now)} ({lasted(seen.now - state.ended)} ago)."
            )


def _stage(seen: Seen, state: State) -> str:
    """What goes on now, since when, and how long it may take."""
    if not state.stage:
        return f"The run began at {moment(state.started, seen.now)}; no stage has begun."
    trains = " (clients train)" if any(each.doing is Doing.TRAINS for each in state.clients.values()) else ""
    spent = seen.now - state.since
    late = "; its time is over" if spent > state.limit else ""
    return (
        f"Round {state.number}, stage {plain(state.stage)}{trains} since {moment(state.since, seen.now)}:"
        f" {lasted(spent)} of at most {duration(state.limit)}{late}."
    )


def _server_facts(seen: Seen, state: State) -> Iterator[tuple[str, str]]:
    if not state.started:
        return
    running = seen.verdict is Verdict.RUNNING
    if running:
        here = sum(each.doing not in (Doing.LOST, Doing.UNKNOWN) for each in state.clients.values())
        yield "clients connected", f"{here} of {len(state.clients)}"
    if state.done:
        yield "the last round took", duration(state.seconds)
    if running:
        yield "left (an estimate: rounds like the last)", time_left(seen.now, state)
    yield "to clients", size(state.sent)
    yield "from clients", size(state.received)


def time_left(now: float, state: State) -> str:
    """An estimate of what is left, if each round takes as long as the last one."""
    if not state.done or not state.seconds:
        return "not known yet"
    rest = max(0, state.asked - state.done - 1) * state.seconds
    left = state.seconds - (now - state.since_round)
    if left > 0:
        return f"about {lasted(max(1.0, rest + left))}"
    return f"more than {lasted(rest)}" if rest else "this round"


def _process_notes(seen: Seen) -> Iterator[Note]:
    """A host or a site that is there, and has not begun a run."""
    if seen.pid and seen.state.last < seen.began:
        since = moment(seen.began, seen.now)
        yield Note(Level.PLAIN, f"process {seen.pid} runs here since {since}, and has not begun a run yet")


def _server_notes(seen: Seen, state: State) -> Iterator[Note]:
    yield from _process_notes(seen)
    if seen.verdict is Verdict.RUNNING:
        for name, each in state.waited_for().items():
            if seen.now - each.since >= WAITED_SECONDS:
                yield _waiting(name, each, seen)
    for name, each in state.clients.items():
        if each.doing is Doing.LOST:
            yield Note(
                Level.BAD if seen.verdict is Verdict.FAILED else Level.WARNING,
                f"{plain(name)} is lost since {moment(each.since, seen.now)}: {plain(each.cause)}:"
                f" {plain(each.why.removeprefix(f'{name}: '))}",
            )
    for why in state.lost[-MOST_LOST:]:
        yield Note(Level.WARNING, f"a round was lost: {plain(why)}")
    if (more := len(state.lost) - MOST_LOST) > 0:
        yield Note(Level.WARNING, f"{more} more {'round was' if more == 1 else 'rounds were'} lost before")


def _waiting(name: str, each: ClientState, seen: Seen) -> Note:
    """Who is waited for, since when, and whether its site answers."""
    silent = seen.now - max(each.heard, each.since)
    answers = silent < ANSWERS_SECONDS
    says = "its site answers" if answers else f"its site is silent for {lasted(silent)}"
    what = "to train" if each.doing is Doing.TRAINS else "to do its part"
    since = moment(each.since, seen.now)
    return Note(Level.PLAIN if answers else Level.WARNING, f"waiting for {plain(name)} {what} since {since}: {says}")


def _urgency(client: tuple[str, ClientState]) -> int:
    """Who is lost comes first, then who is waited for."""
    order = (Doing.LOST, Doing.UNKNOWN, Doing.TRAINS, Doing.WORKS, Doing.HERE)
    return order.index(client[1].doing)


def _row(name: str, each: ClientState, seen: Seen) -> ClientRow:
    doing = DOES[each.doing]
    ended = seen.verdict is not Verdict.RUNNING
    if each.doing is Doing.LOST:
        does, level = f"lost: {plain(each.cause)}", Level.WARNING
    else:
        does, level = doing, Level.PLAIN
    remark = ""
    if each.doing in (Doing.TRAINS, Doing.WORKS) and not ended:
        silent = seen.now - max(each.heard, each.since)
        remark = "" if silent < ANSWERS_SECONDS else f"silent for {lasted(silent)}"
        level = Level.WARNING if remark else Level.PLAIN
    elif each.losses:
        remark = f"lost {each.losses} {'time' if each.losses == 1 else 'times'}"
    since = moment(each.since, seen.now) if each.since else ""
    return ClientRow(plain(name), does, since, str(len(each.rounds)), remark, level)


# ------------------------------------------------------------------------------------------------------------ a site


def _site(seen: Seen, state: SiteState) -> View:
    return View(
        subject=_subject(state.party or seen.name or "this site", state.session, state.run),
        at=moment(seen.now, seen.now),
        level=LEVELS[seen.verdict],
        word=seen.verdict,
        sentence=_site_sentence(seen, state),
        stage=_site_stage(seen, state),
        facts=tuple(_site_facts(seen, state)),
        notes=tuple(_site_notes(seen, state)),
        over=seen.over,
    )


def _site_sentence(seen: Seen, state: SiteState) -> str:
    trained = f"{len(state.rounds)} {'round' if len(state.rounds) == 1 else 'rounds'}"
    match seen.verdict:
        case Verdict.NOTHING:
            return "no run has begun here yet: the log of this site is empty."
        case Verdict.COMPLETED:
            ago = f"{moment(state.ended, seen.now)} ({lasted(seen.now - state.ended)} ago)"
            return f"this site trained for {trained}. At {ago} the server said that the run is over."
        case Verdict.STOPPED:
            return f"this site could not go on at {moment(state.stopped_at, seen.now)}: {plain(state.stopped)}"
        case Verdict.SILENT:
            return _silent(seen)
        case _:
            return f"this site has trained for {trained}."


def _site_stage(seen: Seen, state: SiteState) -> str:
    if seen.verdict is Verdict.STOPPED:
        return "" if seen.over else "If its engine still runs, the next order of the server starts it again."
    if seen.verdict is not Verdict.RUNNING:
        return ""
    if state.training:
        since = f"since {moment(state.since, seen.now)}: {lasted(seen.now - state.since)}"
        return f"It trains for round {state.training} {since}."
    if state.left_out and not state.back_at:
        return "The server goes on without it."
    return f"It waits for others, or for the server: the last event was {lasted(seen.quiet)} ago."


def _site_facts(seen: Seen, state: SiteState) -> Iterator[tuple[str, str]]:
    if not state.started:
        return
    yield "began", moment(state.started, seen.now)
    yield "rounds trained", str(len(state.rounds))
    if state.rounds:
        yield "the last training took", duration(state.seconds)
    yield "sent", size(state.sent)
    yield "accepted", size(state.received)


def _site_notes(seen: Seen, state: SiteState) -> Iterator[Note]:
    yield from _process_notes(seen)
    if state.left_out:
        back = f" It takes part again since {moment(state.back_at, seen.now)}." if state.back_at else ""
        yield Note(
            Level.PLAIN if back else Level.WARNING,
            f"left out at {moment(state.left_out_at, seen.now)}, as the server says: {plain(state.left_out)}.{back}",
        )
    if state.stopped and seen.verdict is not Verdict.STOPPED:
        yield Note(
            Level.PLAIN,
            f"it could not go on at {moment(state.stopped_at, seen.now)}, and was called again: {plain(state.stopped)}",
        )
    for each in state.refused:
        suspects = f"; could have caused it: {', '.join(map(plain, each.suspects))}" if each.suspects else ""
        yield Note(
            Level.WARNING,
            f"refused at {moment(each.time, seen.now)}: {plain(each.kind)} from {plain(each.sender)}:"
            f" {plain(each.why)}{suspects}",
        )
    if (more := state.refusals - len(state.refused)) > 0:
        yield Note(Level.WARNING, f"{more} more messages were refused before")
    if state.names_wait:
        yield Note(
            Level.WARNING,
            f"{state.names_wait} of its new names wait for the next change of entities: there was no room for them",
        )
    if state.said:
        yield Note(Level.PLAIN, f"last message at {moment(state.said_at, seen.now)}: {plain(state.said)}")


# ------------------------------------------------------------------------------------------------ an event in one line


def told(event: Event) -> tuple[Level, str] | None:
    """An event of a log in a line; None for messages, of which there are too many."""
    who = plain(event.text("client"))
    why = plain(event.text("why").removeprefix(f"{event.text('client')}: "))
    match event.what:
        case "start":
            rounds = f" of {event.number('rounds'):.0f} rounds" if "rounds" in event.details else ""
            return Level.PLAIN, f"run {plain(event.text('run'))}{rounds} begins, as {plain(event.text('party'))}"
        case "stage":
            trains = ", with training" if event.details.get("training") else ""
            names = ", ".join(map(plain, event.texts("clients"))) or "nobody"
            return Level.PLAIN, (
                f"round {event.number('round'):.0f}, stage {plain(event.text('name'))}{trains}, for"
                f" {duration(event.number('seconds'))} at most: {names}"
            )
        case "here":
            return Level.PLAIN, f"{who} is here"
        case "replied":
            return Level.PLAIN, f"{who} has replied"
        case "waiting":
            silent = event.number("silent")
            says = "its site answers" if silent < ANSWERS_SECONDS else f"its site is silent for {lasted(silent)}"
            return Level.WARNING, f"waiting for {who} since {plain(event.text('since'))}: {says}"
        case "lost" if who:
            return Level.WARNING, f"{who} is lost: {plain(event.text('cause'))}: {why}"
        case "round":
            names = ", ".join(map(plain, event.texts("clients")))
            return Level.FINE, f"round {event.number('number'):.0f} gave means to {names}"
        case "round lost" | "lost":
            return Level.WARNING, f"a round was lost: {why}"
        case "progress":
            return Level.PLAIN, (
                f"{event.number('rounds'):.0f} rounds done; the last step took {duration(event.number('seconds'))};"
                f" {size(event.number('sent'))} to clients, {size(event.number('received'))} from them"
            )
        case "set-up failed":
            return Level.WARNING, f"the set-up failed, and is tried once more: {why}"
        case "training":
            return Level.PLAIN, f"training for round {event.number('round'):.0f}"
        case "trained":
            return Level.PLAIN, f"trained for round {event.number('round'):.0f} in {duration(event.number('seconds'))}"
        case "left out":
            return Level.WARNING, f"left out, as the server says: {why}"
        case "names wait":
            return Level.WARNING, f"{event.number('count'):.0f} of its new names wait: {why}"
        case "refused":
            what = f"{plain(event.text('kind'))} from {plain(event.text('from'))}: " if "kind" in event.details else ""
            return Level.WARNING, f"refused: {what}{why}"
        case "stopped" | "failed":
            return Level.BAD, f"{event.what}: {why}"
        case "paused":
            return Level.WARNING, "the run is paused: the next one goes on"
        case "end":
            return Level.FINE, "the run is over"
        case _:
            return None
