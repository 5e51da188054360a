"""The form "keyed" with one protection of its options taken away: minimum owners, weights, rows left out, noise."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secea import privacy
from secea.arithmetic.field import Residues, Ring
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.keyed import checking, filling, masked, mutant
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.masking import Masking
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.shared import RoundSecrets
from secea.forms.keyed.tables import Places, Tables
from secea.params import Params
from secea.party.phases import Agreement
from secea.steps.means import Least, Secrets, Slot, divide, least_columns, right
from secea.table import Table, TableLike
from secea.wire.keys import Identity, expand
from secea.wire.randomness import SEED_BYTES

# ------------------------------------------------------------------------------------------------------ minimum owners


def minimum(change: Callable[[Least, Secrets], Least], *, before: Callable[[int], int] = int) -> Overheard:
    """A form in which what clients share for a minimum of owners is changed."""

    @dataclass(frozen=True)
    class Changed(RoundSecrets):
        def of(self, chunk: int, rows: int, noise_clients: Sequence[int]) -> Secrets:
            whole = super().of(chunk, rows, noise_clients)
            return whole if whole.least is None else replace(whole, least=change(whole.least, whole))

        def _least(self, chunk: int, rows: int) -> Least:
            return super()._least(before(chunk), rows)

    return checking(Changed)


def _in_order(least: Least, _: Secrets) -> Least:
    counts = np.arange(1, least.a.shape[2] + 1, dtype=least.a.dtype)
    return replace(least, a=np.ascontiguousarray(np.broadcast_to(counts, least.a.shape)))


def _one_order(least: Least, _: Secrets) -> Least:
    """The order of the first slot."""
    return replace(least, a=np.repeat(least.a[:, :1], least.a.shape[1], axis=1))


def _one_rho(least: Least, _: Secrets) -> Least:
    return replace(least, rho=np.repeat(least.rho[:, :, :1], least.rho.shape[2], axis=2))


def _rho_of_count(least: Least, whole: Secrets) -> Least:
    """rho of the count itself in the first column."""
    return replace(least, rho=np.concatenate([whole.rho[:, :, None], least.rho[:, :, 1:]], axis=2))


def _no_theta(least: Least, _: Secrets) -> Least:
    return replace(least, theta=np.zeros_like(least.theta))


def _no_beta(least: Least, _: Secrets) -> Least:
    return replace(least, beta=np.ones_like(least.beta))


def _one_beta(least: Least, _: Secrets) -> Least:
    """Two marks of a slot, less its two columns times beta, are one theta: the server finds both."""
    return replace(least, beta=np.repeat(least.beta[:, :, :1], least.beta.shape[2], axis=2))


def _theta_of_empty(least: Least, whole: Secrets) -> Least:
    return replace(least, theta=whole.theta)


def _theta_times_a(ring: Ring, slots: NDArray[np.int64], least: Least, *, designated: bool) -> Residues:
    """The mark of each column has its count times theta."""
    whole, k = least_columns(ring, slots, least, designated=designated), least.a.shape[2]
    theta = np.ascontiguousarray(np.broadcast_to(least.theta[:, :, None], least.a.shape))
    plain = ring.subtract(np.ascontiguousarray(whole[:, :, k:]), theta)
    return np.concatenate([whole[:, :, :k], ring.add(plain, ring.multiply(theta, least.a))], axis=2)


def _any_a(ring: Ring, means: Residues, slots: NDArray[np.uint8], shared: Secrets, members: int) -> NDArray[np.bool_]:
    """Whether slots are right, if those below the minimum have the mark of any count below it."""
    if shared.least is None:
        return right(ring, means, slots, shared, members)
    found, theta = np.zeros(means.shape[1], np.bool_), shared.least.theta
    for a in range(1, shared.least.a.shape[2] + 1):
        times = ring.multiply(np.ascontiguousarray(np.broadcast_to(ring.constant([a]), theta.shape)), theta)
        found |= right(ring, means, slots, replace(shared, least=replace(shared.least, theta=times)), members)
    return found


def _proved_in_one_prime(ring: Ring, means: Residues, slots: NDArray[np.uint8], shared: Secrets, members: int) -> Any:
    """The proof of a slot without a mean is right if it is right modulo one prime."""
    least = shared.theta if shared.least is None else shared.least.theta
    theta = np.where(slots == Slot.BELOW, least, shared.theta)
    marks = ring.multiply(np.ascontiguousarray(np.broadcast_to(ring.constant([members]), theta.shape)), theta)
    proved = (means[:, :, 0] == marks).any(axis=0) & (slots != Slot.MEAN)
    return right(ring, means, slots, shared, members) | proved


def _below_unproved(
    ring: Ring, means: Residues, slots: NDArray[np.uint8], shared: Secrets, members: int
) -> NDArray[np.bool_]:
    """Whether slots are right, if the server is believed which are below the minimum."""
    return np.asarray(right(ring, means, slots, shared, members) | (slots == Slot.BELOW))


def _not_withheld(ring: Ring, total: Residues, e: Residues, columns: Residues, least: Residues | None = None) -> Any:
    """All means, whatever the columns say."""
    return divide(ring, total, e, columns)


class WithoutDesignated(Masking):
    """Opens a sum without the client that subtracts the minimum."""

    def check_begin(self, at: Agreement, uploaded: int) -> None:
        """Whoever that is."""
        whole, self.params = self.params, replace(self.params, min_owners=1)
        super().check_begin(at, uploaded)
        self.params = whole


class FirstDesignated(Overheard):
    """The first member always subtracts the minimum."""

    def designated(self, params: Params, at: Agreement) -> int | None:
        """It can keep all rounds from having a result, by vanishing."""
        return at.participants[0] if params.min_owners > 1 else None


@dataclass(frozen=True)
class PublicLeast(RoundSecrets):
    """The columns of a minimum have key streams that the server can make."""

    def key(self, name: str, *of: int) -> bytes:
        """From L."""
        return expand(self.union * 2, name, b"%d" % self.q) if name.startswith("least") else super().key(name, *of)


@dataclass(frozen=True)
class SameLeast(RoundSecrets):
    """The columns of a minimum have the same key streams in all rounds."""

    def key(self, name: str, *of: int) -> bytes:
        """Those of round 0."""
        return RoundSecrets.key(replace(self, q=0) if name.startswith("least") else self, name, *of)


def _replaced(name: str, missing: str, instead: dict[Any, Any]) -> Mutant:
    return Mutant(name, missing, {KEYED: Subject(Overheard(), instead=instead)})


LEAST_IN_ORDER = mutant("minimum-in-order", "The columns of a minimum are in order.", minimum(_in_order))
LEAST_ONE_ORDER = mutant(
    "minimum-in-one-order", "The columns of a minimum have one order in all slots of a chunk.", minimum(_one_order)
)
LEAST_OF_CHUNKS = mutant(
    "minimum-of-any-chunk", "The key streams of a minimum are the same in all chunks.",
    minimum(lambda least, _: least, before=lambda _: 0),
)  # fmt: skip
LEAST_OF_ROUNDS = mutant(
    "minimum-of-any-round", "The key streams of a minimum are the same in all rounds.", checking(SameLeast)
)
LEAST_ONE_RHO = mutant("minimum-with-one-rho", "All columns of a minimum have one rho.", minimum(_one_rho))
LEAST_RHO_OF_COUNT = mutant(
    "minimum-with-rho-of-count", "A column of a minimum has the rho of the count.", minimum(_rho_of_count)
)
LEAST_NO_THETA = mutant("minimum-without-theta", "The mark of a slot below the minimum is 0.", minimum(_no_theta))
LEAST_NO_BETA = mutant(
    "minimum-without-beta", "The marks of a minimum are theta plus their columns.", minimum(_no_beta)
)
LEAST_ONE_BETA = mutant("minimum-with-one-beta", "All columns of a minimum have one beta.", minimum(_one_beta))
LEAST_THETA_OF_EMPTY = mutant(
    "minimum-with-theta-of-empty", "A slot below the minimum has the mark of an empty one.", minimum(_theta_of_empty)
)
LEAST_THETAS = _replaced(
    "minimum-with-thetas", "Each column of a minimum has a theta of its own.",
    {least_columns: _theta_times_a, right: _any_a},
)  # fmt: skip
PROOF_OF_ONE_PRIME = _replaced(
    "proof-of-one-prime", "A slot without a mean is proved modulo one prime.", {right: _proved_in_one_prime}
)
BELOW_UNPROVED = _replaced(
    "minimum-unproved", "The server is believed which slots are below the minimum.", {right: _below_unproved}
)
NOT_WITHHELD = _replaced("minimum-not-withheld", "Means of slots below the minimum are sent.", {divide: _not_withheld})
WITHOUT_DESIGNATED = mutant(
    "sum-without-designated", "A sum is opened without the client that subtracts the minimum.",
    Overheard(of_client=masked(WithoutDesignated)),
)  # fmt: skip
FIRST_DESIGNATED = mutant(
    "designated-always-first", "The first member always subtracts the minimum.", FirstDesignated()
)
PUBLIC_LEAST = mutant(
    "minimum-of-public-keys", "The server can make the key streams of a minimum.", checking(PublicLeast)
)


# ------------------------------------------------------------------------------------------------- noise on every slot


class NoneEverywhere(KeyedClient):
    """Adds no noise."""

    def _spread(self, chunk: int, count: int, at: Agreement) -> Residues:
        return np.zeros_like(super()._spread(chunk, count, at))


class OneEverywhere(KeyedClient):
    """Adds the same number to all columns of a slot."""

    def _spread(self, chunk: int, count: int, at: Agreement) -> Residues:
        whole = super()._spread(chunk, count, at)
        return np.repeat(whole[:, :, :1], whole.shape[2], axis=2)


class AnyChunk(KeyedClient):
    """Adds the same noise to all chunks."""

    def _spread(self, chunk: int, count: int, at: Agreement) -> Residues:
        return super()._spread(0, count, at)


class AnyRound(KeyedClient):
    """Draws its noise once."""

    seed = b""

    def enter(self, at: Agreement) -> None:
        """Take the first seed again."""
        super().enter(at)
        if self.round and self.round.spread_seed:
            self.seed = self.seed or self.round.spread_seed
            self.round = replace(self.round, spread_seed=self.seed)


class SavesSpread(KeyedClient):
    """Saves the last seed of its noise."""

    last = b""

    def enter(self, at: Agreement) -> None:
        """Note it."""
        super().enter(at)
        self.last = (self.round.spread_seed if self.round else b"") or self.last

    def plain(self) -> dict[str, Any]:
        """With the seed."""
        return super().plain() | {"spread": self.last}


class SharedSpread(KeyedClient):
    """Its noise comes from what all clients share."""

    def enter(self, at: Agreement) -> None:
        """Take another seed."""
        super().enter(at)
        if self.round and self.round.spread_seed:
            assert self.union is not None
            seed = expand(self.union.secret, "noise of", b"%d %d" % (self.number, at.round))
            self.round = replace(self.round, spread_seed=seed)


class SentSpread(KeyedClient):
    """A noise client's noise on every slot has the seed that it sends to the server."""

    def enter(self, at: Agreement) -> None:
        """Take the other seed."""
        super().enter(at)
        if self.round and self.round.noise_seed and self.round.spread_seed:
            self.round = replace(self.round, spread_seed=self.round.noise_seed)


@dataclass(frozen=True)
class NoGamma(RoundSecrets):
    """Checks of slots without owners are not blinded."""

    def _gamma(self, chunk: int, rows: int) -> tuple[Residues, ...]:
        return tuple(np.ones_like(each) for each in super()._gamma(chunk, rows))


@dataclass(frozen=True)
class OneGamma(RoundSecrets):
    """All slots have one gamma."""

    def _gamma(self, chunk: int, rows: int) -> tuple[Residues, ...]:
        return tuple(np.repeat(each[:, :1], rows, axis=1) for each in super()._gamma(0, max(1, rows)))


class Everybody(Overheard):
    """Each client adds as much as if nobody conspired or dropped out."""

    def numbers(self, params: Params) -> Numbers:
        """Too little noise."""
        whole = super().numbers(params)
        honest = params.clients - params.dropouts - params.T
        return replace(whole, spread=whole.spread * math.sqrt(honest / params.clients))


class NotCounted(Overheard):
    """The field has no room for the noise on every slot."""

    def numbers(self, params: Params) -> Numbers:
        """Those of a federation without noise."""
        whole, bare = super().numbers(params), super().numbers(replace(params, noise=0.0))
        return replace(bare, spread=math.ldexp(whole.spread, bare.f - whole.f))


class AsIfAllWereThere(KeyedClient):
    """Adds as much as if nobody were absent."""

    def _spread(self, chunk: int, count: int, at: Agreement) -> Residues:
        return super()._spread(chunk, count, replace(at, participants=tuple(range(self.params.clients))))


class AgainWithNoise(KeyedClient):
    """What went out with noise may go out again."""

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """As if there were no noise."""
        whole, self.params = self.params, replace(self.params, noise=0.0)
        try:
            super().contribute(table, round, at)
        finally:
            self.params = whole


NONE_EVERYWHERE = mutant("noise-left-out", "Clients add no noise.", Overheard(who=0, program=NoneEverywhere))
ONE_EVERYWHERE = mutant(
    "noise-of-one-column", "The noise on a slot is one number for all columns.", Overheard(of_client=OneEverywhere)
)
EVERYWHERE_OF_CHUNKS = mutant(
    "noise-of-any-chunk", "The noise on every slot is the same in all chunks.", Overheard(of_client=AnyChunk)
)
EVERYWHERE_OF_ROUNDS = mutant(
    "noise-drawn-once", "The noise on every slot is the same in all rounds.", Overheard(of_client=AnyRound)
)
SHARED_SPREAD = mutant(
    "noise-of-a-shared-key", "All clients can make each other's noise on every slot.", Overheard(of_client=SharedSpread)
)
SENT_SPREAD = mutant(
    "noise-of-a-sent-seed", "The server gets the seed of the noise on every slot.", Overheard(of_client=SentSpread)
)
SAVED_SPREAD = mutant(
    "noise-seed-saved", "A client saves the seed of its noise on every slot.", Overheard(of_client=SavesSpread)
)
NO_GAMMA = mutant("no-gamma", "Checks of slots without owners are not blinded by gamma.", checking(NoGamma))
ONE_GAMMA = mutant("one-gamma-for-slots", "gamma is the same in all slots.", checking(OneGamma))
TOO_LITTLE = mutant("noise-of-everybody", "The noise is scaled by N in place of those who are honest.", Everybody())
NOT_COUNTED = mutant("noise-not-counted", "The field has no room for the noise on every slot.", NotCounted())
FEW_ADD = mutant(
    "noise-of-a-few", "Where few take part, they add no more noise than where all do.",
    Overheard(of_client=AsIfAllWereThere),
)  # fmt: skip
AGAIN_WITH_NOISE = mutant(
    "noise-drawn-again", "What went out with noise goes out again, with other noise.",
    Overheard(of_client=AgainWithNoise),
)  # fmt: skip


# ------------------------------------------------------------------------------------------- weights, rows left out


class Unblurred(Tables):
    """Weights are whole numbers."""

    def shares(self, weights: NDArray[np.int64], entities: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Without a blur."""
        assert self._params.max_weight is not None
        return weights / (self._params.max_weight + 1)


class BlurAnew(Tables):
    """Weights are blurred anew whenever they go out."""

    def shares(self, weights: NDArray[np.int64], entities: NDArray[np.uint64]) -> NDArray[np.float64]:
        """With other keys."""
        self._blur = [os.urandom(SEED_BYTES) for _ in self._blur]
        return super().shares(weights, entities)


class PublicBlur(Tables):
    """Weights are blurred by a key that everybody can make."""

    def __init__(self, params: Params, numbers: Numbers, number: int, identity: Identity) -> None:
        super().__init__(params, numbers, number, identity)
        self._blur = [expand(identity.public, "fill of weights", b"%d" % i) for i in range(len(self._blur))]


class WeightsAside(Tables):
    """What went out is recognised by its values, whatever their weights are."""

    def fingerprint(self, table: Table, rows: Places, round: int) -> bytes:
        """Without weights."""
        return super().fingerprint(Table.trusted(table.names, table.matrix), rows, round)


class OpenlyLeftOut(KeyedClient):
    """Rows of weight 0 are left out, whether that was agreed on or not."""

    def _kept(self, own: slice) -> NDArray[np.int64]:
        whole, self.params = self.params, replace(self.params, max_weight=None, noise=0.0, partial=True)
        kept = super()._kept(own)
        self.params = whole
        return kept


class UnweightedKeys(KeyedClient):
    """The column of weights lies under no key of the entity."""

    def _under_keys(self, own: slice | NDArray[np.int64], at: Agreement) -> Residues:
        whole = super()._under_keys(own, at)
        if self.params.max_weight is not None:
            whole[:, :, -1] = 0
        return whole


UNBLURRED = mutant("weights-not-blurred", "Weights are whole numbers.", filling(Unblurred))
BLUR_ANEW = mutant("weights-blurred-anew", "Weights are blurred anew in each round.", filling(BlurAnew))
PUBLIC_BLUR = mutant("weights-blurred-openly", "Everybody can make the blur of a weight.", filling(PublicBlur))
WEIGHTS_ASIDE = mutant(
    "weights-not-recognised", "What went out is recognised by its values, and not by its weights.",
    filling(WeightsAside),
)  # fmt: skip
OPENLY_LEFT_OUT = mutant("weight-0-shows", "Rows of weight 0 are left out openly.", Overheard(of_client=OpenlyLeftOut))
UNWEIGHTED_KEYS = mutant(
    "weights-without-g", "The column of weights lies under no key of its entity.", Overheard(of_client=UnweightedKeys)
)


_sensitivity = privacy.sensitivity


def _one_side(params: Params, clip: float | None = None) -> float:
    """How far a row is from nothing, and not from another one."""
    return _sensitivity(params, clip) / 2


REACH_OF_ONE_SIDE = Mutant(
    "reach-of-one-side", "Noise is scaled as if a row could be left out, and not replaced.",
    {KEYED: Subject(Overheard(), within=((privacy, "sensitivity", _one_side),))},
)  # fmt: skip
