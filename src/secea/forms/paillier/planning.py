"""What a plan of the paper's form says: whom to trust, memory, multiplications, and how long to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from secea.arithmetic.field import RING61
from secea.params import Params
from secea.party.phases import Agreement
from secea.steps.union import COLUMNS, Geometry
from secea.wire.messages import CHUNK_BYTES

if TYPE_CHECKING:
    from secea.forms.paillier.form import Paillier

SLOW_POWER: Final = 0.05
"""Seconds that a slow core needs for one power modulo n^2 with 3,072-bit keys."""


def trust(params: Params) -> tuple[str, ...]:
    """Who may conspire with whom."""
    T, N = params.T, params.N
    together = f"any {T} of {N} clients together" if T > 1 else f"any one of {N} clients"
    return (
        f"The server, or {together}, may be curious; the server must not conspire with a client.",
        "A server that deviates from the protocol is not covered.",
        "Whoever gets an exact mean can tell how many clients own the entity.",
    )


def patience(form: Paillier, params: Params, at: Agreement) -> float:
    """Seconds that a slow client may encrypt its answers, or decrypt its means."""
    if at.phase != "answer":
        return 0.0
    n = form.numbers(params)
    return len(at.members) * n.count * n.plaintexts * SLOW_POWER * (params.key_bits / 3072) ** 3


def memory(form: Paillier, params: Params, entities: int) -> dict[str, int]:
    """A client keeps everyone's queries, and holds sums and a few chunks; the server relays all shares at once."""
    n, N, own, M = form.numbers(params), params.N, params.max_entities or entities, entities
    element = RING61.element_bytes
    queries = N * n.positions(M) * element
    rows = M * n.block_length * element
    table = Geometry.of(M, 0, b"").cells * COLUMNS * element
    chunk = min(CHUNK_BYTES, rows)
    client = queries + rows + own * params.dim * 16 + N * chunk
    server = max(N * (N - 1 - params.T) * max(rows, n.positions(M) * element), N * N * n.count * n.answer_row_bytes)
    return {
        "kept": queries + M * element,
        "client": max(client, 2 * table),
        "server": max(server, 2 * table),
        "together": N * client + max(server, 2 * table),
    }


def products(form: Paillier, params: Params, entities: int) -> tuple[int, int]:
    """Field multiplications; those of Paillier's group are counted by `answer` and `mean` bytes."""
    n, N, T, K, need = form.numbers(params), params.N, params.T, params.K, params.need
    J, L, positions = n.count, n.block_length, n.positions(entities)
    setup = N * (N - T) * (1 + T) * positions  # shares of data that is the same at every beta
    each = N * (N - T) * (K + T) * entities * L + N * N * positions * L  # sharing, answering
    return setup, each + N * J * L * (K * need + (N - need) * N)  # interpolation and syndromes
