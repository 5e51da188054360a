"""A server that deviates, as a program: it tries all kinds of lies on real clients, and a table says what came of them.

Each lie is told twice, in two worlds that differ only in who owns what; all parties draw the same in both. After each
lie the server follows the protocol again. An `Episode` has what clients did, wrong means that they accepted, what they
sent differently in the two worlds, and what the server should not have got. This module has the lies that fit every
form; those of a single form are in `deviating_keyed` and `deviating_paillier`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np

from secea.audit import KEYED, PAILLIER, Subject
from secea.audit.attacks.stage import Event, Owners, Stage, untouched
from secea.forms.keyed import Keyed
from secea.party.phases import REST, Begin, Common
from secea.wire.messages import DIGEST_BYTES, HEADER_BYTES, Buffer

WORLDS: Final[Mapping[str, tuple[Owners, Owners]]] = {
    KEYED: (
        {"a": range(7), "b": (0, 1), "c": (2, 3, 5), "d": (1, 6), "e": (3,), "f": (0, 4)},
        {"a": (2,), "b": (1, 3, 4, 5), "c": range(7), "d": (0,), "e": (1, 2, 6), "f": (3,)},
    ),
    PAILLIER: (
        {"a": range(5), "b": (0, 1), "c": (2, 3), "d": (0, 2)},
        {"a": (1, 3), "b": range(5), "c": (0, 1), "d": (2, 3)},
    ),
}
"""Who owns what, in the two worlds of each form. The union is as large in both, also if one client is left out."""
WENT_ON, IGNORED, REFUSED, NO_RESULT = OUTCOMES = "went on", "ignored", "refused", "no result"
ADMITTED: Final = frozenset({(PAILLIER, "answers scaled")})
"""Deviations by which a form's clients do accept wrong means: the form does not claim anything else."""
RANDOM_STEPS: Final = 20


@dataclass(frozen=True)
class Setting:
    """A federation: N, T and D."""

    clients: int
    collusion: int
    dropouts: int = 0


PLAIN = Setting(5, 2)
"""D = 0: four clients are enough, three add noise, and lists need four signatures."""
TOLERANT = Setting(7, 1, 2)
"""D = 2: t is 5, the graph of masks has degree 4, and votes are needed, since D*D + D + T >= N."""
PUBLISHED = Setting(6, 1, 2)
"""The federation of the published attack with different U."""
SMALL = Setting(4, 1, 1)
SMALLEST = Setting(3, 1)


@dataclass
class Play:
    """One lie on its stage, in one of the two worlds."""

    stage: Stage
    world: int
    rng: np.random.Generator
    did: list[tuple[str, str]] = field(default_factory=list)
    """The kind of each deviation, and what a client did."""
    since: int = 0
    """The last training round before the lie."""

    def __post_init__(self) -> None:
        self.since = self.stage.number

    def note(self, kind: str, n: int, taken: bool) -> None:
        """Client n was lied to."""
        self.did.append((kind, (IGNORED if self.stage.stale else WENT_ON) if taken else REFUSED))

    def outcome(self, kind: str, refusals: Mapping[int, int], to: Iterable[int] | None = None) -> None:
        """What became of a round: for each client, or for those who were lied to."""
        st = self.stage
        for n in st.everyone if to is None else to:
            if len(st.refusals[n]) > refusals[n]:
                self.did.append((kind, REFUSED))
            else:
                self.did.append((kind, WENT_ON if self.since < st.number == st.accepted.get(n) else NO_RESULT))

    def refusals(self) -> dict[int, int]:
        """How often each client refused something so far."""
        return {n: len(errors) for n, errors in self.stage.refusals.items()}

    def rename(self) -> None:
        """Some client takes an entity, or gives it up: another client in the other world."""
        n = (0, 3)[self.world] % len(self.stage.everyone)
        self.stage.rename(n, {*self.stage.tables[n]} ^ {"g"})

    def change_names(self) -> bool:
        """A change of names, and what follows from it up to the next union."""
        self.rename()
        st = self.stage
        return st.run(st.form.names_phase or st.form.union_phase, st.everyone)

    def segment(self, *, renamed: bool = False) -> bool:
        """A change of names or a union, and a round, as far as it gets."""
        return (self.change_names() if renamed else self.stage.union()) and self.stage.round()


Lie = Callable[[Play], None]


@dataclass(frozen=True)
class Deviation:
    """A lie, and where it is told."""

    name: str
    lie: Lie
    setting: Setting
    fresh: bool = False
    """Whether it is told from the set-up on."""
    last: bool = False
    """Whether the federation ends with it, since a client helped the server."""


@dataclass(frozen=True)
class Episode:
    """What came of one deviation, in both worlds."""

    name: str
    did: Mapping[str, Mapping[str, int]]
    """By kind of deviation: how many clients went on, refused, or had no result."""
    wrong: tuple[str, ...] = ()
    depends: str = ""
    """The first thing that clients sent or refused differently, where owners were others."""
    linked: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------- messages, late


def kind_of(st: Stage, message: Buffer) -> str:
    """The kind of a message, by name."""
    return str(st.header(message).kind.name)


def flipped(message: Buffer, at: int) -> bytes:
    """One bit is another one."""
    changed = bytearray(message)
    changed[at % len(changed)] ^= 1
    return bytes(changed)


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
    st, found = stage_of(subject, setting, 0), dict[tuple[str, str], bool]()
    early = [True]

    def tap(n: int, message: Buffer) -> Iterable[Buffer]:
        found.setdefault((st.at(n).phase, kind_of(st, message)), early[0])
        if not early[0]:
            found[st.at(n).phase, kind_of(st, message)] = False
        return (message,)

    st.tap = tap
    st.setup()
    early[0] = False
    Play(st, 0, np.random.default_rng(0)).segment(renamed=True)
    return [(phase, kind, first) for (phase, kind), first in found.items()]


def withheld(phase: str, kind: str, *, fresh: bool) -> Lie:
    """One message does not come to client 1; and then it comes, late."""

    def lie(play: Play) -> None:
        st, held, before = play.stage, list[Buffer](), play.refusals()

        def tap(n: int, message: Buffer) -> Iterable[Buffer]:
            if n != 1 or held or (st.at(n).phase, kind_of(st, message)) != (phase, kind):
                return (message,)
            held.append(message)
            return ()

        st.tap = tap
        fine = st.setup() if fresh else play.segment(renamed=phase in st.names_phases)
        st.tap = untouched
        play.outcome("a message dropped", before)
        before = play.refusals()
        st.hand(1, *held)
        if not fine and st.run_on() and fresh is False and st.accepted.get(1) != st.number:
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


# ------------------------------------------------------------------------------------------------------- at random


def at_random(steps: int) -> Lie:
    """Announcements, broadcasts, losses, repeats and delays, whatever comes up."""

    def lie(play: Play) -> None:
        st, rng, held = play.stage, play.rng, list[tuple[int, Buffer]]()
        before = play.refusals()

        def tap(n: int, message: Buffer) -> Iterable[Buffer]:
            chance = rng.random()
            if chance < 0.02:
                held.append((n, message))
            return {0: (), 1: (message, message), 2: (flipped(message, int(rng.integers(1 << 20))), message)}.get(
                int(chance * 50), (message,)
            )

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
                    rows = [row.phase for row in st.parties.session.rows if row.announced]
                    some = [v for v in st.everyone if v == n or rng.random() < 0.8]
                    at, due = st.at(n), int(rng.integers(3))
                    numbers = {"epoch": at.union + (due == 1), "round": at.round + (due == 2)}
                    play.note(
                        "announcements at random", n, st.say(rows[int(rng.integers(len(rows)))], some, n, **numbers)
                    )
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


# ---------------------------------------------------------------------------------------------------------- the program


def stage_of(subject: Subject, setting: Setting, world: int, seed: int = 1) -> Stage:
    """A federation in one of the two worlds."""
    owners, N = WORLDS[subject.form.name][world], setting.clients
    return Stage(subject, owners, N, seed, collusion=setting.collusion, dropouts=setting.dropouts)


def deviations(subject: Subject) -> Iterator[Deviation]:
    """All lies for a form, in order."""
    from secea.audit.attacks import deviating_keyed, deviating_paillier

    own = deviating_keyed if isinstance(subject.form, Keyed) else deviating_paillier
    setting = own.RELAYED
    for each in own.SETTINGS:
        yield Deviation(f"messages with D={each.dropouts}", meddling, each, fresh=True)
        yield Deviation(f"announcements with D={each.dropouts}", announcements, each)
    for each in own.SETTINGS:
        for phase, kind, early in ways(subject, each):
            if subject.thorough or each == setting or phase == "upload":  # nothing else depends on D
                name = f"{kind.lower()} withheld in {phase} with D={each.dropouts}"
                yield Deviation(name, withheld(phase, kind, fresh=early), each, fresh=early)
    for turn in range(1, own.WORDS + 1):
        yield Deviation(f"two sets, word {turn}", two_sets(turn), setting)
    for kind, phases in own.SEALED:
        yield Deviation(f"another {kind.lower()}", sealed_anew(kind, phases), setting)
    yield from own.deviations(subject)
    for seed in seeds(subject):
        yield Deviation(f"at random, seed {seed}", at_random(RANDOM_STEPS), setting)


def seeds(subject: Subject) -> range:
    """The seeds of what is tried at random."""
    return range(1, 31 if subject.thorough else 3)


class Program:
    """Plays one deviation after the other."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._stages: dict[Setting, tuple[Stage, Stage]] = {}

    def _stages_for(self, deviation: Deviation) -> tuple[Stage, Stage]:
        setting = deviation.setting
        if deviation.fresh or setting not in self._stages:
            one, other = (stage_of(self.subject, setting, world) for world in (0, 1))
            if deviation.fresh and not deviation.last:
                return one, other
            for st in (one, other):
                st.setup()
                st.round()
            if deviation.fresh:
                return one, other
            self._stages[setting] = one, other
        return self._stages[setting]

    def episode(self, deviation: Deviation) -> Episode:
        """Play it in both worlds, and follow again afterwards."""
        plays, traces, found = [], list[list[Event]](), dict[str, list[str]]()
        for world, st in enumerate(self._stages_for(deviation)):
            play = Play(st, world, np.random.default_rng(list(deviation.name.encode())))
            begun, since = len(st.trace), st.number
            marks = {key: len(getattr(st, key)) for key in ("wrong", "linked")}
            deviation.lie(play)
            if not deviation.last:
                st.recover()
            for key, mark in marks.items():
                found.setdefault(key, []).extend(getattr(st, key)[mark:])
            setting = deviation.setting
            found.setdefault("sums", []).extend(st.twice)
            if isinstance(st.form, Keyed):
                book = st.book
                found.setdefault("linked", []).extend(book.again + book.kept)
                sums = book.objections(setting.clients, setting.dropouts, setting.collusion, since)
                found.setdefault("sums", []).extend(sums)
                found.setdefault("names", []).extend(book.names())
            plays.append(play)
            traces.append(st.trace[begun:])
        kinds: dict[str, Counter[str]] = {}
        for play in plays:
            for kind, outcome in play.did:
                kinds.setdefault(kind, Counter())[outcome] += 1
        once = {key: tuple(dict.fromkeys(said)) for key, said in found.items()}
        return Episode(deviation.name, kinds, depends=difference(*traces), **once)


def difference(one: Sequence[Event], other: Sequence[Event]) -> str:
    """The first thing in which two transcripts differ; nothing if they are the same."""
    if one == other:
        return ""
    longest = max(len(one), len(other))
    i = next((i for i in range(min(len(one), len(other))) if one[i] != other[i]), min(len(one), len(other)))
    said = [str(each[i][:4]) if i < len(each) else "nothing" for each in (one, other)]
    return f"event {i + 1} of {longest}: {said[0]} in one world, {said[1]} in the other"


class Played:
    """The deviations for a subject, each played when somebody first asks for it."""

    def __init__(self, subject: Subject) -> None:
        every = list(deviations(subject))
        first = [each for each in every if each.name in subject.first]
        self.due = [*first, *(each for each in every if each not in first)]
        self.done: list[Episode | Exception] = []
        self._program = Program(subject)

    def __iter__(self) -> Iterator[Episode]:
        for i, deviation in enumerate(self.due):
            if i == len(self.done):
                try:
                    self.done.append(self._program.episode(deviation))
                except Exception as error:  # whoever asks next hears of it too
                    self.done.append(error)
            found = self.done[i]
            if isinstance(found, Exception):
                raise found
            yield found


@lru_cache(maxsize=2)
def played(subject: Subject) -> Played:
    """What came of each deviation, one after the other. They are played once, and remembered."""
    return Played(subject)


# ------------------------------------------------------------------------------------------------------------ the table


def table(subject: Subject) -> list[dict[str, str | int]]:
    """A row for each kind of deviation: how many clients were lied to, what they did, and what came of it."""
    rows: dict[str, Counter[str]] = {}
    for episode in played(subject):
        for kind, outcomes in episode.did.items():
            row = rows.setdefault(kind, Counter())
            row.update(outcomes)
            row["wrong"] += len(episode.wrong)
            row["depends"] += bool(episode.depends or episode.linked)
            row["sums"] += bool(episode.sums or episode.names)
    tried = seeds(subject)
    by_seed = f", seeds {tried[0]} to {tried[-1]}"
    return [
        {
            "the server": kind + by_seed * kind.endswith("at random"),
            "clients": sum(row[each] for each in OUTCOMES),
            **{each: row[each] for each in OUTCOMES},
            "wrong means": row["wrong"],
            "shows owners": "yes" if row["depends"] else "no",
            "gets too much": "yes" if row["sums"] else "no",
        }
        for kind, row in rows.items()
    ]
