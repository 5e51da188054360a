"""`secea aggregate`: what goes in and comes out, in every format; what is refused; what is never overwritten."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from secea import atomic
from secea.cli import main
from secea.commands.formats import READERS, Layout, read

VALUES = {
    "north": {"a": [0.5, 1.0], "b": [2.0, -1.0]},
    "south": {"a": [1.5, 3.0], "7": [0.0, 4.0]},
    "west": {"7": [1.0, 2.0]},
}
MEANS = {
    "north": {"a": [1.0, 2.0], "b": [2.0, -1.0]},
    "south": {"a": [1.0, 2.0], "7": [0.5, 3.0]},
    "west": {"7": [0.5, 3.0]},
}
SUFFIXES = tuple(READERS)


def write(path: Path, table: dict[str, list[float]], *, header: bool = True) -> Path:
    names, matrix = list(table), np.array(list(table.values()), np.float32)
    rows = [[name, *map(str, row)] for name, row in table.items()]
    match path.suffix:
        case ".npz":
            np.savez(path, names=np.array(names), matrix=matrix)
        case ".npy":
            np.save(path, matrix)
            path.with_suffix(".names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        case ".parquet":
            parquet.write_table(pyarrow.table({"name": names, "x": list(matrix)}), path)
        case ".csv" | ".tsv":
            between = "," if path.suffix == ".csv" else "\t"
            lines = [["name", "x", "y"], *rows] if header else rows
            path.write_text("".join(between.join(line) + "\n" for line in lines), encoding="utf-8")
        case _:
            first = [f"{len(rows)} 2"] if header else []
            path.write_text("\n".join([*first, *(" ".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


def tables(folder: Path, suffix: str = ".csv", **options: Any) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [str(write(folder / f"{name}{suffix}", table, **options)) for name, table in VALUES.items()]


def aggregate(*words: str) -> Result:
    return CliRunner().invoke(main, ["aggregate", *words])


def told(path: Path) -> dict[str, list[float]]:
    table = read(path).table
    return {str(name): row.tolist() for name, row in zip(table.names, table.matrix, strict=True)}


def close(found: dict[str, list[float]], expected: dict[str, list[float]]) -> bool:
    same = list(found) == list(expected)
    return same and all(found[name] == pytest.approx(row, abs=1e-5) for name, row in expected.items())


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("header", [True, False])
def test_each_client_gets_its_means_in_the_format_of_its_table(tmp_path: Path, suffix: str, header: bool) -> None:
    given = tables(tmp_path / "in", suffix, header=header)
    ran = aggregate(*given, "--out", str(tmp_path / "means"))
    assert ran.exit_code == 0, ran.output
    for source in map(Path, given):
        result = tmp_path / "means" / source.name
        assert close(told(result), MEANS[source.stem])
        if suffix in (".csv", ".tsv", ".vec", ".txt"):
            first = [path.read_text().splitlines()[0] for path in (source, result)]
            assert (first[0] == first[1]) == header
    assert sorted(path.name for path in (tmp_path / "means").iterdir()) == sorted(
        p.name for p in (tmp_path / "in").iterdir()
    )


def test_formats_mix_and_names_are_compared_as_texts(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", names=np.array([7, 8]), matrix=np.array([[1.0], [2.0]], np.float32))
    (tmp_path / "b.csv").write_text("7,3\n", encoding="utf-8")
    columns = {"id": [7, 9], "x": pyarrow.array([5.0, 6.0], pyarrow.float32())}
    parquet.write_table(pyarrow.table(columns), tmp_path / "c.parquet")
    ran = aggregate(*(str(tmp_path / name) for name in ("a.npz", "b.csv", "c.parquet")), "--out", str(tmp_path / "m"))
    assert ran.exit_code == 0, ran.output
    with np.load(tmp_path / "m" / "a.npz") as file:
        assert file["names"].tolist() == [7, 8]
        assert file["matrix"].dtype == np.float32
        assert file["matrix"][:, 0] == pytest.approx([3.0, 2.0], abs=1e-5)
    back = parquet.read_table(tmp_path / "m" / "c.parquet")
    assert back.schema == parquet.read_table(tmp_path / "c.parquet").schema
    assert back["x"].to_pylist() == pytest.approx([3.0, 6.0], abs=1e-5)


def test_spellings_that_normalize_makes_alike_are_one_entity_and_results_keep_their_own(tmp_path: Path) -> None:
    spelled = {
        "a": {"\u00c5 ": [1.0, 2.0]},
        "b": {" A\u030a": [3.0, 4.0]},
        "c": {"\u00e5": [5.0, 6.0], "01": [1.0, 1.0]},
    }
    given = [str(write(tmp_path / f"{name}.npz", table)) for name, table in spelled.items()]
    ran = aggregate(*given, "--out", str(tmp_path / "apart"), "--json")
    assert (ran.exit_code, json.loads(ran.stdout)["union"], json.loads(ran.stdout)["normalize"]) == (0, 4, "")
    ran = aggregate(*given, "--out", str(tmp_path / "means"), "--normalize", "casefold,nfc,strip", "--json")
    assert ran.exit_code == 0, ran.output
    assert (json.loads(ran.stdout)["union"], json.loads(ran.stdout)["normalize"]) == (2, "nfc,strip,casefold")
    for name, table in spelled.items():
        expected = {each: [1.0, 1.0] if each == "01" else [3.0, 4.0] for each in table}
        assert close(told(tmp_path / "means" / f"{name}.npz"), expected)


def test_names_of_a_file_that_become_one_are_told_with_both_lines(tmp_path: Path) -> None:
    double = write(tmp_path / "x.csv", {"Aspirin": [1.0, 2.0], "b": [1.0, 2.0], " aspirin": [1.0, 2.0]})
    other = write(tmp_path / "y.csv", {"a": [1.0, 2.0]})
    ran = aggregate(str(double), str(other), "--out", str(tmp_path / "means"), "--normalize", "strip,casefold")
    assert ran.exit_code == 3
    fault = "line 4: the entity ' aspirin' is 'Aspirin' of line 2 after --normalize strip,casefold; join the two rows"
    assert fault in ran.output
    ran = aggregate(str(double), str(other), "--out", str(tmp_path / "means"), "--normalize", "lower")
    assert ran.exit_code == 3
    assert "normalize has no step 'lower'; the steps are nfc, strip, casefold" in ran.output
    assert not (tmp_path / "means").exists()


def test_json_says_what_was_done(tmp_path: Path) -> None:
    given = tables(tmp_path / "in")
    result = json.loads(aggregate(*given, "--out", str(tmp_path / "m"), "--json", "--precision", "20").stdout)
    assert [each["table"] for each in result["clients"]] == given
    assert (result["union"], result["dim"], result["resolution"]) == (3, 2, 64 * 2**-20)
    assert result["bytes"]["setup"] > result["bytes"]["round"] > 0


@pytest.mark.slow
def test_paillier_gives_exact_means(tmp_path: Path) -> None:
    given = tables(tmp_path / "in", ".npz")
    assert aggregate(*given, "--out", str(tmp_path / "m"), "--form", "paillier").exit_code == 0
    assert told(tmp_path / "m" / "south.npz") == MEANS["south"]


BROKEN = {
    "empty.csv": (b"", "is empty; expected lines of a name and its numbers, with commas between"),
    "heading.csv": (b"name,x,y\n", "holds no entities"),
    "twice.csv": (b"a,1,2\nb,1,2\na,3,4\n", "line 3: the entity 'a' is in line 1 too; keep one"),
    "ragged.csv": (b"a,1,2\nb,1\n", "line 2: a name and 1 numbers; 2 were expected"),
    "nan.csv": (b"name,x,y\na,1,2\nb,nan,2\n", "line 3: the embedding of 'b' holds nan; every number must be finite"),
    "inf.vec": (b"a 1 -inf\n", "line 1: the embedding of 'a' holds -inf"),
    "word.csv": (b"a,1,2\nb,1,two\n", "line 2: 'two' is not a number"),
    "under.tsv": (b"a\t1\t2_0\n", "line 1: '2_0' is not a number"),
    "latin.csv": ("a,1,2\nß,1,2\n".encode("latin-1"), "line 2: the byte 0xdf is no UTF-8 text; save the file as UTF-8"),
    "quote.csv": (b'a,1,2\n"b,1,2\n', "line 2: a name and 0 numbers"),
    "nameless.csv": (b"a,1,2\n,1,2\n", "line 2: the name is empty"),
    "lone.csv": (b"a\nb\n", "line 1: one field alone; a name and its numbers are expected, with commas between"),
    "count.vec": (b"3 2\na 1 2\nb 1 2\n", "line 1: it says 3 entities, and 2 follow"),
    "length.vec": (b"1 3\na 1 2\n", "line 2: a name and 2 numbers; 3 were expected"),
    "large.csv": (b"a,1,2\nb,1,65\n", "line 2: 65 is outside of [-64, 64]; give --max-abs 128, or scale"),
    "wide.csv": (b"a,1,2,3\n", "has embeddings of length 3,"),
    "vast.csv": (b"a,1,2097151.5\nb,1,2\n", "2097151.5 is outside of [-64, 64]; give --max-abs 2097152, or"),
    "vaster.csv": (b"a,1,1e300\nb,1,2\n", "line 1: 1e+300 is outside of [-64, 64]; scale the embeddings down"),
    "plain.csv.gz": (b"a,1,2\n", "is not compressed by gzip; if it is plain text, let its name end in .csv"),
    "packed.csv": (gzip.compress(b"a,1,2\n"), "is compressed by gzip; let its name end in .csv.gz"),
    "workbook.csv": (b"PK\x03\x04\x14", "is a zip archive, such as a workbook of Excel"),
    "list.csv": (b'name,x,y,z\na,1,2,"1,234.5"\n', "line 2: '1,234.5' has commas between thousands"),
    "text.npz": (b"hello", "is not an .npz file of plain arrays"),
    "text.parquet": (b"hello", "is no parquet file"),
    "table.xlsx": (b"hello", "a table is a file that ends in .npz, .npy, .csv, .tsv, .parquet, .vec, .txt"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_with_a_file_is_told_with_its_line(tmp_path: Path, name: str) -> None:
    data, expected = BROKEN[name]
    (tmp_path / name).write_bytes(data)
    ran = aggregate(*tables(tmp_path / "in")[:2], str(tmp_path / name), "--out", str(tmp_path / "m"))
    assert ran.exit_code == 3
    assert ran.output.startswith(f"secea: {tmp_path / name}")
    assert expected in ran.output
    assert ran.output.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_a_table_in_arrays_is_checked_by_row(tmp_path: Path) -> None:
    ones = np.ones((2, 2), np.float32)
    for arrays, expected in (
        ({"x": ones}, "holds the arrays x; expected two arrays"),
        ({"names": np.array(["a", "a"]), "matrix": ones}, "row 1: the entity 'a' is in row 0 too"),
        ({"names": np.array(["a"]), "matrix": ones}, "1 names need a matrix of as many rows"),
        ({"names": np.array(["a", "b"]), "matrix": ones.astype(np.int8)}, "save it as float32 or float64"),
        ({"names": np.array([0.5, 1.5]), "matrix": ones}, "names must be texts or integers"),
    ):
        np.savez(tmp_path / "x.npz", **arrays)
        ran = aggregate(*tables(tmp_path / "in")[:2], str(tmp_path / "x.npz"), "--out", str(tmp_path / "m"))
        assert (ran.exit_code, expected in ran.output) == (3, True), ran.output
    for columns, expected in (
        ({"name": ["a"]}, "has 1 columns"),
        ({"name": ["a", "b"], "x": [[1.0], [1.0, 2.0]]}, "row 1: 2 numbers; 1 were expected"),
        ({"name": ["a", "b"], "x": [1.0, None]}, "row 1: a number is missing"),
        ({"name": ["a", "b"], "x": ["1", "2"]}, "the column 'x' holds string, not numbers"),
        ({"name": ["a", None], "x": [1.0, 2.0]}, "row 1: the name is missing"),
    ):
        parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
        ran = aggregate(*tables(tmp_path / "in")[:2], str(tmp_path / "x.parquet"), "--out", str(tmp_path / "m"))
        assert (ran.exit_code, expected in ran.output) == (3, True), ran.output


def test_tables_are_never_overwritten_and_results_only_by_force(tmp_path: Path) -> None:
    given = tables(tmp_path / "in")
    before = [Path(path).read_bytes() for path in given]
    ran = aggregate(*given, "--out", str(tmp_path / "in"), "--force")
    assert (ran.exit_code, "is one of the tables" in ran.output) == (3, True)
    assert [Path(path).read_bytes() for path in given] == before
    out = tmp_path / "m"
    assert aggregate(*given, "--out", str(out)).exit_code == 0
    first = (out / "west.csv").stat().st_ino
    ran = aggregate(*given, "--out", str(out))
    assert (ran.exit_code, "replace it with --force" in ran.output) == (3, True)
    assert (out / "west.csv").stat().st_ino == first
    assert aggregate(*given, "--out", str(out), "--force").exit_code == 0
    assert (out / "west.csv").stat().st_ino != first
    (tmp_path / "file").touch()
    assert "--out names a folder" in aggregate(*given, "--out", str(tmp_path / "file")).output
    (tmp_path / "two").mkdir()
    twin = write(tmp_path / "two" / "north.csv", VALUES["north"])
    assert "two tables are named north.csv" in aggregate(*given, str(twin), "--out", str(tmp_path / "n")).output


def test_two_tables_are_enough_and_a_note_says_what_that_means(tmp_path: Path) -> None:
    given = tables(tmp_path)[:2]
    ran = aggregate(*given, "--out", str(tmp_path / "m"))
    assert (ran.exit_code, "note: Two clients learn which entities they have in common" in ran.output) == (0, True)
    assert close(told(tmp_path / "m" / "north.csv"), MEANS["north"])
    result = json.loads(aggregate(*given, "--out", str(tmp_path / "m"), "--force", "--json").stdout)
    assert result["form"] == "keyed"
    assert ["by subtraction" in note for note in result["notes"]] == [True]


def test_one_table_is_too_few_and_so_are_two_for_the_paper_s_form(tmp_path: Path) -> None:
    ran = aggregate(*tables(tmp_path)[:1], "--out", str(tmp_path / "m"))
    assert (ran.exit_code, "at least 2 tables are needed" in ran.output) == (2, True)
    ran = aggregate(*tables(tmp_path)[:2], "--out", str(tmp_path / "m"), "--form", "paillier")
    assert ran.exit_code != 0
    assert "clients must be from 3 to 1024" in ran.output + str(ran.exception)


def test_what_was_sent_is_shown_in_units_that_fit(tmp_path: Path) -> None:
    ran = aggregate(*tables(tmp_path), "--out", str(tmp_path / "m"))
    assert re.search(r"set-up [\d.]+ s, [\d.]+ kB; round [\d.]+ s, [\d.]+ kB$", ran.output.strip())


@pytest.mark.parametrize("error", [OSError(28, "No space left on device", "x"), KeyboardInterrupt()])
def test_all_results_are_written_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    given, real, count = tables(tmp_path / "in"), atomic._write, [0]

    def failing(*words: Any) -> None:
        count[0] += 1
        if count[0] == 3:
            raise error
        real(*words)

    monkeypatch.setattr(atomic, "_write", failing)
    ran = aggregate(*given, "--out", str(tmp_path / "new" / "m"))
    assert ran.exit_code == (4 if isinstance(error, OSError) else 130)
    assert ran.output.count("\n") == 1
    assert not (tmp_path / "new").exists()


# ------------------------------------------------------------------------------------------------------------ options

WEIGHTS = {"north": {"a": 300, "b": 1}, "south": {"a": 100, "7": 0}, "west": {"7": 1000}}
WEIGHED = {
    "north": {"a": [0.75, 1.5], "b": [2.0, -1.0]},
    "south": {"a": [0.75, 1.5], "7": [1.0, 2.0]},
    "west": {"7": [1.0, 2.0]},
}


def weighed(path: Path, table: dict[str, list[float]], weights: dict[str, int]) -> Path:
    """A table with a column of weights, in the middle where there can be one."""
    names, matrix, w = list(table), np.array(list(table.values()), np.float32), [weights[name] for name in table]
    match path.suffix:
        case ".npz":
            np.savez(path, names=np.array(names), matrix=matrix, samples=np.array(w))
        case ".parquet":
            parquet.write_table(pyarrow.table({"name": names, "samples": w, "x": list(matrix)}), path)
        case _:
            between = "," if path.suffix == ".csv" else "\t"
            rows = [[name, str(row[0]), str(w[i]), str(row[1])] for i, (name, row) in enumerate(table.items())]
            lines = [["name", "x", "samples", "y"], *rows]
            path.write_text("".join(between.join(line) + "\n" for line in lines), encoding="utf-8")
    return path


def near(found: dict[str, list[float]], expected: dict[str, list[float]]) -> bool:
    """Within the blur of weights: an owner's part is off by half a unit of 400."""
    return list(found) == list(expected) and all(
        found[name] == pytest.approx(row, abs=0.02) for name, row in expected.items()
    )


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".npz", ".parquet"])
def test_weights_come_from_a_column_which_the_result_keeps(tmp_path: Path, suffix: str) -> None:
    given = [weighed(tmp_path / f"{name}{suffix}", VALUES[name], WEIGHTS[name]) for name in VALUES]
    ran = aggregate(*map(str, given), "--out", str(tmp_path / "m"), "--weights", "samples")
    assert ran.exit_code == 0, ran.output
    assert "A weighted mean is exact to within" in ran.output
    for path in given:
        result = read(tmp_path / "m" / path.name, Layout(weights="samples"))
        assert result.table.weights is not None
        assert dict(zip(result.table.names, result.table.weights.tolist(), strict=True)) == WEIGHTS[path.stem]
        rows = dict(zip(map(str, result.table.names), result.table.matrix.tolist(), strict=True))
        assert near(rows, WEIGHED[path.stem])


def test_weights_come_from_files_too_in_any_order_and_format(tmp_path: Path) -> None:
    given, files = tables(tmp_path / "in", ".vec"), []
    for name, suffix in zip(VALUES, (".csv", ".npz", ".tsv"), strict=True):
        rows = {each: [float(weight)] for each, weight in reversed(WEIGHTS[name].items())}
        path = tmp_path / f"{name}{suffix}"
        if suffix == ".npz":
            np.savez(path, names=np.array(list(rows)), matrix=np.array(list(rows.values())))
        else:
            between = "," if suffix == ".csv" else "\t"
            path.write_text("".join(f"{each}{between}{row[0]}\n" for each, row in rows.items()), encoding="utf-8")
        files += ["--weights", str(path)]
    ran = aggregate(*given, "--out", str(tmp_path / "m"), *files, "--json")
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["options"] == {"max_weight": 1000}
    for path in map(Path, given):
        assert near(told(tmp_path / "m" / path.name), WEIGHED[path.stem])


def test_too_few_owners_keep_their_rows_and_are_told(tmp_path: Path) -> None:
    given = tables(tmp_path / "in")
    ran = aggregate(*given, "--out", str(tmp_path / "m"), "--min-owners", "2")
    assert ran.exit_code == 0, ran.output
    assert "north.csv: 1 entity without a mean, unchanged, 1 of them with too few owners" in ran.output
    assert close(told(tmp_path / "m" / "north.csv"), MEANS["north"])  # b is its own
    found = json.loads(aggregate(*given, "--out", str(tmp_path / "n"), "--min-owners", "3", "--json").stdout)
    assert found["below_minimum"] == found["without_mean"] == [2, 2, 1]
    assert close(told(tmp_path / "n" / "south.csv"), VALUES["south"])


def test_noise_is_added_to_every_mean(tmp_path: Path) -> None:
    given = tables(tmp_path / "in")
    assert aggregate(*given, "--out", str(tmp_path / "m"), "--noise", "3").exit_code == 0
    assert not close(told(tmp_path / "m" / "north.csv"), MEANS["north"])


def test_rows_can_be_left_out_openly(tmp_path: Path) -> None:
    some = {"north": {"a": 1, "b": 1}, "south": {"a": 0, "7": 1}, "west": {"7": 0}}
    given = [str(weighed(tmp_path / f"{name}.csv", VALUES[name], some[name])) for name in VALUES]
    ran = aggregate(*given, "--out", str(tmp_path / "m"), "--partial", "--weights", "samples")
    assert ran.exit_code == 0, ran.output
    result = read(tmp_path / "m" / "south.csv", Layout(weights="samples")).table
    assert result.matrix == pytest.approx(np.array([VALUES["north"]["a"], VALUES["south"]["7"]]), abs=1e-5)
    assert "--partial needs --weights" in aggregate(*given, "--out", str(tmp_path / "n"), "--partial").output


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (["--weights", "sampels"], 3, "has no column 'sampels' for weights; there are x, samples, y; or give them in"),
        (["--weights", "x"], 3, "has the weight 0.5; weights are whole numbers from 0 on"),
        (["--weights", "a.csv", "--weights", "b.csv"], 2, "a file for each of 3 tables; 2 given"),
        (["--min-owners", "4"], 3, "min_owners must be from 1 to 3 for 3 clients, got 4"),
        (["--noise", "-1"], 3, "noise must be from 0 to 1024 * max_abs, got -1.0"),
        (["--noise", "1", "--weights", "samples"], 3, "noise does not go together with partial or max_weight"),
        (["--min-owners", "2", "--form", "paillier"], 3, 'the form "paillier" has no min_owners; form="keyed" has it'),
        (["--partial", "--weights", "samples"], 3, "has the weight 300; at most 1"),
    ],
)
def test_options_that_cannot_be_used_are_told(tmp_path: Path, more: list[str], code: int, says: str) -> None:
    given = [str(weighed(tmp_path / f"{name}.csv", VALUES[name], WEIGHTS[name])) for name in VALUES]
    ran = aggregate(*given, "--out", str(tmp_path / "m"), *more)
    assert (ran.exit_code, says in ran.output) == (code, True), ran.output
    assert not (tmp_path / "m").exists()


def test_files_of_weights_that_do_not_fit_are_told(tmp_path: Path) -> None:
    given, file = tables(tmp_path / "in")[:2], tmp_path / "w.csv"
    for text, says in (
        ("a,1\n", "the entity 'b' has no weight; give each row a weight"),
        ("a,1\nb,1\nc,1\n", "the entity 'c' has a weight, but no row"),
        ("a,1,2\nb,1,2\n", "has 2 numbers for a name; weights are one for each name"),
        ("a,1\nb,1.5\n", "has the weight 1.5; weights are whole numbers"),
    ):
        file.write_text(text)
        ran = aggregate(*given, "--out", str(tmp_path / "m"), "--weights", str(file), "--weights", str(file))
        assert (ran.exit_code, says in ran.output) == (3, True), ran.output
