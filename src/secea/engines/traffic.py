"""Accounts of a `Federation`: which messages were sent, and what each party spent. Sealing is counted separately."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Final, SupportsIndex, overload

from secea.errors import ProtocolError
from secea.notebook import html_table, size, text_table
from secea.params import Params
from secea.party.form import Form
from secea.party.session import Session
from secea.wire.keys import Identity
from secea.wire.link import Link, Opened, Writer
from secea.wire.messages import Buffer, Header
from secea.wire.randomness import Entropy

PHASES: Final = ("setup", "offline", "online")
"""The phases of an account: the set-up; `Federation.prepare`; rounds (section IV of the paper)."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One message on one leg of its way: from a client to the server, or from the server to a client."""

    round: int
    """0 in the set-up."""
    sender: int | str
    receiver: int | str
    kind: str
    size: int


@dataclass(slots=True)
class Cost:
    """What one party spent in one phase."""

    seconds: float = 0.0
    """CPU time."""
    sent: int = 0
    """Bytes."""
    stages: dict[str, float] = field(default_factory=dict)
    """CPU seconds by phase of the protocol."""


LAST: Final = 3
"""So many rounds are shown one by one."""


class Traffic(list[Hop]):
    """Hops in order. It is shown as a table of bytes, by kind of message and by round."""

    @overload
    def __getitem__(self, at: SupportsIndex) -> Hop: ...
    @overload
    def __getitem__(self, at: slice) -> Traffic: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Hop | Traffic:
        return Traffic(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    def _shown(self) -> tuple[str, list[str], list[list[object]]]:
        """Title, header and rows: the set-up, earlier rounds together, the last ones, and all."""
        title = f"Traffic: {len(self):,} messages, {size(sum(hop.size for hop in self))}"
        rounds = sorted({hop.round for hop in self} - {0})
        earlier, last = rounds[:-LAST], rounds[-LAST:]
        label = dict.fromkeys(earlier, f"rounds {earlier[0]}-{earlier[-1]}" if earlier[1:] else "")
        label |= {0: "set-up", **{each: f"round {each}" for each in (*last, *(earlier if not earlier[1:] else ()))}}
        sizes = Counter[tuple[str, str]]()
        for hop in self:
            sizes[hop.kind, label[hop.round]] += hop.size
        columns = [each for each in dict.fromkeys(label[n] for n in (0, *rounds)) if any(c == each for _, c in sizes)]
        kinds = dict.fromkeys(hop.kind for hop in self)
        rows: list[list[object]] = [
            [kind, *(sizes[kind, c] for c in columns), sum(sizes[kind, c] for c in columns)] for kind in kinds
        ]
        rows.append(["all", *(sum(sizes[k, c] for k in kinds) for c in columns), sum(sizes.values())])
        return title, ["bytes of", *columns, "all"], rows if self else []

    def __repr__(self) -> str:
        title, header, rows = self._shown()
        return text_table(title, header, rows) if self else title

    def _repr_html_(self) -> str:
        return html_table(*self._shown())


class Timing(dict[int | str, dict[str, Cost]]):
    """What each party spent in each phase. It is shown as a table."""

    def _shown(self) -> tuple[str, list[str], list[list[str | int]]]:
        header = ["party", *(f"{phase}, {unit}" for phase in PHASES for unit in ("CPU s", "bytes"))]
        rows = [
            [str(who), *(each for phase in PHASES for each in (f"{costs[phase].seconds:.3f}", costs[phase].sent))]
            for who, costs in self.items()
        ]
        return "Time and bytes", header, rows

    def __repr__(self) -> str:
        return text_table(*self._shown())

    def _repr_html_(self) -> str:
        return html_table(*self._shown())


@dataclass(frozen=True, slots=True)
class Held:
    """A round that was held."""

    round: int
    here: Sequence[int | str] | None
    """Who was there to its end. None: all clients."""
    well: bool
    """Whether it gave means."""


class Account:
    """Records who spent what, which messages went where, and who took part in the last rounds."""

    def __init__(self, clients: Iterable[int | str]) -> None:
        self.traffic = Traffic()
        self.timing = Timing()
        self.rounds: deque[Held] = deque(maxlen=LAST)
        self.faults: list[ProtocolError] = []
        self.sealed: list[tuple[int, float]] = []
        """Who sealed, signed, opened or verified a chunk, and the CPU seconds that it took."""
        self.phase, self.round = "setup", 0
        self.begin(clients)

    def begin(self, clients: Iterable[int | str]) -> None:
        """Start again with these clients. What the server spent is kept."""
        server = self.timing.get("server") or {phase: Cost() for phase in PHASES}
        self.timing = Timing({n: {phase: Cost() for phase in PHASES} for n in clients} | {"server": server})

    def held(self, round: int, here: Sequence[int | str], *, well: bool) -> None:
        """Record a round, and who was there to its end."""
        everyone = len(here) == len(self.timing) - 1  # which has the server
        self.rounds.append(Held(round, None if everyone else here, well))

    def passed(self, sender: int | str, receiver: int | str, kind: str, size: int) -> None:
        """Record a message of this kind and size."""
        self.traffic.append(Hop(self.round, sender, receiver, kind, size))
        self.timing[sender][self.phase].sent += size

    @contextmanager
    def timed(self, stage: str, who: int | str) -> Iterator[None]:
        """Adds the CPU time that passes to a party's record."""
        # Clients work in parallel, each in its own thread. The server works by itself, on all cores.
        clock = time.process_time if who == "server" else time.thread_time
        cost, started = self.timing[who][self.phase], clock()
        try:
            yield
        finally:
            passed = clock() - started
            cost.seconds += passed
            cost.stages[stage] = cost.stages.get(stage, 0.0) + passed

    def introduce(self, title: str, form: Form, params: Params, clients: Sequence[str]) -> str:
        """A federation for a notebook: what it is, what it costs, who took part. Names of entities are not in it."""
        rows: list[tuple[str, object]] = [
            ("clients", _few(clients) or params.clients),
            ("form", f"{form.name}; {params.T} may conspire, {params.dropouts} may vanish"),
            ("dim", f"{params.dim}; each number within {params.max_abs:g}"),
        ]
        if self.traffic:
            once = sum(hop.size for hop in self.traffic if not hop.round)
            rows += [("set-up and unions", size(once)), ("rounds", size(sum(hop.size for hop in self.traffic) - once))]
        for each in self.rounds:
            sent = sum(hop.size for hop in self.traffic if hop.round == each.round)
            who = "all clients" if each.here is None else _few(each.here) or "nobody"
            rows.append((f"round {each.round}", f"{who}; {size(sent)}" + ("" if each.well else "; lost: no means")))
        return html_table(title, ["", ""], rows)


MOST_SHOWN: Final = 20
"""So many clients are called by name."""


def _few(clients: Sequence[int | str]) -> str:
    more = len(clients) - MOST_SHOWN
    return ", ".join(map(str, clients[:MOST_SHOWN])) + (f" and {more} more" if more > 0 else "")


class _MeteredWriter:
    """A writer that records the CPU time of sealing."""

    def __init__(self, writer: Writer, meter: MeteredLink) -> None:
        self._writer, self._meter = writer, meter

    def seal(self, chunk: int, *payload: Buffer) -> Buffer:
        """The chunk as it travels."""
        with self._meter.timed():
            return self._writer.seal(chunk, *payload)


class MeteredLink(Link):
    """A link that records the CPU time of sealing and opening."""

    sealed: list[tuple[int, float]]

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Record the CPU time that passes in this thread."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.sealed.append((self.number, time.thread_time() - started))

    def sealer(self, label: Header, receiver: int, chunks: int = 1) -> Writer:
        """The same as in `Link`, and its time is recorded."""
        return _MeteredWriter(super().sealer(label, receiver, chunks), self)

    def signer(self, label: Header, chunks: int = 1) -> Writer:
        """The same as in `Link`, and its time is recorded."""
        return _MeteredWriter(super().signer(label, chunks), self)

    def broadcaster(self, label: Header, chunks: int, key: bytes) -> Writer:
        """The same as in `Link`, and its time is recorded."""
        return _MeteredWriter(super().broadcaster(label, chunks, key), self)

    def open(self, header: Header, message: Buffer) -> Opened:
        """The same as in `Link`, and its time is recorded."""
        with self.timed():
            return super().open(header, message)


@dataclass(frozen=True, repr=False)
class MeteredSession(Session):
    """A session whose parties' sealing is measured."""

    link_type: ClassVar[type[Link]] = MeteredLink
    sealed: list[tuple[int, float]] = field(default_factory=list, repr=False, compare=False)

    def link(self, number: int, identity: Identity, entropy: Entropy, introduction: bytes = b"") -> Link:
        """A new life of a party, with a meter."""
        made = super().link(number, identity, entropy, introduction)
        assert isinstance(made, MeteredLink)
        made.sealed = self.sealed
        return made
