"""A server that deviates, as a program: it tries all kinds of lies on real clients, and a table says what came of them.

Each lie (`attacks.lies`) is told twice, in two worlds that differ only in who owns what; all parties draw the same in
both. After each lie the server follows the protocol again. An `Episode` has what clients did, wrong means that they
accepted, what they sent differently in the two worlds, and what the server should not have got.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from secea.audit import KEYED, PAILLIER, Subject
from secea.audit.attacks.lies import OUTCOMES, Deviation, Play, Setting, keyed, paillier, seeds, stage_of
from secea.audit.attacks.stage import Event, Stage

ADMITTED: Final = frozenset({(PAILLIER, "answers scaled")})
"""Deviations by which a form's clients do accept wrong means: the form does not claim anything else."""


@dataclass(frozen=True)
class Episode:
    """What came of one deviation, in both worlds."""

    name: str
    did: Mapping[str, Mapping[str, int]]
    """By kind of deviation: how many clients went on, ignored it, refused, or had no result."""
    wrong: tuple[str, ...] = ()
    """Wrong means that were accepted."""
    depends: str = ""
    """The first thing that clients sent or refused differently, where owners were others."""
    linked: tuple[str, ...] = ()
    """Slots that can be followed from one union to another."""
    sums: tuple[str, ...] = ()
    """Sums and shares that a server should not have."""
    names: tuple[str, ...] = ()
    """Answers to lists of names that a server should not have."""


def deviations(subject: Subject) -> Iterator[Deviation]:
    """All lies for a form, in order."""
    return keyed.deviations(subject) if subject.form.name == KEYED else paillier.deviations(subject)


class Program:
    """Plays one deviation after the other."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._stages: dict[Setting, tuple[Stage, Stage]] = {}

    def _stages_for(self, deviation: Deviation) -> tuple[Stage, Stage]:
        """A stage in each world: of a federation that goes on from lie to lie, or of one for this lie alone."""
        setting, alone = deviation.setting, deviation.early or deviation.last
        if setting in self._stages and not alone:
            return self._stages[setting]
        stages = stage_of(self.subject, setting, 0), stage_of(self.subject, setting, 1)
        for st in () if deviation.early else stages:
            st.setup()
            st.round()
        if not alone:
            self._stages[setting] = stages
        return stages

    def episode(self, deviation: Deviation) -> Episode:
        """Play it in both worlds, and follow again afterwards."""
        kinds: dict[str, Counter[str]] = {}
        traces, found = list[list[Event]](), dict[str, tuple[str, ...]]()
        for world, st in enumerate(self._stages_for(deviation)):
            play = Play(st, world, np.random.default_rng(list(deviation.name.encode())))
            begun, before = len(st.trace), st.objections(st.number)
            deviation.lie(play)
            if not deviation.last:
                st.recover()
            traces.append(st.trace[begun:])
            for what, said in st.objections(play.since).items():
                found[what] = (*found.get(what, ()), *(Counter(said) - Counter(before[what])))
            for kind, outcome in play.did:
                kinds.setdefault(kind, Counter())[outcome] += 1
        return Episode(deviation.name, kinds, depends=difference(*traces), **found)


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
