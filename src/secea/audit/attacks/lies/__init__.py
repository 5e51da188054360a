"""The lies of a server that deviates. Each is a function of a `Play`: a stage, in one of two worlds.

`relayed` has lies that fit every form, `keyed` and `paillier` list those of one form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from secea.audit import KEYED, PAILLIER, Subject
from secea.audit.attacks.stage import Owners, Stage, Tap
from secea.wire.messages import Buffer

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

    def other_names(self) -> None:
        """Some client takes an entity, or gives it up: another client in the other world."""
        n = (0, 3)[self.world] % len(self.stage.everyone)
        self.stage.other_names(n, {*self.stage.tables[n]} ^ {"g"})

    def change_names(self) -> bool:
        """A change of names, and what follows from it up to the next union."""
        self.other_names()
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
    early: bool = False
    """Whether it is told from the set-up on."""
    last: bool = False
    """Whether the federation ends with it, since a client helped the server."""


def kind_of(st: Stage, message: Buffer) -> str:
    """The kind of a message, by name."""
    return str(st.header(message).kind.name)


def flipped(message: Buffer, at: int) -> bytes:
    """One bit is another one."""
    changed = bytearray(message)
    changed[at % len(changed)] ^= 1
    return bytes(changed)


def without(st: Stage, *kinds: str, phases: Sequence[str]) -> Tap:
    """Messages of these kinds do not come, in these phases."""

    def tap(n: int, message: Buffer) -> Iterable[Buffer]:
        return () if kind_of(st, message) in kinds and st.at(n).phase in phases else (message,)

    return tap


def stage_of(subject: Subject, setting: Setting, world: int, seed: int = 1) -> Stage:
    """A federation in one of the two worlds."""
    owners, N = WORLDS[subject.form.name][world], setting.clients
    return Stage(subject, owners, N, seed, collusion=setting.collusion, dropouts=setting.dropouts)


def seeds(subject: Subject) -> range:
    """The seeds of what is tried at random."""
    return range(1, 31 if subject.thorough else 3)
