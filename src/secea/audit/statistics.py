"""Statistics on what travels in real federations, each at a party that can open it.

Field elements must look uniform: chi-square over 16 parts of the field, and over the 16 lowest digits. Samples that one
test takes together are independent in the product: at a client one share of each polynomial, at the server values under
independent masks. Each test objects where its tail is below `tails.FALSE_ALARM`; that budget is explained there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secea import client as client_module
from secea.arithmetic.field import RING61, Residues, Ring
from secea.audit import Claim, Mutant, Objection
from secea.audit.attacks.paillier import DIM as PAILLIER_DIM
from secea.audit.attacks.paillier import SETS as PAILLIER_SETS
from secea.audit.attacks.paillier import slots
from secea.audit.recorded import Recorded, exact_integers, random_tables, read_integers
from secea.audit.tails import FALSE_ALARM, chi_square_tail, kolmogorov_tail
from secea.client import Client
from secea.retrieval.paillier import Paillier, private_key
from secea.retrieval.reciprocal import Reciprocal, _Drowner
from secea.sharing import EVERYONE, Dealer
from secea.steps import union
from secea.wire.messages import DIGEST_BYTES, Kind, Layout
from secea.wire.randomness import KeyStream

PARTS: Final = 16
CLIENTS: Final = 5
ENTITIES: Final = 1800
DIM: Final = 6
LEAST: Final = 4000
"""Samples of a test, so that a part is expected 250 times and chi-square's law is near."""


def chi_square(parts: NDArray[np.int64], count: int) -> float:
    """The tail of the chi-square statistic of numbers in [0, count), all equally likely."""
    seen = np.bincount(parts, minlength=count)
    expected = parts.size / count
    return chi_square_tail(float(((seen - expected) ** 2).sum() / expected), count - 1)


def uniform(what: str, ring: Ring, x: Residues) -> int:
    """Object where elements [P, ...] do not look uniform, prime by prime; gives the number of tests."""
    for p, row in zip(ring.primes, x.reshape(ring.size, -1), strict=True):
        assert row.size >= LEAST, f"{what}: {row.size} samples are too few"
        wide = row.astype(np.uint64) // np.uint64(-(-p // PARTS))
        for how, parts in (("sizes", wide), ("low digits", row % PARTS)):
            tail = chi_square(parts.astype(np.int64), PARTS)
            if tail < FALSE_ALARM:
                raise Objection(
                    f"{what}: the {how} of {row.size} elements are not uniform modulo {p} (tail {tail:.0e})"
                )
    return 2 * ring.size


def law(what: str, samples: NDArray[np.float64]) -> int:
    """Object where samples in [0, 1) do not look uniform (Kolmogorov and Smirnov)."""
    ordered = np.sort(samples)
    steps = np.arange(ordered.size + 1) / ordered.size
    distance = float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
    if kolmogorov_tail(distance, ordered.size) < FALSE_ALARM:
        raise Objection(f"{what}: {ordered.size} samples are {distance:.2f} away from a uniform law")
    return 1


def record() -> Recorded:
    """A set-up and a round of five clients that own two thirds of the entities each."""
    sets = [{f"{e}" for e in range(ENTITIES) if e % 3 != n % 3} for n in range(CLIENTS)]
    run = Recorded(sets, dim=DIM).setup()
    return run.round(random_tables(sets, DIM, np.random.default_rng(10)))


def at_a_client() -> int:
    """What client 0 opens: shares of queries, indicators, weighted queries, embeddings; and of the reciprocals."""
    run, tests = record(), 0
    for kind in (Kind.QUERY, Kind.INDICATOR, Kind.RESHARE, Kind.SHARE, Kind.RECIPROCAL):
        opened = [run.residues(hop).reshape(run.session.ring.size, -1) for hop in run.of(kind, receiver=0)]
        tests += uniform(f"{kind.name.lower()} at client 0", run.session.ring, np.concatenate(opened, axis=1))
    return tests


def _joined(run: Recorded, kind: Kind, sender: int) -> Residues:
    return np.concatenate([run.residues(hop) for hop in run.of(kind, sender=sender)], axis=1)


def at_the_server() -> int:
    """What the server opens: masked tables, openings, padded answers; and what it interpolates from them."""
    run = record()
    ring, code, clients = run.session.ring, run.session.code, sorted(run.clients)
    tests = uniform("a client's table", RING61, _joined(run, Kind.TABLE, 0))
    openings = [_joined(run, Kind.OPENING, v)[:, :, 0] for v in clients]
    tests += uniform("a client's openings", ring, openings[0])
    at = code.matrix(code.at(clients[: code.need]), code.beta[:1])
    tests += uniform("openings, interpolated", ring, ring.combine(at, openings[: code.need])[:, 0])
    shape = run.session.query_count, run.session.form.block_length
    answers = [ring.from_bytes(run.answers(0, run.server.round)[v], *shape) for v in clients]
    tests += uniform("a client's answers", ring, answers[1])
    return tests + uniform("answers, interpolated", ring, code.decode(clients, answers, degree=code.need - 1))


def drowned() -> int:
    """C*mean + noise where two or five clients own each entity, with equal embeddings: the means are the same.

    It must be uniform modulo C, and modulo the noise's range, whatever the mean and the count.
    """
    tests, rng = 0, np.random.default_rng(11)
    for h in (np.zeros(DIM), rng.normal(size=DIM)):
        remainders = []
        for owners in (2, 5):
            names = {f"{e}" for e in range(ENTITIES)}
            sets = [names] * owners + [{"other"}] * (CLIENTS + 1 - owners)
            run, tables = Recorded(sets, dim=DIM).setup(), [dict.fromkeys(own, h) for own in sets]
            form = run.session.form
            assert isinstance(form, Reciprocal)
            read = exact_integers(form.ring, read_integers(run, tables)).reshape(-1)
            C, what = run.params.C, f"drowned means of {owners} owners"
            rest = (read % C).astype(np.int64)
            remainders.append(np.bincount(rest, minlength=C))
            if (tail := chi_square(rest, C)) < FALSE_ALARM:
                raise Objection(f"{what}: the remainders modulo C = {C} are not uniform (tail {tail:.0e})")
            whole = 1 << form.noise_bits
            tests += 1 + law(what, ((read % whole) / whole).astype(np.float64))
        few, many = remainders
        statistic = float(((few - many) ** 2 / (few + many)).sum())  # two samples of one size
        if chi_square_tail(statistic, C - 1) < FALSE_ALARM:
            raise Objection("drowned means of two owners and of five differ in their remainders modulo C")
    return tests + 2


def decrypted() -> int:
    """With Paillier, what client 0 decrypts: (r*A + psi + p*R) / p is uniform over the range of R, but for 2^-sigma."""
    run = Recorded(PAILLIER_SETS, form="paillier", dim=PAILLIER_DIM, max_entities=6, max_union=6).setup()
    run.round(random_tables(PAILLIER_SETS, PAILLIER_DIM, np.random.default_rng(12)))
    form, key = run.session.form, private_key(run.clients[0].paillier)
    assert isinstance(form, Paillier)
    (mean,) = run.of(Kind.MEAN, receiver=0)
    body = run.opened(mean)[run.session.answered_bytes + len(PAILLIER_SETS) * DIGEST_BYTES :]
    ciphertexts = key.public.ciphertexts_from_bytes(body, len(body) // key.public.ciphertext_bytes)
    Y = np.array(slots(form.packing, key.decrypt(ciphertexts), form.block_length), object).reshape(-1)
    p, first = form.packing.p, Y.size // len(PAILLIER_SETS)  # remainders of several clients are tied by the result
    quotients = ((Y // p) / (p << form.packing.sigma)).astype(np.float64).clip(0, 1)
    remainders = ((Y[:first] % p) / p).astype(np.float64)
    return law("decrypted quotients", quotients) + law("decrypted remainders", remainders)


# ------------------------------------------------------------------------------------------------------------ mutants

_elements, _noise = KeyStream.elements, _Drowner._noise


def _half(self: KeyStream, ring: Ring, *shape: int) -> Residues:
    """Elements of the lower half of the field."""
    return _elements(self, ring, *shape) >> 1


class _Zeros:
    """A key stream of nothing."""

    def lane(self, number: int) -> _Zeros:
        return self

    def elements(self, ring: Ring, *shape: int) -> Residues:
        return ring.zeros(*shape)


def _ones(self: Client) -> Residues:
    return self.session.ring.zeros(len(self.contributors), self.shape.count) + np.uint32(1)


def _bare_deal(
    self: Dealer, chunk: int, data: Residues, along: Residues | None = None, to: slice = EVERYONE
) -> Residues:
    noise = self.code.ring.zeros(self.code.T, *data.shape[2:])
    return self.code.encode(data, noise, self.receivers[to], self.seeded, along=along)


def _bare_seed(seed: bytes, ring: Ring, layout: Layout, width: int) -> Iterator[Residues]:
    for chunk in range(layout.chunks):
        span = layout.span(chunk)
        yield ring.zeros(span.stop - span.start, width)


def _without_share_noise() -> AbstractContextManager[object]:
    stack = ExitStack()
    stack.enter_context(patch.object(Dealer, "deal", _bare_deal))
    stack.enter_context(patch.object(client_module, "share_from_seed", _bare_seed))
    return stack


def _narrow(self: _Drowner, chunk: int, *shape: int) -> Residues:
    """Noise from an eighth of its range, in the middle of it."""
    form, ring = self._form, self._form.ring
    bits = form.noise_bits
    with patch.object(form, "noise_bits", bits - 3):
        drawn = _noise(self, chunk, *shape)
    start = ring.constant((1 << bits - 1) - (1 << bits - 4)).reshape(-1, *(1 for _ in shape))
    return ring.add(drawn, np.ascontiguousarray(np.broadcast_to(start, drawn.shape)))


def _masked_by_nothing(table: Residues, me: int, streams: Any, ring: Ring = RING61) -> Residues:
    return table


CLAIMS: Final = (
    Claim(
        "uniform-at-a-client",
        "Shares of queries, indicators, weighted queries, embeddings and reciprocals look uniform to their receiver.",
        "statistics",
        at_a_client,
    ),
    Claim(
        "uniform-at-the-server",
        "Masked tables, openings and padded answers look uniform to the server, also when it interpolates them.",
        "statistics",
        at_the_server,
    ),
    Claim(
        "drowned-digits",
        "The low digits of what a client reads look the same for two owners and for five whose means are equal.",
        "statistics",
        drowned,
    ),
    Claim(
        "decrypted-integers",
        "The integers that a client decrypts with Paillier look uniform, remainder and quotient by p.",
        "statistics",
        decrypted,
    ),
)

MUTANTS: Final = (
    Mutant(
        "biased-sampling",
        "Field elements come from the lower half of the field.",
        lambda: patch.object(KeyStream, "elements", _half),
        ("uniform-at-a-client", "uniform-at-the-server"),
    ),
    Mutant(
        "shares-without-noise",
        "Shares carry no noise.",
        _without_share_noise,
        ("uniform-at-a-client",),
    ),
    Mutant(
        "tables-without-masks",
        "Tables of the union are not masked.",
        lambda: patch.object(union, "mask", _masked_by_nothing),
        ("uniform-at-the-server",),
    ),
    Mutant(
        "rho-of-ones",
        "Counts are opened without the factor rho.",
        lambda: patch.object(Client, "_rho", _ones),
        ("uniform-at-the-server",),
    ),
    Mutant(
        "narrow-noise",
        "The drowning noise takes an eighth of its range.",
        lambda: patch.object(_Drowner, "_noise", _narrow),
        ("drowned-digits",),
    ),
)
