"""The form "keyed" with one protection taken away: a part, or what a part is made of, is replaced."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import grid, streams
from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.streams import Noise
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.masking import Masking
from secea.forms.keyed.names import Naming
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.shared import RoundSecrets
from secea.forms.keyed.tables import Places, Tables
from secea.forms.keyed.values import Values
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import oprf
from secea.steps.means import Secrets, right
from secea.table import Table, name_bytes
from secea.wire.keys import Identity
from secea.wire.messages import Buffer

MOST_BITS: Final = 1100
"""More significant bits than a float has: no grid of its own."""


def mutant(name: str, missing: str, form: Overheard, *first: str) -> Mutant:
    """A mutant of only this form. `first`: what a server that deviates tries on it before anything else."""
    return Mutant(name, missing, {KEYED: Subject(form, first=first)})


def masked(masking: type[Masking]) -> type[KeyedClient]:
    """A client whose masks, votes and shares are made like this."""

    class Client(KeyedClient):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            form, params, session, roster, number, identity, _, entropy = args
            self.masking = masking(form, params, session, roster, number, identity, entropy)

    return Client


def named(naming: type[Naming]) -> type[KeyedClient]:
    """A client that asks for names like this, and answers for them."""

    class Client(KeyedClient):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            form, params, session, _, number, _, names, entropy = args
            self.naming = naming(form, params, session, number, names, entropy)

    return Client


# --------------------------------------------------------------------------------------------------------------- masks


class FewerMasks(Overheard):
    """Each client shares masks with T others."""

    def degree(self, params: Params) -> int:
        """The degree of the graph of masks."""
        return params.T


class NoMasks(Overheard):
    """Uploads have no masks."""

    def degree(self, params: Params) -> int:
        """The degree of the graph of masks."""
        return 0


class BareTables(KeyedClient):
    """Its lookup tables have no masks."""

    def _table(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        whole = self.union
        assert whole is not None
        self.union = replace(whole, pairs={})
        yield from list(super()._table(at))
        self.union = whole


class SameMasks(Masking):
    """Masks of all rounds are those of round 0."""

    def seeds(self, at: Agreement, L: bytes, pairs: Mapping[int, bytes]) -> tuple[dict[int, bytes], bytes]:
        """The keys of the masks."""
        return super().seeds(replace(at, round=0), L, pairs)


FEWER_MASKS = mutant("fewer-masks", "Each client shares masks with T others in place of T+1.", FewerMasks())
NO_MASKS = mutant("uploads-without-masks", "Uploads are not masked.", NoMasks())
BARE_TABLES = mutant("bare-tables", "Lookup tables of the union are not masked.", Overheard(of_client=BareTables))
SAME_MASKS = mutant(
    "masks-of-any-round", "The masks of all rounds are the same.", Overheard(of_client=masked(SameMasks))
)


# ------------------------------------------------------------------------------------------------------ names and rows


class KnownKeys(KeyedClient):
    """The key of a row is one that every client can make."""

    def _kappa(self, value: bytes) -> bytes:
        return b""


class KeylessNames(KeyedClient):
    """The PRF of names has no key."""

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """Hash only the names."""
        after = super().finish(at, got)
        if at.phase == "evaluate":
            inputs = [oprf.input_of(name_bytes(name)) for name in self.names]
            values = oprf.finalize(inputs, oprf.hash_to_group(inputs))
            self.naming.names = replace(self.naming.names, prf=Values.made(self.names, values))
        return after


KNOWN_KEYS = mutant(
    "row-keys-of-clients", "Every client can make the keys of all rows.", Overheard(of_client=KnownKeys)
)
KEYLESS = mutant("names-without-key", "The PRF of names has no key.", Overheard(of_client=KeylessNames))


# -------------------------------------------------------------------------------------------------------------- checks


@dataclass(frozen=True)
class NoJ(RoundSecrets):
    """Check columns are not blinded."""

    def of(self, chunk: int, rows: int, noise_clients: Sequence[int]) -> Secrets:
        """Without J."""
        whole = super().of(chunk, rows, noise_clients)
        return replace(whole, J=tuple(np.zeros_like(J) for J in whole.J))


@dataclass(frozen=True)
class NoH(RoundSecrets):
    """Noise columns have no pads."""

    def pads(self, client: int, chunk: int, rows: int) -> tuple[Residues, ...]:
        """None."""
        return tuple(np.zeros_like(pad) for pad in super().pads(client, chunk, rows))

    def of(self, chunk: int, rows: int, noise_clients: Sequence[int]) -> Secrets:
        """Without H."""
        return super().of(chunk, rows, ())


def checking(secrets: type[RoundSecrets]) -> Overheard:
    """A form whose clients share these secrets."""

    class Client(KeyedClient):
        def secrets(self, at: Agreement) -> RoundSecrets:
            """The others."""
            whole = super().secrets(at)
            return secrets(**{each.name: getattr(whole, each.name) for each in fields(whole) if each.init})

    return Overheard(of_client=Client)


def _of_prime(b: int, ring: Ring, means: Residues, slots: NDArray[np.uint8], shared: Secrets, members: int) -> Any:
    """Whether slots are right modulo this prime."""
    cut = {f.name: getattr(shared, f.name) for f in fields(shared)}
    one: dict[str, Any] = {
        name: tuple(x[b : b + 1] for x in value) if isinstance(value, tuple) else value[b : b + 1]
        for name, value in cut.items()
        if value is not None
    }
    rows = np.ascontiguousarray(means[b : b + 1])
    return right(Ring((ring.primes[b],)), rows, slots, Secrets(**one), members)


def _any_prime(ring: Ring, *rest: Any) -> Any:
    """Whether slots are right modulo one prime at least."""
    return np.any([_of_prime(b, ring, *rest) for b in range(ring.size)], axis=0)


def _first_prime(ring: Ring, *rest: Any) -> Any:
    """Whether slots are right modulo the first prime."""
    return _of_prime(0, ring, *rest)


NO_J = mutant("no-j", "The check columns of uploads are not blinded by J.", checking(NoJ), "wrong means 1")
ANY_PRIME = Mutant(
    "check-of-any-prime", "Means are checked modulo one prime of several.",
    {KEYED: Subject(Overheard(), instead={right: _any_prime})},
)  # fmt: skip
FIRST_PRIME = Mutant(
    "check-of-the-first-prime", "Means are checked modulo the first prime of several.",
    {KEYED: Subject(Overheard(), instead={right: _first_prime})},
)  # fmt: skip
NO_H = mutant("no-h", "The check columns of noise have no pads.", checking(NoH))


# ----------------------------------------------------------------------------------------------------- fill and noise


class Unfilled(Tables):
    """No fill."""

    def encoded_rows(self, table: Table, rows: Places, entities: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Only fixed point."""
        return np.asarray(np.rint(np.ldexp(table.matrix[rows].astype(np.float64), self._numbers.f)), np.int64)


class OtherGrid(Tables):
    """All rows have one grid, whatever they are."""

    def gridded(
        self, table: Table, rows: Places, entities: NDArray[np.uint64], used: int, step: float
    ) -> NDArray[np.int64]:
        """Rows with this grid."""
        n, exact = self._numbers, np.ascontiguousarray(table.matrix[rows], np.float64)
        grids = np.full(len(rows), used, np.int32), np.full(len(rows), step)
        return streams.encode(exact, entities, self.fill[:-1], n.f, n.s, n.w, *grids, n.cap)

    def encoded_rows(self, table: Table, rows: Places, entities: NDArray[np.uint64]) -> NDArray[np.int64]:
        """That of the table, so that one fine number narrows the fill of all."""
        assert self.grid is not None
        return self.gridded(table, rows, entities, *self.grid)


class NextPower(OtherGrid):
    """A step that is no power of two has a fill as wide as the next one, which does not cover it evenly."""

    def encoded_rows(self, table: Table, rows: Places, entities: NDArray[np.uint64]) -> NDArray[np.int64]:
        """With that grid."""
        assert self.grid is not None
        used, step = self.grid
        return self.gridded(table, rows, entities, used, 2.0 ** math.ceil(math.log2(step)) if step else 0.0)


class Scaled(OtherGrid):
    """In a table with a finer grid the fill of a row is half of what it was, and not another draw."""

    def encoded_rows(self, table: Table, rows: Places, entities: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Half of it, if the table is finer than these rows."""
        whole = Tables.encoded_rows(self, table, rows, entities)
        if grid.grid_of(table.matrix, table.dtype) == grid.grid_of(table.matrix[rows], table.dtype):
            return whole
        bare = self.gridded(table, rows, entities, MOST_BITS, 0.0)
        return np.asarray(bare + ((whole - bare) >> 1), np.int64)


class Anew(Tables):
    """The keys of the fill are drawn in each session."""

    def __init__(self, params: Params, numbers: Numbers, number: int, identity: Identity) -> None:
        super().__init__(params, numbers, number, Identity.generate(os.urandom))


def filling(tables: type[Tables]) -> Overheard:
    """A form whose clients fill their tables so."""

    class Client(KeyedClient):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            _, params, _, _, number, identity, _, _ = args
            self.tables = tables(params, self.numbers, number, identity)

    return Overheard(of_client=Client)


class NoWide(Numbers):
    """Noise without its wide number."""

    def noise_of(self, noisy: int) -> Noise:
        """The noise of one noise client."""
        return replace(super().noise_of(noisy), wide=1)


class NoNarrow(Numbers):
    """Noise with only the wide number, which counts C times."""

    def noise_of(self, noisy: int) -> Noise:
        """The noise of one noise client."""
        return Noise(1, (1,), super().noise_of(noisy).wide)


def noisy(numbers: type[Numbers]) -> Overheard:
    """A form with these numbers."""

    class Form(Overheard):
        def numbers(self, params: Params) -> Numbers:
            """The others."""
            return numbers(**vars(super().numbers(params)))

    return Form()


NO_FILL = mutant("no-fill", "What is below an input's grid is not filled.", filling(Unfilled))
TABLE_GRID = mutant(
    "fill-of-the-table", "All rows have the fill of the finest number in their table.", filling(OtherGrid)
)
NEXT_POWER = mutant(
    "fill-to-a-power", "A fill is as wide as the next power of two, and not as the step.", filling(NextPower)
)
SCALED_FILL = mutant("fill-scaled", "Another grid scales the fill instead of drawing a new one.", filling(Scaled))
FILL_ANEW = mutant("fill-drawn-anew", "A new fill is drawn in every session.", filling(Anew))
NO_WIDE = mutant("no-wide-noise", "The noise of a mean has no wide number.", noisy(NoWide))
NO_NARROW = mutant("no-narrow-noise", "The noise of a mean has no narrow numbers.", noisy(NoNarrow))
