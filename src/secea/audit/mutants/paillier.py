"""The form "paillier" with one protection taken away: a part, or what a part is made of, is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from secea.arithmetic.field import RING61, Residues, Ring
from secea.arithmetic.lagrange import Code
from secea.arithmetic.paillier import Packing, PublicKey
from secea.audit import PAILLIER, Mutant, Subject
from secea.forms.paillier import Paillier
from secea.forms.paillier.buckets import EMPTY
from secea.forms.paillier.client import PaillierClient
from secea.forms.paillier.form import Kind
from secea.forms.paillier.numbers import Numbers
from secea.forms.paillier.retrieval import Encrypter, Scrambler
from secea.forms.paillier.server import PaillierServer
from secea.forms.paillier.sharing import EVERYONE, Dealer
from secea.params import Params
from secea.party.phases import Agreement
from secea.steps import union
from secea.wire.messages import ALL, Buffer
from secea.wire.randomness import SEED_BYTES, KeyStream

PUBLIC = bytes(SEED_BYTES)
Change: TypeAlias = Callable[[Callable[..., Residues], Ring, tuple[int, ...]], Residues]


@dataclass(frozen=True)
class Weakened(Paillier):
    """The paper's form with other parts, or other numbers."""

    of_client: type[PaillierClient] = PaillierClient
    of_server: type[PaillierServer] = PaillierServer
    of_numbers: type[Numbers] = Numbers

    def numbers(self, params: Params) -> Numbers:
        """Made again each time: nobody else uses them."""
        return self.of_numbers(params, self.queries)

    def client(self, *args: Any, **more: Any) -> PaillierClient:
        """The part of client n."""
        params, _, _, number, _, names, entropy = args
        return self.of_client(self, params, number, names, entropy)

    def server(self, params: Params, session: bytes) -> PaillierServer:
        """The server's part."""
        return self.of_server(self, params)


def mutant(name: str, missing: str, form: Paillier, *first: str) -> Mutant:
    """A mutant of only this form. `first`: what a server that deviates tries on it before anything else."""
    return Mutant(name, missing, {PAILLIER: Subject(form, first=first)})


# ---------------------------------------------------------------------------------------------------- streams, altered


def drawn(draw: Callable[..., Residues], ring: Ring, shape: tuple[int, ...]) -> Residues:
    """As it is."""
    return draw(ring, *shape)


def nothing(draw: Callable[..., Residues], ring: Ring, shape: tuple[int, ...]) -> Residues:
    """Zeros, in place of random elements."""
    return ring.zeros(*shape)


def ones(draw: Callable[..., Residues], ring: Ring, shape: tuple[int, ...]) -> Residues:
    """Ones, in place of random elements."""
    return ring.constant(np.ones(shape, int))


def halved(draw: Callable[..., Residues], ring: Ring, shape: tuple[int, ...]) -> Residues:
    """Elements of the lower half of the field."""
    return draw(ring, *shape) >> 1


def repeated(axis: int) -> Change:
    """The same along an axis."""

    def change(draw: Callable[..., Residues], ring: Ring, shape: tuple[int, ...]) -> Residues:
        one = list(shape)
        one[axis] = min(1, one[axis])
        return np.ascontiguousarray(np.broadcast_to(draw(ring, *one), (ring.size, *shape)))

    return change


class Altered(KeyStream):
    """A key stream of which some draws are changed."""

    def __init__(self, key: bytes, lane: int = 0, elements: Change = drawn, nonzero: Change = drawn) -> None:
        super().__init__(key, lane)
        self._plain, self._changes = KeyStream(key, lane), (elements, nonzero)

    def lane(self, number: int) -> Altered:
        """Altered too."""
        return Altered(self._key, number, *self._changes)

    def elements(self, ring: Ring, *shape: int) -> Residues:
        """Changed elements."""
        return self._changes[0](self._plain.elements, ring, shape)

    def nonzero(self, ring: Ring, *shape: int) -> Residues:
        """Changed elements that are not 0."""
        return self._changes[1](self._plain.nonzero, ring, shape)


# ------------------------------------------------------------------------------------------------------------- sharing


class OneNoiseLess(PaillierClient):
    """One of the T seeds is known to all."""

    def _dealer(self, kind: IntEnum, at: Agreement, receivers: Sequence[int]) -> tuple[Dealer, dict[int, bytes]]:
        _, seeds = super()._dealer(kind, at, receivers)
        seeds[min(seeds)] = PUBLIC
        return Dealer(self.numbers.code, receivers, seeds), seeds


class OneSeed(PaillierClient):
    """All who get seeds get the same."""

    def _dealer(self, kind: IntEnum, at: Agreement, receivers: Sequence[int]) -> tuple[Dealer, dict[int, bytes]]:
        _, seeds = super()._dealer(kind, at, receivers)
        same = dict.fromkeys(seeds, next(iter(seeds.values())))
        return Dealer(self.numbers.code, receivers, same), same


class Bare(Dealer):
    """Deals without noise."""

    def deal(self, chunk: int, data: Residues, to: slice = EVERYONE) -> Residues:
        """Only the data."""
        noise = [self.code.ring.zeros(*data.shape[2:])] * self.code.T
        return self.code.encode(data, noise, self.receivers[to], self.seeded, apart=True)


class Biased(Dealer):
    """Deals with noise of the lower half of the field."""

    def __init__(self, code: Code, receivers: Sequence[int], seeds: dict[int, bytes]) -> None:
        super().__init__(code, receivers, seeds)
        self._streams = [Altered(seed, elements=halved) for seed in seeds.values()]


def dealing(dealer: type[Dealer]) -> Paillier:
    """A form whose clients deal with this one."""

    class Client(PaillierClient):
        def _dealer(self, kind: IntEnum, at: Agreement, receivers: Sequence[int]) -> tuple[Dealer, dict[int, bytes]]:
            _, seeds = super()._dealer(kind, at, receivers)
            return dealer(self.numbers.code, receivers, seeds), seeds

    return Weakened(of_client=Client)


class AtBeta(Code):
    """The last client's point is that of the first block."""

    def at(self, clients: Sequence[int]) -> tuple[int, ...]:
        """The points of these clients."""
        points = zip(clients, super().at(clients), strict=True)
        return tuple(self.beta[0] if v == self.N - 1 else at for v, at in points)


class NumbersAtBeta(Numbers):
    """With that code."""

    @cached_property
    def code(self) -> Code:
        """The code."""
        return AtBeta(self.params, self.ring)


class FormAtBeta(Weakened):
    """With these numbers; a share at a point that carries data cannot be a seed."""

    def seeded(self, kind: IntEnum, params: Params, at: Agreement, sender: int) -> tuple[int, ...]:
        """Never the last client."""
        return tuple([v for v in range(params.N - 1) if v != sender][: params.T])


ONE_NOISE_LESS = mutant(
    "one-noise-less", "Polynomials carry T-1 secret random values in place of T.", Weakened(of_client=OneNoiseLess)
)
ONE_SEED = mutant(
    "one-seed-for-all", "The T clients that get shares as seeds get the same seed.", Weakened(of_client=OneSeed)
)
AT_BETA = mutant(
    "alpha-equals-beta", "A client's point is one that carries data.", FormAtBeta(of_numbers=NumbersAtBeta)
)
NO_NOISE = mutant("shares-without-noise", "Shares carry no noise.", dealing(Bare))
BIASED = mutant("biased-sampling", "The noise of shares comes from the lower half of the field.", dealing(Biased))


# ----------------------------------------------------------------------------------------------------------- retrieval


def scrambling(elements: Change = drawn, nonzero: Change = drawn) -> Paillier:
    """A form whose server draws r and psi otherwise."""

    class Server(PaillierServer):
        def _scrambler(self, seed: bytes, n: int) -> Scrambler:
            made = super()._scrambler(seed, n)
            made._stream = Altered(made._stream._key, elements=elements, nonzero=nonzero)
            return made

    return Weakened(of_server=Server)


class NotLifted(Packing):
    """r*A + psi as it is."""

    def noise(self, psi: Any, entropy: Any = None) -> Any:
        """No multiple of p."""
        return self.pack(psi)


class NumbersNotLifted(Numbers):
    """With that packing."""

    @cached_property
    def packing(self) -> Packing:
        """The packing."""
        whole = super().packing
        return NotLifted(whole.bits, whole.p, whole.sigma)


class ShortKey(PublicKey):
    """A key with only short exponents."""

    full_blinds = PublicKey.short_blinds


class ShortServer(PaillierServer):
    """Re-randomises with short exponents."""

    def _scrambler(self, seed: bytes, n: int) -> Scrambler:
        made = super()._scrambler(seed, n)
        made._key = ShortKey(made._key.n)
        return made


class OneBlind(PaillierClient):
    """Encrypts all answers with the same randomness."""

    def _encrypter(self, seed: bytes, n: int) -> Encrypter:
        return super()._encrypter(PUBLIC, n)


class Trusting(PaillierClient):
    """Takes answers for whichever contributors they were made."""

    def _check_proofs(self, answering: Sequence[int], proofs: memoryview, at: Agreement) -> None:
        return


class Enough(Params):
    """As many answers as can be decoded are a quorum."""

    quorum = Params.need


class Hasty(PaillierClient):
    """Takes means of any answers that can be decoded."""

    def _got_means(self, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        agreed, self.params = self.params, object.__new__(Enough)
        vars(self.params).update(vars(agreed))
        try:
            super()._got_means(chunk, chunks, payload, at)
        finally:
            self.params = agreed


NO_PSI = mutant("no-psi", "The server adds no noise polynomial to encrypted answers.", scrambling(nothing))
REUSED_PSI = mutant("reused-psi", "All queries have the same noise polynomial.", scrambling(repeated(-2)))
REUSED_R = mutant("reused-r", "All queries have the same r.", scrambling(nonzero=repeated(-1)))
NOT_LIFTED = mutant(
    "no-p-times-r",
    "Encrypted answers are masked as elements of the field, and not as integers.",
    Weakened(of_numbers=NumbersNotLifted),
)
SHORT = mutant(
    "short-exponents-at-the-server",
    "The server re-randomises with exponents of half the modulus' length.",
    Weakened(of_server=ShortServer),
)
ONE_BLIND = mutant(
    "one-blind-for-all-rounds",
    "A client encrypts the answers of all rounds with the same randomness.",
    Weakened(of_client=OneBlind),
)
TWO_SETS = mutant(
    "contributors-not-proven",
    "A client does not check that all who answered worked for the set that it was told.",
    Weakened(of_client=Trusting),
    "two sets of contributors",
)


# -------------------------------------------------------------------------------------------------- union, other sizes


def filling(weights: Change = drawn, mask: Callable[[KeyStream], KeyStream | None] = lambda stream: stream) -> Paillier:
    """A form whose clients draw the weights of their tables otherwise, or mask them otherwise."""

    class Client(PaillierClient):
        def _table(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
            source = Altered(self._seed, elements=weights)
            table = union.fill(self._tags_of_own(at), self.form.geometry(self.params, at), source)
            streams = ((v, mask(self.link.channels[v].stream("mask", at.context))) for v in self._others(at.members))
            union.mask(table, self.number, ((v, stream) for v, stream in streams if stream is not None))
            layout = self.form.whole(Kind.TABLE, self.params, at)
            for chunk in range(layout.chunks):
                yield (RING61.to_bytes(table[:, layout.span(chunk)]),)

    return Weakened(of_client=Client)


class Telling(PaillierServer):
    """Tells clients the weights behind the tags, too."""

    def ready(self, kind: IntEnum, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """Tags, and as many elements of the total."""
        total = self._total
        for receiver, parts in super().ready(kind, at):
            if kind is not Kind.TAGS or total is None:
                yield receiver, parts
                continue
            cells = self.form.geometry(self.params, replace(at, context=self._before)).positions(self.tags)[:, 0]
            yield ALL, (*parts, RING61.to_bytes(np.ascontiguousarray(total[:, cells, 0])))

    _before = b""

    def finish(self, at: Agreement, got: Any) -> Agreement:
        """Keep the context of the tables."""
        self._before = at.context if at.phase == "table" else self._before
        return super().finish(at, got)


class Asking(PaillierClient):
    """Sends no dummies: only queries for the entities that it has."""

    def payloads(
        self, kind: IntEnum, receivers: Sequence[int], at: Agreement
    ) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """Queries cut to those."""
        assert self.epoch is not None
        for receiver, parts in super().payloads(kind, receivers, at):
            cut = sum(map(len, parts))
            if kind is Kind.QUERY and cut != SEED_BYTES:
                assert self.epoch.shape is not None
                cut = RING61.element_bytes * int(np.diff(self.epoch.shape.starts)[self.epoch.placement != EMPTY].sum())
            yield receiver, (b"".join(parts)[:cut],)


WEIGHT_ONE = mutant("union-weight-one", "The weights of the union's tables are 1.", filling(ones))
ONE_MASK = mutant(
    "one-mask-for-all-pairs", "All pairs mask their tables alike.", filling(mask=lambda _: KeyStream(PUBLIC))
)
NO_MASKS = mutant("tables-without-masks", "Tables of the union are not masked.", filling(mask=lambda _: None))
TOTAL_SHOWN = mutant(
    "union-total-shown", "The server shows clients the total of the union's tables.", Weakened(of_server=Telling)
)
NO_DUMMIES = mutant(
    "queries-for-entities-alone",
    "A client sends no dummies: only queries for entities that it has.",
    Weakened(of_client=Asking),
)
ANSWERS_OF_FEWER = mutant(
    "answers-of-fewer", "A client takes means of any answers that can be decoded.", Weakened(of_client=Hasty)
)
