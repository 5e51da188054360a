"""Laws of the threshold oblivious PRF, and the vectors of RFC 9497: one F whoever answers; no wrong answer passes."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.arithmetic.ristretto import (
    IDENTITY,
    ORDER,
    PointError,
    Rows,
    add,
    multiply,
    multiply_base,
    scalar_bytes,
    scalar_rows,
    total,
    valid,
)
from secea.errors import SecEAError
from secea.steps.oprf import (
    OUTPUT_BYTES,
    Blinding,
    WrongAnswer,
    blind,
    commit,
    commitments_hash,
    evaluate,
    finalize,
    finish,
    fits,
    hash_to_group,
    holder_weight,
    input_of,
    joint,
    key_share,
    list_hash,
    part_of_key,
    polynomial,
    prove,
    proven,
    public_key,
    public_share,
    share_for,
    signatures_needed,
)
from secea.wire.randomness import KeyStream
from tiers import slow

law = settings(deadline=None, max_examples=25)
seeds = st.binary(min_size=32, max_size=32)
names = st.lists(st.binary(max_size=20), max_size=5)
SESSION = b"a session"
NOT_A_POINT = b"\x01" + bytes(31)


@dataclass(frozen=True)
class Dealt:
    """A key dealt by N clients, T+1 of whom are needed; `key` is what nobody has."""

    polynomials: list[tuple[int, ...]]
    commitments: list[bytes]
    shares: list[bytes]  # k_j
    joint: bytes
    key: int

    def answers(self, points: Rows, holders: Sequence[int]) -> dict[int, Rows]:
        return {j: evaluate(points, self.shares[j], holders, j) for j in holders}

    def direct(self, inputs: Sequence[bytes]) -> list[bytes]:
        """F by its definition, with the key."""
        return finalize(inputs, multiply(hash_to_group(inputs), scalar_rows([self.key])[0]))


def deal(clients: int, collusion: int, seed: bytes) -> Dealt:
    polynomials = [polynomial(collusion, KeyStream(seed, lane)) for lane in range(clients)]
    commitments = [commit(each) for each in polynomials]
    shares = [key_share([share_for(each, j) for each in polynomials]) for j in range(clients)]
    return Dealt(polynomials, commitments, shares, joint(commitments), sum(each[0] for each in polynomials) % ORDER)


@st.composite
def dealings(draw: st.DrawFn) -> tuple[Dealt, list[int]]:
    """A key dealt to 2 to 6 clients, and T+1 holders in any order."""
    clients = draw(st.integers(2, 6))
    collusion = draw(st.integers(1, clients - 1))
    holders = draw(st.permutations(range(clients)))[: collusion + 1]
    return deal(clients, collusion, draw(seeds)), holders


SMALL = deal(4, 1, b"\x05" * 32)


# ---------------------------------------------------------------------------------------------------------- vectors

# RFC 9497, appendix A.1.1: ristretto255-SHA512, mode OPRF. In this mode the RFC has vectors of batches of one only.
SECRET_KEY = int.from_bytes(bytes.fromhex("5ebcea5ee37023ccb9fc2d2019f9d7737be85591ae8652ffa9ef0f4d37063b0e"), "little")
BLIND = int.from_bytes(bytes.fromhex("64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706"), "little")
INPUTS = [b"\x00", b"\x5a" * 17]
BLINDED = [
    "609a0ae68c15a3cf6903766461307e5c8bb2f95e7e6550e1ffa2dc99e412803c",
    "da27ef466870f5f15296299850aa088629945a17d1f5b7f5ff043f76b3c06418",
]
EVALUATED = [
    "7ec6578ae5120958eb2db1745758ff379e77cb64fe77b0b2d8cc917ea0869c7e",
    "b4cbf5a4f1eeda5a63ce7b77c7d23f461db3fcab0dd28e4e17cecb5c90d02c25",
]
OUTPUTS = [
    "527759c3d9366f277d8c6020418d96bb393ba2afb20ff90df23fb7708264e2f3"
    "ab9135e3bd69955851de4b1f9fe8a0973396719b7912ba9ee8aa7d0b5e24bcf6",
    "f4a74c9c592497375e796aa837e907b1a045d34306a749db9f34221f7e750cb4"
    "f2a6413a6bf6fa5e19ba6348eb673934a722a7ede2e7621306d18951e7cf2c73",
]


def hexed(elements: Rows) -> list[str]:
    return [each.tobytes().hex() for each in elements]


def test_every_step_gives_the_values_of_the_rfc() -> None:
    elements = hash_to_group(INPUTS)
    blinded = multiply(elements, scalar_rows([BLIND])[0])
    evaluated = multiply(blinded, scalar_rows([SECRET_KEY])[0])
    issued = multiply(evaluated, scalar_rows([pow(BLIND, -1, ORDER)])[0])
    assert hexed(blinded) == BLINDED
    assert hexed(evaluated) == EVALUATED
    assert [each.hex() for each in finalize(INPUTS, issued)] == OUTPUTS


@law
@given(dealings(), seeds)
def test_a_dealt_key_of_the_rfc_gives_the_outputs_of_the_rfc(dealing: tuple[Dealt, list[int]], seed: bytes) -> None:
    dealt, holders = dealing
    # The first dealer's constant term is such that the sum is the RFC's key.
    first = ((dealt.polynomials[0][0] + SECRET_KEY - dealt.key) % ORDER, *dealt.polynomials[0][1:])
    polynomials = [first, *dealt.polynomials[1:]]
    blinding = blind(INPUTS, 3, seed)
    keys = {j: key_share([share_for(each, j) for each in polynomials]) for j in holders}
    answers = {j: evaluate(blinding.points, keys[j], holders, j) for j in holders}
    outputs = finish(blinding, answers, joint([commit(each) for each in polynomials]))
    assert [each.hex() for each in outputs] == OUTPUTS


# ---------------------------------------------------------------------------------------------------------- dealing


@law
@given(dealings(), st.data())
def test_every_share_fits_its_dealers_commitments_and_the_sum_the_joint_ones(
    dealing: tuple[Dealt, list[int]], data: st.DataObject
) -> None:
    dealt, _ = dealing
    j = data.draw(st.integers(0, len(dealt.shares) - 1))
    assert all(
        fits(share_for(p, j), c, j) for p, c in zip(dealt.polynomials, dealt.commitments, strict=True)
    )  # fmt: skip
    assert fits(dealt.shares[j], dealt.joint, j)
    assert public_share(dealt.joint, j) == multiply_base(np.frombuffer(dealt.shares[j], np.uint8)[None]).tobytes()
    assert public_key(dealt.joint) == multiply_base(scalar_rows([dealt.key])).tobytes()


@law
@given(dealings(), st.data())
def test_a_share_that_does_not_fit_names_its_dealer_and_spoils_the_sum(
    dealing: tuple[Dealt, list[int]], data: st.DataObject
) -> None:
    dealt, _ = dealing
    clients = range(len(dealt.shares))
    j, rogue = data.draw(st.sampled_from(clients)), data.draw(st.sampled_from(clients))
    wrong = data.draw(st.integers(1, ORDER - 1))
    shares = [share_for(each, j) for each in dealt.polynomials]
    shares[rogue] = scalar_bytes(int.from_bytes(shares[rogue], "little") + wrong)
    assert not fits(key_share(shares), dealt.joint, j)
    assert [n for n in clients if not fits(shares[n], dealt.commitments[n], j)] == [rogue]


def test_a_share_fits_no_other_client_and_no_other_dealer() -> None:
    share = share_for(SMALL.polynomials[0], 2)
    assert [fits(share, SMALL.commitments[0], j) for j in range(4)] == [False, False, True, False]
    assert [fits(share, each, 2) for each in SMALL.commitments] == [True, False, False, False]


def test_a_share_has_one_encoding_and_commitments_are_points() -> None:
    share, commitments = share_for(SMALL.polynomials[0], 2), SMALL.commitments[0]
    larger = (int.from_bytes(share, "little") + ORDER).to_bytes(32, "little")
    for bad in (larger, b"", share[:31], share + b"\x00", bytes(32)):
        assert not fits(bad, commitments, 2)
        with pytest.raises(ValueError, match="not a scalar"):
            key_share([share, bad])
    for bad in wrong_commitments(commitments):
        assert not fits(share, bad, 2)


def test_a_share_of_nothing_does_not_fit_even_where_it_lies_on_the_polynomial() -> None:
    zero_at_two = (3, ORDER - 1)  # 3 - x, at client 2's point
    assert share_for(zero_at_two, 2) == bytes(32)
    assert not fits(bytes(32), commit(zero_at_two), 2)
    assert public_share(commit(zero_at_two), 2) == IDENTITY


def wrong_commitments(right: bytes) -> list[bytes]:
    """Of the wrong length; with the identity, or what is no point, as the constant term or another."""
    return [b"", right[:-1], right + b"\x00", *(
        right[: 32 * i] + bad + right[32 * i + 32 :] for i in range(len(right) // 32) for bad in (IDENTITY, NOT_A_POINT)
    )]  # fmt: skip


@law
@given(seeds, st.integers(1, 5), st.integers(0, 65535), st.binary(max_size=40))
def test_a_dealer_proves_what_it_committed_to(seed: bytes, degree: int, dealer: int, session: bytes) -> None:
    secret = polynomial(degree, KeyStream(seed))
    commitments = commit(secret)
    assert len(commitments) == 32 * (degree + 1)
    proof = prove(secret, commitments, session, dealer, KeyStream(seed, 1))
    assert len(proof) == 64
    assert proven(proof, commitments, session, dealer)
    c = challenge(session, dealer.to_bytes(8, "big"), commitments, proof[:32])
    nonce = scalar_rows([int.from_bytes(proof[32:], "little") - c * secret[0]])
    assert multiply_base(nonce).tobytes() == proof[:32]


def test_a_proof_holds_for_no_other_dealer_session_or_commitments() -> None:
    secret, commitments = SMALL.polynomials[1], SMALL.commitments[1]
    proof = prove(secret, commitments, SESSION, 1, KeyStream(bytes(32)))
    assert proven(proof, commitments, SESSION, 1)
    assert not proven(proof, commitments, SESSION, 2)
    assert not proven(proof, commitments, b"another session", 1)
    assert not proven(proof, SMALL.commitments[2], SESSION, 1)
    # Commitments with the same constant term, of which somebody else knows the rest.
    assert not proven(proof, commitments[:32] + SMALL.commitments[2][32:], SESSION, 1)
    assert not proven(proof, commitments[:32], SESSION, 1)
    # Nor can one part pass for the end of another: the session that takes over a byte of the dealer's number.
    assert not proven(proof, commitments, SESSION + b"\x00", 1)


def test_nobody_proves_what_it_does_not_know() -> None:
    """A dealer that takes another's commitments, or cancels them, has no proof for the result."""
    theirs, own = SMALL.commitments[0], polynomial(1, KeyStream(b"\x08" * 32))
    for stolen in (theirs, minus(theirs, commit(own))):
        assert not proven(prove(own, stolen, SESSION, 3, KeyStream(bytes(32))), stolen, SESSION, 3)


def minus(points: bytes, other: bytes) -> bytes:
    opposite = multiply(np.frombuffer(points, np.uint8).reshape(-1, 32), scalar_rows([ORDER - 1])[0])
    return add(np.frombuffer(other, np.uint8).reshape(-1, 32), opposite).tobytes()


def test_a_proof_has_one_form() -> None:
    secret, commitments = SMALL.polynomials[0], SMALL.commitments[0]
    proof = prove(secret, commitments, SESSION, 0, KeyStream(bytes(32)))
    larger = (int.from_bytes(proof[32:], "little") + ORDER).to_bytes(32, "little")
    for bad in (b"", proof[:63], proof + b"\x00", proof[:32] + larger, proof[:32] + bytes(32), NOT_A_POINT + proof[32:],
                bytes(64), proof[:32] + scalar_bytes(int.from_bytes(proof[32:], "little") + 1)):  # fmt: skip
        assert not proven(bad, commitments, SESSION, 0)
    for bad in wrong_commitments(commitments):
        assert not proven(prove(secret, bad, SESSION, 0, KeyStream(bytes(32))), bad, SESSION, 0)
    # With the identity as the nonce's point the equation holds, and the response gives the secret away.
    naked = IDENTITY + scalar_bytes(challenge(SESSION, bytes(8), commitments, IDENTITY) * secret[0])
    assert not proven(naked, commitments, SESSION, 0)


def test_the_nonces_point_cannot_be_chosen_after_the_challenge() -> None:
    commitments = SMALL.commitments[0]
    for guess in ((), (b"",), (IDENTITY,)):
        c = challenge(SESSION, bytes(8), commitments, *guess)
        constant = np.frombuffer(commitments[:32], np.uint8)[None]
        point = add(multiply_base(scalar_rows([5])), multiply(constant, scalar_rows([-c]))).tobytes()
        assert not proven(point + scalar_bytes(5), commitments, SESSION, 0)


def challenge(*parts: bytes) -> int:
    """The challenge by its definition."""
    state = hashlib.sha512(b"secea oprf proof of knowledge\n")
    for part in parts:
        state.update(len(part).to_bytes(8, "big") + part)
    return int.from_bytes(state.digest(), "little") % ORDER


def test_a_stream_that_is_used_twice_gives_no_nonce_twice() -> None:
    secret, commitments = SMALL.polynomials[0], SMALL.commitments[0]
    proofs = [
        prove(secret, commitments, SESSION, 0, KeyStream(bytes(32))),
        prove(secret, commitments, SESSION, 1, KeyStream(bytes(32))),
        prove(secret, commitments, b"another session", 0, KeyStream(bytes(32))),
        prove(secret, SMALL.commitments[1], SESSION, 0, KeyStream(bytes(32))),
        prove(secret, commitments, SESSION, 0, KeyStream(b"\x01" * 32)),
    ]
    assert len({proof[:32] for proof in proofs}) == len(proofs)
    assert prove(secret, commitments, SESSION, 0, KeyStream(bytes(32))) == proofs[0]


def test_joint_commitments_are_of_one_degree_and_do_not_cancel() -> None:
    with pytest.raises(ValueError, match="one degree"):
        joint([SMALL.commitments[0], commit(polynomial(2, KeyStream(bytes(32))))])
    with pytest.raises(ValueError, match="one degree"):
        joint([])
    for bad in wrong_commitments(SMALL.commitments[0]):
        with pytest.raises(ValueError, match="commitment"):
            joint([SMALL.commitments[1], bad])
    a, b = SMALL.polynomials[0]
    for other in ((ORDER - a, b), (a, ORDER - b)):
        with pytest.raises(ValueError, match="the identity"):
            joint([SMALL.commitments[0], commit(other)])


def test_hashes_of_commitments_and_lists_have_32_bytes_and_tell_everything_apart() -> None:
    points = np.frombuffer(SMALL.joint, np.uint8).reshape(-1, 32)
    hashed = [
        commitments_hash(SMALL.joint), list_hash(points), list_hash(points[::-1]), list_hash(points[:1]),
        commitments_hash(SMALL.joint[:32]), commitments_hash(b""), list_hash(points[:0]),
    ]  # fmt: skip
    assert len(set(hashed)) == len(hashed)
    assert {len(each) for each in hashed} == {32}


@law
@given(st.lists(st.integers(0, 60), min_size=1, max_size=8, unique=True), st.data())
def test_weights_give_the_value_at_0_of_every_polynomial(holders: list[int], data: st.DataObject) -> None:
    degree = data.draw(st.integers(0, len(holders) - 1))
    secret = data.draw(st.lists(st.integers(0, ORDER - 1), min_size=degree + 1, max_size=degree + 1))
    values = {j: int.from_bytes(share_for(secret, j), "little") for j in holders}
    assert values[holders[0]] == sum(c * (holders[0] + 1) ** e for e, c in enumerate(secret)) % ORDER
    assert sum(holder_weight(holders, j) * values[j] for j in holders) % ORDER == secret[0]
    parts = [part_of_key(scalar_bytes(values[j]), holders, j) for j in holders if values[j]]
    assert sum(parts) % ORDER == secret[0]
    assert all(0 <= each < ORDER for each in (*parts, *(holder_weight(holders, j) for j in holders)))


def test_a_holder_has_a_weight_among_different_holders_of_whom_it_is_one() -> None:
    for holders, j in (([0, 1, 1], 0), ([0, 0], 0), ([1, 2], 0), ([], 0)):
        with pytest.raises(ValueError, match="holders are different clients"):
            holder_weight(holders, j)


def test_so_many_signatures_are_needed_that_two_lists_have_an_honest_signer_in_common() -> None:
    for clients in range(2, 40):
        for collusion in range(1, clients):
            z = signatures_needed(clients, collusion)
            assert 2 * z > clients + collusion >= 2 * (z - 1)
        assert signatures_needed(clients, clients - 1) == clients
        for bad in (0, clients):
            with pytest.raises(ValueError, match="collusion must be"):
                signatures_needed(clients, bad)


# ------------------------------------------------------------------------------------------------------------ names


def test_a_long_name_is_hashed_and_equals_no_short_one() -> None:
    edge, longer = b"x" * 65535, b"x" * 65536
    assert input_of(edge) == edge
    assert input_of(b"") == b""
    hashed = input_of(longer)
    assert len(hashed) < 100
    assert hashed.endswith(hashlib.sha512(longer).digest())
    # A name that is what a long one is hashed to is another name still.
    assert input_of(hashed) not in (hashed, longer)
    assert len({input_of(each) for each in (edge, longer, hashed, input_of(hashed), longer + b"x")}) == 5
    dealt = SMALL
    assert asked(dealt, [input_of(edge), hashed], [0, 1]) == dealt.direct([edge, hashed])


def asked(dealt: Dealt, inputs: Sequence[bytes], holders: Sequence[int], seed: bytes = b"\x03" * 32) -> list[bytes]:
    blinding = blind(inputs, len(inputs), seed)
    return finish(blinding, dealt.answers(blinding.points, holders), dealt.joint)


# ----------------------------------------------------------------------------------------------------- whole passes


@law
@given(dealings(), names, st.integers(0, 4), seeds)
def test_any_holders_give_what_the_key_itself_would(
    dealing: tuple[Dealt, list[int]], inputs: list[bytes], room: int, seed: bytes
) -> None:
    dealt, holders = dealing
    blinding = blind(inputs, len(inputs) + room, seed)
    outputs = finish(blinding, dealt.answers(blinding.points, holders), dealt.joint)
    assert outputs == dealt.direct(inputs)
    assert all(len(each) == OUTPUT_BYTES for each in outputs)


def test_all_sets_of_holders_agree() -> None:
    dealt = deal(5, 2, b"\x09" * 32)
    inputs = [b"a", b"b"]
    results = {tuple(asked(dealt, inputs, holders)) for holders in combinations(range(5), 3)}
    assert results == {tuple(dealt.direct(inputs))}


@law
@given(names, seeds, seeds, st.permutations(range(4)))
def test_equal_names_have_equal_outputs_whatever_blinds_them(
    inputs: list[bytes], seed: bytes, other: bytes, holders: list[int]
) -> None:
    first = dict(zip(inputs, asked(SMALL, inputs, holders[:2], seed), strict=True))
    again = dict(zip(inputs[::-1], asked(SMALL, inputs[::-1], holders[2:], other), strict=True))
    assert first == again
    assert len(set(first.values())) == len(first)


def test_another_key_gives_other_outputs() -> None:
    other = deal(4, 1, b"\x06" * 32)
    assert not set(SMALL.direct([b"a", b"b"])) & set(other.direct([b"a", b"b"]))


def test_fewer_holders_than_needed_or_more_are_the_callers_mistake() -> None:
    blinding = blind([b"a"], 2, bytes(32))
    for holders in ([], [0], [0, 1, 2]):
        with pytest.raises(ValueError, match="2 holders answer"):
            finish(blinding, SMALL.answers(blinding.points, holders), SMALL.joint)
    # Answers for another set of holders do not fit either, and both are named.
    answers = {j: evaluate(blinding.points, SMALL.shares[j], [j, 3], j) for j in (0, 1)}
    with pytest.raises(WrongAnswer) as refused:
        finish(blinding, answers, SMALL.joint)
    assert refused.value.holders == (0, 1)


def test_a_client_without_names_asks_like_the_others() -> None:
    for size in (0, 3):
        blinding = blind([], size, bytes(32))
        assert blinding.points.shape == (size + 1, 32)
        assert finish(blinding, SMALL.answers(blinding.points, [1, 3]), SMALL.joint) == []


def test_ticks_count_the_points_answered_checked_and_unblinded() -> None:
    blinding, ticks = blind([b"a", b"b"], 700, bytes(32)), [0]
    answers = {j: evaluate(blinding.points, SMALL.shares[j], [0, 1], j, tick=ticks.append) for j in (0, 1)}
    assert sum(ticks) == 2 * 701
    ticks.clear()
    finish(blinding, answers, SMALL.joint, tick=ticks.append)
    assert sum(ticks) == 700 + 2


# ------------------------------------------------------------------------------------------------------------ lists


@law
@given(names, st.integers(0, 4), seeds)
def test_a_list_is_a_function_of_the_seed(inputs: list[bytes], room: int, seed: bytes) -> None:
    size = len(inputs) + room
    first, again = blind(inputs, size, seed), blind(inputs, size, seed)
    assert first.points.tobytes() == again.points.tobytes()
    answers = SMALL.answers(first.points, [0, 3])
    assert finish(again, answers, SMALL.joint) == finish(first, answers, SMALL.joint)
    assert blind(inputs, size, bytes(32) if seed[0] else b"\x01" * 32).points.tobytes() != first.points.tobytes()


@law
@given(names, names, seeds)
def test_padded_lists_have_one_size_and_valid_distinct_points(a: list[bytes], b: list[bytes], seed: bytes) -> None:
    lists = [blind(inputs, 5, seed).points for inputs in (a, b)]
    for points in lists:
        assert points.shape == (6, 32)
        assert valid(points).all()
        assert len(np.unique(points, axis=0)) == 6
    # A seed that is used for two lists shows nothing of what they have in common.
    assert a == b or not {each.tobytes() for each in lists[0]} & {each.tobytes() for each in lists[1]}


def test_no_place_in_a_list_is_a_names_or_the_check_points() -> None:
    """400 lists of one name and two random points: each of the four points is in each place about 100 times."""
    blindings = [blind([b"a"], 3, hashlib.sha256(b"%d" % i).digest()) for i in range(400)]
    seen = np.sum([np.eye(4)[blinding._places] for blinding in blindings], axis=0)
    assert np.all(abs(seen - 100) < 52)  # six standard deviations
    assert all(sorted(blinding._places.tolist()) == [0, 1, 2, 3] for blinding in blindings)


def test_the_check_point_is_the_one_of_the_specification() -> None:
    for inputs in ([], [b"a"], [b"a", b"b", b"c"]):
        blinding = blind(inputs, 3, b"\x07" * 32)
        listed = blinding.points[blinding._places]
        summed = total(multiply(listed[:-1], blinding._weights))
        own = multiply_base(scalar_rows([blinding._offset]))
        assert np.array_equal(add(own, summed[None])[0], listed[-1])
        assert not blinding._weights[:, 16:].any()
        assert len(np.unique(blinding._weights, axis=0)) == 3


def test_a_list_that_cannot_be_made_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="more names than the list has room for"):
        blind([b"a", b"b"], 1, bytes(32))
    with pytest.raises(ValueError, match="input_of"):
        blind([b"x" * 65536], 1, bytes(32))
    for length in (0, 31, 33):
        with pytest.raises(ValueError, match="a seed has 32 bytes"):
            blind([b"a"], 1, bytes(length))


def test_a_blinding_shows_only_the_size_of_its_list_and_its_points_stay() -> None:
    blinding = blind([b"a name that is secret"], 4, bytes(32))
    assert repr(blinding) == "Blinding(5 points)"
    with pytest.raises(ValueError, match="read-only"):
        blinding.points[0] = 0


@pytest.mark.parametrize("bad", [IDENTITY, NOT_A_POINT])
def test_a_holder_answers_valid_points_only(bad: bytes) -> None:
    points = blind([b"a"], 4, bytes(32)).points.copy()
    points[3] = np.frombuffer(bad, np.uint8)
    with pytest.raises(PointError, match="element 3"):
        evaluate(points, SMALL.shares[0], [0, 1], 0)


def test_a_holder_needs_a_share_and_to_be_asked() -> None:
    points = blind([b"a"], 1, bytes(32)).points
    for bad in (bytes(32), b"\xff" * 32, b""):
        with pytest.raises(ValueError, match="not a scalar"):
            evaluate(points, bad, [0, 1], 0)
    with pytest.raises(ValueError, match="holders are different"):
        evaluate(points, SMALL.shares[2], [0, 1], 2)


# ---------------------------------------------------------------------------------------------------- wrong answers


def named(blinding: Blinding, answers: Mapping[int, Any], dealt: Dealt) -> tuple[int, ...]:
    with pytest.raises(WrongAnswer) as refused:
        finish(blinding, answers, dealt.joint)
    return refused.value.holders


def spoiled(rows: Rows, place: int, how: str) -> Rows:
    """An answer with one point that is another, invalid, the identity, or moved by a generator."""
    out = rows.copy()
    generator = multiply_base(scalar_rows([1]))
    if how == "swapped":
        out[[place, (place + 1) % len(out)]] = out[[(place + 1) % len(out), place]]
    elif how == "moved":
        out[place] = add(out[place : place + 1], generator)[0]
    else:
        out[place] = np.frombuffer({"identity": IDENTITY, "invalid": NOT_A_POINT}[how], np.uint8)
    return out


faults = st.sampled_from(["swapped", "moved", "identity", "invalid"])


@law
@given(dealings(), names, seeds, st.data())
def test_one_wrong_point_of_one_or_more_holders_names_them(
    dealing: tuple[Dealt, list[int]], inputs: list[bytes], seed: bytes, data: st.DataObject
) -> None:
    dealt, holders = dealing
    blinding = blind(inputs, len(inputs) + 2, seed)
    answers = dealt.answers(blinding.points, holders)
    wrong = data.draw(st.lists(st.sampled_from(holders), min_size=1, unique=True))
    for j in wrong:
        place = data.draw(st.integers(0, len(blinding.points) - 1))  # of a name, a random point or the check point
        answers[j] = spoiled(answers[j], place, data.draw(faults))  # no two of which cancel
    assert named(blinding, answers, dealt) == tuple(sorted(wrong))


@pytest.mark.parametrize("how", ["swapped", *map(slow, ["moved", "identity", "invalid"])])
def test_one_wrong_point_of_a_thousand_is_found_wherever_it_is(how: str) -> None:
    blinding = blind([b"a", b"b"], 999, bytes(32))
    answers = SMALL.answers(blinding.points, [2, 0])
    for place in (0, 617, 999, *blinding._places[[0, -1]].tolist()):
        assert named(blinding, answers | {2: spoiled(answers[2], place, how)}, SMALL) == (2,)


def test_a_holder_with_another_key_is_named_though_it_answers_all_points_alike() -> None:
    blinding = blind([b"a"], 3, bytes(32))
    answers = SMALL.answers(blinding.points, [0, 1])
    answers[1] = evaluate(blinding.points, SMALL.shares[2], [0, 1], 1)
    assert named(blinding, answers, SMALL) == (1,)


def test_answers_to_another_list_name_all_holders() -> None:
    blinding, other = blind([b"a"], 3, bytes(32)), blind([b"b"], 3, bytes(32))
    assert named(blinding, SMALL.answers(other.points, [3, 0]), SMALL) == (0, 3)


def test_an_answer_of_another_shape_names_its_holder() -> None:
    blinding = blind([b"a"], 3, bytes(32))
    answers = SMALL.answers(blinding.points, [0, 1])
    right = answers[1]
    for wrong in (right[:-1], right[:, :31], right[0], np.concatenate([right, right[:1]]), right.astype(np.uint16)):
        assert named(blinding, answers | {1: wrong}, SMALL) == (1,)
    both = {1: right[:-1], 0: right[:-1]}
    assert named(blinding, both, SMALL) == (0, 1)  # in the order of the clients, whoever answered first


def test_wrong_answers_that_cancel_give_the_right_outputs() -> None:
    """Only the sum counts: what two holders shift against each other changes nothing."""
    blinding = blind([b"a"], 2, bytes(32))
    answers = SMALL.answers(blinding.points, [0, 1])
    shift = np.repeat(multiply_base(scalar_rows([5])), 3, axis=0)
    back = np.repeat(multiply_base(scalar_rows([ORDER - 5])), 3, axis=0)
    shifted = {0: add(answers[0], shift), 1: add(answers[1], back)}
    assert finish(blinding, shifted, SMALL.joint) == SMALL.direct([b"a"])


def test_a_multiple_of_every_answer_is_noticed() -> None:
    """All holders together answer for 2k: linear in every point, so that b0*pk alone can tell."""
    blinding = blind([b"a"], 2, bytes(32))
    doubled = {j: add(each, each) for j, each in SMALL.answers(blinding.points, [0, 1]).items()}
    assert named(blinding, doubled, SMALL) == (0, 1)


def test_a_wrong_answer_says_whose_it_was() -> None:
    assert str(WrongAnswer((2, 3))) == "wrong answers to blinded names, from client 2 and client 3"
    assert "nobody in particular" in str(WrongAnswer(()))
    assert issubclass(WrongAnswer, SecEAError)
    again = pickle.loads(pickle.dumps(WrongAnswer((1,))))  # noqa: S301  # our own
    assert again.holders == (1,)
