"""How the clients' tables become the tables that they continue with: unchanged, as plain means, or as secure ones."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from secea.engines.federation import Federation, Progress
from secea.errors import ParamsError, TableError
from secea.forms import DEFAULT, form_of
from secea.learn.record import recorded
from secea.params import Params
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

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """One table for each client, rows in the order of its ids, in and out."""
        ...


class Mean:
    """The mean over owners, of all entities or of those that all clients own: what a trusted server would compute."""

    def __init__(self, ids: Sequence[NDArray[np.int64]], *, common: bool) -> None:
        self._ids, self._union = ids, int(max((own[-1] for own in ids if len(own)), default=-1)) + 1
        self._owners = np.bincount(np.concatenate(ids), minlength=self._union)
        self._shared = self._owners == len(ids) if common else self._owners > 0

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """Rows that are not shared stay as they are."""
        total = np.zeros((self._union, tables[0].shape[1]))
        for own, table in zip(self._ids, tables, strict=True):
            total[own] += table
        means = total / np.maximum(self._owners, 1)[:, None]
        return [
            np.where(self._shared[own][:, None], means[own], table)
            for own, table in zip(self._ids, tables, strict=True)
        ]


class Secure:
    """The same means by the protocol, with all parties in this process; what each round took is in `record`."""

    def __init__(
        self, names: Sequence[Sequence[Name]], dim: int, *, collusion: int | None = None, rounds: int,
        max_abs: float = MAX_ABS, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self._names = names
        params = params_of(names, dim, collusion=collusion, rounds=rounds, max_abs=max_abs)
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

    def aggregate(self, tables: Sequence[Matrix]) -> list[Matrix]:
        """One round of the protocol."""
        for n, table in enumerate(tables):
            _check_range(n, table, self.params.max_abs)
        with recorded(self._federation) as self.record:
            means = self._federation.round(
                [Table.trusted(tuple(own), table) for own, table in zip(self._names, tables, strict=True)]
            )
        return [mean.matrix for mean in means]


def params_of(
    names: Sequence[Sequence[Name]], dim: int, *, collusion: int | None, rounds: int, max_abs: float
) -> Params:
    """The highest precision that takes no more primes than the least that training needs."""
    form = form_of(DEFAULT)
    union = {name for own in names for name in own}
    given = Params(clients=len(names), dim=dim, collusion=collusion, rounds=rounds, max_abs=max_abs)
    given = given.with_bounds(max_entities=max(map(len, names), default=0), max_union=len(union))

    def primes(precision: int) -> int:
        return form.facts(form.checked(replace(given, precision=precision)))["primes"]

    precision, fewest = LEAST_PRECISION, primes(LEAST_PRECISION)
    with suppress(ParamsError):  # if nothing holds this many bits
        while precision < MOST_PRECISION and primes(precision + 1) == fewest:
            precision += 1
    return replace(given, precision=precision)


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


def check(methods: Sequence[str], clients: int, collusion: int | None, max_abs: float = MAX_ABS) -> list[str]:
    """Refuse early what the protocol would refuse. Returns what it warns of."""
    if "secea" not in methods:
        return []
    try:
        return _federation(Params(clients=clients, dim=1, collusion=collusion, max_abs=max_abs))[1]
    except ParamsError as error:
        others = ",".join(name for name in methods if name != "secea") or "plain"
        raise ParamsError(f"{error}; or leave the method secea out: --methods {others}") from None
