"""The product with one protection taken away, one mutant each: what the audit must object to.

Mutants change the product's own functions, so the checks run over the same code with and without them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np

from secea.arithmetic import grid
from secea.arithmetic.field import RING61, Residues, Ring
from secea.arithmetic.lagrange import Code
from secea.arithmetic.paillier import Packing
from secea.audit import Mutant
from secea.audit.coins import Stream
from secea.client import Client
from secea.params import Params
from secea.retrieval import reciprocal
from secea.retrieval.paillier import _Scrambler
from secea.retrieval.reciprocal import _Drowner, _Padder
from secea.server import Server
from secea.sharing import Dealer
from secea.steps import union
from secea.wire.endpoint import Stage
from secea.wire.keys import Channel, expand
from secea.wire.messages import NO_CONTEXT, Kind
from secea.wire.randomness import KeyStream, Source

Draw: TypeAlias = Callable[..., Residues]
Change: TypeAlias = Callable[[Draw, Ring, tuple[int, ...]], Residues]


def drawn(draw: Draw, ring: Ring, shape: tuple[int, ...]) -> Residues:
    """As it is."""
    return draw(ring, *shape)


def nothing(draw: Draw, ring: Ring, shape: tuple[int, ...]) -> Residues:
    """Zeros, in place of random elements."""
    return ring.zeros(*shape)


def ones(draw: Draw, ring: Ring, shape: tuple[int, ...]) -> Residues:
    """Ones, in place of random elements."""
    return ring.constant(np.ones(shape, int))


def repeated(axis: int) -> Change:
    """The same along an axis."""

    def change(draw: Draw, ring: Ring, shape: tuple[int, ...]) -> Residues:
        one = list(shape)
        one[axis] = min(1, one[axis])
        return np.ascontiguousarray(np.broadcast_to(draw(ring, *one), (ring.size, *shape)))

    return change


class Altered:
    """A key stream of which some draws are changed."""

    def __init__(self, stream: Any, elements: Change = drawn, nonzero: Change = drawn) -> None:
        self.stream, self.changes = stream, (elements, nonzero)
        self.bytes, self.fill, self._key = stream.bytes, stream.fill, getattr(stream, "_key", b"")

    def lane(self, number: int) -> Altered:
        """Altered too."""
        return Altered(self.stream.lane(number), *self.changes)

    def elements(self, ring: Ring, *shape: int) -> Residues:
        """Changed elements."""
        return self.changes[0](self.stream.elements, ring, shape)

    def nonzero(self, ring: Ring, *shape: int) -> Residues:
        """Changed elements that are not 0."""
        return self.changes[1](self.stream.nonzero, ring, shape)


def _with_stream(method: Callable[..., Any], **changes: Change) -> Callable[..., Any]:
    """A method of an object with a `_stream`, which it finds altered."""

    def altered(self: Any, *args: Any) -> Any:
        other = copy(self)
        other._stream = Altered(self._stream, **changes)
        return method(other, *args)

    return altered


# ------------------------------------------------------------------------------------------------------------- sharing

_PUBLIC = bytes(32)
_encode, _at = Code.encode, Code.at
_dealer = Client._dealer


def _no_noise(code: Code, data: Residues, noise: Any, receivers: Sequence[int], seeded: Any = ()) -> Residues:
    return _encode(code, data, np.zeros_like(noise), receivers, seeded)


def _one_noise_less(client: Client, stage: Stage, receivers: Iterable[int]) -> tuple[Dealer, dict[int, bytes]]:
    """One of the T seeds is known to all."""
    _, seeds = _dealer(client, stage, receivers)
    seeds[min(seeds)] = _PUBLIC
    return Dealer(client.session.code, tuple(receivers), seeds), seeds


def _at_beta(code: Code, clients: Sequence[int]) -> tuple[int, ...]:
    """The last client's point is that of the first block."""
    return tuple(code.beta[0] if v == code.N - 1 else at for v, at in zip(clients, _at(code, clients), strict=True))


def _never_the_last(params: Params, sender: int, turn: object) -> tuple[int, ...]:
    """A share at a point that carries data cannot be a seed."""
    return tuple([v for v in range(params.N - 1) if v != sender][: params.T])


@contextmanager
def _alpha_equals_beta() -> Iterator[None]:
    with (
        patch.object(Code, "at", _at_beta),
        patch("secea.client.seeded_clients", _never_the_last),
        patch("secea.server.seeded_clients", _never_the_last),
        patch("secea.audit.tiny.seeded_clients", _never_the_last),
    ):
        yield


def _one_seed(client: Client, stage: Stage, receivers: Iterable[int]) -> tuple[Dealer, dict[int, bytes]]:
    _, seeds = _dealer(client, stage, receivers)
    first = next(iter(seeds.values()))
    same = dict.fromkeys(seeds, first)
    return Dealer(client.session.code, tuple(receivers), same), same


def _reshare_bare(client: Client, stage: Stage, receivers: Iterable[int]) -> tuple[Dealer, dict[int, bytes]]:
    dealer, seeds = _dealer(client, stage, receivers)
    if stage.kind is not Kind.RESHARE:
        return dealer, seeds
    public = dict.fromkeys(seeds, _PUBLIC)
    return Dealer(client.session.code, tuple(receivers), public), public


# --------------------------------------------------------------------------------------------------- opening, weights


def _no_zeta(code: Code, counts: Residues, rho: Residues, zeta: Source, v: int) -> Residues:
    silent: Any = Altered(zeta, nothing)
    return reciprocal.open_masked(code, counts, rho, silent, v)


def _one_rho(client: Client, of: Callable[[Client], Residues] = Client._rho) -> Residues:
    rho = of(client)
    return np.ascontiguousarray(np.broadcast_to(rho[:, :1, :1], rho.shape))


def _per_entity(client: Client, of: Callable[[Client], Residues] = Client._openings) -> Residues:
    """The counts of entities of the union, in place of those behind the first contributor's queries."""
    ring, shape = client.session.ring, client.shape
    counts = ring.zeros(client.M)
    for n in client.contributors:
        ring.add_into(counts, client.indicators[n])
    query, some = client.queries[client.contributors[0]], slice(0, min(shape.count, client.M))
    behind = ring.gather(shape.starts, shape.members, query, counts[:, :, None])[:, :, 0]
    behind = ring.add(np.ascontiguousarray(behind), np.ascontiguousarray(query[:, shape.positions :]))
    other = ring.subtract(np.ascontiguousarray(counts[:, some]), np.ascontiguousarray(behind[:, some]))
    moved = ring.multiply(np.ascontiguousarray(client._rho()[:, 0, some]), other)
    opened = of(client)
    opened[:, 0, some] = ring.add(np.ascontiguousarray(opened[:, 0, some]), moved)
    return opened


def _bare_reciprocals(
    server: Server, there: tuple[int, ...], of: Callable[[Server, tuple[int, ...]], None] = Server._close_openings
) -> None:
    with patch.object(Code, "encode", _no_noise):
        of(server, there)


# ------------------------------------------------------------------------------------------------- answers and results


_pad = reciprocal.pad


def _no_pad(wire: Any, stage: Stage, answering: int, asking: int) -> Any:
    return Altered(_pad(wire, stage, answering, asking), nothing)


def _pad_of_any_round(wire: Any, stage: Stage, answering: int, asking: int) -> Any:
    return _pad(wire, replace(stage, context=NO_CONTEXT), answering, asking)


def _not_lifted(packing: Packing, psi: Any, entropy: Any = None) -> Any:
    return Packing.pack(packing, psi)


def _answers_for_syndromes(masker: _Drowner, chunk: int, answers: Any, rows: int) -> Sequence[Any]:
    form, K, surplus = masker._form, masker._form.code.K, sorted(answers)[masker._form.code.need :]
    found = form.ring.view(_mask(masker, chunk, answers, rows)[0], K + len(surplus), rows, form.block_length).copy()
    for i, v in enumerate(surplus):
        found[:, K + i] = form.ring.view(answers[v], rows, form.block_length)
    return [form.ring.to_bytes(found)]


_mask = _Drowner.mask


def _no_drowning(drowner: _Drowner, chunk: int, *shape: int) -> Residues:
    """The middle of the noise, which the reader takes off."""
    form = drowner._form
    middle = form.ring.constant((1 << form.noise_bits) // 2).reshape(-1, *(1 for _ in shape))
    return np.ascontiguousarray(np.broadcast_to(middle, (form.ring.size, *shape)))


# ---------------------------------------------------------------------------------------------- union, low bits, keys


def _weight_one(tags: Any, geometry: Any, source: Any, *ring: Ring, of: Callable[..., Any] = union.fill) -> Any:
    return of(tags, geometry, Altered(source, ones), *ring)


def _one_mask(table: Any, me: int, streams: Any, *ring: Ring, of: Callable[..., Any] = union.mask) -> Any:
    def same(stream: Any) -> Any:
        return stream.coins.stream("mask") if isinstance(stream, Stream) else KeyStream(bytes(32))

    return of(table, me, [(peer, same(stream)) for peer, stream in streams], *ring)


def _total_shown(
    server: Server, there: tuple[int, ...], of: Callable[[Server, tuple[int, ...]], None] = Server._close_table
) -> None:
    total = server.total
    assert total is not None
    of(server, there)
    layout = server.session.layout(Kind.TABLE, 0, 0, attempt=server.attempt)
    server._tell(Kind.TAGS, RING61.to_bytes(total), layout, there)


_filler = grid.filler


def _not_filled(ring: Ring, matrix: Any, entity: Any, key: bytes, f: int, params: Params) -> Residues:
    whole = ring.reduce(np.rint(matrix.astype(np.float64) * 2.0 ** min(f, 40)).astype(np.int64))
    factor = ring.constant(1 << max(f - 40, 0)).reshape(-1, 1, 1)
    return ring.multiply(whole, np.ascontiguousarray(np.broadcast_to(factor, whole.shape)))


def _filled_anew(matrix: Any, entity: Any, key: bytes) -> Any:
    return _filler(matrix, entity, os.urandom(32))


def _filled_from_below(
    ring: Ring, matrix: Any, entity: Any, key: bytes, f: int, params: Params, of: Callable[..., Residues] = grid.encode
) -> Residues:
    used, finest, coarsest = grid.bounds(np.ascontiguousarray(matrix, np.float64), matrix.dtype, params)

    def low(rows: Any, entity: Any, key: bytes) -> Any:
        """The block, moved so that its low bits are the top ones that are taken."""
        words = _filler(rows, entity, key).reshape(-1, 2).astype(object)
        lead = np.where(rows == 0, finest, np.frexp(rows)[1] - 1 - used)
        unused = 128 - f - np.clip(lead, finest, coarsest).reshape(-1).astype(object)
        moved = (words[:, 0] + (words[:, 1] << 64) << unused) % (1 << 128)
        return np.stack([moved % (1 << 64), moved >> 64], axis=1).astype(np.uint64).reshape(-1)

    with patch.object(grid, "filler", low):
        return of(ring, matrix, entity, key, f, params)


def _filled_unkeyed(matrix: Any, entity: Any, key: bytes) -> Any:
    return _filler(matrix, np.arange(len(matrix), dtype=np.uint64), bytes(32))


def _stream_of_any_label(channel: Channel, purpose: str, *label: bytes) -> KeyStream:
    return KeyStream(channel.derive(purpose, b""))


def _rho_of_any_weights(secret: bytes, purpose: str, *label: bytes) -> bytes:
    return expand(secret, purpose, *(label[:1] if purpose in ("rho", "zeta") else label))


def _mutant(name: str, missing: str, where: Any, attribute: str, broken: Any, *caught_by: str) -> Mutant:
    def applied() -> AbstractContextManager[object]:
        return patch.object(where, attribute, broken)

    return Mutant(name, missing, applied, caught_by)


_client = "secea.client"
_SHARES = ("queries", "indicators", "sharing", "shares-together")


def _named(name: str, missing: str, target: str, broken: Any, *caught_by: str) -> Mutant:
    return Mutant(name, missing, partial(patch, target, broken), caught_by)


MUTANTS = (
    _mutant(
        "one-noise-less", "Polynomials carry T-1 secret random values in place of T.",
        Client, "_dealer", _one_noise_less, *_SHARES, "seeds", "re-sharing",
    ),
    Mutant(
        "alpha-equals-beta", "A client's point is one that carries data.", _alpha_equals_beta,
        (*_SHARES, "seeds", "reciprocals", "re-sharing"),
    ),
    _mutant(
        "one-seed-for-all", "The T clients that get shares as seeds get the same seed.", Client, "_dealer", _one_seed,
        *_SHARES, "seeds", "re-sharing",
    ),
    _mutant(
        "re-sharing-without-noise", "Weighted queries are shared again without secret noise.",
        Client, "_dealer", _reshare_bare, "re-sharing",
    ),
    _mutant(
        "reciprocals-without-noise", "The server shares the reciprocals without noise.",
        Server, "_close_openings", _bare_reciprocals, "reciprocals",
    ),
    _named(
        "no-zeta", "Openings are not hidden by a polynomial that is zero at the data points.",
        f"{_client}.open_masked", _no_zeta, "openings", "openings-over-sets", "openings-of-one-query",
    ),
    _mutant("reused-rho", "All queries have the same rho.", Client, "_rho", _one_rho, "openings"),
    _mutant(
        "counts-per-entity", "Counts are opened for each entity of the union, and not behind each query.",
        Client, "_openings", _per_entity, "absent-owner",
    ),
    _mutant(
        "no-pad", "Answers go to the server without a pad.", reciprocal, "pad", _no_pad,
        "answers", "uniform-at-the-server",
    ),
    _mutant(
        "one-pad-for-all-queries", "All queries of a client are answered under the same pad.",
        _Padder, "begin", _with_stream(_Padder.begin, elements=repeated(-2)), "answers",
    ),
    _mutant(
        "reused-pad", "The pads of all rounds are the same.", reciprocal, "pad", _pad_of_any_round,
        "answers-in-two-rounds", "keys", "answers-subtracted", "answers-after-a-rollback",
    ),
    _mutant(
        "answers-for-syndromes", "The server sends surplus answers themselves, in the place of their syndromes.",
        _Drowner, "mask", _answers_for_syndromes, "syndromes",
    ),
    _mutant(
        "no-drowning-noise", "The server adds no noise to a mean.", _Drowner, "_noise", _no_drowning,
        "drowning", "results", "count-from-one-mean", "drowned-digits",
    ),
    _mutant(
        "no-psi", "The server adds no noise polynomial to encrypted answers.",
        _Scrambler, "_noise", _with_stream(_Scrambler._noise, elements=nothing),
        "decryption", "decryption-of-two-queries",
    ),
    _mutant(
        "reused-psi", "All queries have the same noise polynomial.",
        _Scrambler, "_noise", _with_stream(_Scrambler._noise, elements=repeated(-2)), "decryption",
    ),
    _mutant(
        "reused-r", "All queries have the same r.",
        _Scrambler, "_noise", _with_stream(_Scrambler._noise, nonzero=repeated(-1)), "decryption-of-two-queries",
    ),
    _mutant(
        "no-p-times-r", "Encrypted answers are masked as elements of the field, and not as integers.",
        Packing, "noise", _not_lifted, "integers", "paillier-division", "decrypted-integers",
    ),
    _mutant(
        "low-bits-not-filled", "What stands below an input's grid is not filled.", grid, "encode", _not_filled,
        "low-bits", "low-bits-private", "count-from-one-mean", "count-from-many-means",
    ),
    _mutant(
        "low-bits-filled-anew", "What stands below an input's grid is filled anew in every round.",
        grid, "filler", _filled_anew, "low-bits-in-every-round", "count-from-many-means",
    ),
    _mutant(
        "low-bits-filled-from-below", "The fill takes the low bits of its block: another number wherever f is another.",
        grid, "encode", _filled_from_below, "count-from-two-sessions",
    ),
    _mutant(
        "low-bits-filled-by-all-alike", "The fill below an input's grid hangs on no private key.",
        grid, "filler", _filled_unkeyed, "low-bits-private",
    ),
    _mutant(
        "union-weight-one", "The weights of the union's tables are 1.", union, "fill", _weight_one,
        "union",
    ),
    _mutant("one-mask-for-all-pairs", "All pairs mask their tables alike.", union, "mask", _one_mask, "union"),
    _mutant(
        "union-total-shown", "The server shows clients the total of the union's tables.",
        Server, "_close_table", _total_shown, "union-total",
    ),
    _named(
        "two-contributor-sets", "A client does not check that all who answered worked for the set that it was told.",
        f"{_client}.hmac", SimpleNamespace(compare_digest=lambda one, other: True),
        "one-contributor-set", "two-contributor-sets",
    ),
    _mutant(
        "reused-key-stream", "Key streams of a pair do not depend on the context.",
        Channel, "stream", _stream_of_any_label,
        "keys", "answers-subtracted", "tables-subtracted", "answers-after-a-rollback",
    ),
    _named(
        "reused-weights-secrets", "rho and zeta are the same for all weights of an epoch.",
        f"{_client}.expand", _rho_of_any_weights, "keys",
    ),
)  # fmt: skip
