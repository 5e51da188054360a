"""The keyed form equals its oracle to the bit, from the same keys; key streams come from AES by their rule alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import combinations
from random import Random, SystemRandom
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arithmetic.field import PRIMES30, RING56, RING61, Residues, Ring, insecure_ring
from secea.arithmetic.ristretto import ORDER, from_uniform, multiply, scalar_rows
from secea.audit.differing import differs
from secea.audit.specified import key_of, part_of, recorded, stream
from secea.errors import FederationError
from secea.forms.keyed import Keyed
from secea.forms.keyed import form as keyed_form
from secea.forms.keyed.numbers import numbers_of
from secea.forms.keyed.shared import RoundSecrets, rows_under_keys
from secea.oracles import keyed as oracle
from secea.params import Params
from secea.steps import masks, means, oprf
from secea.table import Name, as_table, keys, name_bytes
from secea.testing import Parties, insecure_seeded
from secea.wire.keys import expand

Table = dict[Name, NDArray[Any]]

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12)


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - inputs of a test


def fresh() -> Random:
    """For tests with few cases: other inputs each time, and the seed is printed."""
    seed = SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return seeded(seed)


# ---------------------------------------------------------------------------------------------------------- federations


def some_tables(rng: Random, N: int, d: int, most: int, kind: str) -> list[Table]:
    """Random rows; small, coarse or at the bounds of what is allowed."""

    def value() -> float:
        x = rng.choice((rng.gauss(0, 1), rng.uniform(-64, 64), 0.0, 64.0, -64.0))
        return {"coarse": round(x * 8) / 8, "decimals": round(x, 2)}.get(kind, x)

    dtype = np.float64 if kind == "float64" else np.float32
    pool: list[Name] = [f"entity {i}" if i % 3 else i for i in range(most + most // 2)]
    return [
        {name: np.array([value() for _ in range(d)], dtype) for name in rng.sample(pool, rng.randrange(most + 1))}
        for _ in range(N)
    ]


def started(rng: Random, tables: Sequence[Table], d: int, T: int, precision: int = 24) -> Parties:
    entropy = insecure_seeded(rng.randrange(2**32))
    parties = Parties.of(tables, Keyed(), dim=d, collusion=T, precision=precision, entropy=entropy)
    parties.setup()
    return parties


@few
@given(
    seed=seeds,
    N=st.integers(2, 6),
    d=st.integers(1, 5) | st.just(24),
    kind=st.sampled_from(("float32", "float64", "coarse", "decimals")),
    chunk=st.sampled_from((1, 150, 1 << 21)),
    wide=st.booleans(),
    data=st.data(),
)
def test_uploads_sums_broadcast_and_means_are_the_oracles(
    seed: int, N: int, d: int, kind: str, chunk: int, wide: bool, data: st.DataObject
) -> None:
    rng, T = seeded(seed), data.draw(st.integers(1, N - 1))
    tables = some_tables(rng, N, d, 14, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_form, "CHUNK_BYTES", chunk)  # a chunk of one slot, of a few, of all
        parties = started(rng, tables, d, T, precision=33 if wide else 24)
        assert Keyed().numbers(parties.session.params).ring in ((RING61, RING56) if wide else (RING56,))
        for _ in range(2):
            with recorded() as record:
                parties.round(tables)
            assert not list(differs(parties, tables, record))


@pytest.mark.parametrize(("T", "chunk"), [(1, 1 << 21), (4, 300), (12, 1 << 21)])
def test_thirteen_clients_and_light_primes_are_the_oracles(T: int, chunk: int) -> None:
    rng = fresh()
    tables = some_tables(rng, 13, 3, 6, "float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_form, "CHUNK_BYTES", chunk)
        parties = Parties.of(
            tables, Keyed(), dim=3, collusion=T, precision=30, entropy=insecure_seeded(rng.randrange(2**32))
        )
        assert Keyed().numbers(parties.session.params).ring.size >= 3
        parties.setup()
        with recorded() as record:
            parties.round(tables)
        assert not list(differs(parties, tables, record))


@few
@given(seed=seeds, N=st.integers(4, 6), everybody=st.booleans())
def test_a_union_without_some_clients_is_the_oracles(seed: int, N: int, everybody: bool) -> None:
    rng = seeded(seed)
    tables: list[Table] = some_tables(rng, N, 2, 8, "float32")
    parties = started(rng, tables, 2, N - 1 if everybody else 1)  # at T = N-1 the noise clients are fewer than W
    members = sorted(rng.sample(range(N), 3))
    parties.union(members)
    present = [table if n in members else None for n, table in enumerate(tables)]
    with recorded() as record:
        parties.round(present)
    assert not list(differs(parties, present, record))


@few
@given(seed=seeds, N=st.integers(3, 6), chunk=st.sampled_from((1, 1 << 21)), data=st.data())
def test_a_round_that_some_drop_out_of_is_the_oracles(seed: int, N: int, chunk: int, data: st.DataObject) -> None:
    rng, D = seeded(seed), data.draw(st.integers(1, N - 2))
    T, gone = data.draw(st.integers(1, N - 1 - D)), rng.sample(range(N), rng.randrange(D + 1))
    tables: list[Table] = some_tables(rng, N, 2, 6, "float32")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_form, "CHUNK_BYTES", chunk)
        entropy = insecure_seeded(rng.randrange(2**32))
        parties = Parties.of(tables, Keyed(batch=2), dim=2, collusion=T, dropouts=D, entropy=entropy)
        parties.setup()
        parties.exchange.losses = dict.fromkeys(gone, "upload")
        with recorded() as record:
            parties.contribute(tables)
            parties.exchange.run("upload", range(N))
        whole = [n for n in range(N) if n not in gone]
        assert record.U == (*whole,) == parties.server.at.members
        assert not list(differs(parties, tables, record))


OPTIONS: dict[str, dict[str, Any]] = {
    "a minimum": {"min_owners": 3},
    "everybody": {"min_owners": 4},
    "noise": {"noise": 0.03},
    "much noise and a minimum": {"noise": 40.0, "min_owners": 2},
    "weights": {"max_weight": 50},
    "weights and a minimum": {"max_weight": 1, "min_owners": 2},
    "rows left out": {"partial": True},
    "rows left out and a minimum": {"partial": True, "min_owners": 2},
}


@few
@given(
    seed=seeds,
    option=st.sampled_from(sorted(OPTIONS)),
    D=st.integers(0, 2),
    precision=st.sampled_from((24, 36, 44)),
    chunk=st.sampled_from((1, 150, 1 << 21)),
)
def test_a_round_with_each_option_is_the_oracles(seed: int, option: str, D: int, precision: int, chunk: int) -> None:
    rng, options, N = seeded(seed), OPTIONS[option], 4
    tables, most = some_tables(rng, N, 2, 6, "float64"), options.get("max_weight") or int("partial" in options)
    weights = [{name: rng.randint(0, most) for name in table} for table in tables] if most else []
    given_rows = [as_table(table, 2) for table in tables]
    weighed = [each.weighing(some) for each, some in zip(given_rows, weights, strict=True)] if weights else given_rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_form, "CHUNK_BYTES", chunk)
        parties = Parties.of(
            tables, Keyed(batch=2), dim=2, collusion=1, dropouts=D, precision=precision,
            entropy=insecure_seeded(rng.randrange(2**32)), **options,
        )  # fmt: skip
        parties.setup()
        for q in (1, 2):
            lost = rng.sample([n for n in range(N) if n != q], rng.randrange(D + 1)) if q == 2 else []
            parties.exchange.losses = dict.fromkeys(lost, "upload")
            with recorded() as record:
                parties.contribute(weighed)
                parties.exchange.run("upload", range(N))
            assert not list(differs(parties, tables, record, weights))


@few
@given(seed=seeds, N=st.integers(2, 6), m=st.integers(1, 6), q=st.integers(1, 9))
def test_the_oracle_gives_no_mean_of_fewer_owners_than_the_minimum(seed: int, N: int, m: int, q: int) -> None:
    rng = seeded(seed)
    tables = some_tables(rng, N, 1, 5, "float64")
    params = Params(clients=N, dim=1, collusion=1, max_entities=5, max_union=7)
    found = oracle.aggregate([as_lists(table) for table in tables], 1, q, numbers_of(params, 2), rng.randrange, m=m)
    for table, means_of in zip(tables, found, strict=True):
        owners = {name: sum(name in other for other in tables) for name in table}
        assert set(means_of) == {name for name, count in owners.items() if count >= m}


# ---------------------------------------------------------------------------------------------------------- key streams


@few
@given(
    secret=st.binary(min_size=32, max_size=32),
    L=st.binary(min_size=16, max_size=16),
    q=st.integers(0, 2**32 - 1),
    chunk=st.integers(0, 2**32 - 1),
    M=st.integers(0, 40),
    d=st.integers(1, 40),
    field=st.sampled_from(((RING56, 1), (RING61, 1), (Ring(PRIMES30[:3]), 2))),
)
def test_secrets_and_keys_of_rows_are_the_words_of_aes(
    secret: bytes, L: bytes, q: int, chunk: int, M: int, d: int, field: tuple[Ring, int]
) -> None:
    ring, checks = field
    shared = RoundSecrets(ring, d, checks, secret, L, q)
    of = shared.of(chunk, M, (3, 8))
    pads = shared.pads(8, chunk, M)
    keys = np.frombuffer(hashlib.sha512(secret).digest(), np.uint8).reshape(2, 32)
    G = rows_under_keys(ring, keys, q, d)

    def key(name: str, *numbers: int) -> bytes:
        return expand(secret, name, L, *(str(number).encode() for number in (q, *numbers)))

    for b, p in enumerate(ring.primes):
        assert tuple(of.rho[b].tolist()) == stream(ring, b, key("rho"), chunk, M, 1)
        assert tuple(of.theta[b].tolist()) == stream(ring, b, key("theta"), chunk, M)
        assert tuple(of.beta[b].tolist()) == stream(ring, b, key("beta"), chunk, M)
        for k in range(checks):
            H = [stream(ring, b, key("H", w, k), chunk, M) for w in (3, 8)]
            assert tuple(of.alpha[k][b].tolist()) == stream(ring, b, key("alpha", k), 0, d)
            assert tuple(of.J[k][b].tolist()) == stream(ring, b, key("J", k), chunk, M)
            assert tuple(pads[k][b].tolist()) == H[1]
            assert of.H[k][b].tolist() == [(x + y) % p for x, y in zip(*H, strict=True)]
        for row, own in enumerate(keys):
            assert tuple(G[b, row].tolist()) == stream(ring, b, own.tobytes(), q, d)


# --------------------------------------------------------------------------------------------------- one step at a time


def residues(ring: Ring, by_prime: Sequence[oracle.Rows], *shape: int) -> Residues:
    return np.array(by_prime, ring.dtype).reshape(ring.size, *shape)


@given(
    ring=st.sampled_from((insecure_ring(5), insecure_ring(5, 7), insecure_ring(7, 11, 13), RING56, RING61)),
    members=st.integers(2, 4),
    d=st.integers(1, 4),
    checks=st.integers(1, 2),
    M=st.integers(1, 4),
    m=st.integers(1, 4),
    everywhere=st.booleans(),
    seed=seeds,
)
def test_each_step_of_a_round_is_the_oracles_in_any_field_and_in_empty_slots(
    ring: Ring, members: int, d: int, checks: int, M: int, m: int, everywhere: bool, seed: int
) -> None:
    rng = seeded(seed)
    owners = [[i for i in range(M) if rng.random() < 0.4] for _ in range(members)]
    plain, of_prime = [], []
    for p in ring.primes:
        rows = [oracle.uniform(rng.randrange, p, M) for _ in range(3 + 2 * checks)]
        alpha = [oracle.uniform(rng.randrange, p, d) for _ in range(checks)]
        rho = tuple(1 + x % (p - 1) for x in rows[0])
        starts = [rng.randrange(m) for _ in range(M)]
        least = oracle.Least(
            [tuple(1 + (start + k) % (m - 1) for k in range(m - 1)) for start in starts],
            [tuple(1 + x for x in oracle.uniform(rng.randrange, p - 1, m - 1)) for _ in starts],
            [oracle.uniform(rng.randrange, p, m - 1) for _ in starts],
            oracle.uniform(rng.randrange, p, M),
        )
        gamma = [tuple(1 + x for x in oracle.uniform(rng.randrange, p - 1, M)) for _ in range(checks * everywhere)]
        s = oracle.Secrets(rho, alpha, rows[3 : 3 + checks], {0: rows[3 + checks :]}, rows[1], rows[2], least, gamma)
        y = [{i: oracle.uniform(rng.randrange, p, d) for i in own} for own in owners]
        e = [oracle.uniform(rng.randrange, p, d) for _ in range(M)]
        z = [[oracle.uniform(rng.randrange, p, d) for _ in range(M)] for _ in owners]
        uploads = []
        for n, each in enumerate(y):
            bare = oracle.upload(each, d, s, p)
            bare = oracle.everywhere(bare, z[n], s, p) if everywhere else bare
            more = oracle.least_columns(each.keys(), least, p, designated=n == 0)
            uploads.append([(*one, *two) for one, two in zip(bare, more, strict=True)])
        columns = oracle.noise_column(e, s.H[0], s, p)
        total = oracle.add(uploads, p)
        sent_rows = oracle.divide(total, e, columns, p, m)
        wrong = [tuple((x + rng.randrange(2)) % p for x in row) for row in sent_rows[0]]
        plain.append((uploads, columns, total, sent_rows, wrong))
        of_prime.append((s, y, e, z))
    secrets, leasts = [s for s, *_ in of_prime], [s.least for s, *_ in of_prime if s.least]
    shared = means.Secrets(
        rho=residues(ring, [[s.rho] for s in secrets], M),
        alpha=tuple(residues(ring, [[s.alpha[k]] for s in secrets], d) for k in range(checks)),
        J=tuple(residues(ring, [[s.J[k]] for s in secrets], M) for k in range(checks)),
        H=tuple(residues(ring, [[s.H[0][k]] for s in secrets], M) for k in range(checks)),
        theta=residues(ring, [[s.theta] for s in secrets], M),
        beta=residues(ring, [[s.beta] for s in secrets], M),
        least=means.Least(
            a=residues(ring, [s.a for s in leasts], M, m - 1),
            rho=residues(ring, [s.rho for s in leasts], M, m - 1),
            beta=residues(ring, [s.beta for s in leasts], M, m - 1),
            theta=residues(ring, [[s.theta] for s in leasts], M),
        ),
        gamma=tuple(residues(ring, [[s.gamma[k]] for s in secrets], M) for k in range(checks * everywhere)),
    )
    assert shared.least is not None
    for n, own in enumerate(owners):
        y_real = residues(ring, [[y[n][i] for i in own] for _, y, _, _ in of_prime], len(own), d)
        slots = np.array(own, np.int64)
        real = means.contribution(ring, y_real, slots, shared)
        if everywhere:
            means.add_everywhere(ring, real, residues(ring, [z[n] for *_, z in of_prime], M, d), shared)
        more_real = means.least_columns(ring, slots, shared.least, designated=n == 0)
        real = np.concatenate([real, more_real], axis=2)
        assert real.tolist() == [[list(row) for row in each[0][n]] for each in plain]
    e_real = residues(ring, [e for _, _, e, _ in of_prime], M, d)
    columns_real = means.noise_columns(ring, e_real, shared.alpha, shared.H, shared.gamma)
    assert columns_real.tolist() == [[list(row) for row in each[1]] for each in plain]
    total_real = residues(ring, [each[2] for each in plain], M, d + checks + 2 * m)
    body = d + checks + 2
    least_real = total_real[:, :, body:] if m > 1 else None
    R, empty = means.divide(ring, np.ascontiguousarray(total_real[:, :, :body]), e_real, columns_real, least_real)
    assert R.tolist() == [[list(row) for row in each[3][0]] for each in plain]
    assert all(empty.tolist() == each[3][1] for each in plain)
    assert means.right(ring, R, empty, shared, members).all()
    claims = [empty.tolist(), [rng.randrange(3) for _ in range(M)]]
    for claimed in claims:
        sent = residues(ring, [each[4] for each in plain], M, d + checks)
        judged = means.right(ring, sent, np.array(claimed, np.uint8), shared, members)
        expected = [
            all(
                oracle.right(each[4][i], claimed[i], i, members, s, p)
                for each, s, p in zip(plain, secrets, ring.primes, strict=True)
            )
            for i in range(M)
        ]
        assert judged.tolist() == expected


@given(members=st.sets(st.integers(0, 40), min_size=2, max_size=14), degree=st.integers(1, 14))
def test_neighbours_are_the_edges_of_the_oracles_graph(members: set[int], degree: int) -> None:
    order = sorted(members)
    pairs = {frozenset((n, v)) for n in order for v in masks.neighbours(order, degree, n)}
    assert pairs == oracle.edges(order, degree)
    assert all(len(pair) == 2 for pair in pairs)


# -------------------------------------------------------------------------------------------------------- oblivious PRF


def plain_prf(x: bytes, k: int) -> bytes:
    """RFC 9497, section 3.3.1 with expand_message_xmd of RFC 9380, written again."""
    suite = b"OPRFV1-\x00-ristretto255-SHA512"
    dst = b"HashToGroup-" + suite + bytes([len(b"HashToGroup-" + suite)])
    b_0 = hashlib.sha512(bytes(128) + x + (64).to_bytes(2, "big") + b"\0" + dst).digest()
    b_1 = hashlib.sha512(b_0 + b"\1" + dst).digest()
    element = multiply(from_uniform(np.frombuffer(b_1, np.uint8)[None]), scalar_rows([k])).tobytes()
    return hashlib.sha512(len(x).to_bytes(2, "big") + x + b"\0\x20" + element + b"Finalize").digest()


@few
@given(seed=seeds, N=st.integers(2, 6), data=st.data())
def test_every_clients_prf_is_under_the_sum_of_the_dealers_constants(seed: int, N: int, data: st.DataObject) -> None:
    rng, T = seeded(seed), data.draw(st.integers(1, N - 1))
    tables = some_tables(rng, N, 1, 5, "float32")
    parties = started(rng, tables, 1, T)
    k = key_of(parties)
    for n, table in enumerate(tables):
        prf = part_of(parties, n).naming.names.prf
        assert set(prf) == set(keys(tuple(table)))
        for name, F in prf.items():
            assert F == oracle.F(name, k) == plain_prf(name_bytes(name), k)


@given(seed=seeds, N=st.integers(2, 6), data=st.data())
def test_shares_are_the_oracles_and_any_of_them_make_the_key(seed: int, N: int, data: st.DataObject) -> None:
    T = data.draw(st.integers(1, N - 1))
    rng = seeded(seed)
    dealt = [oracle.uniform(rng.randrange, ORDER, T + 1) for _ in range(N)]
    k = {j: sum(int.from_bytes(oprf.share_for(each, j), "little") for each in dealt) % ORDER for j in range(N)}
    assert all(oracle.share(dealt, j) == k[j] for j in range(N))
    holders = rng.sample(range(N), T + 1)
    joined = sum(oprf.holder_weight(holders, j) * k[j] for j in holders) % ORDER
    assert joined == oracle.share(dealt, -1) == sum(each[0] for each in dealt) % ORDER


# ----------------------------------------------------------------------------------------------------- the whole oracle


@few
@given(seed=seeds, N=st.sampled_from((2, 3, 5, 13)), d=st.integers(1, 3), q=st.integers(1, 9), data=st.data())
def test_the_oracle_gives_the_mean_of_all_owners(seed: int, N: int, d: int, q: int, data: st.DataObject) -> None:
    rng, T = seeded(seed), data.draw(st.integers(1, N - 1))
    tables = some_tables(rng, N, d, 5, "float64")
    params = Params(clients=N, dim=d, collusion=T, max_entities=5, max_union=7, precision=30 if N == 13 else 24)
    numbers = numbers_of(params, T + 1)
    assert (numbers.ring.size > 1) == (N == 13)
    given_back = oracle.aggregate([as_lists(table) for table in tables], T, q, numbers, rng.randrange)
    for table, found in zip(tables, given_back, strict=True):
        assert found.keys() == table.keys()
        for name, row in found.items():
            mean = np.mean([other[name] for other in tables if name in other], axis=0)
            assert np.abs(np.array([float(x) for x in row]) - mean).max() < params.resolution


@few
@given(seed=seeds, N=st.integers(3, 6), q=st.integers(1, 9), data=st.data())
def test_the_oracle_gives_the_mean_of_those_who_did_not_drop_out(
    seed: int, N: int, q: int, data: st.DataObject
) -> None:
    rng, D = seeded(seed), data.draw(st.integers(1, N - 2))
    T, lost = data.draw(st.integers(1, N - 1 - D)), rng.sample(range(N), rng.randrange(D + 1))
    tables = some_tables(rng, N, 2, 5, "float64")
    params = Params(clients=N, dim=2, collusion=T, dropouts=D, max_entities=5, max_union=7)
    numbers = numbers_of(params, min(N, T + D + 1))
    found = oracle.aggregate([as_lists(table) for table in tables], T, q, numbers, rng.randrange, D, lost)
    for n, table in enumerate(tables):
        assert found[n].keys() == (set() if n in lost else table.keys())
        for name, row in found[n].items():
            mean = np.mean([other[name] for v, other in enumerate(tables) if v not in lost and name in other], axis=0)
            assert np.abs(np.array([float(x) for x in row]) - mean).max() < params.resolution


def test_the_oracle_opens_nothing_with_one_share_too_few() -> None:
    rng = fresh()
    polynomial = oracle.uniform(rng.randrange, ORDER, 3)
    shares = {v: oracle.share([polynomial], v) for v in (0, 3, 4, 9)}
    for some in combinations(shares, 3):
        assert oracle.joined({v: shares[v] for v in some}) == polynomial[0]
    assert oracle.joined(shares) == polynomial[0]
    assert oracle.joined({v: shares[v] for v in (0, 4)}) != polynomial[0]


def as_lists(table: Table) -> Mapping[Name, list[float]]:
    return {name: [float(x) for x in row] for name, row in table.items()}


def test_the_oracle_gives_nothing_where_noise_and_check_differ() -> None:
    rng = fresh()
    numbers = numbers_of(Params(clients=2, dim=1, collusion=1, max_entities=1, max_union=1), 2)
    column = oracle.noise_column

    def wrong(e: oracle.Rows, H: oracle.Rows, s: oracle.Secrets, p: int) -> list[oracle.Vector]:
        return column([tuple(x + 1 for x in row) for row in e], H, s, p)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "noise_column", wrong)
        with pytest.raises(FederationError, match="no result"):
            oracle.aggregate([{"a": [1.0]}, {"a": [2.0]}], 1, 1, numbers, rng.randrange)
