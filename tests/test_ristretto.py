"""Laws of the group ristretto255, and the vectors of RFC 9496: libsodium's arithmetic, called in batches."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.arithmetic import ristretto
from secea.arithmetic.ristretto import (
    IDENTITY,
    ORDER,
    Kind,
    Library,
    PointError,
    Rows,
    add,
    from_uniform,
    inverses,
    load,
    multiply,
    multiply_base,
    read_scalar,
    scalar_bytes,
    scalar_of,
    scalar_rows,
    total,
    valid,
)
from secea.errors import MissingExtra

law = settings(deadline=None)
scalars = st.integers(1, ORDER - 1)
MANY = 2 * 512 + 77  # several pieces, the last one shorter


def rows(*encoded: str) -> Rows:
    return np.frombuffer(bytes.fromhex("".join(encoded)), np.uint8).reshape(len(encoded), -1)


def random_points(seed: int, count: int) -> Rows:
    return from_uniform(np.random.default_rng(seed).integers(0, 256, (count, 64), np.uint8))


# RFC 9496, appendix A.1: the generator's multiples 0 to 15.
MULTIPLES = rows(
    "0000000000000000000000000000000000000000000000000000000000000000",
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
    "94741f5d5d52755ece4f23f044ee27d5d1ea1e2bd196b462166b16152a9d0259",
    "da80862773358b466ffadfe0b3293ab3d9fd53c5ea6c955358f568322daf6a57",
    "e882b131016b52c1d3337080187cf768423efccbb517bb495ab812c4160ff44e",
    "f64746d3c92b13050ed8d80236a7f0007c3b3f962f5ba793d19a601ebb1df403",
    "44f53520926ec81fbd5a387845beb7df85a96a24ece18738bdcfa6a7822a176d",
    "903293d8f2287ebe10e2374dc1a53e0bc887e592699f02d077d5263cdd55601c",
    "02622ace8f7303a31cafc63f8fc48fdc16e1c8c8d234b2f0d6685282a9076031",
    "20706fd788b2720a1ed2a5dad4952b01f413bcf0e7564de8cdc816689e2db95f",
    "bce83f8ba5dd2fa572864c24ba1810f9522bc6004afe95877ac73241cafdab42",
    "e4549ee16b9aa03099ca208c67adafcafa4c3f3e4e5303de6026e3ca8ff84460",
    "aa52e000df2e16f55fb1032fc33bc42742dad6bd5a8fc0be0167436c5948501f",
    "46376b80f409b29dc2b5f6f0c52591990896e5716f41477cd30085ab7f10301e",
    "e0c418f7c8d9c4cdd7395b93ea124f3ad99021bb681dfc3302a9d99a2e53e64e",
)
# RFC 9496, appendix A.2: what must not decode.
INVALID = rows(
    # not canonical
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    # negative
    "0100000000000000000000000000000000000000000000000000000000000000",
    "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20",
    "c34c4e1826e5d403b78e246e88aa051c36ccf0aafebffe137d148a2bf9104562",
    "c940e5a4404157cfb1628b108db051a8d439e1a421394ec4ebccb9ec92a8ac78",
    "47cfc5497c53dc8e61c91d17fd626ffb1c49e2bca94eed052281b510b1117a24",
    "f1c6165d33367351b0da8f6e4511010c68174a03b6581212c71c0e1d026c3c72",
    "87260f7a2f12495118360f02c26a470f450dadf34a413d21042b43b9d93e1309",
    # x^2 is no square
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "4eac077a713c57b4f4397629a4145982c661f48044dd3f96427d40b147d9742f",
    "de6a7b00deadc788eb6b6c8d20c0ae96c2f2019078fa604fee5b87d6e989ad7b",
    "bcab477be20861e01e4a0e295284146a510150d9817763caf1a6f4b422d67042",
    "2a292df7e32cababbd9de088d1d1abec9fc0440f637ed2fba145094dc14bea08",
    "f4a9e534fc0d216c44b218fa0c42d99635a0127ee2e53c712f70609649fdff22",
    "8268436f8c4126196cf64b3c7ddbda90746a378625f9813dd9b8457077256731",
    "2810e5cbc2cc4d4eece54f61c6f69758e289aa7ab440b3cbeaa21995c2f4232b",
    # xy is negative
    "3eb858e78f5a7254d8c9731174a94f76755fd3941c0ac93735c07ba14579630e",
    "a45fdc55c76448c049a1ab33f17023edfb2be3581e9c7aade8a6125215e04220",
    "d483fe813c6ba647ebbfd3ec41adca1c6130c2beeee9d9bf065c8d151c5f396e",
    "8a2e1d30050198c65a54483123960ccc38aef6848e1ec8f5f780e8523769ba32",
    "32888462f8b486c68ad7dd9610be5192bbeaf3b443951ac1a8118419d9fa097b",
    "227142501b9d4355ccba290404bde41575b037693cef1f438c47f8fbf35d1165",
    "5c37cc491da847cfeb9281d407efc41e15144c876e0170b499a96a22ed31e01e",
    "445425117cb8c90edcbc7c1cc0e74f747f2c1efa5630a967c64f287792a48a4b",
    # y = 0
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
)
# RFC 9496, appendix A.3: 64 uniform bytes, and the point that they stand for; the last four give the same one.
MAPPED = rows(
    "5d1be09e3d0c82fc538112490e35701979d99e06ca3e2b5b54bffe8b4dc772c1",
    "4d98b696a1bbfb5ca32c436cc61c16563790306c79eaca7705668b47dffe5bb6",
    "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46",
    "f116b34b8f17ceb56e8732a60d913dd10cce47a6d53bee9204be8b44f6678b27",
    "0102a56902e2488c46120e9276cfe54638286b9e4b3cdb470b542d46c2068d38",
    "f26e5b6f7d362d2d2a94c5d0e7602cb4773c95a2e5c31a64f133189fa76ed61b",
    "8422e1bbdaab52938b81fd602effb6f89110e1e57208ad12d9ad767e2e25510c",
    "27140775f9337088b982d83d7fcf0b2fa1edffe51952cbe7365e95c86eaf325c",
    "006ccd2a9e6867e6a2c5cea83d3302cc9de128dd2a9a57dd8ee7b9d7ffe02826",
    "ac22415129b61427bf464e17baee8db65940c233b98afce8d17c57beeb7876c2",
    "150d15af1cb1fb824bbd14955f2b57d08d388aab431a391cfc33d5bafb5dbbaf",
    "f8f0c87cf237953c5890aec3998169005dae3eca1fbb04548c635953c817f92a",
    "165d697a1ef3d5cf3c38565beefcf88c0f282b8e7dbd28544c483432f1cec767",
    "5debea8ebb4e5fe7d6f6e5db15f15587ac4d4d4a1de7191e0c1ca6664abcc413",
    "ae81e7dedf20a497e10c304a765c1767a42d6e06029758d2d7e8ef7cc4c41179",
    "a836e6c9a9ca9f1e8d486273ad56a78c70cf18f0ce10abb1c7172ddd605d7fd2",
    "979854f47ae1ccf204a33102095b4200e5befc0465accc263175485f0e17ea5c",
    "e2705652ff9f5e44d3e841bf1c251cf7dddb77d140870d1ab2ed64f1a9ce8628",
    "2cdc11eaeb95daf01189417cdddbf95952993aa9cb9c640eb5058d09702c7462",
    "2c9965a697a3b345ec24ee56335b556e677b30e6f90ac77d781064f866a3c982",
    "80bd07262511cdde4863f8a7434cef696750681cb9510eea557088f76d9e5065",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "1200000000000000000000000000000000000000000000000000000000000000",
    "304282791023b73128d277bdcb5c7746ef2eac08dde9f2983379cb8e5ef0517f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "304282791023b73128d277bdcb5c7746ef2eac08dde9f2983379cb8e5ef0517f",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "304282791023b73128d277bdcb5c7746ef2eac08dde9f2983379cb8e5ef0517f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "1200000000000000000000000000000000000000000000000000000000000080",
    "304282791023b73128d277bdcb5c7746ef2eac08dde9f2983379cb8e5ef0517f",
).reshape(-1, 96)


# ------------------------------------------------------------------------------------------------------ the vectors


def test_the_generators_multiples_are_those_of_the_rfc() -> None:
    assert np.array_equal(multiply_base(scalar_rows(range(1, 16))), MULTIPLES[1:])
    assert np.array_equal(multiply(np.repeat(MULTIPLES[1:2], 15, axis=0), scalar_rows(range(1, 16))), MULTIPLES[1:])
    assert np.array_equal(add(MULTIPLES[:-1], np.repeat(MULTIPLES[1:2], 15, axis=0)), MULTIPLES[1:])


def test_no_invalid_encoding_of_the_rfc_is_taken_for_a_point() -> None:
    assert not valid(INVALID).any()
    one = scalar_rows([1])
    calls: list[Callable[[Rows], object]] = [
        lambda p: multiply(p, one), lambda p: add(p, MULTIPLES[1:2]), lambda p: add(MULTIPLES[1:2], p), total,
    ]  # fmt: skip
    for bad in INVALID:
        for refusing in calls:
            with pytest.raises(PointError, match="element 0: not a valid point"):
                refusing(bad[None])


def test_uniform_bytes_stand_for_the_points_of_the_rfc() -> None:
    assert np.array_equal(from_uniform(MAPPED[:, :64]), MAPPED[:, 64:])


def test_the_identity_is_not_valid_but_can_be_added() -> None:
    assert valid(MULTIPLES).tolist() == [False] + 15 * [True]
    assert np.array_equal(add(MULTIPLES, np.zeros_like(MULTIPLES)), MULTIPLES)
    opposite = multiply(MULTIPLES[1:], scalar_rows([ORDER - 1])[0])
    assert not add(MULTIPLES[1:], opposite).any()


# --------------------------------------------------------------------------------------------------------- the laws


@law
@given(st.lists(st.tuples(scalars, scalars), max_size=20), scalars)
def test_multiples_of_the_generator_behave_like_their_scalars(pairs: list[tuple[int, int]], k: int) -> None:
    a, b = scalar_rows(a for a, _ in pairs), scalar_rows(b for _, b in pairs)
    A, B = multiply_base(a), multiply_base(b)
    for (x, y), product, summed, scaled in zip(
        pairs, multiply(A, b), add(A, B), multiply(A, scalar_rows([k])[0]), strict=True
    ):
        assert product.tobytes() == multiply_base(scalar_rows([x * y]))[0].tobytes()
        assert scaled.tobytes() == multiply_base(scalar_rows([x * k]))[0].tobytes()
        both = (x + y) % ORDER
        assert summed.tobytes() == (multiply_base(scalar_rows([both]))[0].tobytes() if both else IDENTITY)
    whole = sum(x for x, _ in pairs) % ORDER
    assert total(A).tobytes() == (multiply_base(scalar_rows([whole]))[0].tobytes() if whole else IDENTITY)


@settings(deadline=None, max_examples=5)
@given(st.integers(0, 2**32))
def test_a_batch_gives_what_its_points_give_one_by_one(seed: int) -> None:
    points, more = random_points(seed, MANY), random_points(seed + 1, MANY)
    s = scalar_rows(np.random.default_rng(seed).integers(1, 2**63, MANY).tolist())
    products, sums, multiples = multiply(points, s), add(points, more), multiply_base(s)
    for i in (*range(0, MANY, 97), 511, 512, MANY - 1):
        assert np.array_equal(products[i], multiply(points[i : i + 1], s[i])[0])
        assert np.array_equal(sums[i], add(points[i : i + 1], more[i : i + 1])[0])
        assert np.array_equal(multiples[i], multiply_base(s[i : i + 1])[0])
    halves = add(total(points[:500])[None], total(points[500:])[None])
    assert np.array_equal(total(points), halves[0])
    assert valid(points).all()


def test_rows_need_not_lie_next_to_each_other() -> None:
    points = random_points(5, 40)
    every_other = points[::2]
    assert np.array_equal(multiply(every_other, scalar_rows([7])[0]), multiply(points, scalar_rows([7])[0])[::2])
    assert np.array_equal(add(every_other, points[::-2]), add(every_other.copy(), points[::-2].copy()))


def test_an_empty_batch_is_one() -> None:
    none, tens = np.empty((0, 32), np.uint8), scalar_rows([10])
    results = [multiply(none, none), multiply(none, tens[0]), multiply_base(none), add(none, none)]
    assert all(each.shape == (0, 32) for each in results)
    assert from_uniform(np.empty((0, 64), np.uint8)).shape == (0, 32)
    assert valid(none).shape == (0,)
    assert total(none).tobytes() == IDENTITY
    assert scalar_rows([]).shape == (0, 32)
    assert inverses([]) == []


@pytest.mark.parametrize("place", [0, 63, 511, 512, MANY - 1])
def test_a_refusal_says_which_element_it_was(place: int) -> None:
    points, s = random_points(11, MANY).copy(), scalar_rows([3] * MANY).copy()
    points[place] = INVALID[7]
    calls: list[Callable[[], object]] = [
        lambda: multiply(points, s), lambda: add(points, points), lambda: multiply(points, s[0]),
    ]  # fmt: skip
    for refusing in calls:
        with pytest.raises(PointError, match=f"element {place}: not a valid point") as refused:
            refusing()
        assert refused.value.index == place
        assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)  # noqa: S301  # our own
    with pytest.raises(PointError):
        total(points)
    assert np.flatnonzero(~valid(points)).tolist() == [place]
    points[place] = 0
    with pytest.raises(PointError, match=f"element {place}: .*identity"):
        multiply(points, s)
    s[place] = 0
    with pytest.raises(PointError, match=f"element {place}: the scalar is 0"):
        multiply_base(s)


@pytest.mark.parametrize("count", [0, 1, 40, MANY])
def test_ticks_count_every_point_once(count: int) -> None:
    points, ticks = random_points(2, count), [0]
    multiply(points, scalar_rows([9])[0], tick=ticks.append)
    assert sum(ticks) == count
    assert max(ticks) <= 512


def test_an_error_of_the_callers_tick_ends_the_batch() -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        multiply(random_points(2, MANY), scalar_rows([9])[0], tick=stop)


def test_what_are_no_rows_of_points_is_the_callers_mistake() -> None:
    points = MULTIPLES[1:3]
    calls: list[Callable[[Any], object]] = [
        lambda p: multiply(p, MULTIPLES[0]), multiply_base, total, valid, from_uniform, lambda p: add(p, points),
        lambda p: add(points, p), lambda p: multiply(points, p[None] if p.ndim == 1 else p),
    ]  # fmt: skip
    for wrong in (points[0], points[:, :31], points.astype(np.int64), points[None]):
        for refusing in calls[: None if wrong.ndim > 1 else -1]:
            with pytest.raises(ValueError, match="expected uint8 rows"):
                refusing(wrong)
    with pytest.raises(ValueError, match="batches of 2 and 3 rows"):
        multiply(points, scalar_rows([1, 2, 3]))
    with pytest.raises(ValueError, match="batches of 2 and 1 rows"):
        add(points, points[:1])


def test_a_scalar_whose_highest_bit_would_be_ignored_is_refused() -> None:
    large = scalar_rows([1, 5, 6]).copy()
    large[1, 31] = 0x80
    with pytest.raises(ValueError, match="255 bits"):
        multiply_base(large)
    with pytest.raises(ValueError, match="255 bits"):
        multiply(MULTIPLES[1:4], large)
    with pytest.raises(ValueError, match="255 bits"):
        multiply(MULTIPLES[1:4], large[1])


# ---------------------------------------------------------------------------------------------------------- scalars


@law
@given(st.binary(min_size=64, max_size=64))
def test_uniform_bytes_are_reduced_and_scalars_read_back(uniform: bytes) -> None:
    value = scalar_of(uniform)
    assert value == int.from_bytes(uniform, "little") % ORDER
    assert read_scalar(scalar_bytes(value or 1)) == (value or 1)


def test_a_scalar_has_one_encoding() -> None:
    good = [1, 2, ORDER - 1]
    assert [read_scalar(scalar_bytes(value)) for value in good] == good
    for bad in (bytes(32), ORDER.to_bytes(32, "little"), (ORDER + 1).to_bytes(32, "little"), b"\xff" * 32, b"",
                scalar_bytes(5)[:31], scalar_bytes(5) + b"\x00"):  # fmt: skip
        with pytest.raises(ValueError, match="not a scalar"):
            read_scalar(bad)
    for length in (0, 32, 63, 65):
        with pytest.raises(ValueError, match="64 bytes"):
            scalar_of(bytes(length))
    assert [int.from_bytes(each.tobytes(), "little") for each in scalar_rows([-1, ORDER + 4])] == [ORDER - 1, 4]


@law
@given(st.lists(scalars, max_size=30))
def test_a_scalar_times_its_inverse_is_one(values: list[int]) -> None:
    assert [a * b % ORDER for a, b in zip(values, inverses(values), strict=True)] == [1] * len(values)


def test_zero_has_no_inverse() -> None:
    for zero in (0, ORDER):
        with pytest.raises(PointError, match="element 2"):
            inverses([1, 2, zero, 4, zero])


# -------------------------------------------------------------------------------------------------------- libraries


def everything(library: Library) -> list[bytes]:
    uniform = np.random.default_rng(17).integers(0, 256, (100, 64), np.uint8)
    s = scalar_rows(scalar_of(each.tobytes()) for each in uniform)
    points = from_uniform(uniform, library=library)
    products = multiply(points, s, library=library)
    both = np.concatenate([points, INVALID, MULTIPLES])
    results = [
        points, products, multiply_base(s, library=library), add(points, products, library=library),
        total(products, library=library), valid(both, library=library),
    ]  # fmt: skip
    return [each.tobytes() for each in results]


def test_both_libraries_give_the_same_bytes_or_the_system_has_none() -> None:
    packaged = load("rbcl")
    assert packaged.kind == "rbcl"
    assert packaged.version >= ristretto.OLDEST
    if load().kind == "system":
        assert load("system").kind == "system"
        assert everything(load("system")) == everything(packaged)
    else:
        with pytest.raises(MissingExtra, match="libsodium"):
            load("system")


def in_a_process(script: str, folder: Path) -> str:
    command = [sys.executable, "-W", "error", "-W", "ignore:secea runs without", "-c", script]
    environment = os.environ | {"TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)  # noqa: S603  # our own script
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_packaged_library_leaves_no_file_and_works_without_it(tmp_path: Path) -> None:
    script = """
from secea.arithmetic import ristretto
library = ristretto.load("rbcl")
print(ristretto.multiply_base(ristretto.scalar_rows([2]), library=library).tobytes().hex())
"""
    assert in_a_process(script, tmp_path) == MULTIPLES[2].tobytes().hex()
    assert list(tmp_path.iterdir()) == []


def test_no_library_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    script = """
import sys, secea, secea.steps.oprf
from secea.arithmetic import ristretto
print("rbcl" in sys.modules, ristretto.load.cache_info().currsize)
"""
    assert in_a_process(script, tmp_path) == "False 0"


@pytest.mark.parametrize("kind", [None, "system", "rbcl"])
def test_without_a_library_the_error_says_what_to_install(kind: Kind | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(ristretto, "_NAMES", ("libsodium-that-nobody-has.so",))
    monkeypatch.setattr(ristretto, "importlib", SimpleNamespace(import_module=missing))
    with pytest.raises(MissingExtra, match=r"pip install rbcl, or install libsodium 1\.0\.18") as refused:
        load.__wrapped__(kind)
    assert ("no system library found" in str(refused.value)) == (kind != "rbcl")
    assert ("No module named" in str(refused.value)) == (kind != "system")


class Pretended:
    """A library that says of itself what a test wants."""

    def __init__(self, version: bytes = b"1.0.20", started: int = 0, without: str = "") -> None:
        self.without = without
        self._keep = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
        self.sodium_version_string = type("Version", (), {"__call__": lambda _: version})()
        self.sodium_init = lambda: started

    def __getitem__(self, symbol: str) -> Any:
        if symbol == self.without:
            raise AttributeError(f"undefined symbol: {symbol}")
        return self._keep

    def take_the_place_of_the_systems(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = {"cast": ctypes.cast, "c_void_p": ctypes.c_void_p, "c_char_p": ctypes.c_char_p}
        monkeypatch.setattr(ristretto, "ctypes", SimpleNamespace(CDLL=lambda name: self, **names))


def test_a_library_that_is_old_or_incomplete_or_does_not_start_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    unfit = {
        "older than 1.0.18": Pretended(version=b"1.0.17"),
        "sodium_init failed": Pretended(started=-1),
        **{f"undefined symbol: {symbol}": Pretended(without=symbol) for symbol in ristretto._SYMBOLS.values()},
    }
    for fault, library in unfit.items():
        library.take_the_place_of_the_systems(monkeypatch)
        with pytest.raises(MissingExtra, match=fault):
            load.__wrapped__("system")
        assert load.__wrapped__(None).kind == "rbcl"  # and the other one is, if nobody asked for this one
    for library in (Pretended(), Pretended(version=b"1.0.18"), Pretended(started=1)):
        library.take_the_place_of_the_systems(monkeypatch)
        assert load.__wrapped__("system").kind == "system"
