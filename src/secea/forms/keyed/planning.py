"""What a plan of the keyed form says: whom to trust, how numbers are encoded, memory and multiplications."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from secea.arithmetic.field import RING61
from secea.params import Params
from secea.party.form import HELD_BYTES
from secea.steps.union import COLUMNS, Geometry
from secea.wire.messages import CHUNK_BYTES

if TYPE_CHECKING:
    from secea.forms.keyed.form import Keyed


NAME_BYTES: Final = 64 + 32 + 3 * 4 + 2 * 8
"""What a client keeps of each of its names: PRF value, key of the row, slot, order, place, hash, and the name."""


def trust(form: Keyed, params: Params) -> tuple[str, ...]:
    """Who may conspire with whom, whether a deviating server is covered, and who is needed for new names."""
    N, T, D = params.clients, params.T, params.dropouts
    others = {2: "the other client", 3: "both other clients"}.get(N, f"all {N - 1} other clients")
    every = others if T == N - 1 else f"any {T} clients" if T > 1 else "any one client"
    covered = 2 * D + T < N
    lines = [f"Up to {D} of {N} clients may vanish in the middle of a round."] if D else []
    lines += [
        f"The server and {every} may conspire: they learn no name that none of them has. Of an entity that one of them"
        " has they learn how many of the others have it, and the sum of those rows"
        + (": where everybody else conspires, that is your own row." if T == N - 1 else "."),
        "A server that deviates from the protocol learns no more than one that follows it, and cannot by itself make a"
        " client accept a wrong mean (2D + T < N holds)."
        if covered
        else "A server that deviates from the protocol is not covered: 2D + T < N does not hold; it would with"
        f" {cure(N, T, D)}.",
        needed(form, params),
    ]
    if N == 2:
        lines.append(
            "Two clients learn which entities they have in common, and each other's rows of these, by subtraction."
        )
    return tuple(lines)


def needed(form: Keyed, params: Params) -> str:
    """Who must be there for new names."""
    N, T = params.clients, params.T
    if T == N - 1:
        return f"New names need {'both' if N == 2 else f'all {N}'} clients to be there."
    return (
        f"New names need {T + 1} of {N} clients to answer, and {form.signatures(params)} to confirm the lists;"
        f" the first set-up needs all {N}."
    )


def ticks(form: Keyed, params: Params, names: int) -> int:
    """Points that holders answer, and that clients check and unblind."""
    size = form.list_size(params, 1)
    return params.clients * ((params.T + 1) * (size + 1) + size) + names


def facts(form: Keyed, params: Params) -> dict[str, int]:
    """The number of primes, sigma', and how numbers are encoded, filled and hidden by noise."""
    n = form.numbers(params)
    chosen = {"f": n.f, "s": n.s, "w": n.w, "wide": n.noise.wide, "checks": n.checks}
    return {"primes": n.ring.size, "sigma_prime": n.sigma, **chosen}


def memory(form: Keyed, params: Params, entities: int) -> dict[str, int]:
    """A client holds keys of its names, its copy of the table and a few chunks; the server a few chunks of each client.

    On an engine both hold parts of messages as well, as they come and go. What is more waits in files. `together`: all
    in one process, with tables and means. Measured: docs/performance.md, docs/deploy-nvflare.md.
    """
    own, N = params.max_entities or entities, params.clients
    kept = own * NAME_BYTES
    table = Geometry.of(entities, 0, b"").cells * COLUMNS * RING61.element_bytes
    rows = own * params.dim * 8  # as a table has them
    numbers = form.numbers(params)
    word = numbers.ring.size * numbers.ring.dtype.itemsize  # an element in memory
    upload = entities * form.width(params) * word
    lists = N * (own + 1) * 32
    chunk = min(CHUNK_BYTES, max(upload, lists))  # a small message is one chunk
    part = min(HELD_BYTES, upload)  # as engines carry it
    # With drop-outs: the sum, which becomes the broadcast, and uploads that are not complete, unless they are in files.
    summed = part + min(upload, 2 * chunk) + (N * upload if upload <= HELD_BYTES else 0)
    held = summed if params.dropouts else 2 * (N + 3) * chunk
    drawn = 8 * chunk if numbers.spread else 0  # what the numbers of a chunk are drawn from; in a thread for each core
    return {
        "kept": kept,
        "client": kept + max(rows + 6 * chunk + drawn, 2 * table) + 4 * part,
        "server": max(held, 2 * table, N * min(upload, 3 * part) + 2 * part),
        "together": N * (kept + 2 * rows + min(3 * CHUNK_BYTES, upload)) + max(held, 4 * table) + min(N, 8) * drawn,
    }


def products(form: Keyed, params: Params, entities: int) -> tuple[int, int]:
    """Group multiplications of the names' PRF, and field multiplications of a round."""
    N, W, n = params.clients, form.noise_count(params, params.clients), form.numbers(params)
    points = N * (form.list_size(params, 1) + 1)
    own = min(entities, params.max_entities or entities)
    columns = params.columns + n.checks
    upload = N * own * (columns + n.checks * params.columns)
    shared = entities * params.columns * n.checks
    spread = N * entities * (1 + n.checks) * params.columns if n.spread else 0
    least = N * entities * 2 * (params.min_owners - 1)
    return points * (params.T + 4), (upload + entities * columns + (N + W) * shared + spread + least) * n.ring.size


def cure(N: int, T: int, D: int) -> str:
    """What would make 2D + T < N hold."""
    most = (N - 1 - T) // 2
    fewer = f"dropouts of at most {most}" if most else "no drop-outs"
    return f"collusion of at most {N - 1 - 2 * D}, or {fewer}" if N - 1 - 2 * D >= 1 else fewer
