"""Tables larger than memory: they are read, sent and written a piece at a time, and nothing else changes."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.hashed import hashed_names
from secea import Federation, Params, Table, arrays
from secea.arithmetic import grid
from secea.arrays import read_arrays, stored_like, write_arrays
from secea.commands import formats
from secea.commands.formats import columns
from secea.engines import spool
from secea.errors import DataError, RoundLost
from secea.forms.keyed import Keyed
from secea.forms.keyed import form as form_module
from secea.forms.keyed import server as keyed_server
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.values import Values, each
from secea.party import server as party_server
from secea.steps import oprf, union
from secea.testing import Parties
from secea.wire import messages
from secea.wire.randomness import KeyStream

RNG_SEED = 20261118


def in_file(matrix: NDArray[Any]) -> NDArray[Any]:
    copy = arrays.in_a_temporary_file(matrix.shape, matrix.dtype)
    copy[:] = matrix
    return copy


def tables(dtype: Any = np.float32, entities: int = 60) -> list[Table]:
    rng = np.random.default_rng(RNG_SEED)
    owned = [np.sort(rng.choice(entities, 40, replace=False)) for _ in range(4)]
    return [Table(own.tolist(), rng.normal(size=(own.size, 6)).astype(dtype)) for own in owned]


def right(mean: Table, expected: dict[Any, NDArray[np.float64]], within: float) -> bool:
    return all(np.abs(row - expected[name]).max() < 1.01 * within for name, row in mean.as_dict().items())


def truth(given: list[Table]) -> dict[Any, NDArray[np.float64]]:
    rows: dict[Any, list[NDArray[Any]]] = {}
    for table in given:
        for name, row in table.as_dict().items():
            rows.setdefault(name, []).append(row.astype(np.float64))
    return {name: np.mean(own, axis=0) for name, own in rows.items()}


def of(parties: Parties, n: int) -> KeyedClient:
    part = parties.clients[n].part
    assert isinstance(part, KeyedClient)
    return part


@pytest.fixture
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (form_module, messages):
        monkeypatch.setattr(module, "CHUNK_BYTES", 700)


# ------------------------------------------------------------------------------------------------- rows and their means


@pytest.mark.parametrize("dropouts", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_table_in_a_file_gives_the_means_of_one_in_memory_and_gets_them_in_a_file(
    dtype: Any, dropouts: int, many_chunks: None
) -> None:
    given_tables = tables(dtype)
    fed = Federation(Params(4, dim=6, collusion=1, dropouts=dropouts))
    fed.setup([table.names for table in given_tables])
    stored = [Table(table.names, in_file(table.matrix)) for table in given_tables]
    expected = truth(given_tables)
    for there in (stored, given_tables):
        before = [table.matrix.copy() for table in there]
        means = fed.round(there)
        for table, mean, old in zip(there, means, before, strict=True):
            assert spool.in_a_file(mean.matrix) == spool.in_a_file(table.matrix)
            assert mean.matrix.dtype == dtype
            assert right(mean, expected, fed.params.resolution)
            assert np.array_equal(table.matrix, old)  # the table itself is only read


def test_who_changes_a_table_after_it_was_contributed_changes_nothing(many_chunks: None) -> None:
    given_tables = tables()
    parties = Parties.of(given_tables, Keyed(), collusion=1)
    parties.setup()
    expected = truth(given_tables)
    parties.contribute(given_tables)
    for table in given_tables:
        table.matrix[:] = 7.0
    parties.exchange.run("upload", range(4))
    for n, table in enumerate(given_tables):
        assert right(Table(table.names, parties.means(n, table)), expected, parties.session.params.resolution)


def test_a_chunk_whose_means_have_come_is_not_sent_again_and_others_are_the_same_bytes(many_chunks: None) -> None:
    """Its rows are means by then. Under the same masks they would show what a client had before."""
    given_tables = tables()
    parties = Parties.of(given_tables, Keyed(), collusion=1)
    parties.setup()
    parties.contribute(given_tables)
    server, client = parties.server, parties.clients[0]
    server.begin("upload", range(4))
    parties.exchange.deliver()
    sent = [bytes(message) for message in client.outbox()]
    assert len(sent) > 4
    assert [bytes(message) for message in client.outbox()] == sent
    others = {n: [bytes(message) for message in parties.clients[n].outbox()] for n in range(1, 4)}
    for number, message in enumerate(sent):
        assert [bytes(again) for again in client.outbox()] == sent[number:]
        server.receive(0, message)
        for n, own in others.items():
            server.receive(n, own[number])
        if number + 1 < len(sent):
            parties.exchange.deliver()
            assert of(parties, 0).round.read == number + 1  # type: ignore[union-attr]
    assert not of(parties, 0).has_means
    server.close()
    parties.exchange.deliver()
    assert of(parties, 0).has_means


def test_means_that_come_to_nothing_do_not_touch_the_next_upload(many_chunks: None) -> None:
    """Some chunks of means were right, a later one was not: the table that goes out next is the one that was given."""
    given_tables = tables()
    parties = Parties.of(given_tables, Keyed(), collusion=1)
    parties.setup()
    parties.contribute(given_tables)
    parties.server.begin("upload", range(4))
    parties.exchange.deliver()
    others = [[bytes(message) for message in parties.clients[n].outbox()] for n in range(4)]
    for number in range(3):
        for n, own in enumerate(others):
            parties.server.receive(n, own[number])
    parties.exchange.deliver()
    assert of(parties, 0).round.read == 3  # type: ignore[union-attr]
    assert not of(parties, 0).has_means
    with pytest.raises(RoundLost):
        parties.server.lose("it is tried")
    parties.union(range(4))
    parties.exchange.ask(range(4), lambda n: parties.clients[n].contribute(given_tables[n], parties.number))
    parties.exchange.run("upload", range(4))
    expected = truth(given_tables)
    for n, table in enumerate(given_tables):
        assert right(Table(table.names, parties.means(n, table)), expected, parties.session.params.resolution)


@pytest.mark.parametrize("change", ["value", "order", "dtype", "grid"])
def test_values_that_went_out_are_known_again_and_others_are_not(change: str) -> None:
    given_tables = tables(np.float64)
    parties = Parties.of(given_tables, Keyed(), collusion=1)
    parties.setup()
    parties.contribute(given_tables)
    parties.exchange.losses = {3: "upload"}
    with pytest.raises(RoundLost):
        parties.exchange.run("upload", range(4))
    parties.exchange.losses = {}
    parties.union(range(4))
    parties.server.begin("ready", range(4))
    parties.exchange.deliver()
    table, client = given_tables[0], parties.clients[0]
    other = Table(table.names, table.matrix.copy())
    if change == "value":
        other.matrix[-1, -1] += 1e-12
    elif change == "order":  # the same bytes in the same order, and other names
        other = Table([table.names[1], table.names[0], *table.names[2:]], table.matrix)
    elif change == "dtype":
        other = Table(table.names, table.matrix.astype(np.float32))
    else:
        of(parties, 0).tables.grid = (7, 0.5)
        other = table
    with pytest.raises(RoundLost, match="other values"):
        client.contribute(other, parties.number)
    if change in ("value", "order"):
        client.contribute(Table(table.names, table.matrix.copy()), parties.number)


def test_means_are_given_away_once() -> None:
    given_tables = tables()
    fed = Federation(Params(4, dim=6))
    fed.setup([table.names for table in given_tables])
    means = fed.round(given_tables)
    assert not any(client.part.has_means for client in fed.clients.values())
    assert fed.without_mean == [()] * 4
    first = means[0].matrix.copy()
    fed.restart()
    fed.round(given_tables)
    assert np.array_equal(means[0].matrix, first)  # it is the caller's


# ----------------------------------------------------------------------------------------------------- memory and files


@pytest.mark.parametrize("dropouts", [0, 1])
def test_a_round_takes_little_memory_beyond_tables_and_results(dropouts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (spool, keyed_server, party_server):
        monkeypatch.setattr(module, "HELD_BYTES", 1 << 16)
    monkeypatch.setattr(form_module, "CHUNK_BYTES", 1 << 16)
    rng = np.random.default_rng(RNG_SEED)
    entities, dim = 6_000, 64
    given_tables = [Table(range(entities), rng.normal(size=(entities, dim)).astype(np.float32)) for _ in range(3)]
    params = Params(3, dim=dim, collusion=1, dropouts=dropouts, max_entities=entities, max_union=entities)
    fed = Federation(params)
    with hashed_names():  # what is measured does not depend on that
        fed.setup([table.names for table in given_tables])
    fed.round(given_tables)
    tracemalloc.start()
    try:
        means = fed.round(given_tables)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    results = sum(mean.matrix.nbytes for mean in means)
    whole = entities * (dim + 3) * 8  # an upload
    assert most - results < 1.5 * whole, (most - results) / whole  # with drop-outs, sum and broadcast alone were 2


def test_an_upload_that_is_not_complete_goes_to_a_file_and_counts_as_from_memory(
    monkeypatch: pytest.MonkeyPatch, many_chunks: None
) -> None:
    monkeypatch.setattr(spool, "HELD_BYTES", 1000)
    in_files: list[bool] = []
    close = spool.Spool.close

    def closed(self: spool.Spool) -> None:
        in_files.append(self._file is not None and len(self._sizes) > 2 and not self._chunks)
        close(self)

    monkeypatch.setattr(spool.Spool, "close", closed)
    given_tables = tables()
    fed = Federation(Params(4, dim=6, collusion=1, dropouts=1))
    fed.setup([table.names for table in given_tables])
    expected, means = truth(given_tables), fed.round(given_tables)
    for mean in means:
        assert all(
            np.abs(row - expected[name]).max() < 1.01 * fed.params.resolution for name, row in mean.as_dict().items()
        )
    assert in_files == [True] * 4
    left = truth(given_tables[:3])
    means = fed.round(given_tables, vanish={3: "upload"})
    for mean in means[:3]:
        assert all(
            np.abs(row - left[name]).max() < 1.01 * fed.params.resolution for name, row in mean.as_dict().items()
        )


@pytest.mark.parametrize("dropouts", [0, 1])
def test_sums_and_broadcasts_that_wait_in_files_give_the_same_means(
    dropouts: int, monkeypatch: pytest.MonkeyPatch, many_chunks: None
) -> None:
    kinds: list[str] = []

    class Noted(spool.Files):
        def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
            kinds.append("sum")
            return super().zeros(shape, dtype)

        def kept(self, message: messages.Buffer) -> messages.Buffer:
            kinds.append("broadcast")
            copy = super().kept(message)
            assert bytes(copy) == bytes(message)
            return copy

    monkeypatch.setattr(spool, "_FILE_BYTES", 1 << 12)
    monkeypatch.setattr(spool, "Files", Noted)
    for module in (keyed_server, party_server):
        monkeypatch.setattr(module, "HELD_BYTES", 1000)
    given_tables = tables()
    fed = Federation(Params(4, dim=6, collusion=1, dropouts=dropouts))
    fed.setup([table.names for table in given_tables])
    expected = truth(given_tables)
    for _ in range(2):
        for mean in fed.round(given_tables):
            assert right(mean, expected, fed.params.resolution)
    assert set(kinds) == ({"sum", "broadcast"} if dropouts else {"broadcast"})  # in one process sums do not wait


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=12), st.randoms())
def test_whatever_waits_in_files_stays_as_it_is(wanted: list[tuple[bool, int]], random: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "_FILE_BYTES", 500)
        files, there = spool.Files(), list[tuple[Any, bytes]]()
        for is_sum, size in wanted:
            content = random.randbytes(8 * size)
            if is_sum:
                array = files.zeros((1, size), np.dtype(np.uint64))
                assert not array.any()
                array[0] = np.frombuffer(content, np.uint64)
                there.append((array, content))
            else:
                there.append((files.kept(content), content))
            what, _ = random.choice(there)
            files.rest(what)
        for what, content in there:
            assert memoryview(what).tobytes() == content
            spool.rest(what)


def test_what_waits_in_a_file_takes_no_memory() -> None:
    """By what the system says: a page counts while it is mapped, and none is when it rests."""
    size = 1 << 22
    array = spool.Files().zeros((1, size // 8), np.dtype(np.uint64))
    array[:] = 1
    before = resident()
    spool.rest(array)
    assert resident() < before - size // 2
    assert int(array.sum()) == size // 8


def resident() -> int:
    """Bytes of this process in memory. Linux."""
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("order", ["C", "F"])
def test_large_arrays_of_an_archive_stay_in_a_file(
    tmp_path: Path, packed: bool, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MAPPED_BYTES", 1000)
    matrix = np.asarray(np.random.default_rng(RNG_SEED).normal(size=(50, 7)).astype(np.float32), order=order)
    names = np.array([f"name {i}" for i in range(50)])
    path = tmp_path / "table.npz"
    (np.savez_compressed if packed else np.savez)(path, names=names, matrix=matrix)
    read = read_arrays(path, "")
    assert spool.in_a_file(read["matrix"])
    assert not spool.in_a_file(read["names"])
    assert np.array_equal(read["matrix"], matrix)
    read["matrix"][0, 0] = 5  # in memory alone
    assert np.array_equal(read_arrays(path, "")["matrix"], matrix)


def test_a_flipped_bit_of_a_large_array_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAPPED_BYTES", 1000)
    path = tmp_path / "table.npz"
    np.savez(path, matrix=np.zeros((100, 4)))
    data = bytearray(path.read_bytes())
    data[1500] ^= 4
    path.write_bytes(data)
    with pytest.raises(DataError, match="not an .npz file".replace(".", "[.]")):
        read_arrays(path, "")


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 300), st.integers(1, 40), st.sampled_from([np.float32, np.float64]))
def test_what_is_written_piece_by_piece_is_what_numpy_reads(rows: int, dim: int, dtype: Any) -> None:
    matrix = np.random.default_rng(rows).normal(size=(rows, dim)).astype(dtype)
    file = io.BytesIO()
    write_arrays(file, {"names": np.arange(rows), "matrix": matrix.T.copy().T})
    file.seek(0)
    with np.load(file, allow_pickle=False) as read:
        assert np.array_equal(read["matrix"], matrix)
        assert read["matrix"].dtype == dtype
        assert np.array_equal(read["names"], np.arange(rows))
    assert zipfile.ZipFile(file).testzip() is None


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_a_large_file_of_a_command_is_read_and_written_without_being_whole_in_memory(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MAPPED_BYTES", 1 << 16)
    monkeypatch.setattr(columns, "BATCH_ROWS", 64)
    rows, dim = 8_000, 256
    matrix = np.random.default_rng(RNG_SEED).normal(size=(rows, dim)).astype(np.float32)
    path, again = tmp_path / f"table.{ending}", tmp_path / f"again.{ending}"
    if ending == "npz":
        np.savez(path, names=np.arange(rows), matrix=matrix)
    else:
        import pyarrow
        from pyarrow import parquet

        given = {"name": np.arange(rows), "row": pyarrow.FixedSizeListArray.from_arrays(matrix.reshape(-1), dim)}
        parquet.write_table(pyarrow.table(given), path, row_group_size=100)
    formats.read(path)  # what is loaded on first use is loaded now
    tracemalloc.start()
    try:
        source = formats.read(path)
        content = source.write(source.table.matrix)
        with again.open("wb") as file:
            _written(content, file)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert spool.in_a_file(source.table.matrix)
    assert np.array_equal(source.table.matrix, matrix)
    assert np.array_equal(formats.read(again).table.matrix, matrix)
    assert most < matrix.nbytes, most / matrix.nbytes


def _written(content: Any, file: BinaryIO) -> None:
    assert callable(content)
    content(file)


def test_room_for_few_rows_is_memory() -> None:
    assert not spool.in_a_file(stored_like(np.zeros((1, 4)), 10))


# ------------------------------------------------------------------------------------------------------ block by block


@settings(deadline=None)
@given(
    st.sampled_from(["normal", "decimals", "bf16", "int8", "tiny"]), st.integers(40, 300), st.integers(1, 5),
    st.sampled_from([1, 7, 100]), st.sampled_from([np.float32, np.float64]),
)  # fmt: skip
def test_the_grid_of_a_table_does_not_depend_on_how_it_is_cut(
    kind: str, rows: int, dim: int, cut: int, dtype: Any
) -> None:
    rng = np.random.default_rng(rows * dim)
    x = rng.normal(size=(rows, dim))
    made: dict[str, NDArray[Any]] = {
        "normal": x, "decimals": x.round(2), "tiny": x * 1e-30, "int8": np.rint(x * 20) * 0.013,
        "bf16": (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32),
    }  # fmt: skip
    matrix = made[kind].astype(dtype)
    whole = grid.grid_of(matrix, matrix.dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid, "BLOCK_VALUES", cut)
        assert grid.grid_of(matrix, matrix.dtype) == whole
        assert np.array_equal(np.concatenate(list(grid.blocks(matrix))), matrix)


def test_peeling_finds_the_same_tags_however_many_cells_it_looks_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = union.tags_of(range(3_000), bytes(32))
    geometry = union.Geometry.of(3_000, 0, b"seed")
    table = union.fill(tags, geometry, KeyStream(bytes(32)))
    for together in (1 << 18, 100, 7):
        monkeypatch.setattr(union, "PEELED_AT_ONCE", together)
        found = union.peel(table, geometry)
        assert found is not None
        assert np.array_equal(found, np.sort(tags))


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12), st.integers(0, 3))
def test_two_equal_points_are_found_wherever_their_bytes_differ_from_others(words: list[int], place: int) -> None:
    points = np.zeros((len(words), 4), "<u8")
    points[:, place] = words  # all others are the same: a rogue client can choose that
    found = oprf.repeated(points.view(np.uint8).reshape(-1, 32))
    assert (found is None) == (len(set(words)) == len(words))
    if found is not None:
        assert found[0] != found[1]
        assert words[found[0]] == words[found[1]]


@given(st.lists(st.integers(0, 50), unique=True, max_size=20), st.integers(0, 20))
def test_values_of_names_are_a_mapping_in_one_array(names: list[int], cut: int) -> None:
    value = {name: bytes([name]) * oprf.OUTPUT_BYTES for name in names}
    made = Values.made(names[:cut], [value[name] for name in names[:cut]])
    made = made.plus(names[cut:], [value[name] for name in names[cut:]])
    assert dict(made) == value
    assert made == value
    backwards = tuple(reversed(names))
    assert list(each(made.of(backwards))) == [value[name] for name in backwards]
    assert list(each(made.of(made.names))) == list(made.values())
    with pytest.raises(KeyError):
        made[51]
    assert "15" not in repr(made)
