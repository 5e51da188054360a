"""Find the exact law of what a coalition sees of rounds of the keyed form, in a field of a few elements.

A `Stage` has real clients and a real server, set up by the whole protocol. But their field is tiny, and in the place of
key streams and noise there is a `Draws`: each element of each stream is a variable. A `Play` is a world on that stage:
rounds, played by the parties' own parts, for many values of the variables side by side (`Copies`).

Given rho and alpha, every message is affine in all other variables. Where all are 0, and where one of them is 1, shows
how. A coalition knows the variables that its members asked for at their work. Given these, what comes to it from others
is uniform on a coset: the law of its view.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import permutations, product
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues
from secea.audit import Objection, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.laws import Mixture, Tiny
from secea.audit.tiny import NOBODY, Copies, Draws, Summing, small
from secea.errors import SERVER, RoundLost
from secea.forms.keyed.client import KeyedClient, Round
from secea.forms.keyed.form import Kind
from secea.forms.keyed.tables import Places, Tables
from secea.party.phases import Agreement
from secea.steps.means import Secrets
from secea.table import Table, as_table
from secea.wire.randomness import SEED_BYTES

AT_ONCE: Final = 20_000
"""Copies that are played side by side."""

Rows: TypeAlias = Mapping[int, tuple[int, ...]]
"""What a client contributes: its slots, and its numbers in each of them."""
World: TypeAlias = tuple[tuple[Rows, ...], ...]
"""What everybody contributes: for each round and client."""


# --------------------------------------------------------------------------------------------------------------- worlds


@dataclass(frozen=True)
class Case:
    """A federation, and who conspires in it."""

    clients: int
    collusion: int
    dropouts: int = 0
    slots: int = 1
    dim: int = 1
    p: int = 5
    checks: int = 1
    """Check columns."""
    per_chunk: int = 4
    """Slots in a chunk."""
    inside: tuple[int, ...] = ()
    """The clients that conspire."""
    own: tuple[int, ...] = ()
    """The slots that they own. Honest clients have the names of all slots, and contribute to some of them."""
    rounds: tuple[int, ...] = (1,)
    """q of each round: it says whose turn it is to add noise."""
    sends: int = 1
    """How often each upload is sent."""
    absent: tuple[int, ...] = ()
    """Who does not take part in the union."""
    vanish: tuple[int, ...] = ()
    """Who is not in the last sum: their uploads come too late. The next round would need a new union."""
    least: int = 1
    """The minimum of owners."""
    weighted: bool = False
    """Rows have a weight, as their last number. 0 is one too."""
    partial: bool = False
    """Clients have rows for all of their names, and leave out those that they do not contribute."""
    everywhere: bool = False
    """All add noise to every slot. It is uniform here, so that nothing is left of a sum."""

    @property
    def present(self) -> list[int]:
        """The participants."""
        return [n for n in range(self.clients) if n not in self.absent]

    @property
    def honest(self) -> list[int]:
        """The participants that do not conspire."""
        return [n for n in self.present if n not in self.inside]

    def U(self, r: int) -> tuple[int, ...]:
        """Who is in the sum of a round."""
        return tuple(n for n in self.present if n not in self.vanish or r < len(self.rounds) - 1)

    def __str__(self) -> str:
        sizes = f"N={self.clients}, T={self.collusion}, D={self.dropouts}, M={self.slots}, d={self.dim}, p={self.p}"
        who = f"clients {self.inside}" if self.inside else "no client"
        options = f"{f', m={self.least}' * (self.least > 1)}{', weights' * self.weighted}{', partial' * self.partial}"
        options += ", noise everywhere" * self.everywhere
        return f"{sizes}{options}, {len(self.rounds)} round{'s' if len(self.rounds) > 1 else ''}, {who} inside"

    @property
    def columns(self) -> int:
        """The numbers of a row."""
        return self.dim + self.weighted


def admitted(case: Case, world: World, *, server: bool, noise: bool = False) -> tuple[object, ...]:
    """What sections 7 and 8 of the specification let a coalition know of the others' rows, round by round.

    The server and clients: how many honest clients of U own each slot, and, if one of them owns it, the sum of these
    clients' numbers. The server alone, and clients alone: which slots have no owner in U, and which fewer than the
    minimum. Clients that knew all noise: the means of their own slots too. (Noise is uniform here. What real noise
    leaves of a mean is the matter of the claims on counts.)
    """
    known: list[object] = []
    for r, rows in enumerate(world):
        for slot in range(case.slots):
            owners = [n for n in case.U(r) if slot in rows[n]]
            honest, own = [n for n in owners if n not in case.inside], slot in case.own and not case.everywhere
            below = 0 < len(owners) < case.least
            if server and case.inside:
                known.append((len(honest), _sums(case, [rows[n][slot] for n in honest], 1) if own else ()))
            else:
                shown = own and noise and not below
                mean = _sums(case, [rows[n][slot] for n in owners], len(owners)) if shown else ()
                known.append((bool(owners), below, mean))
    return tuple(known)


def _sums(case: Case, rows: Sequence[tuple[int, ...]], count: int) -> tuple[int, ...]:
    """Their sums divided by a count."""
    return tuple(sum(column) * pow(count, -1, case.p) % case.p for column in zip(*rows, strict=True))


# --------------------------------------------------------------------------------------------------------------- stages


class Stage:
    """Real parties over a tiny field, after a real set-up."""

    def __init__(self, subject: Subject, case: Case) -> None:
        assert isinstance(subject.form, Overheard)
        self.case = case
        self.form = small(subject.form, case.p, case.clients, case.checks, case.per_chunk, everywhere=case.everywhere)
        has = {n: case.own if n in case.inside else range(case.slots) for n in range(case.clients)}
        tables = [{f"name {slot}": np.zeros(case.dim) for slot in has[n]} for n in range(case.clients)]
        options: dict[str, Any] = {"collusion": case.collusion, "dropouts": case.dropouts, "dim": case.dim}
        options |= {"min_owners": case.least, "partial": case.partial, "noise": float(case.everywhere)}
        options["max_weight"] = case.p if case.weighted else None
        self.parties = replace(subject, form=self.form).parties(tables, **options)
        self.parties.setup()
        if case.absent:
            self.parties.union(case.present)
        given = [as_table(table) for table in tables]  # so that the server knows the union's L
        ones = [Table.trusted(each.names, each.matrix, np.ones(len(each), np.int64)) for each in given]
        self.parties.contribute(ones if case.weighted else given)
        self.params = self.parties.session.params
        server, numbers = self.parties.server.part, self.form.numbers(self.params)
        assert isinstance(server, Summing)
        assert isinstance(numbers.ring, Copies)
        self.server, self.ring = server, numbers.ring

    def part(self, n: int) -> KeyedClient:
        """What client n does."""
        part = self.parties.clients[n].part
        assert isinstance(part, KeyedClient)
        return part

    def at(self, r: int, members: Sequence[int] | None = None) -> Agreement:
        """What all agree on when they upload in a round, or when those in the sum open it."""
        begun = replace(self.parties.server.at, phase="upload", round=self.case.rounds[r])
        return begun if members is None else replace(begun, phase="open", members=tuple(members))

    def spans(self) -> list[slice]:
        """The places of each chunk."""
        layout = self.form.layout(Kind.MEANS, self.params, self.at(0), SERVER)
        return [layout.span(chunk) for chunk in range(layout.chunks)]

    def slots(self) -> list[int]:
        """Which slot of a world is at each place of the union."""
        found: dict[int, int] = {}
        for n in self.case.present:
            part = self.part(n)
            assert part.union is not None
            found.update(
                zip(part.union.slots.tolist(), (slot_of(part.names[i]) for i in part.union.order), strict=True)
            )
        return [found[place] for place in range(self.case.slots)]

    def round(self, n: int, r: int, own: Rows) -> Round:
        """What client n has in hand when it uploads: its numbers, and its noise seed."""
        part, columns = self.part(n), self.case.columns
        slots = [slot_of(name) for name in part.names]
        numbers = np.array([own.get(slot, (0,) * columns) for slot in slots], np.int64).reshape(len(slots), columns)
        rows = np.array([i if slot in own or self.case.partial else -1 for i, slot in enumerate(slots)], np.int32)
        weights = np.array([slot in own for slot in slots], np.int64) if self.case.partial else None
        part.tables = Whole(part)
        floats = np.zeros((len(slots), self.case.dim))
        table = WholeTable(part.names, floats, numbers[:, -1] if self.case.weighted else weights, numbers=numbers)
        part.round = Round(r + 1, table, rows, b"")
        part.enter(self.at(r))
        return part.round


@dataclass(frozen=True, eq=False, repr=False)
class WholeTable(Table):
    """A table of integers. They stay, whatever means are written into its matrix."""

    numbers: NDArray[np.int64] = field(kw_only=True)


class Whole(Tables):
    """Tables of integers, which are taken as they are, without fixed point and fill."""

    def __init__(self, part: KeyedClient) -> None:
        self.__dict__.update(part.tables.__dict__)

    def encoded_rows(self, table: Table, rows: Places, entities: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The same numbers."""
        assert isinstance(table, WholeTable)
        return table.numbers[rows]


def slot_of(name: object) -> int:
    """The slot of a world that a name stands for."""
    return int(str(name).split()[1])


@dataclass
class Sent:
    """What was sent in one round, [copies, elements] each."""

    r: int
    at: Agreement
    uploads: dict[int, list[Residues]] = field(default_factory=dict)
    """Of each client: the rows, and the columns of a noise client, chunk by chunk."""
    sums: list[Residues] = field(default_factory=list)
    """What the server opened of each chunk."""
    opened: dict[tuple[IntEnum, int], bytes] = field(default_factory=dict)
    """The shares that open a sum."""
    broadcast: list[bytes] = field(default_factory=list)


class Play:
    """A world on a stage: its variables, and what is sent in it whatever their values are."""

    def __init__(self, stage: Stage, world: World) -> None:
        self.stage, self.world, self.case = stage, world, stage.case
        self._begun = [{n: stage.round(n, r, rows[n]) for n in self.case.present} for r, rows in enumerate(world)]
        stage.ring.resize(1)
        self.draws = Draws(stage.ring)
        with self.draws.instead():
            for r in range(len(world)):
                stage.part(self.case.present[0]).secrets(stage.at(r)).alpha()
        self.alpha = sorted(self.draws.asked[NOBODY])
        self._try_elsewhere(self.sent())
        self.rho = sorted(self.draws.nonzero)

    # ------------------------------------------------------------------------------------------------------- rounds

    def sent(self, values: NDArray[np.uint8] | None = None) -> list[Sent]:
        """All rounds, with these values of the variables: [copies, variables]."""
        self.draws.values = values
        self.stage.ring.resize(1 if values is None else len(values))
        with self.draws.instead():
            return [self._round(r) for r in range(len(self.world))]

    def _round(self, r: int) -> Sent:
        """The uploads of all, late ones too; the sum over U; and what the conspiring clients read."""
        stage, draws, members = self.stage, self.draws, self.case.U(r)
        at, server = stage.at(r), stage.server
        found, uploads = Sent(r, at), dict[int, list[bytes]]()
        for n in at.members:
            stage.part(n).round = self._begun[r][n]
            with draws.of(n):
                sent = [_payloads(stage.part(n).payloads(Kind.UPLOAD, (SERVER,), at)) for _ in range(self.case.sends)]
            uploads[n] = sent[0]
            found.uploads[n] = [each for whole in sent for each in self._read(whole)]
        with draws.of(SERVER):
            server.enter(at)
            server.sums = {}
            for n in members:
                for chunk, payload in enumerate(uploads[n]):
                    server.stream(Kind.UPLOAD, n, chunk, memoryview(payload), at)
            if self.case.dropouts:
                found.at = stage.at(r, members)
                for n in members:
                    shares = _payloads(stage.part(n).payloads(Kind.OPENING, (SERVER,), found.at))
                    found.opened[Kind.OPENING, n] = b"".join(shares)
                server.finish(found.at, found.opened)
            found.broadcast = _payloads(server.ready(Kind.MEANS, found.at))
            found.sums = [server.sums[chunk].reshape(stage.ring.size, -1) for chunk in sorted(server.sums)]
        for n in self.case.inside:
            with draws.of(n):
                self._secrets(n, r)
            if n in members:
                self.judge(n, found)
        return found

    def _try_elsewhere(self, sent: Sequence[Sent]) -> None:
        """The server tries the shares of each round on all others. Where they fit, it knows those masks too."""
        union = self.stage.part(self.case.present[0]).union
        assert union is not None
        for one, other in permutations([each for each in sent if each.opened], 2):
            try:
                over = self.stage.server.opening.recover(replace(one.at, round=other.at.round), union.L, one.opened)
            except RoundLost:
                continue
            keys = {key for key, _ in over}
            found = [ids for (_, key, _), ids in self.draws.streams.items() if key in keys]
            self.draws.asked[SERVER].update(dict.fromkeys(each for ids in found for each in ids))

    def _secrets(self, n: int, r: int) -> list[Secrets]:
        """The secrets of a round that client n shares with all others, chunk by chunk; with the pads of all noise."""
        stage, at = self.stage, self.stage.at(r)
        noisy, secrets = stage.form.noise_clients(stage.params, at), stage.part(n).secrets(at)
        return [secrets.of(chunk, span.stop - span.start, noisy) for chunk, span in enumerate(stage.spans())]

    def judge(self, n: int, sent: Sent) -> None:
        """Client n checks and reads a broadcast. A `ProtocolError` if it refuses it."""
        self.stage.part(n).round = self._begun[sent.r][n]
        with self.draws.instead(), self.draws.of(n):
            for chunk, payload in enumerate(sent.broadcast):
                self.stage.part(n).stream(Kind.MEANS, SERVER, chunk, len(sent.broadcast), memoryview(payload), sent.at)

    def _read(self, payloads: Sequence[bytes]) -> Iterator[Residues]:
        """An upload as the server reads it: rows, and columns where there are any."""
        ring, width = self.stage.ring, self.stage.form.width(self.stage.params)
        for span, payload in zip(self.stage.spans(), payloads, strict=True):
            count = span.stop - span.start
            body = count * width * ring.element_bytes
            yield ring.view(payload[:body], count * width)
            if len(payload) > body:
                yield ring.view(payload[body:-SEED_BYTES], count * self.case.checks)

    def means(self, sent: Sent) -> Iterator[Residues]:
        """A broadcast as a client reads it: rows, and marks of what is empty."""
        ring = self.stage.ring
        for span, payload in zip(self.stage.spans(), sent.broadcast, strict=True):
            count = span.stop - span.start
            yield ring.view(payload[:-count], count * (self.case.columns + self.case.checks))
            yield ring.constant(np.frombuffer(payload[-count:], np.uint8))

    # --------------------------------------------------------------------------------------------------------- views

    def known(self, *, server: bool, noise: bool = False) -> list[int]:
        """The variables that somebody of the coalition asked for, in an order that the world does not change."""
        parties = (*self.case.inside, *((SERVER,) if server else ()))
        asked = [each for n in parties for each in self.draws.asked.get(n, ())]
        all_noise = [each for (what, *_), ids in self.draws.streams.items() if what == "noise" for each in ids]
        return list(dict.fromkeys([*asked, *(all_noise if noise else ())]))

    def seen(self, sent: Sequence[Sent], *, server: bool) -> list[Residues]:
        """What comes to the coalition from others."""
        if server:
            return [each for one in sent for n in self.case.honest for each in one.uploads[n]]
        return [each for one in sent for each in self.means(one)]

    def theta(self) -> list[Residues]:
        """theta of each slot that has an owner in U: who knows it can call the slot empty.

        With a minimum of owners, also that of each slot that is not below it: who knows it can call the slot so.
        """
        found, slots = [], self.stage.slots()
        with self.draws.instead():
            for r, rows in enumerate(self.world):
                owners = Counter(slot for n in self.case.U(r) for slot in rows[n])
                for span, secrets in zip(self.stage.spans(), self._secrets(self.case.present[0], r), strict=True):
                    counts = [owners[slot] for slot in slots[span]]
                    found.append(secrets.theta[:, [i for i, c in enumerate(counts) if c]])
                    if secrets.least is not None:
                        enough = [i for i, c in enumerate(counts) if not 0 < c < self.case.least]
                        found.append(secrets.least.theta[:, enough])
        return found

    def choices(self, alphas: int, rhos: int | None = None) -> Tiny:
        """Values of rho and alpha: so many of each, or all; always the same ones."""
        rng, p = np.random.default_rng(5), self.case.p
        decides, idle = self.order()
        short = dict.fromkeys(decides, range(1, self.case.least)) | dict.fromkeys(idle, range(1, 2))
        ranges = [short.get(each, range(1, p)) for each in self.rho]
        rho = np.array(list(product(*ranges)), np.int64).reshape(-1, len(self.rho))
        alpha = np.array(list(product(range(p), repeat=len(self.alpha))), np.int64).reshape(-1, len(self.alpha))
        rho = rho if rhos is None or rhos >= len(rho) else rng.choice(rho, rhos, replace=False)
        alpha = alpha if alphas >= len(alpha) else rng.choice(alpha, alphas, replace=False)
        return np.concatenate([np.tile(rho, (len(alpha), 1)), np.repeat(alpha, len(rho), axis=0)], axis=1)

    def every(self, variables: Sequence[int]) -> NDArray[np.uint8]:
        """All values of some variables; the others are 0, or 1 where they cannot be 0."""
        ranges = [range(1 if each in self.rho else 0, self.case.p) for each in variables]
        grid = np.meshgrid(*(np.array(each, np.uint8) for each in ranges), indexing="ij")
        values = np.zeros((math.prod(map(len, ranges)), self.draws.size), np.uint8)
        values[:, self.rho] = 1
        values[:, variables] = np.stack([each.reshape(-1) for each in grid], axis=1)
        return values

    def order(self) -> tuple[list[int], list[int]]:
        """The variables that decide on the order of a minimum's columns, by their remainder, and those that do not.

        Where m-1 divides p-1, the last one of a slot alone decides, and each remainder is equally likely.
        """
        decides, idle, each = list[int](), list[int](), 2 * self.case.checks
        for r in range(len(self.world)) if self.case.least > 1 else ():
            key = self.stage.part(self.case.present[0]).secrets(self.stage.at(r)).key("least order")
            assert (self.case.p - 1) % (self.case.least - 1) == 0, "orders are not equally likely"
            for (_, of, _), ids in self.draws.streams.items():
                if of == key:
                    decides += ids[each - 1 :: each]
                    idle += [one for i, one in enumerate(ids) if (i + 1) % each]
        return list(dict.fromkeys(decides)), list(dict.fromkeys(idle))

    def moving(self) -> list[int]:
        """The variables that move what the server opens."""
        rng, size = np.random.default_rng(7), self.draws.size
        values = np.repeat(rng.integers(1, self.case.p, (4, 1, size), np.uint8), size + 1, axis=1)
        values[:, range(size), range(size)] = values[:, range(size), range(size)] % (self.case.p - 1) + 1
        sums = [one.reshape(4, size + 1, -1) for sent in self.sent(values.reshape(-1, size)) for one in sent.sums]
        moved = np.concatenate([one[:, :-1] != one[:, -1:] for one in sums], axis=2)
        return np.flatnonzero(moved.any(axis=(0, 2))).tolist()

    def law(
        self, choices: Tiny, *, server: bool, noise: bool = False, alpha: bool = True, theta: bool = False
    ) -> Mixture:
        """The law of what a coalition sees, for these values of rho and alpha.

        `noise`: all of it counts as known. `alpha`: too; whoever learns no more with it learns no more without it.
        `theta`: it is added to what is seen.
        """
        chosen, known = [*self.rho, *self.alpha], self.known(server=server, noise=noise)
        shown = [each for each in chosen if each in known or (alpha and each in self.alpha)]
        moving = [each for each in known if each not in chosen]
        uniform = [*moving, *sorted(set(range(self.draws.size)) - {*chosen, *known})]
        probes = np.zeros((len(uniform) + 2, self.draws.size), np.uint8)
        probes[range(1, len(uniform) + 1), uniform] = 1
        probes[-1] = np.random.default_rng(3).integers(0, self.case.p, self.draws.size)
        spans, points, step = [], [], max(1, AT_ONCE // len(probes))
        for some in (choices[k : k + step] for k in range(0, len(choices), step)):
            values = np.tile(probes, (len(some), 1, 1))
            values[:, :, chosen] = some[:, None]
            values = values.reshape(-1, self.draws.size)
            parts = [*self.seen(self.sent(values), server=server), values[:, shown], *(self.theta() if theta else ())]
            seen = np.concatenate(parts, axis=1).astype(np.int64).reshape(len(some), len(probes), -1)
            affine = self._affine(seen, probes[-1, uniform])
            spans.append(affine[:, 1 + len(moving) :])
            points.append(affine[:, : 1 + len(moving)])
        return Mixture.of(self.case.p, np.concatenate(spans), np.concatenate(points))

    def _affine(self, seen: Tiny, last: NDArray[np.uint8]) -> Tiny:
        """What is seen where all variables are 0, and how each moves it: an `Objection` if that is not all."""
        first, moves = seen[:, :1], seen[:, 1:-1] - seen[:, :1]
        expected = first[:, 0] + np.einsum("k,bkn->bn", last.astype(np.int64), moves)
        if ((expected - seen[:, -1]) % self.case.p).any():
            raise Objection(f"{self.case}: what is sent is not affine in what is drawn, so its law is not known")
        return np.concatenate([first, moves], axis=1)


def _payloads(made: Iterable[tuple[int, Sequence[Any]]]) -> list[bytes]:
    """Each chunk as a whole."""
    return [b"".join(parts) for _, parts in made]
