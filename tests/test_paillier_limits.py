"""Limits of the paper's form, as programs that succeed: docs/security.md names them."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from secea.arithmetic import fixedpoint
from secea.arithmetic.field import M61, RING61
from secea.audit import SMALL_KEYS
from secea.audit.claims.paillier import part_of, share_of, slots
from secea.audit.claims.paillier_attacks import true_sums
from secea.forms.paillier import Paillier
from secea.forms.paillier.form import Kind
from secea.testing import Parties, Watch
from secea.wire.messages import DIGEST_BYTES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("bits", [8, 12, 24])
def test_limit_exact_means_show_how_many_own_an_entity(bits: int) -> None:
    """A client that knows the grid of all inputs looks for the least number that takes its mean there."""
    rng, clients, dim = np.random.default_rng(bits), 5, 16
    owners = {f"{e}": [0, *(1 + rng.permutation(clients - 1)[: 1 + e % 4]).tolist()] for e in range(20)}
    values = {(n, name): np.rint(rng.normal(size=dim) * 2**bits) / 2**bits for name, own in owners.items() for n in own}
    tables = [{name: values[n, name] for name, own in owners.items() if n in own} for n in range(clients)]
    parties = Parties.of(tables, Paillier(), collusion=1, **SMALL_KEYS)
    parties.setup()
    means = parties.round(tables)[0]
    f = parties.session.params.fraction_bits
    for name, mean in zip(tables[0], means, strict=True):
        exact = [Fraction(float(x)) * 2 ** min(f, bits) for x in mean]
        fits = (c for c in range(1, clients + 1) if all(abs(c * x - round(c * x)) < Fraction(1, 100) for x in exact))
        assert next(fits) == len(owners[name])


def test_limit_a_server_and_a_client_read_its_counts_and_sums_of_entities_that_it_does_not_have() -> None:
    """The server hands client 0 the answers as they come: without r and psi. It knows what it asked."""
    sets, dim, watch = [list("ab"), list("bcd"), list("acde"), list("bf")], 3, Watch()
    rng = np.random.default_rng(1)
    tables = [{name: rng.normal(size=dim) for name in own} for own in sets]
    parties = Parties.of(tables, Paillier(), collusion=1, max_entities=8, max_union=8, watch=watch, **SMALL_KEYS)
    parties.setup()
    parties.round(tables)
    part, clients = part_of(parties, 0), sorted(parties.clients)
    epoch, numbers, key = part.epoch, part.numbers, part.key
    assert epoch is not None
    assert epoch.shape is not None
    assert epoch.shape.members is not None
    answers, asked = {}, {}
    for v in clients:
        body = watch.sealed(Kind.ANSWER, sender=v)[0].payload[DIGEST_BYTES:]  # the first chunk: for client 0
        size = key.public.ciphertext_bytes
        answers[v] = slots(numbers, key.decrypt(key.public.ciphertexts_from_bytes(body, len(body) // size)))
        chunks = [each.payload for each in watch.sealed(Kind.QUERY, sender=0, receiver=v)]
        asked[v] = (share_of(parties, Kind.QUERY, chunks) if v else epoch.queries[0])[0].astype(object)
    truth = true_sums(tables, parties.session.params)
    values = [answers[v].astype(np.uint64)[None] for v in clients]
    own = fixedpoint.centred(RING61, numbers.code.decode(clients, values, degree=numbers.code.need - 1)[:, 0])
    assert {tuple(truth[name]) for name in sets[0]} <= set(map(tuple, own.tolist()))

    # Each answer is one equation in a client's shares of the sums: those with one unknown are solved, one by one.
    members, starts = epoch.shape.members.tolist(), epoch.shape.starts.tolist()
    buckets = [range(a, b) for a, b in pairwise(starts)]
    shares: dict[int, dict[int, object]] = {v: {} for v in clients}
    while open_buckets := [
        (j, k) for j, bucket in enumerate(buckets)
        if len(left := [k for k in bucket if members[k] not in shares[0]]) == 1 for k in left
    ]:  # fmt: skip
        j, k = open_buckets[0]
        for v in clients:
            known = sum((asked[v][i] * shares[v][members[i]] for i in buckets[j] if i != k), np.zeros(1, object))
            shares[v][members[k]] = (answers[v][j] - known) * pow(int(asked[v][k]), -1, M61) % M61
    foreign = set(shares[0]) - set(epoch.rows.tolist())
    assert len(foreign) >= 2
    for row in foreign:
        each = np.array([shares[v][row] for v in clients], object).astype(np.uint64)[None]
        total = fixedpoint.centred(RING61, numbers.code.decode(clients, each)[:, 0]).tolist()
        assert total in truth.values()
