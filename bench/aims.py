"""What the keyed form is meant to cost, beside what a run measured, and the whole in five lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.contest import AES, CKKS, DROPOUTS, EVERYBODY, LEAN, LIMIT, PLAIN, SECAGG, SECEA
from bench.figures import Figure, Run, digits
from bench.growth import RELATIVE, off_line

Path = tuple[str, str, str, str]
"""Section, grid, row and column of a figure."""


@dataclass(frozen=True)
class Aim:
    """One row: what is meant, and the figures that it is about."""

    what: str
    short: str
    """Its name in the verdict."""
    aim: str
    paths: tuple[Path, ...]
    met: Callable[[Sequence[float]], bool] = lambda _: True
    """Of the figures' medians."""
    said: str = "{}"
    """How the figures are shown."""
    large: bool = False
    """Measured by `make bench-large`."""


@dataclass(frozen=True)
class Judged:
    """An aim, and what a run says to it; `met` is None where the run did not measure it."""

    aim: Aim
    measured: str
    met: bool | None

    @property
    def cells(self) -> list[str]:
        """Of a table's row."""
        mark = {True: "yes", False: "NO", None: ""}[self.met]
        return [self.aim.what, self.aim.aim, self.measured, mark]


COLUMNS: Final = ["what (form keyed)", "aim", "measured", "met"]


def _most(what: str, short: str, most: float, unit: str, path: Path) -> Aim:
    return Aim(what, short, f"<= {Figure.of(most, unit)}", (path,), lambda found: found[0] <= most)


def _memory(what: str, short: str, most: float, row: str, column: str) -> Aim:
    """Of a round; what the set-up took stands beside it."""
    paths = tuple(("large", "memory", row, each) for each in (column, "set-up"))
    aim = f"<= {Figure.of(most, 'B')}"
    return Aim(what, short, aim, paths, lambda found: found[0] <= most, said="{}; set-up {}", large=True)


def _flat(what: str, short: str, off: float, row: str, variable: str) -> Aim:
    path = "growth", "exponents", row, variable
    return Aim(what, short, f"0 +- {off:g}", (path,), lambda found: abs(found[0]) <= off)


def _linear(what: str, short: str, row: str, variable: str) -> Aim:
    """The exponent is near 1, and the points are near a straight line: what does not grow makes the exponent less."""
    paths = tuple(("growth", "exponents", name, variable) for name in (row, off_line(row)))
    return Aim(
        what, short, "1 +- 0.15; 5 % off", paths, lambda found: abs(found[0] - 1) <= 0.15 and found[1] <= 5,
        said="{}; {} off a line",
    )  # fmt: skip


def _over(mine: str, theirs: str, column: str) -> Path:
    return "peers", "ratios", f"{mine} over {theirs}", column


_CPU, _BYTES = f"{SECEA}: CPU", f"{SECEA}: bytes"
_HUNDRED: Final = tuple(
    ("clients", "hundred", row, column)
    for row in ("set-up", "round")
    for column in ("wall", "bytes, all hops", "memory beyond tables")
)
AIMS: Final = (
    _most("CPU of a round, all parties, over SecAgg+; T=2, D=0", "CPU, T=2", 0.40, "x", _over(SECEA, SECAGG, "CPU")),
    _most("the same, T=9 (everybody else)", "CPU, T=9", 0.50, "x", _over(EVERYBODY, SECAGG, "CPU")),
    _most("the same, T=2, D=1", "CPU, D=1", 0.55, "x", _over(DROPOUTS, SECAGG, "CPU")),
    _most("wall time of that round over SecAgg+", "wall time", 0.35, "x", _over(SECEA, SECAGG, "wall")),
    _most("bytes over SecAgg+", "bytes over SecAgg+", 1.02, "x", _over(SECEA, SECAGG, "bytes")),
    _most("bytes over SecAgg+ with float32 back", "bytes over float32", 1.36, "x", _over(SECEA, LEAN, "bytes")),
    _most(
        "N=8, where 7-byte elements suffice: bytes over SecAgg+", "bytes with N=8", 0.90, "x",
        ("peers", "narrow", SECAGG, "secea over it"),
    ),
    _most(
        "N=8: bytes over SecAgg+ with float32 back", "bytes over float32 with N=8", 1.18, "x",
        ("peers", "narrow", LEAN, "secea over it"),
    ),
    _most("CPU over the limit", "CPU over the limit", 3, "x", _over(SECEA, LIMIT, "CPU")),
    _most("PRF of a padded point, all parties, T=2", "PRF with T=2", 470e-6, "s", ("names", "point", "T = 2", "CPU")),
    _most("the same, T=9", "PRF with T=9", 1050e-6, "s", ("names", "point", "T = 9", "CPU")),
    _memory(
        "memory of a round beyond tables and results, M=10^6, d=128, N=10, D=0", "memory with 10^6, D=0", 0.4e9,
        "a million, D = 0", "round, beyond results too",
    ),
    _memory("the same, D=1", "memory with 10^6, D=1", 1.4e9, "a million, D = 1", "round, beyond results too"),
    _most(
        "50 clients, M=5,000, 1,000 each, d=64, T=5, D=5: CPU of a round", "CPU with 50 clients", 2.5, "s",
        ("clients", "fifty", "round", "CPU"),
    ),
    _most(
        "50 clients: bytes of the set-up, all hops", "set-up with 50 clients", 200e6, "B",
        ("clients", "fifty", "set-up", "bytes, all hops"),
    ),
    Aim(
        "100 clients, M=1,000, d=32, T=10, D=10: set-up and three rounds", "100 clients", "complete", _HUNDRED,
        said="set-up: {}, {}, {} of memory; a round: {}, {}, {}",
    ),
    _memory(
        "memory of a round beyond tables, 10^7 slots, d=32, N=5, 2*10^6 names each", "memory with 10^7", 8e9,
        "ten million", "round",
    ),
    _linear("growth of CPU with M: exponent", "growth of CPU with M", _CPU, "M"),
    _linear("growth of bytes with M", "growth of bytes with M", _BYTES, "M"),
    _linear("growth of CPU with d", "growth of CPU with d", _CPU, "d"),
    _linear("growth of bytes with d", "growth of bytes with d", _BYTES, "d"),
    _flat("growth of CPU with the entities really owned", "growth of CPU with real entities", 0.15, _CPU, "entities"),
    _flat("growth of bytes with them", "growth of bytes with real entities", 0.01, _BYTES, "entities"),
    _flat("growth with N of a client's bytes over an element's", "growth of bytes with N", 0.05, RELATIVE, "N"),
)  # fmt: skip
"""In the order in which they were set."""


def judged(run: Run, *, whole: bool) -> list[Judged]:
    """Each aim beside the run's figures; those without a figure only for a `whole` run."""
    figures, found = run.figures(), []
    for aim in AIMS:
        known = [figures[path] for path in aim.paths if path in figures]
        if len(known) == len(aim.paths):
            found.append(Judged(aim, aim.said.format(*known), aim.met([figure.median for figure in known])))
        elif whole:
            found.append(Judged(aim, "make bench-large" if aim.large else "not measured", None))
    return found


def verdict(run: Run) -> list[str]:
    """What the run says, in five lines."""
    figures = run.figures()

    def times(mine: str, theirs: str, column: str = "CPU") -> str:
        path = _over(mine, theirs, column)
        return digits(figures[path].median) if path in figures else "?"

    found = judged(run, whole=True)
    known = [each for each in found if each.met is not None]
    missed = [f"{each.aim.short} ({each.measured}, aim {each.aim.aim})" for each in known if not each.met]
    later = [each.aim.short for each in found if each.met is None]
    return [
        f"CPU time of a protected round, where that of Flower's SecAgg+ is 1: {times(SECEA, SECAGG)} if 2 of 10 "
        f"clients may conspire with the server, {times(EVERYBODY, SECAGG)} if all 9 others may, "
        f"{times(DROPOUTS, SECAGG)} if one may drop out. Elapsed time: {times(SECEA, SECAGG, 'wall')}.",
        f"Where SecAgg+ with AES masks, which is faster, is 1: {times(SECEA, AES)}, {times(EVERYBODY, AES)} and "
        f"{times(DROPOUTS, AES)}. Where homomorphic encryption (CKKS) is 1: {times(SECEA, CKKS)}. Where averaging "
        f"without any protection is 1: {times(SECEA, PLAIN)}.",
        f"Bytes of a round: {times(SECEA, SECAGG, 'bytes')} times those of SecAgg+, and "
        f"{times(SECEA, LEAN, 'bytes')} times those of a SecAgg+ that sends float32 back.",
        "CPU time beside what cannot be avoided (AES for all masks; a copy, a seal and an open of all bytes that "
        f"move): {times(SECEA, LIMIT)} times.",
        f"{len(known) - len(missed)} of {len(known)} aims are met. Missed: {_listed(missed)}. "
        f"Not measured: {_listed(later)}.",
    ]


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) or "none"
