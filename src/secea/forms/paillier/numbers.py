"""The numbers that follow from the parameters: field, code, packing, queries, and the sizes of rows (section 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from secea.arithmetic import fixedpoint
from secea.arithmetic.field import M61, RING61, Ring
from secea.arithmetic.lagrange import Code
from secea.arithmetic.paillier import Packing
from secea.errors import ParamsError
from secea.forms.paillier.buckets import bucket_count
from secea.forms.paillier.sharing import block_length
from secea.params import Params


@dataclass(frozen=True)
class Numbers:
    """For one set of parameters, whose bounds are known, and one kind of queries."""

    params: Params
    queries: str
    ring: Ring = RING61

    def __post_init__(self) -> None:
        params = self.params
        if not fixedpoint.reconstruction_is_unique(params):
            raise ParamsError(
                f"precision {params.precision} is too fine for {params.clients} clients with Paillier:"
                " 2 * N^2 * max_abs * 2^f must stay below 2^61; lower precision"
            )
        try:
            _ = self.packing
        except ValueError as error:
            raise ParamsError(f"key_bits={params.key_bits} cannot hold a masked element: {error}") from None

    @cached_property
    def count(self) -> int:
        """B: the queries that each client sends, whatever it owns."""
        assert self.params.max_entities is not None
        return bucket_count(self.params.max_entities) if self.queries == "buckets" else self.params.max_entities

    def positions(self, M: int) -> int:
        """The length of all queries of one client together."""
        return 3 * M if self.queries == "buckets" else self.count * M

    @cached_property
    def block_length(self) -> int:
        """L: elements of a share per row, the indicator among them."""
        return block_length(self.params, self.params.dim + 1)

    @cached_property
    def sigma_prime(self) -> int:
        """Statistical security of each masked element, in bits, so that the whole session has sigma."""
        params = self.params
        return params.sigma + math.ceil(math.log2(params.T * self.count * params.N * self.block_length * params.rounds))

    @cached_property
    def packing(self) -> Packing:
        """How masked elements are packed into a plaintext."""
        return Packing(self.params.key_bits, M61, self.sigma_prime)

    @cached_property
    def code(self) -> Code:
        """The polynomial code."""
        return Code(self.params, self.ring)

    @cached_property
    def plaintexts(self) -> int:
        """The plaintexts of one row of an answer."""
        return self.packing.plaintexts(self.block_length)

    @property
    def answer_row_bytes(self) -> int:
        """The ciphertexts of one row of an answer."""
        return self.plaintexts * (self.params.key_bits // 4)


@lru_cache(maxsize=64)
def numbers_of(params: Params, queries: str) -> Numbers:
    """These numbers, made once."""
    return Numbers(params, queries)
