"""A file of arrays is read as it was written, or there is one error that names it, whatever is wrong with it."""

from __future__ import annotations

import io
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from secea.arrays import read_arrays
from secea.cli import main
from secea.errors import DataError
from secea.learn.folder import Folder

MATRIX = np.arange(12.0).reshape(3, 4)
ADVICE = "look at it"


def written(path: Path, **arrays: NDArray[Any]) -> bytes:
    np.savez(path, **arrays)  # type: ignore[arg-type]  # numpy's types take no names from a mapping
    return path.read_bytes()


def saved(path: Path, *, packed: bool) -> bytes:
    (np.savez_compressed if packed else np.savez)(path, names=np.array(["a", "b", "c"]), matrix=MATRIX)
    return path.read_bytes()


def refused(path: Path) -> str:
    with pytest.raises(DataError) as error:
        read_arrays(path, ADVICE)
    words = str(error.value)
    assert words.startswith(f"{path} is not an .npz file of plain arrays (")
    assert words.endswith(f"); {ADVICE}")
    assert "\n" not in words
    return words


def as_written_or_refused(path: Path, data: bytes) -> bool:
    """Whether these bytes are read. If they are, then nothing but what was written comes out of them."""
    path.write_bytes(data)
    try:
        arrays = read_arrays(path, ADVICE)
    except DataError:
        refused(path)
        return False
    assert {name: (array.dtype, array.tolist()) for name, array in arrays.items()} == {
        "names": (np.dtype("<U1"), ["a", "b", "c"]),
        "matrix": (np.dtype("<f8"), MATRIX.tolist()),
    }
    return True


# ---------------------------------------------------------------------------------------------------- what is right


@pytest.mark.parametrize("packed", [False, True])
def test_what_numpy_wrote_is_read(tmp_path: Path, packed: bool) -> None:
    assert as_written_or_refused(tmp_path / "t.npz", saved(tmp_path / "t.npz", packed=packed))


def test_every_plain_kind_and_order_is_read_and_can_be_changed(tmp_path: Path) -> None:
    arrays = {
        "fortran": np.asfortranarray(MATRIX),
        "none": np.zeros((0, 7), np.float32),
        "scalar": np.array("text"),
        "big": np.array([1, 2], ">i4"),
        "bytes": np.array([b"a", b"bc"]),
        "truth": np.array([True, False]),
    }
    written(tmp_path / "t.npz", **arrays)
    for name, array in read_arrays(tmp_path / "t.npz", ADVICE).items():
        assert (array.dtype, array.shape, array.tolist()) == (
            arrays[name].dtype,
            arrays[name].shape,
            arrays[name].tolist(),
        )
        array[...] = array[...]


# ---------------------------------------------------------------------------------------------------- what is damaged


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_was_cut_is_refused(tmp_path: Path, packed: bool) -> None:
    whole = saved(tmp_path / "t.npz", packed=packed)
    assert not any(as_written_or_refused(tmp_path / "t.npz", whole[:size]) for size in range(len(whole)))


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path, packed: bool) -> None:
    whole, read = saved(tmp_path / "t.npz", packed=packed), 0
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        read += as_written_or_refused(tmp_path / "t.npz", bytes(flipped))
    assert 0 < read < 4 * len(whole)  # dates, versions and the like


@given(st.binary(max_size=200), st.integers(0, 700), st.integers(0, 200))
def test_bytes_that_were_overwritten_are_noticed_or_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int, instead: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "t.npz"
    whole = saved(path, packed=False)
    as_written_or_refused(path, whole[:at] + junk + whole[at + instead :])


# ----------------------------------------------------------------------------------------------- what was made up


def npy(header: str, data: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """A member whose header says this."""
    text = header.encode("latin-1")
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text + data


def described(descr: str = "'<f8'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}"


HEADERS = {
    "absurd": described(shape=f"({2**62},)"),
    "larger than any memory": described(shape="(99999999, 99999999, 99999999)"),
    "more than there is": described(shape="(3,)"),
    "less than there is": described(shape="(1,)"),
    "negative": described(shape="(-2,)"),
    "twice negative": described(shape="(-1, -2)"),
    "no shape": described(shape="'two'"),
    "floats": described(shape="(2.0,)"),
    "objects": described(descr="'|O'"),
    "fields": described(descr="[('a', '<f8')]"),
    "a part of it": described(descr="('<f8', (1,))"),
    "no type": described(descr="'<q9'"),
    "an odd type": described(descr="{'a': 1}"),
    "no order": described(order="2"),
    "no dictionary": "[]",
    "no literal": "open('x')",
    "not closed": "{" * 150,
    "nested": "(1," * 3000,
    "negated": "-" * 900 + "1",
    "long": described() + " " * 20_000,
    "a zero": "\0",
    "nothing": "",
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0), (9, 9)], ids=str)
def test_a_header_that_does_not_fit_is_refused(tmp_path: Path, name: str, version: tuple[int, int]) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("x.npy", npy(HEADERS[name], bytes(16), version))
    refused(tmp_path / "t.npz")


@given(st.text(st.characters(max_codepoint=255), max_size=60), st.integers(0, 60), st.integers(0, 20))
def test_whatever_a_header_says_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, junk: str, at: int, instead: int
) -> None:
    path, header = tmp_path_factory.mktemp("made-up") / "t.npz", described()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy(header[:at] + junk + header[at + instead :], bytes(16)))
    try:
        (array,) = read_arrays(path, ADVICE).values()
    except DataError:
        refused(path)
    else:
        assert array.nbytes == 16


def test_a_python_2_header_is_read_without_a_warning(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("x.npy", npy(described(shape="(2L,)"), bytes(16)))
    assert read_arrays(tmp_path / "t.npz", ADVICE)["x"].tolist() == [0, 0]


def test_characters_that_are_none_are_refused(tmp_path: Path) -> None:
    written(tmp_path / "t.npz", names=np.array([0x110000], "<u4").view("<U1"))
    assert "character" in refused(tmp_path / "t.npz")


def flagged(path: Path) -> None:
    """The flag of an encrypted member, in both of its headers."""
    data = bytearray(saved(path, packed=False))
    for signature, at in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        data[data.index(signature) + at] |= 1
    path.write_bytes(data)


def method(number: int) -> Callable[[Path], None]:
    """A compression that Python does not have, or that is not the one of the data."""

    def change(path: Path) -> None:
        data = bytearray(saved(path, packed=True))
        for signature, at in ((b"PK\x01\x02", 10), (b"PK\x03\x04", 8)):
            data[data.index(signature) + at] = number
        path.write_bytes(data)

    return change


def raw(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"nothing")


def pickled(path: Path) -> None:
    written(path, names=np.array([{"a": 1}], object))


def single(path: Path) -> None:
    data = io.BytesIO()
    np.save(data, MATRIX)
    path.write_bytes(data.getvalue())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (flagged, "encrypted"),
        (method(99), "compression"),
        (method(1), "compression"),
        (method(12), "Invalid data stream"),
        (method(14), ""),
        (pickled, "names.npy holds Python objects"),
        (raw, "magic string"),
        (single, "not a zip file"),
        (Path.touch, "not a zip file"),
    ],
    ids=["encrypted", "method 99", "method 1", "bzip2", "lzma", "pickled", "raw", "npy", "empty"],
)
def test_archives_that_numpy_did_not_write_are_refused(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    make(tmp_path / "t.npz")
    assert why in refused(tmp_path / "t.npz")


def test_a_lack_of_memory_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    saved(tmp_path / "t.npz", packed=False)
    monkeypatch.setattr("secea.arrays.npy.read_array", full)
    with pytest.raises(MemoryError):
        read_arrays(tmp_path / "t.npz", ADVICE)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz cannot be read: no such file or directory"):
        read_arrays(tmp_path / "none.npz", ADVICE)
    with pytest.raises(DataError, match="cannot be read: is a directory"):
        read_arrays(tmp_path, ADVICE)


# ------------------------------------------------------------------------------------------------------ the commands


def told(*words: str | Path) -> str:
    ran = CliRunner().invoke(main, [str(word) for word in words])
    assert (ran.exit_code, ran.output.count("\n")) == (3, 1), ran.output
    return ran.output


@pytest.mark.parametrize("make", [flagged, method(99), pickled, single], ids=["encrypted", "method", "pickled", "npy"])
def test_commands_name_a_damaged_file_and_say_what_to_do(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "t.npz"
    make(path)
    (tmp_path / "u.csv").write_text("a,1,2\n", encoding="utf-8")
    assert "expected two arrays: np.savez(" in told("aggregate", path, tmp_path / "u.csv", "--out", tmp_path / "m")
    assert "save the arrays again with np.savez" in told("train", "kg", "--data", path, "--out", tmp_path / "run")


def test_a_damaged_checkpoint_is_named_with_what_to_do(tmp_path: Path) -> None:
    folder, path = Folder(tmp_path), tmp_path / "checkpoint" / "plain.npz"
    folder.save("plain", 3, [{"e": MATRIX}], {"training": 1.0})
    whole = path.read_bytes()
    assert folder.saved("plain") is not None
    path.write_bytes(whole[:-9])
    with pytest.raises(DataError, match=r"plain\.npz is not .*; remove it, and this method begins afresh"):
        folder.saved("plain")
    for arrays in (
        {"x": MATRIX},
        {"about": np.array("{")},
        {"about": np.array('{"clients": 0}'), "0/e": MATRIX},
        {"about": np.array('{"clients": 1}'), "one": MATRIX},
        {"about": np.array("7")},
    ):
        written(path, **arrays)
        with pytest.raises(DataError, match=r"plain\.npz is no checkpoint of a run .*; remove it"):
            folder.saved("plain")
    shutil.rmtree(path.parent)
    assert folder.saved("plain") is None
