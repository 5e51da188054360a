"""How the clients' tables become the tables that they continue with: unchanged, as plain means, or as secure ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from secea.engines.federation import Federation, Progress
from secea.errors import ParamsError, TableError
from secea.forms import DEFAULT, form_of
from secea.learn.record import recorded
from secea.params import WEIGHT_BITS, Params
from secea.table import Name, Table

Matrix = NDArray[np.float64]
METHODS: Final = ("local", "common", "secea", "plain", "central")
"""In the order in which they are run and shown."""
MAX_ABS: Final = 16.0
"""The range of embeddings where the user says nothing. Models here stay below 3; the narrower, the finer a mean."""
LEAST_PRECISION: Final = 20
"""Bits of a secure mean below the range: what training must have, whatever an element costs."""
MOST_PRECISION: Final = 36
"""More gains nothing: losses are computed in float32."""


class Method(Protocol):
    """What happens to the clients' tables after each round of training."""

    there: Sequence[NDArray[np.bool_]]
    """Which rows of each client got a mean in the last call. The others are as they were given."""

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """One table for each client, rows in the order of its ids, in and out."""
        ...


class Mean:
    """The mean over owners, of all entities or of those that all clients own: what a trusted server would compute.

    It is weighted where rows have weights, and there is none for entities with fewer owners than the minimum. `noise`
    gives what is added to the sums of all rows, given their shape.
    """

    def __init__(
        self, ids: Sequence[NDArray[np.int64]], *, common: bool, min_owners: int = 1,
        weights: Sequence[NDArray[np.int64]] | None = None, noise: Callable[[tuple[int, int]], Matrix] | None = None,
    ) -> None:  # fmt: skip
        self._ids, self._union = ids, int(max((own[-1] for own in ids if len(own)), default=-1)) + 1
        self._weights = [np.ones(len(own)) for own in ids] if weights is None else [own * 1.0 for own in weights]
        self._noise, self._total = noise, np.zeros(self._union)
        for own, weight in zip(ids, self._weights, strict=True):
            self._total[own] += weight
        owners = np.bincount(np.concatenate(ids), minlength=self._union)
        shared = (owners >= (len(ids) if common else min_owners)) & (self._total > 0)
        self.there: Sequence[NDArray[np.bool_]] = [shared[own] for own in ids]

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """Rows that are not shared stay as they are."""
        sums = np.zeros((self._union, tables[0].shape[1]))
        for own, weight, table in zip(self._ids, self._weights, tables, strict=True):
            sums[own] += weight[:, None] * table
        if self._noise is not None:
            sums += self._noise(sums.shape)
        means = sums / np.where(self._total > 0, self._total, 1.0)[:, None]
        return [
            np.where(there[:, None], means[own], table)
            for own, there, table in zip(self._ids, self.there, tables, strict=True)
        ]


class Secure:
    """The same means by the protocol, with all parties in this process; what each round took is in `record`."""

    def __init__(
        self, names: Sequence[Sequence[Name]], params: Params, *,
        weights: Sequence[NDArray[np.int64]] | None = None, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self._names = [tuple(own) for own in names]
        self._weights = [None] * len(names) if weights is None else weights
        self._places = [{name: i for i, name in enumerate(own)} for own in self._names]
        self.there: Sequence[NDArray[np.bool_]] = []
        self._federation, _ = _federation(params)
        self._federation.progress = progress
        with recorded(self._federation) as self.record:
            self._federation.setup(names)

    record: dict[str, Any]
    """Time and bytes of the last call: a line of protocol.jsonl, without its round."""

    @property
    def params(self) -> Params:
        """Of the federation: `resolution` says how far a secure mean is off, at most."""
        return self._federation.params

    @property
    def below_minimum(self) -> list[int]:
        """How many entities of each client had too few owners in the last round. Only the client knows which."""
        return [len(names) for names in self._federation.below_minimum]

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """One round of the protocol."""
        for n, table in enumerate(tables):
            _check_range(n, table, self.params.max_abs)
        with recorded(self._federation) as self.record:
            means = self._federation.round(
                [Table.trusted(*own) for own in zip(self._names, tables, self._weights, strict=True)]
            )
        self.there = [np.ones(len(own), np.bool_) for own in self._names]
        for there, places, without in zip(self.there, self._places, self._federation.without_mean, strict=True):
            there[[places[name] for name in without]] = False
        return [mean.matrix for mean in means]


def params_of(
    names: Sequence[Sequence[Name]], dim: int, *, collusion: int | None, rounds: int, max_abs: float, **options: Any
) -> Params:
    """The highest precision that takes no more primes than the least that training needs. `options` are the form's."""
    form = form_of(DEFAULT)
    union = {name for own in names for name in own}
    precision = _least_precision(len(names), **options)
    given = Params(
        clients=len(names), dim=dim, collusion=collusion, rounds=rounds, max_abs=max_abs, precision=precision, **options
    )
    given = given.with_bounds(max_entities=max(map(len, names), default=0), max_union=len(union))

    def primes(precision: int) -> int:
        return form.facts(form.checked(replace(given, precision=precision)))["primes"]

    fewest = primes(precision)
    with suppress(ParamsError):  # if nothing holds this many bits
        while precision < MOST_PRECISION and primes(precision + 1) == fewest:
            precision += 1
    return replace(given, precision=precision)


def _least_precision(clients: int, *, max_weight: int | None = None, **_: Any) -> int:
    """The bits that training needs, and those that weights need."""
    weighed = 0 if max_weight is None else math.ceil(math.log2(clients * (max_weight + 1))) + WEIGHT_BITS
    return max(LEAST_PRECISION, weighed)


def _federation(params: Params) -> tuple[Federation, list[str]]:
    """A federation, and what it warns of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        federation = Federation(params, DEFAULT)
    return federation, [str(each.message) for each in told]


def _check_range(client: int, table: Matrix, max_abs: float) -> None:
    largest = float(np.abs(table).max(initial=0.0))
    if not math.isfinite(largest):
        raise TableError(f"client {client}: training diverged, embeddings are no numbers any more; try a lower --lr")
    if largest > max_abs:
        room = 2.0 ** math.ceil(math.log2(4 * largest))
        raise TableError(
            f"client {client}: embeddings grew to {largest:.3g}, beyond the range of the secure means, {max_abs:g};"
            f" begin a new run with --max-abs {room:g}, or with a lower --lr"
        )


def check(
    methods: Sequence[str], clients: int, collusion: int | None, max_abs: float = MAX_ABS, **options: Any
) -> list[str]:
    """Refuse early what the protocol would refuse. Returns what it warns of."""
    precision = _least_precision(clients, **options)
    if "secea" not in methods:
        if clients > 1:
            Params(clients=clients, dim=1, precision=precision, **options)
        return []
    try:
        params = Params(clients=clients, dim=1, collusion=collusion, max_abs=max_abs, precision=precision, **options)
        return _federation(params)[1]
    except ParamsError as error:
        others = ",".join(name for name in methods if name != "secea") or "plain"
        raise ParamsError(f"{error}; or leave the method secea out: --methods {others}") from None
