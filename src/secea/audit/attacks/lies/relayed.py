"""Lies that fit every form: messages that are dropped, late, changed or repeated, and wrong announcements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from secea.audit import Subject
from secea.audit.attacks.lies import RANDOM_STEPS, Deviation, Lie, Play, Setting, flipped, kind_of, seeds, stage_of
from secea.audit.attacks.stage import Stage, Tap, untouched
from secea.party.phases import REST, Begin, Common
from secea.wire.messages import DIGEST_BYTES, HEADER_BYTES, Buffer


def meddling(play: Play) -> None:
    """A whole life in which every message comes damaged, cut, old, another client's, as it is, and once more."""
    st, seen = play.stage, dict[tuple[str, int], Buffer]()

    def tap(n: int, message: Buffer) -> Iterable[Buffer]:
        kind, place = kind_of(st, message), int(play.rng.integers(1 << 20))
        others = [seen[kind, v] for v in st.everyone if v != n and (kind, v) in seen]
        body = HEADER_BYTES + place % (len(message) - HEADER_BYTES)
        tries: list[tuple[str, Buffer]] = [
            ("a message damaged", flipped(message, body)),
            ("a message damaged", flipped(message, place % HEADER_BYTES)),
            ("a message truncated", bytes(message[:-5])),
            ("a message truncated", bytes(message[: HEADER_BYTES - 3])),
            ("an old message", seen.get((kind, n), message)),
            *(("another client's message", other) for other in others[-1:]),
        ]
        for what, lie in tries:
            if lie != message:
                play.note(what, n, st.hand(n, lie))
        seen[kind, n] = bytes(message)
        st.hand(n, message)
        play.note("a message doubled", n, st.hand(n, message))
        return ()

    st.tap = tap
    if not (st.setup() and st.round() and play.segment(renamed=True) and st.union() and st.round()):
        raise AssertionError("messages that nobody took have stopped the federation")


def ways(subject: Subject, setting: Setting) -> list[tuple[str, str, bool]]:
    """Every kind of message that a client gets, the phase that it is in, and whether only the set-up has it."""
    st = stage_of(subject, setting, 0)
    in_setup, later = dict[tuple[str, str], None](), dict[tuple[str, str], None]()

    def noting(found: dict[tuple[str, str], None]) -> Tap:
        def tap(n: int, message: Buffer) -> Iterable[Buffer]:
            found[st.at(n).phase, kind_of(st, message)] = None
            return (message,)

        return tap

    st.tap = noting(in_setup)
    st.setup()
    st.tap = noting(later)
    Play(st, 0, np.random.default_rng(0)).segment(renamed=True)
    return [(*way, way not in later) for way in in_setup | later]


def withheld(phase: str, kind: str, *, early: bool) -> Lie:
    """One message does not come to client 1; and then it comes, late."""

    def lie(play: Play) -> None:
        st, held, before = play.stage, list[Buffer](), play.refusals()

        def tap(n: int, message: Buffer) -> Iterable[Buffer]:
            if n != 1 or held or (st.at(n).phase, kind_of(st, message)) != (phase, kind):
                return (message,)
            held.append(message)
            return ()

        st.tap = tap
        fine = st.setup() if early else play.segment(renamed=phase in st.names_phases)
        st.tap = untouched
        play.outcome("a message dropped", before)
        before = play.refusals()
        st.hand(1, *held)
        if not fine and st.run_on() and not early and st.accepted.get(1) != st.number:
            st.round()
        play.outcome("a message late", before)

    return lie


# -------------------------------------------------------------------------------------------------------- announcements


def announcements(play: Play) -> None:
    """Every announcement with one thing wrong, to every client, at every point of a round."""
    st = play.stage

    def lies() -> None:
        for n in st.everyone:
            for phase, members, more in wrong_words(st, n):
                play.note("a wrong announcement", n, st.say(phase, members, n, **more))

    lies()
    st.train()
    st.server.begin(st.form.ready_phase, st.everyone)
    st.deliver()
    lies()
    for n in st.everyone:
        st.contribute(n)
    lies()
    st.step()
    if st.parties.session.asks:
        st.server.begin(st.form.round_phase, st.everyone)
        st.deliver()
    while st.server.at.phase != REST:
        lies()
        if not st.step():
            return


def wrong_words(st: Stage, n: int) -> Iterator[tuple[str, Sequence[int], dict[str, Any]]]:
    """What client n must not believe: phase, members, numbers."""
    at, other = st.at(n), (n + 1) % len(st.everyone)
    for row in st.parties.session.rows:
        if row.silent:
            continue
        due = {"union": {"epoch": at.union + 1}, "round": {"round": at.round + 1}}.get(row.counts, {})
        if not row.announced:
            yield row.phase, st.everyone, due
            continue
        yield row.phase, [v for v in st.everyone if v != n], due
        yield row.phase, st.everyone, {**due, "lives": {other: bytes(16)}}
        yield row.phase, st.everyone, {**due, "anchor": b"\1" * DIGEST_BYTES}
        yield row.phase, st.everyone, {**due, "epoch": max(0, at.union - 1)}
        yield row.phase, st.everyone, {**due, "epoch": at.union + (1 << 20)}
        yield row.phase, st.everyone, {**due, "attempt": at.attempt + 9}
        yield row.phase, st.everyone, {**due, "weights": st.form.last_epoch + 1}
        yield row.phase, st.everyone, {**due, "round": st.params.rounds + 1}
        if row.phase != st.form.end_phase:
            yield row.phase, [n], due
        if row.counts != "union" and at.round and st.parties.session.asks:
            yield row.phase, st.everyone, {**due, "round": at.round - 1}
    yield "no phase at all", st.everyone, {}


def two_sets(turn: int) -> Lie:
    """In one of the server's words client 1 hears of fewer members than the others do."""

    def lie(play: Play) -> None:
        st, before, words = play.stage, play.refusals(), [0]

        def tap(n: int, message: Buffer) -> Iterable[Buffer]:
            if n != 1 or kind_of(st, message) != Common.BEGIN:
                return (message,)
            words[0] += 1
            if words[0] != turn:
                return (message,)
            return (st.resealed(n, message, st.payload(message)[: -(Begin.size(1) - 1)]),)

        st.tap = tap
        play.segment(renamed=turn == 1)
        play.outcome("two sets of members", before)

    return lie


def sealed_anew(kind: str, phases: Sequence[str]) -> Lie:
    """What the server seals to each client is another text for each: a bit, cut, longer, zeros, an old one."""

    def lie(play: Play) -> None:
        st, before, old = play.stage, play.refusals(), dict[int, bytes]()

        def listen(n: int, message: Buffer) -> Iterable[Buffer]:
            if kind_of(st, message) == kind:
                old[n] = st.payload(message)
            return (message,)

        def tap(n: int, message: Buffer) -> Iterable[Buffer]:
            if kind_of(st, message) != kind or st.at(n).phase not in phases:
                return (message,)
            text = st.payload(message)
            place = int(play.rng.integers(1 << 20))
            texts = [flipped(text, place), text[:-5], text + b"\0", bytes(len(text)), old[n], flipped(text, place * 7)]
            return (st.resealed(n, message, texts[(n + st.number) % len(texts)]),)

        st.tap = listen
        play.segment()
        st.tap = tap
        play.segment()
        play.outcome(f"another text in {kind.lower()}", before)

    return lie


# ------------------------------------------------------------------------------------------------------------ at random


def at_random(steps: int) -> Lie:
    """Announcements, losses, repeats and delays, whatever comes up."""

    def lie(play: Play) -> None:
        st, rng, held = play.stage, play.rng, list[tuple[int, Buffer]]()
        before = play.refusals()

        def tap(n: int, message: Buffer) -> Iterable[Buffer]:
            match int(rng.integers(50)):
                case 0:
                    held.append((n, message))
                    return ()
                case 1:
                    return message, message
                case 2:
                    return flipped(message, int(rng.integers(1 << 20))), message
            return (message,)

        for _ in range(steps):
            st.tap = tap
            match int(rng.integers(6)):
                case 0 | 1:
                    if st.server.at.phase != REST:
                        st.step()
                    elif st.server.at.size >= 0:
                        st.round()
                case 2:
                    n = int(rng.integers(len(st.everyone)))
                    play.note("announcements at random", n, st.say(**any_word(st, n, rng)))
                case 3:
                    for n, message in held:
                        st.hand(n, message)
                    held.clear()
                case 4:
                    st.collect()
                case _:
                    st.server.give_up()
                    st.server.drain()
                    st.run(st.form.union_phase, st.everyone)
        play.outcome("losses, repeats and delays at random", before)

    return lie


def any_word(st: Stage, n: int, rng: np.random.Generator) -> dict[str, Any]:
    """An announcement for client n, of any phase and with any members; its numbers are those of now, or the next."""
    at, due = st.at(n), int(rng.integers(3))
    phases = [row.phase for row in st.parties.session.rows if row.announced]
    some = [v for v in st.everyone if v == n or rng.random() < 0.8]
    numbers = {"epoch": at.union + (due == 1), "round": at.round + (due == 2)}
    return {"phase": phases[int(rng.integers(len(phases)))], "members": some, "to": n, **numbers}


# ------------------------------------------------------------------------------------------------------------- the list


def deviations(
    subject: Subject, settings: Sequence[Setting], words: int, sealed: Sequence[tuple[str, Sequence[str]]]
) -> Iterator[Deviation]:
    """All of them, most in the first of these federations.

    `words` are the server's in a change of names and a round; `sealed`, what it seals to each client, in which phases.
    """
    first = settings[0]
    for each in settings:
        yield Deviation(f"messages with D={each.dropouts}", meddling, each, early=True)
        yield Deviation(f"announcements with D={each.dropouts}", announcements, each)
        for phase, kind, early in ways(subject, each):
            if subject.thorough or each == first or phase == "upload":  # little else depends on D
                name = f"{kind.lower()} withheld in {phase} with D={each.dropouts}"
                yield Deviation(name, withheld(phase, kind, early=early), each, early=early)
    for turn in range(1, words + 1):
        yield Deviation(f"two sets, word {turn}", two_sets(turn), first)
    for kind, phases in sealed:
        yield Deviation(f"another {kind.lower()}", sealed_anew(kind, phases), first)
    for seed in seeds(subject):
        yield Deviation(f"at random, seed {seed}", at_random(RANDOM_STEPS), first)
