"""The form "keyed" with another fill or another noise, and both forms with other bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid
from secea.arithmetic.portable import Noise, _fields, grids_of
from secea.arithmetic.ristretto import scalar_bytes
from secea.audit import KEYED, PAILLIER, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.keyed import MOST_BITS, OtherGrid, filling, masked, mutant, noisy
from secea.audit.mutants.paillier import Weakened
from secea.audit.specification import leftover_bits
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.masking import Masking
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.tables import Places, Tables
from secea.forms.paillier import Paillier
from secea.forms.paillier.numbers import Numbers as PaperNumbers
from secea.params import Params
from secea.party.phases import Agreement
from secea.steps import masks
from secea.table import Table
from secea.wire.randomness import KeyStream

Words = NDArray[np.uint64]


# ---------------------------------------------------------------------------------------------------------------- fill


class Floored(OtherGrid):
    """Everything below 1/8 of the resolution is filled, whatever the grid."""

    def encoded_rows(self, table: Table, rows: Places, entities: Words) -> NDArray[np.int64]:
        """With a grid of at least that."""
        return self.gridded(table, rows, entities, MOST_BITS, floor_of(self._params))


def floor_of(params: Params) -> float:
    """The power of two at or below an eighth of the resolution."""
    return 2.0 ** math.floor(math.log2(params.resolution / 8))


class Forgetful(Tables):
    """The grid of an earlier table is forgotten."""

    def look_at(self, table: Table) -> None:
        """Find this table's own grid."""
        self.grid = None
        super().look_at(table)


class Redrawn(OtherGrid):
    """The number that fills the grid is made otherwise."""

    def encoded_rows(self, table: Table, rows: Places, entities: Words) -> NDArray[np.int64]:
        """The same words, and `filled` of them."""
        assert self.grid is not None
        n, own = self._numbers, np.ascontiguousarray(table.matrix[rows], np.float64)
        units = np.floor(np.ldexp(grids_of(own, *grid.grid_of_rows(own, *self.grid), n.cap), n.f))
        blocks = np.empty((*own.shape, 2), "<u8")
        blocks[:, :, 0] = entities[:, None] + np.arange(own.shape[1], dtype=np.uint64)
        blocks[:, :, 1] = (own + 0.0).view(np.uint64)
        words = [_fields(key, blocks) for key in self.fill[:-1]]
        bare = self.gridded(table, rows, entities, MOST_BITS, 0.0)
        return np.asarray(bare + self.filled(np.where(units > n.w, units, 0.0), words), np.int64)

    def filled(self, units: NDArray[np.float64], words: Sequence[Words]) -> NDArray[np.int64]:
        """What fills these units."""
        raise NotImplementedError


class Split(Redrawn):
    """The grid's width is split over the s narrow numbers."""

    def filled(self, units: NDArray[np.float64], words: Sequence[Words]) -> NDArray[np.int64]:
        """A part of the width for each of them."""
        s = self._numbers.s
        parts = np.concatenate(words, axis=2)[:, :, :s] * 2.0**-32 - 0.5
        return np.asarray(np.rint((parts * (units / s)[:, :, None]).sum(axis=2)), np.int64)


class LowBits(Redrawn):
    """The grid is filled by low bits of the block, which another fixed point does not scale."""

    def filled(self, units: NDArray[np.float64], words: Sequence[Words]) -> NDArray[np.int64]:
        """The rest of 63 bits modulo the width."""
        z = (words[0][:, :, 0] | words[0][:, :, 1] << np.uint64(32)) >> np.uint64(1)
        width = np.maximum(units, 1).astype(np.int64)
        return np.asarray(z.astype(np.int64) % width - width // 2, np.int64)


FLOOR = mutant("fill-with-a-floor", "A fill is at least as wide as 1/8 of the resolution.", filling(Floored))
FORGETFUL = mutant(
    "grid-forgotten",
    "A table that had a coarser grid in an earlier round is filled as finely as it is.",
    filling(Forgetful),
)
EIGHT_BITS = Mutant(
    "fill-of-eight-bits",
    "A step is looked for among integers of few bits.",
    {KEYED: Subject(Overheard(), within=((grid, "MOST_LEVELS", 1 << 9),))},
)
SPLIT = mutant("fill-split", "The grid's width is split over the s narrow numbers of the fill.", filling(Split))
LOW_BITS = mutant("fill-of-low-bits", "The grid is filled by the low bits of its block.", filling(LowBits))


# --------------------------------------------------------------------------------------------------------------- noise


class FewUnits(Numbers):
    """One narrow number, and a wide one that is hardly wider."""

    def noise_of(self, noisy: int) -> Noise:
        """The noise of one noise client."""
        return replace(super().noise_of(noisy), s=1, wide=8)


class Unscaled(Numbers):
    """The wide number has one width at every resolution."""

    def noise_of(self, noisy: int) -> Noise:
        """The noise of one noise client."""
        return replace(super().noise_of(noisy), wide=(1 << 14) // noisy)


class NoiseOfT(Overheard):
    """There are T noise clients, so that no honest one may be among them."""

    def noise_count(self, params: Params, members: int) -> int:
        """W."""
        return min(members, params.T)


class OneSeed(KeyedClient):
    """All noise clients draw their noise from one seed, which comes from the shared secret."""

    def enter(self, at: Agreement) -> None:
        """Replace the seed."""
        super().enter(at)
        if at.phase == self.form.round_phase and self.round is not None and self.round.noise_seed:
            self.round = replace(self.round, noise_seed=self.secrets(at).key("noise of all"))


FEW_UNITS = mutant("noise-of-a-few-units", "The noise of a mean spans a few units.", noisy(FewUnits))
UNSCALED = mutant(
    "noise-not-scaled", "The wide number of the noise does not grow with the resolution.", noisy(Unscaled)
)
NOISE_OF_T = mutant("noise-of-t-clients", "T clients add noise to a round in place of T+1.", NoiseOfT())
ONE_SEED = mutant(
    "one-noise-for-all", "All noise clients of a round draw their noise from one seed.", Overheard(of_client=OneSeed)
)


# --------------------------------------------------------------------------------------------------- rules and bounds


class SignaturesOneLess(Overheard):
    """One client fewer has to confirm the lists of names."""

    def signatures(self, params: Params) -> int:
        """Z."""
        return super().signatures(params) - 1


neighbours, shares = masks.neighbours, masks.shares


def _of_twelve(members: Sequence[int], degree: int, me: int) -> tuple[int, ...]:
    return neighbours(members, min(degree, 12), me)


def _of_ten(secret: int, threshold: int, clients: Sequence[int], stream: KeyStream) -> dict[int, int]:
    return shares(secret, min(threshold, 10), clients, stream)


class SharedByParticipants(Masking):
    """Shares its mask keys so that all participants but D open them, whoever is absent."""

    def _dealt(self) -> dict[int, bytes]:
        assert self.batch is not None
        whole = self.params
        self.params = replace(whole, dropouts=whole.dropouts + whole.clients - len(self.batch.members))
        dealt = super()._dealt()
        self.params = whole
        return dealt


class OnePolynomial(Masking):
    """Shares all its mask keys and self seeds with the same further coefficients."""

    def _dealt(self) -> dict[int, bytes]:
        assert self.batch is not None
        threshold, members = self.form.threshold(self.params), self.batch.members
        dealt = {v: bytearray() for v in members}
        for pair in zip(self.batch.keys, self.batch.seeds, strict=True):
            for secret in pair:
                for v, share in masks.shares(secret, threshold, members, KeyStream(self.batch.seed)).items():
                    dealt[v] += scalar_bytes(share)
        return {v: bytes(data) for v, data in dealt.items()}


class SeedOfABatch(Masking):
    """Draws one seed for its mask keys and for the polynomials that share them."""

    def enter(self, at: Agreement) -> None:
        """The polynomials' coefficients are the keys."""
        entropy, drawn = self._entropy, list[bytes]()

        def once(count: int) -> bytes:
            drawn.extend([] if drawn else [entropy(count)])
            return drawn[0]

        self._entropy = once
        super().enter(at)
        self._entropy = entropy


class ThresholdOfParticipants(Overheard):
    """t counts participants, and not the roster."""

    def quorum(self, params: Params, at: Agreement) -> int:
        """How many are enough in a phase that continues without some."""
        return len(at.participants) - params.dropouts


class QuorumOfNeed(Paillier):
    """As many answers as decode are enough."""

    def fewest(self, params: Params, phase: str = "secret", names: int = 0) -> int:
        """The fewest participants."""
        return 1 if phase == self.end_phase else max(params.fewest_contributors, params.need)

    def quorum(self, params: Params, at: Agreement) -> int:
        """How many are enough in a phase that continues without some."""
        return params.need if at.phase == "answer" else self.fewest(params)


class SigmaOfThree(Overheard):
    """Numbers are chosen for a sigma' of 3."""

    def numbers(self, params: Params) -> Numbers:
        """With as little fill."""
        n, w = super().numbers(params), 2
        while leftover_bits(n.s, w, n.noise.digits) < 3:
            w *= 2
        return replace(n, w=w)


class PaperSigmaOfThree(PaperNumbers):
    """The server's noise is for a sigma' of 3."""

    @cached_property
    def sigma_prime(self) -> int:
        """For each masked element."""
        return 3


class OneCheck(Numbers):
    """One check column, whatever the primes."""

    @property
    def checks(self) -> int:
        """Check columns."""
        return 1


class FieldHalved(Overheard):
    """One bit more of fixed point than the field has room for."""

    def numbers(self, params: Params) -> Numbers:
        """With the noise that belongs to it."""
        n = super().numbers(params)
        more = replace(n, f=n.f + 1)
        return replace(more, noise=more.noise_of(self.noise_count(params, params.clients)))


class SmallMultiple(Numbers):
    """Narrow numbers are below a multiple of fewer counts than there are."""

    def noise_of(self, noisy: int) -> Noise:
        """The noise of one noise client."""
        law = super().noise_of(noisy)
        return replace(law, digits=(*law.digits[1:], law.digits[0] // 2 or 1))


SIGNATURES_ONE_LESS = mutant("signatures-one-less", "A holder answers after Z-1 confirmations.", SignaturesOneLess())
THRESHOLD_OF_PARTICIPANTS = mutant(
    "threshold-of-participants",
    "t counts who takes part, and not the roster.",
    ThresholdOfParticipants(of_client=masked(SharedByParticipants)),
)
ONE_POLYNOMIAL = mutant(
    "one-polynomial",
    "All mask keys of a client are shared with the same polynomial.",
    Overheard(of_client=masked(OnePolynomial)),
)
SEED_OF_A_BATCH = mutant(
    "one-seed-of-a-batch",
    "The mask keys of a batch and the polynomials that share them come from one seed.",
    Overheard(of_client=masked(SeedOfABatch)),
)
FEW_NEIGHBOURS = Mutant(
    "neighbours-of-few",
    "However many may conspire, a client shares masks with twelve others at most.",
    {KEYED: Subject(Overheard(), instead={masks.neighbours: _of_twelve})},
)
SHARES_OF_FEW = Mutant(
    "shares-of-few",
    "However many clients there are, ten shares of a mask key are enough.",
    {KEYED: Subject(Overheard(), instead={masks.shares: _of_ten})},
)
QUORUM_OF_NEED = Mutant("quorum-of-need", "As many answers are enough as decode.", {PAILLIER: Subject(QuorumOfNeed())})
SIGMA_OF_THREE = Mutant(
    "sigma-of-three",
    "Elements have a statistical security of 3 bits.",
    {KEYED: Subject(SigmaOfThree()), PAILLIER: Subject(Weakened(of_numbers=PaperSigmaOfThree))},
)
ONE_CHECK = mutant("one-check-column", "There is one check column where two are needed.", noisy(OneCheck))
FIELD_HALVED = mutant("field-halved", "The field is half as large as means and noise need it.", FieldHalved())
SMALL_MULTIPLE = mutant("narrow-noise-too-small", "Narrow noise is below C/2, and not below C.", noisy(SmallMultiple))
