"""Claims about the options of the form "keyed": minimum owners, weights, and noise on every slot."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea import privacy
from secea.arithmetic.field import M61, Residues, Ring
from secea.arithmetic.fixedpoint import centred
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.keyed import Listening
from secea.audit.mutants import options as mutants
from secea.audit.specification import honest_deviation
from secea.audit.standing import attributes_stand_in, standing_in
from secea.audit.tails import FALSE_ALARM, chi_square_tail
from secea.errors import FederationError, ProtocolError, RoundLost
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Keyed
from secea.forms.keyed.server import KeyedServer
from secea.party.phases import Agreement
from secea.steps.means import Secrets, Slot, add_everywhere, divide
from secea.table import Table
from secea.testing import Parties

DIM: Final = 3
ROOM: Final = {"max_entities": 8, "max_union": 20}
"""For tags that nobody has."""
Tables = list[dict[str, NDArray[np.float64]]]


def _tables(owners: Sequence[str], dim: int = DIM, shift: float = 0.0) -> Tables:
    """Made-up rows: the names of each client are letters."""
    rng = np.random.default_rng(len(owners))
    return [{name: rng.normal(size=dim) + shift for name in own} for own in owners]


def _part(parties: Parties, n: int) -> KeyedClient:
    part = parties.clients[n].part
    assert isinstance(part, KeyedClient)
    return part


@contextmanager
def _inventing(count: int) -> Iterator[None]:
    """A server that puts so many tags into the union that nobody has: slots without owners."""
    peeled = KeyedServer._peeled

    def invented(self: KeyedServer, at: Agreement) -> Agreement:
        after = peeled(self, at)
        more = np.frombuffer(os.urandom(8 * count), np.uint64) % np.uint64(M61)
        self.tags = np.unique(np.concatenate([self.tags, more]))
        return replace(after, size=int(self.tags.size))

    with attributes_stand_in((KeyedServer, "_peeled", invented)):
        yield


# ------------------------------------------------------------------------------------------------------ minimum owners

Lie = Callable[[Ring, Residues, NDArray[np.uint8], Residues, Residues], None]
"""Changes rows and marks. It has the server's sums, and those of the columns of a minimum."""


def _first(slots: NDArray[np.uint8], what: Slot) -> int:
    return int(np.flatnonzero(slots == what)[0])


def _called(was: Slot, now: Slot, proof: Callable[[Residues, Residues, int], Any]) -> Lie:
    """A slot of one kind is called one of another kind, with this proof: [P]."""

    def lie(ring: Ring, rows: Residues, slots: NDArray[np.uint8], total: Residues, least: Residues) -> None:
        i = _first(slots, was)
        rows[:, i], slots[i] = 0, now
        rows[:, i, 0] = proof(total, least, i)

    return lie


def _of_another(was: Slot, now: Slot) -> Lie:
    """The same with the row of a slot that is what the other one is called."""

    def lie(ring: Ring, rows: Residues, slots: NDArray[np.uint8], total: Residues, least: Residues) -> None:
        i, j = _first(slots, was), _first(slots, now)
        rows[:, i], slots[i] = rows[:, j], now

    return lie


PROOFS: Final[dict[str, Callable[[Residues, Residues, int], Any]]] = {
    "zeros": lambda total, least, i: 0,
    "the mark of emptiness": lambda total, least, i: total[:, i, -1],
    "the mark of a column": lambda total, least, i: least[:, i, -1],
    "the mark of another column": lambda total, least, i: least[:, i, least.shape[2] // 2],
    "a column": lambda total, least, i: least[:, i, 0],
}
KINDS: Final = (
    (Slot.MEAN, Slot.BELOW),
    (Slot.BELOW, Slot.EMPTY),
    (Slot.EMPTY, Slot.BELOW),
    (Slot.MEAN, Slot.EMPTY),
)


def _of_one_prime(kind: Slot) -> Lie:
    """The proof of a slot is right modulo the first prime alone, or not at all if there is no other."""

    def lie(ring: Ring, rows: Residues, slots: NDArray[np.uint8], total: Residues, least: Residues) -> None:
        i, first = _first(slots, kind), int(ring.size > 1)
        for b, p in list(enumerate(ring.primes))[first:]:
            rows[b, i, 0] = (int(rows[b, i, 0]) + 1) % p

    return lie


def _lies() -> Iterator[tuple[str, Lie]]:
    for kind in (Slot.EMPTY, Slot.BELOW):
        yield f"the proof of a slot of kind {kind.name.lower()} is right modulo one prime", _of_one_prime(kind)
    for was, now in KINDS:
        called = f"a slot of kind {was.name.lower()} is called {now.name.lower()}"
        yield f"{called}, with another slot's proof", _of_another(was, now)
        for what, proof in PROOFS.items():
            yield f"{called}, with {what}", _called(was, now, proof)


def _believed(parties: Parties, tables: Sequence[Any], lie: Lie | None) -> bool:
    """Whether clients take the means of a round with a lie in them."""

    def lying(ring: Ring, total: Residues, e: Residues, columns: Residues, least: Residues | None = None) -> Any:
        rows, slots = divide(ring, total, e, columns, least)
        assert least is not None
        if lie is not None:
            lie(ring, rows, slots, total, least)
        return rows, slots

    with standing_in({divide: lying}):
        try:
            parties.round(tables)
        except (FederationError, ProtocolError):
            return False
    return True


@claim("attack", KEYED, mutants=(
        mutants.BELOW_UNPROVED, mutants.PROOF_OF_ONE_PRIME, mutants.LEAST_NO_THETA, mutants.LEAST_THETA_OF_EMPTY,
    ))  # fmt: skip
def minimum_is_proved(subject: Subject) -> int:
    """Keyed: no client believes that a slot is below a minimum of owners, or empty, unless the server proves it.

    The server tries zeros, every sum that it has, and the proofs of other slots. With enough owners, below the minimum
    and without owners; modulo one prime and several.
    """
    tables, tried = _tables(("abcd", "abc", "ab", "a")), 0
    for precision in (24, 40):
        for told, lie in (("the truth", None), *_lies()):
            with _inventing(2):
                parties = subject.parties(tables, collusion=1, min_owners=3, precision=precision, **ROOM)
                parties.setup()
                believed = _believed(parties, tables, lie)
            assert believed or lie is not None, "an honest round is refused"
            if believed and lie is not None:
                raise Objection(f"{told}: clients believe it")
            tried += 1
    return tried


def _withheld(parties: Parties, tables: Tables, U: Sequence[int]) -> int:
    """Whoever is in U has means of entities with enough owners in U, and its own rows of the others."""
    params, cases = parties.session.params, 0
    counts = Counter(name for n in U for name in tables[n])
    for n in U:
        part = _part(parties, n)
        if not part.has_means:
            continue
        found = part.means_like(Table(list(tables[n]), np.array(list(tables[n].values()))))
        for row, (name, own) in zip(found, tables[n].items(), strict=True):
            right = np.mean([tables[v][name] for v in U if name in tables[v]], axis=0)
            below = counts[name] < params.min_owners
            if below and not np.array_equal(row, own):
                raise Objection(f"N={params.clients}: a client has the mean of {counts[name]} owners")
            if below != (name in part.below_minimum) or below != (name in part.without_mean):
                raise Objection(f"N={params.clients}: a client is not told which entities are below the minimum")
            assert below or np.abs(row - right).max() < 2 * params.resolution
            cases += 1
    return cases


@claim("record", KEYED, mutants=(mutants.NOT_WITHHELD, mutants.WITHOUT_DESIGNATED))
def minimum_is_kept(subject: Subject) -> int:
    """Keyed: if all follow, nobody gets the mean of an entity with fewer owners than the minimum, whoever drops out.

    Owners are told. If the client that subtracts the minimum drops out, no sum is opened, even if the server wants it.
    """
    cases, letters = 0, ("abcd", "abc", "ab", "ae", "ef")
    for N, T, D, m in ((4, 1, 0, 3), (5, 1, 1, 2), (5, 2, 1, 4)):
        tables = _tables(letters[:N])
        for gone in ((), *((n,) for n in range(N) if D)):
            with attributes_stand_in((Keyed, "needed", lambda *_: ())):  # this server goes on without anybody
                parties = subject.parties(tables, collusion=T, dropouts=D, min_owners=m)
                parties.setup()
                parties.exchange.losses = dict.fromkeys(gone, parties.session.form.round_phase)
                parties.contribute(tables)
                try:
                    parties.exchange.run(parties.session.form.round_phase, parties.clients)
                except (FederationError, ProtocolError):
                    assert gone == (1,), "a round without losses, or without somebody else, is lost"
            cases += 1 + _withheld(parties, tables, [n for n in range(N) if n not in gone])
    return cases


# ------------------------------------------------------------------------------------------------- noise on every slot


def _solution(rows: Sequence[Sequence[int]], right: Sequence[int], p: int) -> list[int] | None:
    """The x with rows * x = right modulo p, by Gauss; None if there is not exactly one."""
    whole, size = [[*row, y] for row, y in zip(rows, right, strict=True)], len(rows[0])
    for k in range(size):
        pivot = next((i for i in range(k, len(whole)) if whole[i][k] % p), None)
        if pivot is None:
            return None
        whole[k], whole[pivot] = whole[pivot], whole[k]
        inverse = pow(whole[k][k], -1, p)
        whole[k] = [x * inverse % p for x in whole[k]]
        for i, row in enumerate(whole):
            if i != k:
                whole[i] = [(x - row[k] * y) % p for x, y in zip(row, whole[k], strict=True)]
    return [whole[k][-1] for k in range(size)]


@claim("attack", KEYED, mutants=(mutants.NO_GAMMA, mutants.ONE_GAMMA))
def noise_of_empty_slots(subject: Subject) -> int:
    """Keyed: with noise on every slot, slots that nobody owns do not tell the server how means are checked.

    It lists tags that nobody has, takes the sums of noise in their slots for equations of alpha, and solves them. Who
    knows alpha can have every client accept any mean.
    """
    tables, cases = _tables(("ab", "bc", "ca")), 0
    for precision in (24, 44):
        with _inventing(3 * DIM):
            parties = subject.parties(tables, collusion=1, noise=0.5, precision=precision, **ROOM)
            parties.setup()
            parties.round(tables)
        server = parties.server.part
        assert isinstance(server, Listening)
        n, total = server.numbers, server.summed.total
        empty = np.flatnonzero((total[:, :, DIM + n.checks] == 0).all(axis=0))
        assert len(empty) > 2 * DIM, "there are no slots without owners"
        for b, p in enumerate(n.ring.primes):
            Y = [[int(x) for x in total[b, i, :DIM]] for i in empty]
            for k in range(n.checks):
                X = [int(total[b, i, DIM + k]) for i in empty]
                alpha = _solution(Y[:DIM], X[:DIM], p)
                fits = alpha and all(
                    sum(a * y for a, y in zip(alpha, row, strict=True)) % p == x
                    for row, x in zip(Y[DIM:], X[DIM:], strict=True)
                )
                if fits:
                    raise Objection("the server finds alpha in slots without owners, and can forge means")
                cases += len(X)
    return cases


def _small_tail(statistic: float, freedom: int) -> float:
    """A bound on the probability that a chi-square variable is below the statistic (Chernoff)."""
    part = statistic / freedom
    return 1.0 if part >= 1 else (part * math.exp(1 - part)) ** (freedom / 2)


@claim("statistics", KEYED, mutants=(mutants.TOO_LITTLE, mutants.NONE_EVERYWHERE, mutants.FEW_ADD))
def noise_is_enough(subject: Subject) -> int:
    """Keyed: honest clients together add noise of the stated deviation to every slot, whoever owns it.

    Whoever is absent, drops out or conspires, so much is left. It is looked at number by number, client by client.
    """
    cases = 0
    for N, T, D, noise, present in ((4, 1, 1, 0.01, 4), (5, 2, 0, 3.0, 5), (5, 1, 0, 3.0, 3), (3, 2, 0, 1e-6, 2)):
        tables, drawn = _tables([chr(97 + n) + "xyz" for n in range(N)], 64), list[NDArray[np.float64]]()

        def heard(
            ring: Ring,
            rows: Residues,
            z: Residues,
            shared: Secrets,
            drawn: list[NDArray[np.float64]] = drawn,
        ) -> None:
            drawn.append(centred(ring, z).astype(np.float64))
            add_everywhere(ring, rows, z, shared)

        parties = subject.parties(tables, collusion=T, dropouts=D, noise=noise)
        parties.setup()
        parties.union(range(present))
        with standing_in({add_everywhere: heard}):
            parties.round([t if n < present else None for n, t in enumerate(tables)])
        n = _part(parties, 0).numbers
        assert len(drawn) == present, "some add no noise"
        each = honest_deviation(noise, N, T, D, present)
        for z in drawn:
            statistic = float(((np.ldexp(z, -n.f) / n.C / each) ** 2).sum())
            if _small_tail(statistic, z.size) < FALSE_ALARM:
                raise Objection(f"N={N}, T={T}, D={D}: a client adds too little noise")
            if chi_square_tail(statistic, z.size) < FALSE_ALARM:
                raise Objection(f"N={N}, T={T}, D={D}: a client adds too much noise")
            cases += z.size
    return cases


@claim("record", KEYED, mutants=(mutants.REACH_OF_ONE_SIDE,))
def reach_of_a_row(subject: Subject) -> int:
    """Keyed: no row moves a sum farther, as clients encode it, than `secea.privacy` takes it to when it scales noise.

    Rows at the bounds, on opposite sides: of the range of numbers, or of the clip.
    """
    cases, rng = 0, np.random.default_rng(5)
    for dim, max_abs, clip in ((3, 64.0, None), (8, 1.0, 0.5), (64, 1.0, 1e-3), (2, 64.0, 1000.0)):
        parties = subject.parties([{name: np.zeros(dim) for name in "ab"}] * 3, noise=0.5, max_abs=max_abs)
        tables, params = _part(parties, 0).tables, parties.session.params
        assumed, f = privacy.sensitivity(params, clip), _part(parties, 0).numbers.f
        for _ in range(20):
            row = rng.normal(size=dim)
            row = np.sign(row) * max_abs if clip is None or clip > max_abs else row * (clip / np.linalg.norm(row))
            values = tables.encoded(Table(("a", "b"), np.stack([row, -row])), ("a", "b"))
            moved = float(np.linalg.norm(np.ldexp((values[0] - values[1]).astype(np.float64), -f)))
            if moved > assumed:
                raise Objection(f"a row moves a sum by {moved:g}, and noise is for {assumed:g}: {dim=}, {clip=}")
            cases += 1
    return cases


# ------------------------------------------------------------------------------------------------ what goes out again


@claim("attack", KEYED, mutants=(mutants.AGAIN_WITH_NOISE, mutants.WEIGHTS_ASIDE))
def released_with_options(subject: Subject) -> int:
    """Keyed: under noise nothing goes out again, since other noise would show more; and weights are a part of a row.

    What went out with some weights does not go out with others: the difference of two sums would be one client's row.
    """
    letters, cases = ("ab", "bc", "ca"), 0
    plain = [Table(list(t), np.array(list(t.values()))) for t in _tables(letters)]
    weights = ([2, 3], [2, 3], [2, 1], [0, 3])
    kinds: tuple[tuple[dict[str, Any], list[tuple[Any, bool]]], ...] = (
        ({"noise": 0.5}, [(None, False)]),
        ({"max_weight": 9}, [(w, w == weights[0]) for w in weights[1:]]),
        ({"partial": True}, [([1, 1], True), ([1, 0], False)]),
    )
    for options, again in kinds:
        for given, fine in again:
            first = weights[0] if "max_weight" in options else [1, 1]
            tables = plain if "noise" in options else [t.weighing(first) for t in plain]
            parties = subject.parties(
                [dict(zip(t.names, t.matrix, strict=True)) for t in plain], collusion=1, **options
            )
            parties.setup()
            parties.round(tables)
            parties.union(range(3))
            parties.server.begin(parties.session.form.ready_phase, range(3))
            parties.exchange.deliver()
            try:
                parties.clients[1].contribute(plain[1] if given is None else plain[1].weighing(given), 1)
            except RoundLost:
                if fine:
                    raise AssertionError("the same does not go out again") from None
            else:
                if not fine:
                    raise Objection(f"what was trained goes out again, with {options} and weights {given}")
            cases += 1
    return cases
