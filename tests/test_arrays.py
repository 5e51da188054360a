"""A file of arrays is read, or there is one error that names it, whatever is wrong with it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secea.arrays import read_arrays
from secea.errors import DataError

MATRIX = np.arange(12.0).reshape(3, 4)


def saved(path: Path, *, packed: bool) -> bytes:
    (np.savez_compressed if packed else np.savez)(path, names=np.array(["a", "b", "c"]), matrix=MATRIX)
    return path.read_bytes()


@pytest.mark.parametrize("packed", [False, True])
def test_what_numpy_wrote_is_read(tmp_path: Path, packed: bool) -> None:
    saved(tmp_path / "t.npz", packed=packed)
    arrays = read_arrays(tmp_path / "t.npz")
    assert arrays.keys() == {"names", "matrix"}
    assert np.array_equal(arrays["matrix"], MATRIX)


@pytest.mark.parametrize("packed", [False, True])
@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_damaged_file_is_read_or_named(
    packed: bool, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "t.npz"
    whole = bytearray(saved(path, packed=packed))
    cut = data.draw(st.integers(0, len(whole)))
    at, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        whole = whole[:cut]
    else:
        whole[at] = value
    path.write_bytes(whole)
    outcome = ""
    try:
        arrays = read_arrays(path, "look at it")
    except DataError as error:
        outcome = str(error)
    if outcome:
        assert "t.npz is no .npz file of plain arrays" in outcome
        assert "look at it" in outcome
    else:
        assert len(arrays) <= 2


def test_encrypted_unknown_and_pickled_members_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    saved(path, packed=False)
    data = bytearray(path.read_bytes())
    for signature in (b"PK\x01\x02", b"PK\x03\x04"):
        at = data.index(signature) + (8 if signature == b"PK\x01\x02" else 6)
        data[at] |= 1  # the flag of an encrypted member
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"t\.npz"):
        read_arrays(path)
    np.savez(path, names=np.array([{"a": 1}], object))
    with pytest.raises(DataError, match=r"t\.npz"):
        read_arrays(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"nothing")
    with pytest.raises(DataError, match=r"t\.npz"):
        read_arrays(path)
