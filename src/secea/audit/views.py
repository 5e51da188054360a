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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import portable, streams
from secea.arithmetic._kernels import ffi
from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.streams import Noise
from secea.audit import Objection, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.laws import Mixture, Tiny
from secea.errors import SERVER
from secea.forms.keyed.client import KeyedClient, Round
from secea.forms.keyed.form import Kind
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.server import KeyedServer
from secea.params import Params
from secea.party.phases import Agreement
from secea.wire.messages import Layout
from secea.wire.randomness import SEED_BYTES

NOBODY: Final = -2
"""Asks for variables, but belongs to no coalition: the audit itself."""
AT_ONCE: Final = 20_000
"""Copies that are played side by side."""

Rows: TypeAlias = Mapping[int, tuple[int, ...]]
"""What a client contributes: its slots, and its numbers in each of them."""
World: TypeAlias = tuple[tuple[Rows, ...], ...]
"""What everybody contributes: for each round and client."""


# --------------------------------------------------------------------------------------------------------- tiny fields


class Copies(Ring):
    """One tiny field many times, in the place of several primes: as many rounds are played side by side. Insecure."""

    def __init__(self, p: int) -> None:
        super().__init__((p,))
        self.p = p

    def resize(self, copies: int) -> None:
        """Play this many copies from now on."""
        self.primes, self.size = (self.p,) * copies, copies
        self.element_bytes = copies * self.dtype.itemsize
        self._table = ffi.new("uint32_t[]", self.primes)

    def constant(self, values: object) -> Residues:
        """The same in all copies."""
        one = np.asarray(np.array(values, object) % self.p, self.dtype)
        return np.repeat(one[None], self.size, axis=0)


@dataclass(frozen=True)
class TinyNumbers(Numbers):
    """Numbers of a tiny field. There is no room for fixed point or fill, and nothing to read."""

    @property
    def checks(self) -> int:
        """One."""
        return 1

    def read(self, x: Residues, noisy: int, planned: int | None = None) -> NDArray[np.float64]:
        """Nothing: who can compute a mean is told by what it knows."""
        return np.zeros(x.shape[1:])


class Summing(KeyedServer):
    """A server that keeps the sums that it opens, and may change them before it divides."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.sums: dict[int, Residues] = {}
        self.change: Callable[[Residues], None] = lambda _: None

    def _means(self, chunk: int, come: Any) -> Any:
        self.sums[chunk] = come.total.copy()
        self.change(come.total)
        return super()._means(chunk, come)


@dataclass(frozen=True)
class Small(Overheard):
    """A form over a tiny field, with few slots in a chunk."""

    tiny: TinyNumbers | None = None
    per_chunk: int = 1

    def numbers(self, params: Params) -> Numbers:
        """The tiny ones."""
        assert self.tiny is not None
        return self.tiny

    def _rows(self, *args: Any) -> Layout:
        return replace(super()._rows(*args), per_chunk=self.per_chunk)

    def server(self, params: Any, session: bytes) -> Any:
        """One that keeps its sums."""
        made = super().server(params, session)
        return made if isinstance(made, Summing) else Summing(self, params, session)


def small(form: Overheard, p: int, clients: int, per_chunk: int) -> Small:
    """A form, whatever was taken away from it, over a tiny field."""
    numbers = TinyNumbers(Copies(p), math.lcm(*range(1, clients + 1)), 0, 1, Noise(1, (1,), 2), 1, 64.0, 64.0)
    options = {each.name: getattr(form, each.name) for each in fields(Overheard)}
    made = type("Small", (Small, type(form)), {})(**options, tiny=numbers, per_chunk=per_chunk)
    assert isinstance(made, Small)
    return made


# --------------------------------------------------------------------------------------------------------------- draws


class Draws:
    """In the place of key streams and noise: each element is a variable, with a value in each copy.

    It has the functions of `secea.arithmetic.portable`, which works where the field is not the tiny one.
    """

    def __init__(self, ring: Copies) -> None:
        self.ring, self.who, self.size = ring, NOBODY, 0
        self.streams: dict[tuple[str, bytes, int], list[int]] = {}
        """The variables of each stream: what for, its key, and its lane."""
        self.asked: dict[int, dict[int, None]] = {}
        """The variables that each party asked for, in order."""
        self.nonzero: set[int] = set()
        self.values: NDArray[np.uint8] | None = None
        """[copies, variables]; None as long as variables are found."""

    @contextmanager
    def of(self, who: int) -> Iterator[None]:
        """A party is at work."""
        before, self.who = self.who, who
        try:
            yield
        finally:
            self.who = before

    def _elements(self, key: tuple[str, bytes, int], shape: Sequence[int], *, nonzero: bool = False) -> Residues:
        """Of one stream, in each copy."""
        mine, count = self.streams.setdefault(key, []), math.prod(shape)
        while len(mine) < count:
            assert self.values is None, "a round that is played again draws something else"
            mine.append(self.size)
            self.size += 1
        ids = mine[:count]
        self.asked.setdefault(self.who, {}).update(dict.fromkeys(ids))
        self.nonzero |= set(ids) if nonzero else set()
        if self.values is None:
            return np.full((self.ring.size, *shape), int(nonzero), self.ring.dtype)
        return np.take(self.values, ids, axis=1).astype(self.ring.dtype).reshape(-1, *shape)

    def add_streams(self, ring: Ring, acc: Residues, keys: Sequence[bytes], signs: Sequence[int], lane: int) -> None:
        """acc += the sum over k of signs[k] times the stream of keys[k]."""
        if ring is not self.ring:
            return portable.add_streams(ring, acc, keys, signs, lane)
        for key, sign in zip(keys, signs, strict=True):
            drawn = self._elements(("stream", key, lane), acc.shape[1:])
            (ring.add_into if sign > 0 else ring.subtract_into)(acc, drawn)
        return None

    def stream(self, ring: Ring, key: bytes, lane: int, *shape: int, nonzero: bool = False) -> Residues:
        """The stream of this key and lane."""
        if ring is not self.ring:
            return portable.stream(ring, key, lane, *shape, nonzero=nonzero)
        return self._elements(("stream", key, lane), shape, nonzero=nonzero)

    def row_streams(self, ring: Ring, keys: NDArray[np.uint8], lane: int, length: int) -> Residues:
        """For each row the stream of its own key."""
        if ring is not self.ring:
            return portable.row_streams(ring, keys, lane, length)
        rows = [self._elements(("stream", key.tobytes(), lane), (length,)) for key in keys]
        return np.stack(rows, axis=1) if rows else ring.empty(0, length)

    def add_noise(self, ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
        """acc += noise, which is uniform here."""
        if ring is not self.ring:
            return portable.add_noise(ring, acc, seed, lane, noise)
        ring.add_into(acc, self._elements(("noise", seed, lane), acc.shape[1:]))
        return None

    encode = staticmethod(portable.encode)


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
    vanish: tuple[int, ...] = ()
    """Who is not in the sums: their uploads come too late."""

    @property
    def honest(self) -> list[int]:
        """Everybody else."""
        return [n for n in range(self.clients) if n not in self.inside]

    @property
    def members(self) -> list[tuple[int, ...]]:
        """U of each round."""
        return [tuple(n for n in range(self.clients) if n not in self.vanish)] * len(self.rounds)

    def __str__(self) -> str:
        who = f"clients {self.inside}" if self.inside else "no client"
        sizes = f"{self.slots} slots of {self.dim} numbers modulo {self.p}"
        return f"N={self.clients}, T={self.collusion}, D={self.dropouts}, {sizes}, {len(self.rounds)} rounds, {who}"


def admitted(case: Case, world: World, *, server: bool, noise: bool = False) -> tuple[object, ...]:
    """What sections 7 and 8 of the specification let a coalition know of the others' rows, round by round.

    The server and clients: how many honest clients of U own each slot, and, if one of them owns it, the sum of these
    clients' numbers. The server alone, and clients alone: which slots have no owner in U. Clients that knew all noise:
    the means of their own slots too. (Noise is uniform here. What real noise leaves of a mean is the matter of the
    claims on counts.)
    """
    known: list[object] = []
    for U, rows in zip(case.members, world, strict=True):
        for slot in range(case.slots):
            owners = [n for n in U if slot in rows[n]]
            honest, own = [n for n in owners if n not in case.inside], slot in case.own
            if server and case.inside:
                known.append((len(honest), _sums(case, [rows[n][slot] for n in honest], 1) if own else ()))
            else:
                mean = _sums(case, [rows[n][slot] for n in owners], len(owners)) if own and noise else ()
                known.append((bool(owners), mean))
    return tuple(known)


def _sums(case: Case, rows: Sequence[tuple[int, ...]], count: int) -> tuple[int, ...]:
    """Their sums divided by a count."""
    return tuple(sum(column) * pow(count, -1, case.p) % case.p for column in zip(*rows, strict=True))


# --------------------------------------------------------------------------------------------------------------- stages


class Stage:
    """Real parties over a tiny field, after a real set-up."""

    def __init__(self, subject: Subject, case: Case) -> None:
        assert isinstance(subject.form, Overheard)
        self.case, self.form = case, small(subject.form, case.p, case.clients, case.per_chunk)
        has = {n: case.own if n in case.inside else range(case.slots) for n in range(case.clients)}
        tables = [{f"name {slot}": np.zeros(case.dim) for slot in has[n]} for n in range(case.clients)]
        options = {"collusion": case.collusion, "dropouts": case.dropouts, "dim": case.dim}
        self.parties = replace(subject, form=self.form).parties(tables, **options)
        self.parties.setup()
        self.parties.contribute(tables)  # so that the server knows the union's L
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
        for n in range(self.case.clients):
            part = self.part(n)
            assert part.union is not None
            found.update(
                zip(part.union.slots.tolist(), (slot_of(part.names[i]) for i in part.union.order), strict=True)
            )
        return [found[place] for place in range(self.case.slots)]

    def round(self, n: int, r: int, own: Rows) -> Round:
        """What client n has in hand when it uploads: its numbers, and its noise seed."""
        part, none = self.part(n), (0,) * self.case.dim
        slots = [slot_of(name) for name in part.names]
        numbers = np.array([own.get(slot, none) for slot in slots], np.int64).reshape(len(slots), self.case.dim)
        part.round = Round(r + 1, numbers, np.array([slot in own for slot in slots], np.bool_))
        part.enter(self.at(r))
        return part.round


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
    broadcast: list[bytes] = field(default_factory=list)


class Play:
    """A world on a stage: its variables, and what is sent in it whatever their values are."""

    def __init__(self, stage: Stage, world: World) -> None:
        self.stage, self.world, self.case = stage, world, stage.case
        self._begun = [{n: stage.round(n, r, own) for n, own in enumerate(rows)} for r, rows in enumerate(world)]
        stage.ring.resize(1)
        self.draws = Draws(stage.ring)
        with streams.use(0, self.draws):
            for r in range(len(world)):
                stage.part(0).secrets(stage.at(r)).alpha()
        self.alpha = sorted(self.draws.asked[NOBODY])
        self.sent()
        self.rho = sorted(self.draws.nonzero)

    # ------------------------------------------------------------------------------------------------------- rounds

    def sent(self, values: NDArray[np.uint8] | None = None) -> list[Sent]:
        """All rounds, with these values of the variables: [copies, variables]."""
        self.draws.values = values
        self.stage.ring.resize(1 if values is None else len(values))
        with streams.use(0, self.draws):
            return [self._round(r) for r in range(len(self.world))]

    def _round(self, r: int) -> Sent:
        """The uploads of all, late ones too; the sum over U; and what the conspiring clients read."""
        stage, draws, members = self.stage, self.draws, self.case.members[r]
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
                opened = {n: _payloads(stage.part(n).payloads(Kind.OPENING, (SERVER,), found.at)) for n in members}
                server.finish(found.at, {(Kind.OPENING, n): b"".join(each) for n, each in opened.items()})
            found.broadcast = _payloads(server.ready(Kind.MEANS, found.at))
            found.sums = [server.sums[chunk].reshape(stage.ring.size, -1) for chunk in sorted(server.sums)]
        for n in set(members) & set(self.case.inside):
            self.judge(n, found)
        return found

    def judge(self, n: int, sent: Sent) -> None:
        """Client n checks and reads a broadcast. A `ProtocolError` if it refuses it."""
        self.stage.part(n).round = self._begun[sent.r][n]
        with streams.use(0, self.draws), self.draws.of(n):
            for chunk, payload in enumerate(sent.broadcast):
                self.stage.part(n).stream(Kind.MEANS, SERVER, chunk, len(sent.broadcast), memoryview(payload), sent.at)

    def _read(self, payloads: Sequence[bytes]) -> Iterator[Residues]:
        """An upload as the server reads it: rows, and columns where there are any."""
        ring, width = self.stage.ring, self.case.dim + 3
        for span, payload in zip(self.stage.spans(), payloads, strict=True):
            count = span.stop - span.start
            body = count * width * ring.element_bytes
            yield ring.view(payload[:body], count * width)
            if len(payload) > body:
                yield ring.view(payload[body:-SEED_BYTES], count)

    def _means(self, sent: Sent) -> Iterator[Residues]:
        """A broadcast as a client reads it: rows, and marks of what is empty."""
        ring = self.stage.ring
        for span, payload in zip(self.stage.spans(), sent.broadcast, strict=True):
            count = span.stop - span.start
            yield ring.view(payload[:-count], count * (self.case.dim + 1))
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
        return [each for one in sent for each in self._means(one)]

    def theta(self) -> list[Residues]:
        """theta of each slot that has an owner in U: who knows it can call the slot empty."""
        found, slots = [], self.stage.slots()
        with streams.use(0, self.draws), self.draws.of(NOBODY):
            for r in range(len(self.world)):
                for chunk, span in enumerate(self.stage.spans()):
                    secrets = self.stage.part(0).secrets(self.stage.at(r)).of(chunk, span.stop - span.start, ())
                    owned = {slot for n in self.case.members[r] for slot in self.world[r][n]}
                    here = [i for i, slot in enumerate(slots[span]) if slot in owned]
                    found.append(secrets.theta[:, here])
        return found

    def choices(self, alphas: int, rhos: int | None = None) -> Tiny:
        """Values of rho and alpha: so many of each, or all; always the same ones."""
        rng, p = np.random.default_rng(5), self.case.p
        rho = np.array(list(product(range(1, p), repeat=len(self.rho))), np.int64).reshape(-1, len(self.rho))
        alpha = np.array(list(product(range(p), repeat=len(self.alpha))), np.int64).reshape(-1, len(self.alpha))
        rho = rho if rhos is None or rhos >= len(rho) else rng.choice(rho, rhos, replace=False)
        alpha = alpha if alphas >= len(alpha) else rng.choice(alpha, alphas, replace=False)
        return np.concatenate([np.tile(rho, (len(alpha), 1)), np.repeat(alpha, len(rho), axis=0)], axis=1)

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
