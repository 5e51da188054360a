"""Claims about the form "keyed": what the server and T clients put together, and a server that deviates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit.attacks.keyed import Coalition, Listening
from secea.audit.claims.counts import form_of
from secea.audit.mutants import keyed as mutants
from secea.audit.tails import judge
from secea.errors import ProtocolError
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.table import as_table
from secea.testing import Watch

Tables = list[dict[str, NDArray[np.float64]]]
DIM: Final = 3
COALITIONS: Final = ((5, 1, (2,)), (4, 3, (0, 2, 3)), (5, 2, (0, 3)), (6, 3, (1, 4)), (2, 1, (1,)), (3, 2, (0,)))
"""Clients, T, and those who conspire with the server."""


def made_tables(clients: int, share: float = 0.5, names: int = 40) -> Tables:
    """Made-up embeddings of random subsets of the names."""
    rng = np.random.default_rng([clients, names])
    every = [f"name {i}" for i in range(names)]
    return [{name: rng.uniform(-3, 3, DIM) for name in every if rng.random() < share} for _ in range(clients)]


class Truth:
    """What is so, from everybody's secrets: to see how right a coalition is."""

    def __init__(self, coalition: Coalition, tables: Tables) -> None:
        self.tables, self.honest, self.parts = tables, coalition.honest, dict[int, KeyedClient]()
        self.slot: dict[str, int] = {}
        for n in coalition.parties.server.at.members:
            part = coalition.parties.clients[n].part
            assert isinstance(part, KeyedClient)
            assert part.union is not None
            self.parts[n] = part
            own = [str(part.names[i]) for i in part.union.order]
            self.slot |= dict(zip(own, part.union.slots.tolist(), strict=True))
        self.name = {slot: name for name, slot in self.slot.items()}

    def owners(self, slot: int) -> list[int]:
        """The honest owners of a slot."""
        return [n for n in self.honest if self.name[slot] in self.tables[n]]

    def encoded_sum(self, slot: int) -> NDArray[np.int64]:
        """The sum of their rows, as they encode them."""
        total = np.zeros(DIM, np.int64)
        for n in self.owners(slot):
            part, table = self.parts[n], as_table(self.tables[n])
            total += part.tables.encoded(table, part.names)[part.names.index(self.name[slot])]
        return total


def heard(
    subject: Subject, clients: int, collusion: int, inside: Sequence[int], share: float = 0.5, names: int = 40
) -> tuple[Coalition, Truth]:
    """A set-up and three rounds, the last with other values, as a coalition hears it."""
    tables = made_tables(clients, share, names)
    parties = subject.parties(tables, collusion=collusion)
    parties.setup()
    coalition = Coalition(parties, inside)
    for shift in (0.0, 0.0, 0.5):
        tables = [{name: row + shift for name, row in table.items()} for table in tables]
        coalition.round(tables)
    return coalition, Truth(coalition, tables)


def coalitions(subject: Subject, few: int = 2) -> Sequence[tuple[int, int, tuple[int, ...]]]:
    """All of them, or a few."""
    return COALITIONS if subject.thorough else COALITIONS[:few]


@claim("attack", KEYED, mutants=(mutants.FEWER_MASKS, mutants.NO_MASKS, mutants.BARE_TABLES))
def only_the_sum_opens(subject: Subject) -> int:
    """Keyed: the server and T clients open what all others uploaded together, and nothing of fewer of them."""
    for clients, collusion, inside in coalitions(subject):
        coalition, _ = heard(subject, clients, collusion, inside)
        everyone = tuple(coalition.honest)
        for what, opened in (("uploads", coalition.opened()), ("tables", coalition.opened_tables())):
            if fewer := set(opened) - {everyone}:
                raise Objection(f"N={clients}, T={collusion}: the {what} of clients {min(fewer)} open by themselves")
            assert opened, "the attack sees nothing, not even what is admitted"
    return len(coalitions(subject))


@claim("attack", KEYED, mutants=(mutants.NO_MASKS,))
def owners(subject: Subject) -> int:
    """Keyed: the server and T clients do not learn who else owns an entity, beyond how many own it."""
    hits = trials = 0
    chance = 0.0
    for clients, collusion, inside in ((5, 1, (2,)), (6, 3, (1, 4)), (5, 2, (0, 3)))[: 3 if subject.thorough else 2]:
        coalition, truth = heard(subject, clients, collusion, inside)
        for slot, guessed in coalition.guess_owners().items():
            some = len(guessed) / len(coalition.honest)
            if some < 1:
                hits += len(set(guessed) & set(truth.owners(slot)))
                trials, chance = trials + len(guessed), chance + some * len(guessed)
    judge("owners of slots", hits, trials, chance / trials)
    return trials


@claim("attack", KEYED, mutants=(mutants.KEYLESS,))
def names(subject: Subject) -> int:
    """Keyed: the server and T clients cannot test whether a name that none of them has is in the union."""
    cases = 0
    for clients, collusion, inside in coalitions(subject):
        coalition, truth = heard(subject, clients, collusion, inside)
        known = {name for n in inside for name in truth.tables[n]}
        guesses = sorted({*truth.slot, *(f"no name {i}" for i in range(20))} - known)
        if found := coalition.guess_names(guesses):
            raise Objection(f"N={clients}, T={collusion}: the coalition knows that {found[0]!r} is in the union")
        shares = {n: truth.parts[n].naming.key.share for n in range(collusion + 1)}
        if set(coalition.guess_names(guesses, shares)) != set(truth.slot) - known:
            raise AssertionError("with one share more the attack should find all names: it sees nothing")
        cases += len(guesses)
    return cases


@claim("attack", KEYED, mutants=(mutants.KNOWN_KEYS,))
def rows(subject: Subject) -> int:
    """Keyed: the server and T clients cannot tell the row of an entity that none of them has from another row."""
    hits = trials = 0
    rng = np.random.default_rng(6)
    for clients, collusion, inside in coalitions(subject, 3):
        coalition, truth = heard(subject, clients, collusion, inside, share=0.3, names=80)
        mine, sums, right = set(coalition.own_slots), {}, {}
        for i in sorted(truth.name):
            if i not in mine and truth.owners(i):
                true, right[i] = truth.encoded_sum(i), int(rng.integers(2))
                decoy = true + rng.integers(-(2**50), 2**50, true.size)
                sums[i] = [decoy, true] if right[i] else [true, decoy]
        chosen = coalition.guess_rows(sums)
        hits, trials = hits + sum(chosen[i] == right[i] for i in right), trials + len(right)
    judge("rows under keys of others", hits, trials, 0.5)
    return trials


@claim("attack", KEYED, mutants=(mutants.SAME_MASKS, mutants.NO_MASKS))
def uploads_subtracted(subject: Subject) -> int:
    """Keyed: the server does not learn which slots a client owns by subtracting its uploads of two rounds."""
    tables, watch = made_tables(3), Watch()
    parties = subject.parties(tables, collusion=1, watch=watch)
    parties.setup()
    form, params = form_of(subject), parties.session.params
    n, size = form.numbers(params), parties.server.M
    width = DIM + n.checks + 2
    for _ in range(2):
        parties.round(tables)
    for client in range(3):
        uploads = [
            n.ring.from_bytes(each.payload[: size * width * n.ring.element_bytes], size, width)
            for each in watch.sealed(Kind.UPLOAD, sender=client)
        ]
        bare = (n.ring.subtract(*uploads)[0, :, :DIM] == 0).all(axis=1)
        if bare.any():
            raise Objection(f"{int(bare.sum())} of {size} slots show no difference: client {client} does not own them")
    return 3 * size


# ------------------------------------------------------------------------------------------------ servers that deviate


Change = Callable[["Lying", Any], None]


class Lying(Listening):
    """A server that changes sums before it divides them."""

    change: Change

    def _means(self, chunk: int, come: Any) -> Any:
        self.change(self, come)
        return super()._means(chunk, come)

    def alpha(self, come: Any, check: int) -> list[int]:
        """The weights of a check, if the noise columns are what they are without pads: the server knows all noise."""
        p, e = self.numbers.ring.primes[0], self.numbers.ring.zeros(*come.total.shape[1:2], DIM)
        for seed in come.seeds.values():
            streams.add_noise(self.numbers.ring, e, seed, 0, come.noise)
        left = np.concatenate([e[0, :DIM], come.columns[0, :DIM, check : check + 1]], axis=1).astype(object)
        for i in range(DIM):
            left[i] = left[i] * pow(int(left[i, i]), -1, p) % p
            others = [j for j in range(DIM) if j != i]
            left[others] = (left[others] - left[others, i][:, None] * left[i]) % p
        return [int(x) for x in left[:, DIM]]


def scaled(server: Lying, come: Any) -> None:
    """Twice the sum, check columns included; the count stays."""
    some = np.ascontiguousarray(come.total[:, :, :-2])
    come.total[:, :, :-2] = server.numbers.ring.add(some, some)


def shifted(server: Lying, come: Any) -> None:
    """One unit more in the first column, and as much in the check as it counts there: if the server knows that."""
    ring, count = server.numbers.ring, np.ascontiguousarray(come.total[:, :, -2])
    for column, factor in ((0, 1), *((DIM + k, server.alpha(come, k)[0]) for k in range(server.numbers.checks))):
        more = ring.multiply(count, ring.constant([factor] * count.shape[1]))
        come.total[:, :, column] = ring.add(np.ascontiguousarray(come.total[:, :, column]), more)


def of_one_prime(b: int) -> Change:
    """One unit more in the first column, modulo one prime alone."""

    def moved(server: Lying, come: Any) -> None:
        come.total[b, :, 0] = (come.total[b, :, 0] + come.total[b, :, -2]) % server.numbers.ring.primes[b]

    return moved


@claim("attack", KEYED, mutants=(mutants.NO_J, mutants.NO_H, mutants.ANY_PRIME, mutants.FIRST_PRIME))
def wrong_means(subject: Subject) -> int:
    """Keyed: a server that deviates cannot make a client accept a mean that it scaled or shifted.

    In a field of one prime, and in one of several.
    """
    changes = {scaled: 24, shifted: 24, **{of_one_prime(b): 44 for b in range(3)}}
    for change, precision in changes.items():
        tables = made_tables(3)
        parties = subject.parties(tables, collusion=1, precision=precision)
        server = Lying(form_of(subject), parties.session.params, parties.session.hash)
        assert (server.numbers.ring.size > 1) is (precision > 24), "these precisions need other fields"
        server.change, server.link, parties.server.part = change, parties.server.link, server
        parties.setup()
        try:
            parties.round(tables)
        except ProtocolError:
            continue
        raise Objection(f"the server sent {change.__name__} means, and all clients took them")
    return len(changes)
