"""Laws of the packed cryptosystem. Keys of 512 bits are insecure and fast; one test takes 2048."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import gmpy2  # type: ignore[import-untyped]  # it ships no types
import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.arithmetic import paillier
from secea.arithmetic.paillier import Packing, PrivateKey, PublicKey
from secea.audit.claims.paillier_attacks import logarithm, smooth_prime

P = 2**61 - 1
SIGMA = 40


def seeded(label: str) -> Callable[[int], bytes]:
    """Entropy that repeats itself from run to run, and never within one."""
    state = [0]

    def entropy(count: int) -> bytes:
        state[0] += 1
        return hashlib.shake_256(f"{label} {state[0]}".encode()).digest(count)

    return entropy


def digest(*numbers: Any) -> str:
    return hashlib.sha256(b"".join(n.to_bytes(512, "little") for n in numbers)).hexdigest()[:16]


KEY = PrivateKey.generate(512, seeded("key"))
PUBLIC = KEY.public
PACKING = Packing(512, P, SIGMA)

law = settings(deadline=None)
element = st.integers(0, P - 1)
extreme = st.sampled_from([0, 1, P - 1]) | element


def rows(values: list[list[int]]) -> paillier.Elements:
    return np.array(values, np.uint64).reshape(len(values), len(values[0]) if values else 0)


tables = st.tuples(st.integers(1, 4), st.integers(1, 8)).flatmap(
    lambda shape: st.tuples(
        *(st.lists(st.lists(extreme, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]),) * 2,
        st.lists(st.sampled_from([1, P - 1]) | st.integers(1, P - 1), min_size=shape[0], max_size=shape[0]),
    )
)


def encrypt(values: paillier.Elements) -> list[mpz]:
    plaintexts = PACKING.pack(values)
    return PUBLIC.encrypt(plaintexts, PUBLIC.short_blinds(len(plaintexts)))


# ---------------------------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("bits", [256, 512, 768, 1024])
def test_a_key_has_the_promised_shape(bits: int) -> None:
    key = PrivateKey.generate(bits)
    p, q = key.p, key.q
    assert key.public.n == p * q
    assert key.public.bits == bits
    assert p.bit_length() == q.bit_length() == bits // 2
    assert p % 4 == q % 4 == 3
    assert p != q
    assert gmpy2.is_prime(p)
    assert gmpy2.is_prime(q)
    assert gmpy2.gcd(p - 1, q - 1) == 2
    assert gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1


@pytest.mark.parametrize("bits", [0, 64, 240, 520, 2047])
def test_odd_key_lengths_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="multiple of 16"):
        PrivateKey.generate(bits)


def test_a_public_key_survives_its_bytes() -> None:
    data = PUBLIC.to_bytes()
    assert len(data) == 512 // 8
    assert PublicKey.from_bytes(data, 512) == PUBLIC
    assert pickle.loads(pickle.dumps(KEY)) == KEY  # noqa: S301


def prime_after(start: mpz, residue: int) -> mpz:
    """The next prime that is `residue` modulo 4."""
    prime = gmpy2.next_prime(start)
    while prime % 4 != residue:
        prime = gmpy2.next_prime(prime)
    return prime


MODULI = {
    "zero": mpz(0),
    "even": PUBLIC.n - 1,
    "a bit short": PUBLIC.n >> 2 | 1,
    "a prime": prime_after(mpz(3) << 510, 1),
    "a square": KEY.p**2,
    "a small factor": 4093 * prime_after((mpz(3) << 510) // 4093, 1),
    "a factor 1 mod 4": KEY.p * prime_after(KEY.q, 1),
}


@pytest.mark.parametrize("fault", MODULI)
def test_what_cannot_be_a_modulus_is_refused(fault: str) -> None:
    with pytest.raises(ValueError, match="modulus"):
        PublicKey.from_bytes(MODULI[fault].to_bytes(64, "little"), 512)


@pytest.mark.parametrize(
    ("data", "bits"),
    [
        pytest.param(PUBLIC.to_bytes()[:-1], 512, id="a byte less"),
        pytest.param(PUBLIC.to_bytes() + b"\0", 512, id="a byte more"),
        pytest.param(PUBLIC.to_bytes(), 1024, id="half of what was agreed"),
        pytest.param(b"", 512, id="nothing"),
    ],
)
def test_keys_of_another_length_are_refused(data: bytes, bits: int) -> None:
    with pytest.raises(ValueError, match=f"instead of {bits} bits"):
        PublicKey.from_bytes(data, bits)


def test_the_base_of_the_blinds_is_an_nth_residue_of_jacobi_symbol_1() -> None:
    h_n, order = PUBLIC.h_n, (KEY.p - 1) * (KEY.q - 1)
    assert gmpy2.jacobi(h_n % PUBLIC.n, PUBLIC.n) == 1
    assert gmpy2.powmod(h_n, order // 2, PUBLIC.n2) == 1
    assert gmpy2.powmod(h_n, order // 4, PUBLIC.n2) != 1  # -x^2 is no square
    assert PublicKey.from_bytes(PUBLIC.to_bytes(), 512).h_n == h_n


# ---------------------------------------------------------------------------------------------------------- ciphertexts


def textbook_decrypt(key: PrivateKey, c: mpz) -> mpz:
    n = key.p * key.q
    lam = gmpy2.lcm(key.p - 1, key.q - 1)
    return (gmpy2.powmod(c, lam, n * n) - 1) // n * gmpy2.invert(lam, n) % n


@law
@given(st.lists(st.integers(0, int(PUBLIC.n) - 1), min_size=1, max_size=4), st.binary(min_size=80, max_size=80))
def test_decryption_agrees_with_the_textbook(numbers: list[int], unit: bytes) -> None:
    plaintexts = [mpz(m) for m in numbers]
    u = gmpy2.powmod(mpz.from_bytes(unit, "little") % (PUBLIC.n - 1) + 1, PUBLIC.n, PUBLIC.n2)
    for blinds in (PUBLIC.short_blinds(len(numbers)), PUBLIC.full_blinds(len(numbers)), [u] * len(numbers)):
        ciphertexts = PUBLIC.encrypt(plaintexts, blinds)
        assert KEY.decrypt(ciphertexts) == [textbook_decrypt(KEY, c) for c in ciphertexts] == plaintexts


def test_the_ends_of_the_plaintexts_decrypt() -> None:
    ends = [mpz(0), mpz(1), PUBLIC.n - 1]
    assert KEY.decrypt(PUBLIC.encrypt(ends, PUBLIC.full_blinds(3))) == ends


@pytest.mark.parametrize("m", [-1, PUBLIC.n])
def test_plaintexts_outside_the_modulus_are_refused(m: int) -> None:
    with pytest.raises(ValueError, match="plaintext 1"):
        PUBLIC.encrypt([mpz(0), mpz(m)], PUBLIC.short_blinds(2))


def test_blinds_are_powers_of_the_base_with_exponents_long_enough() -> None:
    for make, least in ((PUBLIC.short_blinds, 256), (PUBLIC.full_blinds, 512 + 128)):
        drawn: list[bytes] = []

        def entropy(count: int, drawn: list[bytes] = drawn) -> bytes:
            drawn.append(os.urandom(count))
            return drawn[-1]

        blinds = make(5, entropy)
        assert all(8 * len(x) >= least for x in drawn)
        exponents = [mpz.from_bytes(x, "little") for x in drawn]
        assert blinds == [gmpy2.powmod(PUBLIC.h_n, x, PUBLIC.n2) for x in exponents]
        assert make(2, lambda count: bytes(count)) == [1, 1]
        (top,) = make(1, lambda count: b"\xff" * count)
        assert top == gmpy2.powmod(PUBLIC.h_n, (mpz(1) << 8 * len(drawn[0])) - 1, PUBLIC.n2)


@law
@given(tables)
def test_slots_add(case: tuple[list[list[int]], list[list[int]], list[int]]) -> None:
    a, b = rows(case[0]), rows(case[1])
    total = PACKING.unpack(KEY.decrypt(PUBLIC.add(encrypt(a), encrypt(b))), a.shape[1])
    assert (total == (a + b) % np.uint64(P)).all()


@law
@given(tables)
def test_a_scaled_row_plus_noise_is_r_a_plus_psi_modulo_p(
    case: tuple[list[list[int]], list[list[int]], list[int]],
) -> None:
    a, psi, r = rows(case[0]), rows(case[1]), np.array(case[2], np.uint64)
    noise = PACKING.noise(psi)
    scaled = PUBLIC.scale(encrypt(a), r)
    answer = PUBLIC.add(scaled, PUBLIC.encrypt(noise, PUBLIC.full_blinds(len(noise))))
    expected = (a.astype(object) * r.astype(object)[:, None] + psi.astype(object)) % P
    assert PACKING.unpack(KEY.decrypt(answer), a.shape[1]).tolist() == expected.tolist()


@pytest.mark.parametrize(("bits", "sigma"), [(512, 40), (2048, 64)])
def test_the_widest_values_of_all_slots_fit(bits: int, sigma: int) -> None:
    packing = Packing(bits, P, sigma)
    count = packing.slots
    top = packing.pack(np.full((1, count), P - 1, np.uint64))[0]
    widest = (P - 1) * top + top + P * sum(((P << sigma) - 1) << packing.width * i for i in range(count))
    assert widest < 1 << bits - 1
    assert packing.unpack([widest], count).tolist() == [[((P - 1) ** 2 + P - 1) % P] * count]


def test_two_thousand_bits_end_to_end() -> None:
    key = PrivateKey.generate(2048)
    packing, public = Packing(2048, P, 64), key.public
    a = np.random.default_rng(1).integers(0, P, (2, 13), np.uint64)
    r, psi = np.array([2, P - 1], np.uint64), a[::-1].copy()
    plaintexts = packing.pack(a)
    data = public.ciphertexts_to_bytes(public.encrypt(plaintexts, public.short_blinds(len(plaintexts))))
    received = PublicKey.from_bytes(public.to_bytes(), 2048).ciphertexts_from_bytes(data, len(plaintexts))
    noise = public.encrypt(packing.noise(psi), public.full_blinds(len(plaintexts)))
    decoded = packing.unpack(key.decrypt(public.add(public.scale(received, r), noise)), 13)
    assert decoded.tolist() == ((a.astype(object) * r.astype(object)[:, None] + psi) % P).tolist()


@pytest.mark.parametrize("scalars", [[5], [3, P - 1], list(range(1, 13))])
def test_threads_change_nothing(scalars: list[int]) -> None:
    ciphertexts = PUBLIC.encrypt([mpz(m) for m in range(12)], PUBLIC.short_blinds(12))
    one = PUBLIC.scale(ciphertexts, scalars, threads=1)
    run = 12 // len(scalars)
    assert KEY.decrypt(one, threads=1) == [m * scalars[m // run] for m in range(12)]
    for threads in (2, 5, 100):
        assert PUBLIC.scale(ciphertexts, scalars, threads=threads) == one
        assert KEY.decrypt(one, threads=threads) == KEY.decrypt(one, threads=1)


def test_no_more_threads_are_started_than_there_are_cores_however_often_they_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What gmpy2 keeps for a thread is lost when the thread ends: about 2 kB for each, and up to 100 numbers."""
    started, start = list[threading.Thread](), threading.Thread.start

    def counted(self: threading.Thread) -> None:
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", counted)
    ciphertexts = PUBLIC.encrypt([mpz(5)] * 8, PUBLIC.short_blinds(8))
    for _ in range(50):
        KEY.decrypt(ciphertexts, threads=2)
        PUBLIC.scale(ciphertexts, [3], threads=2)
    assert len(started) <= (os.cpu_count() or 1)


def test_uneven_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="evenly"):
        PUBLIC.scale(PUBLIC.short_blinds(5), [1, 2])
    assert PUBLIC.scale([], []) == KEY.decrypt([]) == []


def test_ciphertexts_survive_their_bytes() -> None:
    ciphertexts = PUBLIC.encrypt([mpz(m) for m in range(9)], PUBLIC.short_blinds(9))
    data = PUBLIC.ciphertexts_to_bytes(ciphertexts)
    assert len(data) == 9 * PUBLIC.ciphertext_bytes == 9 * 2 * 512 // 8
    assert PUBLIC.ciphertexts_from_bytes(data, 9) == ciphertexts
    assert PUBLIC.ciphertexts_from_bytes(memoryview(data), 9) == ciphertexts
    assert PUBLIC.ciphertexts_from_bytes(b"", 0) == []


def of_symbol_minus_one() -> mpz:
    u = next(u for u in range(2, 1000) if gmpy2.jacobi(u, PUBLIC.n) == -1)
    return gmpy2.powmod(u, PUBLIC.n, PUBLIC.n2)


@pytest.mark.parametrize(
    "c",
    [
        pytest.param(mpz(0), id="zero"),
        pytest.param(PUBLIC.n, id="n"),
        pytest.param(5 * KEY.p, id="a multiple of p"),
        pytest.param(KEY.q**2, id="a multiple of q"),
        pytest.param(PUBLIC.n2, id="n^2"),
        pytest.param(PUBLIC.n2 + 1, id="above n^2"),
        pytest.param((mpz(1) << 1024) - 1, id="all ones"),
        pytest.param(of_symbol_minus_one(), id="Jacobi symbol -1"),
    ],
)
def test_what_no_encryption_gives_is_refused_by_its_index(c: mpz) -> None:
    good = PUBLIC.short_blinds(3)
    with pytest.raises(ValueError, match="ciphertext 2 "):
        PUBLIC.ciphertexts_from_bytes(PUBLIC.ciphertexts_to_bytes([*good[:2], c, *good[2:]]), 4)


@pytest.mark.parametrize("length", [0, 127, 129, 256, 384])
def test_ciphertexts_of_wrong_length_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        PUBLIC.ciphertexts_from_bytes(b"\1" * length, 1)


# ------------------------------------------------------------------------------------------------------------- packing


@pytest.mark.parametrize(
    ("sigma", "bits", "width", "slots"),
    [(40, 2048, 163, 12), (40, 3072, 163, 18), (64, 2048, 186, 11), (64, 3072, 186, 16), (134, 2048, 256, 7)],
)
def test_slots_are_as_narrow_as_the_widest_value(sigma: int, bits: int, width: int, slots: int) -> None:
    packing = Packing(bits, P, sigma)
    assert (packing.width, packing.slots) == (width, slots)


primes = st.sampled_from([2, 3, 5, 251, 257, 65537, 2**31 - 1, 2**32 - 5, P, 2**62 - 57])


@law
@given(primes, st.integers(0, 130), st.sampled_from([256, 512, 2048, 3072]), st.data())
def test_packing_round_trips_and_noise_vanishes_modulo_p(p: int, sigma: int, bits: int, data: st.DataObject) -> None:
    packing = Packing(bits, p, sigma) if bits > 256 else Packing(bits, p, min(sigma, 100))
    shape = (data.draw(st.integers(0, 3)), data.draw(st.integers(0, 2 * min(30, packing.slots) + 1)))
    values = np.random.default_rng(data.draw(st.integers(0, 1 << 32))).integers(0, p, shape, np.uint64)
    plaintexts, noise = packing.pack(values), packing.noise(values)
    assert len(plaintexts) == len(noise) == shape[0] * packing.plaintexts(shape[1])
    assert all(0 <= m < 1 << bits - 1 for m in plaintexts + noise)
    if shape[1]:
        assert (packing.unpack(plaintexts, shape[1]) == values).all()
        assert (packing.unpack(noise, shape[1]) == values).all()


def test_slot_i_of_a_plaintext_is_element_i() -> None:
    values = np.arange(1, 8, dtype=np.uint64).reshape(1, 7)
    expected = [sum(v << PACKING.width * i for i, v in enumerate(part)) for part in ([1, 2, 3], [4, 5, 6], [7])]
    assert PACKING.pack(values) == expected
    assert PACKING.pack(values[0]) == expected
    assert PACKING.pack(np.stack([values, values])) == expected * 2


def test_noise_is_uniform_over_its_whole_range() -> None:
    packing = Packing(256, 5, 2)  # R in [0, 20)
    psi = np.tile(np.arange(5, dtype=np.uint64), (400, 100))
    slots = [
        int(m) >> packing.width * i & (1 << packing.width) - 1
        for m in packing.noise(psi, seeded("noise"))
        for i in range(8)
    ]
    counts = np.bincount([s // 5 for s in slots], minlength=20)
    assert counts.size == 20
    expected = len(slots) / 20
    assert ((counts - expected) ** 2 / expected).sum() < 60  # chi-square, 19 degrees of freedom: p < 5e-6


def test_unused_slots_of_noise_are_uniform_modulo_p() -> None:
    packing = Packing(256, 5, 2)
    first = packing.noise(np.zeros((600, 1), np.uint64), seeded("unused"))
    last = packing.unpack(first, packing.slots)[:, 1:]
    assert (packing.unpack(first, 1) == 0).all()
    counts = np.bincount(last.ravel().astype(np.int64), minlength=5)
    expected = last.size / 5
    assert ((counts - expected) ** 2 / expected).sum() < 32  # chi-square, 4 degrees of freedom: p < 2e-6


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.array([P], np.uint64), id="p itself"),
        pytest.param(np.array([[1], [2**64 - 1]], np.uint64), id="the largest word"),
        pytest.param(np.array([1], np.int64), id="signed"),
        pytest.param(np.array([1.0]), id="floats"),
        pytest.param(np.array(1, np.uint64), id="no row"),
    ],
)
def test_what_is_no_row_of_elements_is_refused(values: Any) -> None:
    for make in (PACKING.pack, PACKING.noise):
        with pytest.raises(ValueError, match="rows of uint64"):
            make(values)


def test_what_was_not_packed_is_refused() -> None:
    with pytest.raises(ValueError, match="plaintext 1 "):
        PACKING.unpack([mpz(0), mpz(1) << 3 * PACKING.width], 4)
    with pytest.raises(ValueError, match="rows of 2"):
        PACKING.unpack([mpz(0)], 4)


@pytest.mark.parametrize(("bits", "p", "sigma"), [(160, P, 40), (512, 1, 40), (512, 2**63, 40), (512, P, -1)])
def test_impossible_packings_are_refused(bits: int, p: int, sigma: int) -> None:
    with pytest.raises(ValueError, match=r"fit|takes"):
        Packing(bits, p, sigma)


# -------------------------------------------------------------------------------------- what the owner of a key can see


@pytest.mark.parametrize("full", [False, True])
def test_only_full_blinds_hide_the_scalar_from_an_owner_who_takes_logarithms(full: bool) -> None:
    entropy = seeded("smooth")
    (p, p_factors), (q, q_factors) = smooth_prime(entropy), smooth_prime(entropy)
    public = PrivateKey(p, q).public
    y = entropy(public._short.exponent_bytes)  # the owner answers its own query too: it knows this blind
    mine = public.encrypt([mpz(1)], public.short_blinds(1, lambda _: y))
    r = int.from_bytes(entropy(8), "little") % P
    blinds = (public.full_blinds if full else public.short_blinds)(1, entropy)
    (answer,) = public.add(public.scale(mine, [r]), public.encrypt([mpz(1) << 200], blinds))

    e, order = logarithm(p, p_factors, public.h_n % p, answer % p)
    e_q, order_q = logarithm(q, q_factors, public.h_n % q, answer % q)
    common = gmpy2.gcd(order, order_q)
    e += order * ((e_q - e) // common * gmpy2.invert(order // common, order_q // common) % (order_q // common))
    assert gmpy2.powmod(public.h_n, e, public.n) == answer % public.n
    assert (abs(e // mpz.from_bytes(y, "little") - r) < 16) is not full


# -------------------------------------------------------------------------------------------------- secrets and vectors


def test_no_repr_shows_a_secret() -> None:
    shown = repr([KEY, PUBLIC]) + str(KEY)
    assert not any(str(s) in shown or f"{int(s):x}" in shown.lower() for s in (KEY.p, KEY.q))


def test_known_answers() -> None:
    entropy = seeded("known answers")
    key = PrivateKey.generate(512, entropy)
    public, packing = key.public, Packing(512, P, SIGMA)
    values = np.arange(10, dtype=np.uint64).reshape(2, 5) * np.uint64(10**17)
    ciphertexts = public.encrypt(packing.pack(values), public.short_blinds(4, entropy))
    noise = public.encrypt(packing.noise(values, entropy), public.full_blinds(4, entropy))
    answers = public.add(public.scale(ciphertexts, [3, P - 1]), noise)
    assert digest(key.p, key.q) == "32da684707512b58"
    assert digest(public.h_n) == "2b1c26e31708f539"
    assert digest(*packing.pack(values)) == "00c0baa6759b9d0f"
    assert digest(*ciphertexts) == "3eb4c91190d8da05"
    assert digest(*noise) == "84372ccfa6f484b3"
    assert digest(*answers) == "a4f263f1ba51b717"
    assert hashlib.sha256(public.ciphertexts_to_bytes(answers)).hexdigest()[:16] == "962e2a5b277c30e2"
