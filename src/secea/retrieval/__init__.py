"""The two ways to retrieve a mean: with Paillier (the paper's) and by shared reciprocals (the default). One interface.

A `Retrieval` is public knowledge: the field, the sizes, and three small workers that go through an exchange chunk by
chunk: the `Answerer` of client v, the `Masker` of the server, the `Reader` of client n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.errors import ParamsError
from secea.params import MAX_CLIENTS, Params
from secea.wire.messages import Buffer

if TYPE_CHECKING:
    from secea.arithmetic.lagrange import Code
    from secea.wire.endpoint import Endpoint, Stage

Floats64 = NDArray[np.float64]


def check_paper(params: Params) -> Params:
    """These parameters with collusion chosen; refused where the paper's forms cannot work with them."""
    n, T = params.clients, 1 if params.collusion is None else params.collusion
    if n < 3:
        raise ParamsError(
            f"clients must be 3..{MAX_CLIENTS} (with two, each would learn the other's embedding by subtraction),"
            f' got {n}; two clients need form="keyed"'
        )
    minority = (n + 1) // 2 - 1
    if minority < T:
        raise ParamsError(f"collusion must be 1..{minority} for {n} clients (a minority), got {T}")
    most = n - 2 * T - 1
    if params.dropouts > most:
        hint = f"with collusion {T}, {n} clients leave room for {most} drop-outs"
        raise ParamsError(f"dropouts must be 0..{most}: {hint}, got {params.dropouts}")
    return params if params.collusion == T else replace(params, collusion=T)


class Answerer(Protocol):
    """Client v: hides its answers to client n's queries from everyone but the purpose they serve."""

    @property
    def stored_bytes(self) -> int:
        """The bytes of what was prepared."""
        ...

    def prepare(self, chunk: int, rows: int) -> None:
        """Offline: what a chunk needs that does not depend on the answers."""
        ...

    def begin(self, chunk: int, rows: int) -> Residues:
        """What a chunk of answers [P, rows, L] is added to."""
        ...

    def cover(self, chunk: int, answers: Residues) -> Buffer:
        """One chunk of answers, added to what it began with, as the server gets it."""
        ...


class Masker(Protocol):
    """The server: turns the answers of several clients into what client n gets."""

    @property
    def stored_bytes(self) -> int:
        """The bytes of what was prepared."""
        ...

    def prepare(self, chunk: int, rows: int, clients: Sequence[int]) -> None:
        """Offline: what a chunk needs that does not depend on the answers, if those clients give them."""
        ...

    def mask(self, chunk: int, answers: Mapping[int, Buffer], rows: int) -> Sequence[Buffer]:
        """One chunk, in parts, from the answers of at least `need` clients."""
        ...


class Reader(Protocol):
    """Client n: reads its means out of what the server sends."""

    def read(
        self, chunk: int, answering: Sequence[int], body: memoryview, rows: int
    ) -> tuple[Floats64, tuple[int, ...]]:
        """One chunk as rows of K*L numbers: the mean and the padding; NaN in rows that make no sense.

        And whose answers were wrong, and were left out (`secea.correction`).
        """
        ...


class Retrieval(Protocol):
    """What the two forms have in common."""

    name: str
    """As the user and the session's hash know it."""
    ring: Ring
    code: Code
    block_length: int
    """L: elements of a share per row."""
    weighted: bool
    """Whether queries are weighted by shared reciprocals (indicators, openings and re-sharing take place)."""
    paillier_bytes: int
    """The bytes of the Paillier key in a hello, or 0."""
    answer_row_bytes: int
    """The bytes of one answer."""
    sigma_prime: int
    """Statistical security of each masked element, in bits, so that the whole session has sigma."""
    tolerance: float
    """What must be zero may differ from it by this much."""

    def mean_row_bytes(self, answering: int) -> int:
        """The bytes of one result, from so many answers."""
        ...

    def rows(self, matrix: NDArray[np.floating[Any]], entity: NDArray[np.uint64], key: bytes) -> Residues:
        """Client n: its embeddings as rows [P, own, d or d + 1] to share; `entity` and `key` are for the fill."""
        ...

    def check_key(self, key: bytes) -> None:
        """Refuse, with a `ValueError`, the key in a client's hello."""
        ...

    def check_answer(self, wire: Endpoint, n: int, payload: Buffer) -> None:
        """The server: refuse, with a `ValueError`, what cannot be an answer to client n."""
        ...

    def answerer(self, wire: Endpoint, stage: Stage, n: int) -> Answerer:
        """Client v's worker for one client's queries."""
        ...

    def masker(self, wire: Endpoint, stage: Stage, n: int) -> Masker:
        """The server's worker for one client's results."""
        ...

    def reader(self, wire: Endpoint, stage: Stage, contributors: Sequence[int], secret: bytes) -> Reader:
        """Client n's worker; `stage` is that of its own answers, `secret` its Paillier key."""
        ...
