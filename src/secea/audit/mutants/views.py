"""The form "keyed" without one of the blindings, masks or noises that make its views what is admitted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.keyed import checking, masked, mutant
from secea.audit.tiny import Summing
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.keyed.masking import Masking
from secea.forms.keyed.opening import Opening
from secea.forms.keyed.shared import RoundSecrets
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import masks
from secea.steps.means import Secrets
from secea.wire.keys import expand
from secea.wire.messages import Buffer
from secea.wire.randomness import KeyStream

# ------------------------------------------------------------------------------------------------------ shared secrets


class NoG(KeyedClient):
    """Rows lie under no key of their entity."""

    def _under_keys(self, own: slice | NDArray[np.int64], at: Agreement) -> Residues:
        return np.zeros_like(super()._under_keys(own, at))


class SameG(KeyedClient):
    """The key stream of a row is the same in all rounds."""

    def _under_keys(self, own: slice | NDArray[np.int64], at: Agreement) -> Residues:
        return super()._under_keys(own, replace(at, round=0))


class OneG(KeyedClient):
    """The key stream of a row is one number."""

    def _under_keys(self, own: slice | NDArray[np.int64], at: Agreement) -> Residues:
        whole = super()._under_keys(own, at)
        return np.repeat(whole[:, :, :1], whole.shape[2], axis=2)


@dataclass(frozen=True)
class NoRho(RoundSecrets):
    """Slots are not blinded."""

    def of(self, chunk: int, rows: int, noise_clients: Sequence[int]) -> Secrets:
        """With 1 for each rho."""
        whole = super().of(chunk, rows, noise_clients)
        return replace(whole, rho=np.ones_like(whole.rho))


@dataclass(frozen=True)
class NoTheta(RoundSecrets):
    """An empty slot has a mark that everybody knows."""

    def of(self, chunk: int, rows: int, noise_clients: Sequence[int]) -> Secrets:
        """With 0 for each theta."""
        whole = super().of(chunk, rows, noise_clients)
        return replace(whole, theta=np.zeros_like(whole.theta))


@dataclass(frozen=True)
class NoBeta(RoundSecrets):
    """An owner's mark is theta + rho, and the server knows the sum of rho."""

    def of(self, chunk: int, rows: int, noise_clients: Sequence[int]) -> Secrets:
        """With 1 for each beta."""
        whole = super().of(chunk, rows, noise_clients)
        return replace(whole, beta=np.ones_like(whole.beta))


@dataclass(frozen=True)
class SameAlpha(RoundSecrets):
    """alpha is the same in all rounds."""

    def key(self, name: str, *of: int) -> bytes:
        """That of round 0."""
        return RoundSecrets.key(replace(self, q=0) if name == "alpha" else self, name, *of)


@dataclass(frozen=True)
class SameSecrets(RoundSecrets):
    """Everything but alpha is the same in all rounds."""

    def key(self, name: str, *of: int) -> bytes:
        """That of round 0."""
        return RoundSecrets.key(self if name == "alpha" else replace(self, q=0), name, *of)


@dataclass(frozen=True)
class OneAlpha(RoundSecrets):
    """All check columns have the same weights."""

    def alpha(self) -> tuple[Residues, ...]:
        """Those of the first one."""
        return super().alpha()[:1] * self.checks


@dataclass(frozen=True)
class OneWeight(RoundSecrets):
    """All columns have the same weight in a check."""

    def alpha(self) -> tuple[Residues, ...]:
        """That of the first one."""
        return tuple(np.repeat(each[:, :1], self.dim, axis=1) for each in super().alpha())


@dataclass(frozen=True)
class OneH(RoundSecrets):
    """All noise clients have the same pad."""

    def key(self, name: str, *of: int) -> bytes:
        """That of client 0."""
        return super().key(name, *((0, *of[1:]) if name == "H" else of))


@dataclass(frozen=True)
class Repeating(RoundSecrets):
    """One of the secrets is the same in all slots of a chunk, or in all chunks."""

    what: ClassVar[str]
    slots: ClassVar[bool]

    def _same(self, here: Residues, first: Residues) -> Residues:
        return np.repeat(here[:, :1], here.shape[1], axis=1) if self.slots else first

    def pads(self, client: int, chunk: int, rows: int) -> tuple[Residues, ...]:
        """H of one noise client."""
        here, first = super().pads(client, chunk, rows), super().pads(client, 0, rows)
        return tuple(map(self._same, here, first)) if self.what == "H" else here

    def of(self, chunk: int, rows: int, noise_clients: Sequence[int]) -> Secrets:
        """The secrets of a chunk."""
        whole, first = super().of(chunk, rows, noise_clients), super().of(0, rows, noise_clients)
        here, there = getattr(whole, self.what), getattr(first, self.what)
        same: Any = tuple(map(self._same, here, there)) if isinstance(here, tuple) else self._same(here, there)
        return replace(whole, **{self.what: same})


def repeating(name: str, *, over_slots: bool) -> Overheard:
    """A form in which one of the secrets repeats."""

    class Secret(Repeating):
        what, slots = name, over_slots

    return checking(Secret)


NO_G = mutant("no-g", "Rows lie under no key of their entity.", Overheard(of_client=NoG))
SAME_G = mutant("g-of-any-round", "The key stream of a row is the same in all rounds.", Overheard(of_client=SameG))
ONE_G = mutant("one-g-for-columns", "The key stream of a row is one number.", Overheard(of_client=OneG))
NO_RHO = mutant("no-rho", "Slots are not blinded by rho.", checking(NoRho))
NO_THETA = mutant("no-theta", "The mark of an empty slot is 0.", checking(NoTheta), "wrong means 4")
NO_BETA = mutant("no-beta", "An owner's mark is theta + rho.", checking(NoBeta))
SAME_ALPHA = mutant("alpha-of-any-round", "alpha is the same in all rounds.", checking(SameAlpha))
SAME_SECRETS = mutant(
    "secrets-of-any-round", "rho, J, H, theta and beta are the same in all rounds.", checking(SameSecrets)
)
ONE_ALPHA = mutant("one-alpha-for-checks", "alpha is the same in all check columns.", checking(OneAlpha))
ONE_WEIGHT = mutant("one-weight-for-columns", "alpha is one number for all columns.", checking(OneWeight))
ONE_H = mutant("one-h-for-clients", "H is the same for all noise clients.", checking(OneH))
RHO_OF_SLOTS = mutant(
    "one-rho-for-slots", "rho is the same in all slots of a chunk.", repeating("rho", over_slots=True)
)
RHO_OF_CHUNKS = mutant("one-rho-for-chunks", "rho is the same in all chunks.", repeating("rho", over_slots=False))
J_OF_SLOTS = mutant("one-j-for-slots", "J is the same in all slots of a chunk.", repeating("J", over_slots=True))
J_OF_CHUNKS = mutant("one-j-for-chunks", "J is the same in all chunks.", repeating("J", over_slots=False))
H_OF_SLOTS = mutant("one-h-for-slots", "H is the same in all slots of a chunk.", repeating("H", over_slots=True))
H_OF_CHUNKS = mutant("one-h-for-chunks", "H is the same in all chunks.", repeating("H", over_slots=False))
THETA_OF_SLOTS = mutant(
    "one-theta-for-slots", "theta is the same in all slots of a chunk.", repeating("theta", over_slots=True)
)
THETA_OF_CHUNKS = mutant(
    "one-theta-for-chunks", "theta is the same in all chunks.", repeating("theta", over_slots=False)
)


# --------------------------------------------------------------------------------------------------------------- noise


class TwoSeeds(KeyedClient):
    """An upload that is sent again has another noise under the same pad."""

    again = False

    def _upload(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        before = self.round
        assert before is not None
        if before.noise_seed and self.again:
            self.round = replace(before, noise_seed=expand(before.noise_seed, "again"))
        self.again = not self.again
        yield from super()._upload(at)
        self.round = before


class SameNoise(KeyedClient):
    """Draws its noise seed once."""

    seed = b""

    def enter(self, at: Agreement) -> None:
        """Take the first one again."""
        super().enter(at)
        if self.round and self.round.noise_seed:
            self.seed = self.seed or self.round.noise_seed
            self.round = replace(self.round, noise_seed=self.seed)


class FewerNoiseClients(Overheard):
    """As many noise clients as may conspire or drop out, and not one more."""

    def noise_count(self, params: Params, members: int) -> int:
        """The number of noise clients."""
        return min(members, params.T + params.dropouts)


TWO_SEEDS = mutant("two-seeds-under-one-h", "An upload sent again has other noise.", Overheard(of_client=TwoSeeds))
SAME_NOISE = mutant("noise-of-any-round", "Noise is the same in all rounds.", Overheard(of_client=SameNoise))
FEWER_NOISE = mutant("fewer-noise-clients", "T+D clients add noise in place of T+D+1.", FewerNoiseClients())


# --------------------------------------------------------------------------------------------------------------- masks


class SameLane(KeyedClient):
    """Masks of all chunks are those of the first one."""

    def _mask(self, rows: Residues, seeds: Mapping[int, bytes], own_seed: bytes, chunk: int) -> None:
        super()._mask(rows, seeds, own_seed, 0)


class OneMask(KeyedClient):
    """One number masks all columns of a slot."""

    def _mask(self, rows: Residues, seeds: Mapping[int, bytes], own_seed: bytes, chunk: int) -> None:
        ring = self.numbers.ring
        one = ring.zeros(rows.shape[1], 1)
        super()._mask(one, seeds, own_seed, chunk)
        ring.add_into(rows, np.repeat(one, rows.shape[2], axis=2))


class MissingEdge(Masking):
    """Clients 0 and 1 share no masks."""

    def seeds(self, at: Agreement, L: bytes, pairs: Mapping[int, bytes]) -> tuple[dict[int, bytes], bytes]:
        """The keys of the masks."""
        whole, own = super().seeds(at, L, pairs)
        return {v: seed for v, seed in whole.items() if {v, self.number} != {0, 1}}, own


class OneForBatch(Masking):
    """All rounds of a batch have the same mask keys."""

    def enter(self, at: Agreement) -> None:
        """Take the first ones for all rounds."""
        super().enter(at)
        if at.phase == self.form.prepare_phase and self.batch is not None:
            many = len(self.batch.keys)
            self.batch = replace(self.batch, keys=self.batch.keys[:1] * many, seeds=self.batch.seeds[:1] * many)


class NoSelfMasks(Masking):
    """With drop-outs, too, uploads have only the masks of pairs."""

    def seeds(self, at: Agreement, L: bytes, pairs: Mapping[int, bytes]) -> tuple[dict[int, bytes], bytes]:
        """The keys of the masks."""
        return super().seeds(at, L, pairs)[0], b""


class OpeningPairs(Opening):
    """Recovers only the masks of pairs."""

    def recover(self, at: Agreement, L: bytes, got: Got) -> list[tuple[bytes, int]]:
        """The streams that are over the sum."""
        over, pairs, degree = iter(super().recover(at, L, got)), [], self.form.degree(self.params)
        for v in at.participants:
            if v in at.members:
                next(over)  # its own mask, which is not there
            else:
                near = set(masks.neighbours(at.participants, degree, v)) & set(at.members)
                pairs += [next(over) for _ in near]
        return pairs


class PairsServer(Summing):
    """Opens the masks of pairs."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.opening = OpeningPairs(*args)


class Pairs(Overheard):
    """Without self masks."""

    def server(self, params: Any, session: bytes) -> Any:
        """The server's part."""
        return PairsServer(self, params, session)


class NeighbourLess(Overheard):
    """With drop-outs, each client shares masks with T+D others."""

    def degree(self, params: Params) -> int:
        """The degree of the graph of masks."""
        return params.T + max(1, params.dropouts)


SAME_LANE = mutant("masks-of-any-chunk", "The masks of all chunks are the same.", Overheard(of_client=SameLane))
ONE_MASK = mutant("one-mask-for-columns", "One number masks all columns of a slot.", Overheard(of_client=OneMask))
MISSING_EDGE = mutant("missing-edge", "Clients 0 and 1 share no masks.", Overheard(of_client=masked(MissingEdge)))
ONE_FOR_BATCH = mutant(
    "one-key-for-a-batch", "Mask keys are the same in all rounds of a batch.", Overheard(of_client=masked(OneForBatch))
)
NO_SELF_MASKS = mutant("no-self-masks", "Uploads have only the masks of pairs.", Pairs(of_client=masked(NoSelfMasks)))
NEIGHBOUR_LESS = mutant(
    "one-neighbour-less", "With drop-outs, each client shares masks with T+D others in place of T+D+1.", NeighbourLess()
)


class NoPairs(Masking):
    """No masks in the field."""

    def seeds(self, at: Agreement, L: bytes, pairs: Mapping[int, bytes]) -> tuple[dict[int, bytes], bytes]:
        """None."""
        return {}, b""


class Wrapping(masked(NoPairs)):  # type: ignore[misc]
    """Masks its uploads modulo a power of two."""

    def _upload(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        assert self.union is not None
        ring = self.numbers.ring
        seeds, _ = Masking.seeds(self.masking, at, self.union.L, self.union.pairs)
        for chunk, (rows, *rest) in enumerate(super()._upload(at)):
            words = np.frombuffer(rows, ring.dtype).reshape(ring.size, -1).copy()
            for v, seed in seeds.items():
                stream = KeyStream(expand(seed, "words", b"%d" % chunk)).bytes(words.shape[1] * words.itemsize)
                mask = np.frombuffer(stream, ring.dtype)
                words += mask if self.number < v else np.negative(mask)
            yield words.tobytes(), *rest


class WrappingServer(Summing):
    """Adds uploads modulo a power of two, and takes the sum modulo the primes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.change = self._reduce

    def _reduce(self, total: Residues) -> None:
        primes = np.array(self.numbers.ring.primes, total.dtype)
        np.remainder(total, primes[:, None, None], out=total)

    def _add(self, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        ring, columns = self.numbers.ring, self.form.width(self.params)
        span = self.form.layout(Kind.UPLOAD, self.params, at, sender).span(chunk)
        shape = span.stop - span.start, columns
        body = math.prod(shape) * ring.element_bytes
        super()._add(sender, chunk, memoryview(bytes(body) + bytes(payload[body:])), at)
        self._chunks[chunk].total += ring.view(payload[:body], *shape)


class Words(Overheard):
    """Sums of integers."""

    def server(self, params: Any, session: bytes) -> Any:
        """The server's part."""
        return WrappingServer(self, params, session)


WRAPPING = mutant("masks-of-words", "Masks are added modulo 2^32, not modulo the primes.", Words(of_client=Wrapping))


# ---------------------------------------------------------------------------------------------- other messages' masks


class FewerTableMasks(KeyedClient):
    """Its lookup tables have masks with T others."""

    def _table(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        whole = self.union
        assert whole is not None
        near = masks.neighbours(at.members, self.params.T, self.number)
        self.union = replace(whole, pairs={v: whole.pairs[v] for v in near})
        yield from list(super()._table(at))
        self.union = whole


class BareReady(KeyedClient):
    """Says openly whether its entities changed."""

    def _say(self, at: Agreement) -> None:
        whole = self.union
        assert whole is not None
        self.union = replace(whole, pairs={})
        super()._say(at)
        self.union = replace(self.union, pairs=whole.pairs)


FEWER_TABLE_MASKS = mutant(
    "fewer-table-masks", "Lookup tables have masks with T others.", Overheard(of_client=FewerTableMasks)
)
BARE_READY = mutant("bare-ready", "Clients say openly whether their entities changed.", Overheard(of_client=BareReady))
