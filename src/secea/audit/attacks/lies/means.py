"""Wrong sums, wrong noise and wrong means of the keyed form, another lie for each client."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.audit.attacks.lies import Lie, Play, without
from secea.audit.attacks.stage import DIM, Stage, untouched
from secea.forms.keyed.form import Kind
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.server import KeyedServer

Change = Callable[[Ring, Any], None]
"""Changes sums, noise seeds or noise columns."""
Rewrite = Callable[[Stage, bytes], bytes]
"""Changes the text of a broadcast."""


def scaled(ring: Ring, come: Any) -> None:
    """Twice the sums and their checks."""
    some = np.ascontiguousarray(come.total[:, :, :-2])
    come.total[:, :, :-2] = ring.add(some, some)


def scaled_count(ring: Ring, come: Any) -> None:
    """Twice the counts."""
    some = np.ascontiguousarray(come.total[:, :, -2])
    come.total[:, :, -2] = ring.add(some, some)


def other_slot(ring: Ring, come: Any) -> None:
    """One slot's sum in place of another's."""
    come.total[:, 0] = come.total[:, 1]


def one_unit(ring: Ring, come: Any) -> None:
    """One more in one number."""
    come.total[0, 1, 1] = (int(come.total[0, 1, 1]) + 1) % ring.primes[0]


def no_count(ring: Ring, come: Any) -> None:
    """A slot without a count: it looks as if nobody had it."""
    come.total[:, 1, -2] = 0


def no_noise(ring: Ring, come: Any) -> None:
    """Nobody's noise."""
    come.seeds.clear()


def less_noise(ring: Ring, come: Any) -> None:
    """The noise of one client less."""
    come.seeds.pop(min(come.seeds))


def own_noise(ring: Ring, come: Any) -> None:
    """Noise of the server's choice."""
    come.seeds.update(dict.fromkeys(come.seeds, bytes(32)))


def other_columns(ring: Ring, come: Any) -> None:
    """Noise columns twice."""
    come.columns = ring.add(come.columns, come.columns)


SUMS: Final[tuple[tuple[str, Change], ...]] = (
    ("sums changed or scaled", scaled),
    ("sums changed or scaled", scaled_count),
    ("sums changed or scaled", other_slot),
    ("sums changed or scaled", one_unit),
    ("a slot called empty", no_count),
    ("noise left out or replaced", no_noise),
    ("noise left out or replaced", less_noise),
    ("noise left out or replaced", own_noise),
    ("noise left out or replaced", other_columns),
)


Redraw = Callable[[Numbers, Residues, NDArray[np.uint8]], None]


def rewritten(change: Redraw) -> Rewrite:
    """A change of the rows and the marks of a broadcast."""

    def rewrite(st: Stage, text: bytes) -> bytes:
        n, size = st.part.numbers, st.server.at.size
        rows = n.ring.from_bytes(text[:-size], size, DIM + n.checks).copy()
        marks = np.frombuffer(text[-size:], np.uint8).copy()
        change(n, rows, marks)
        return bytes(n.ring.to_bytes(rows)) + marks.tobytes()

    return rewrite


def element(slot: int, column: int) -> Redraw:
    """One number is larger by 1: whoever took it would have a wrong mean that is in range."""

    def change(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
        for k, p in enumerate(n.ring.primes):
            rows[k, slot, column] = (int(rows[k, slot, column]) + (n.C << n.f)) % p

    return change


def swapped(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """Two slots change places."""
    rows[:, [0, 1]] = rows[:, [1, 0]]


def doubled(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """Twice everything, noise and checks too."""
    rows[...] = n.ring.add(rows, rows)


def called_empty(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """Zeros, and the mark of an empty slot."""
    rows[:, 2], marks[2] = 0, 1


def marked_empty(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """The right rows, with the mark of empty slots."""
    marks[...] = 1


def all_empty(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """The same for all slots."""
    rows[...], marks[...] = 0, 1


def strange(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """A mark that is none."""
    marks[2] = 7


def no_element(n: Numbers, rows: Residues, marks: NDArray[np.uint8]) -> None:
    """A number that is not in the field."""
    rows[0, 0, 0] = n.ring.primes[0]


TEXTS: Final[tuple[tuple[str, Rewrite], ...]] = (
    ("means changed, swapped or truncated", rewritten(element(1, 1))),
    ("means changed, swapped or truncated", rewritten(element(1, -1))),
    ("means changed, swapped or truncated", rewritten(swapped)),
    ("means changed, swapped or truncated", rewritten(doubled)),
    ("means changed, swapped or truncated", rewritten(no_element)),
    ("means changed, swapped or truncated", lambda _, text: text[:-5]),
    ("means changed, swapped or truncated", lambda _, text: text + b"\0"),
    ("means changed, swapped or truncated", lambda _, text: bytes(len(text))),
    ("a slot called empty", rewritten(called_empty)),
    ("a slot called empty", rewritten(marked_empty)),
    ("a slot called empty", rewritten(all_empty)),
    ("a slot called empty", rewritten(strange)),
)


def divided(st: Stage, change: Change | None = None) -> bytes:
    """What the server would broadcast, if the sums were these."""
    come = deepcopy(st.part.summed)
    if change is not None:
        change(st.part.numbers.ring, come)
    return b"".join(map(bytes, KeyedServer._means(st.part, 0, come)))


def summed(st: Stage) -> bool:
    """A round up to the broadcast of the means, which the server keeps to itself."""
    if not st.upload():
        return False
    st.tap = without(st, "KEY", "MEANS", "DIGEST", phases=("upload", "open"))
    fine = st.run_on()
    st.tap = untouched
    return fine


def texts(st: Stage, old: bytes) -> list[tuple[str, bytes]]:
    """Every wrong broadcast of a round."""
    right = divided(st)
    made = [(kind, divided(st, change)) for kind, change in SUMS]
    made += [(kind, rewrite(st, right)) for kind, rewrite in TEXTS]
    return [*made, ("means of an earlier round", old)]


def wrong_means(turn: int) -> Lie:
    """A wrong broadcast for each client, another one for each; and the right one after that."""

    def lie(play: Play) -> None:
        st = play.stage
        if not st.round():
            return
        old = divided(st)
        summed(st)
        every = texts(st, old)
        for i, n in enumerate(st.everyone):
            kind, text = every[(turn * len(st.everyone) + i) % len(every)]
            play.note(kind, n, st.show(n, Kind.MEANS, text))
        for n in st.everyone:
            play.note("a second broadcast in one round", n, st.show(n, Kind.MEANS, divided(st)))

    return lie


def wrong_slot(slot: int) -> Lie:
    """One slot is wrong, for everybody: those who own it and those who do not."""

    def lie(play: Play) -> None:
        st = play.stage
        summed(st)
        text = rewritten(element(slot, 0))(st, divided(st))
        for n in st.everyone:
            play.note("one slot wrong, for everybody", n, st.show(n, Kind.MEANS, text))

    return lie


def old_means(play: Play) -> None:
    """The means of the last round in which the same clients added noise, in the same union."""
    st = play.stage
    st.union()
    st.round()
    old = divided(st)
    for _ in st.everyone[1:]:
        st.round()
    summed(st)
    for n in st.everyone:
        play.note("means of an earlier round", n, st.show(n, Kind.MEANS, old))


def two_answers(play: Play) -> None:
    """Right means for all but one client."""
    st = play.stage
    summed(st)
    right = divided(st)
    for n in st.everyone:
        text = rewritten(element(0, 0))(st, right) if n == 2 else right
        play.note("two answers to two clients", n, st.show(n, Kind.MEANS, text))
