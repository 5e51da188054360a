"""What the first line of a file is, and which columns hold what: a table of files as tools write them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from click.testing import CliRunner, Result
from pyarrow import parquet

from secea.cli import main
from secea.commands.formats import Layout, look, read
from secea.errors import DataError

NOTHING: tuple[str, ...] = ()
OPEN = Layout()


@dataclass(frozen=True)
class Case:
    """A file, and what it holds: names, the first row's numbers, whether its first line is a heading."""

    title: str
    text: str
    names: Sequence[str]
    row: Sequence[float]
    heading: bool
    kept: Sequence[str] = NOTHING
    assumed: str = ""
    """A part of what is said about it; nothing if it is empty."""
    layout: Layout = OPEN
    name: str = "x.csv"


CASES = (
    Case("labels", "name,x,y\na,1,2\nb,3,4\n", "ab", [1, 2], True),
    Case("no heading", "a,5,2\nb,3,4\n", "ab", [5, 2], False),
    Case("labels of one column", "drug,value\na,1\n", "a", [1], True),
    Case("pandas, named index", "name,0,1,2\na,0.1,0.2,0.3\n", "a", [0.1, 0.2, 0.3], True),
    Case("pandas, another name of the index", "drug,0,1,2\na,1,2,3\n", "a", [1, 2, 3], True, (), "read as a heading"),
    Case("pandas, unnamed index of names", ",0,1\na,1.5,2\n", "a", [1.5, 2], True),
    Case("pandas, unnamed index of numbers", ",0,1\n7,1.5,2\n9,1,2\n", "79", [1.5, 2], True),
    Case("pandas, one column", "name,0\na,1\nb,2\n", "ab", [1], True),
    Case("pandas, fractions below two labels", "drug,0,1\na,0.5,2.0\n", "a", [0.5, 2], True, (), "read as a heading"),
    Case("whole numbers below two labels", "drug,0,1\na,5,2\n", ["drug", "a"], [0, 1], False, (), "read as a row"),
    Case("one count, as in weights", "a,1\nb,1.5\n", "ab", [1], False),
    Case("R counts from 1", "name,1,2\na,5,6\n", "a", [5, 6], True),
    Case("R, another word for names", "drug,1,2,3\na,5,6,7\n", "a", [5, 6, 7], True, (), "it counts the columns"),
    Case("R, fractions below two labels", "drug,1,2\na,0.5,2.0\n", "a", [0.5, 2], True, (), "it counts the columns"),
    Case("whole numbers below a count from 1", "drug,1,2\na,5,6\n", ["drug", "a"], [1, 2], False, (), "as a row"),
    Case("some columns of many", "name,2,7\na,5,6\n", "a", [5, 6], True, (), "it begins with a word for names"),
    Case("a separator for Excel", "sep=;\nname;x\na;1\n", "a", [1], True, (), "separated by semicolons"),
    Case(
        "numbers as names, and a column of texts", "id,name,x\n7,a,1\n9,b,2\n", "79", [1], True, ["name"],
        "the first column, which holds numbers; --name-column 2 takes texts",
    ),
    Case("names that count rows", "id,x,y\n1,5,2\n2,3,4\n3,5,6\n", "123", [5, 2], True, (), "only count the rows"),
    Case(
        "told: they are names", ",x,y\n0,5,2\n1,3,4\n2,5,6\n", "012", [5, 2], True, layout=Layout(name_column="1")
    ),
    Case("codes of diseases", "icd,x,y\n250.0,5,2\n401.9,3,4\n", ["250.0", "401.9"], [5, 2], True,
         layout=Layout(name_column="icd")),
    Case("row of consecutive numbers", "a,3,4,5\nb,1,2,3\n", "ab", [3, 4, 5], False),
    Case(
        "pandas, index that counts rows, and a column of names", ",name,x,y\n0,a,1,2\n1,b,3,4\n", "ab", [1, 2], True,
        [""], "names were taken from the column 'name', since the first one counts rows",
    ),
    Case(
        "the same, read and written again", "Unnamed: 0,drug,0,1\n0,a,1,2\n1,b,3,4\n", "ab", [1, 2], True,
        ["Unnamed: 0"], "names were taken from the column 'drug'",
    ),
    Case("names at the end", "x,y,name\n1.5,2,a\n3,4.5,b\n", "ab", [1.5, 2], True, (), "the first one holds fractions"),
    Case(
        "a column of texts", "name,kind,x\na,drug,1\nb,gene,2\n", "ab", [1], True, ["kind"],
        "the column 'kind' holds no numbers: no part of the embedding",
    ),
    Case("a column of texts, no heading", "a,drug,1\nb,gene,2\n", "ab", [1], False, ["2"], "the column 2 holds"),
    Case("comma at the end of lines", "name,x,\na,1,\nb,2,\n", "ab", [1], True, [""], "holds no numbers"),
    Case("semicolons", "name;x;y\na;1;2\nb;3;4\n", "ab", [1, 2], True, (), "fields are separated by semicolons"),
    Case("tabs in .csv", "name\tx\na\t1\n", "a", [1], True, (), "separated by tabs"),
    Case("commas in .tsv", "name,x\na,1\n", "a", [1], True, (), "separated by commas", name="x.tsv"),
    Case("a semicolon in a name", "a;b,5,2\nc,3,4\n", ["a;b", "c"], [5, 2], False),
    Case("quoted names", '"name","x"\n"a, b",1\n"say ""c""",2\n', ["a, b", 'say "c"'], [1], True),
    Case("byte order mark", "\ufeffname,x\na,1\n", "a", [1], True),
    Case("ends of lines of Windows", "name,x\r\na,1\r\nb,2\r\n", "ab", [1], True),
    Case("comments above", "# made by x, on Monday\n#\nname,x\na,1\n", "a", [1], True),
    Case("a heading behind #", "# name,x,y\na,1,2\n", "a", [1, 2], True),
    Case("a name that begins with #", "#love,5,2\nb,3,4\n", ["#love", "b"], [5, 2], False),
    Case("blank lines", "name,x\n\na,1\n\n\nb,2\n", "ab", [1], True),
    Case("blanks around numbers", "a, 1, 2\nb, 3, 4\n", "ab", [1, 2], False),
    Case("blanks around names stay", "name,x\n a ,1\n", [" a "], [1], True),
    Case("names that are numbers", "id,x\n01,5\n1,6\n", ["01", "1"], [5], True),
    Case("numbers all over", "7,5,2\n8,3,4\n", "78", [5, 2], False),
    Case("labels that look missing", "name,na,x\na,1,2\n", "a", [1, 2], True),
    Case("told: a heading", "drug,0,1\na,5,2\n", "a", [5, 2], True, layout=Layout(header=True)),
    Case("told: no heading", "drug,0,1,2\na,5,2,3\n", ["drug", "a"], [0, 1, 2], False, layout=Layout(header=False)),
    Case("told: names by label", "x,name,y\n1,a,2\n", "a", [1, 2], True, layout=Layout(name_column="name")),
    Case("told: names by number", "1,a,2\n3,b,4\n", "ab", [1, 2], False, layout=Layout(name_column="2")),
    Case(
        "told: some columns", "name,year,x,y\na,1999,1,2\n", "a", [2, 1], True, ["year"],
        layout=Layout(columns=("y", "x")),
    ),
    Case("told: columns by number", "a,1999,1\nb,2000,2\n", "ab", [1], False, ["2"], layout=Layout(columns=("3",))),
    Case("weights", "name,x,n,y\na,1,300,2\n", "a", [1, 2], True, layout=Layout(weights="n")),
    Case(
        "weights beside texts", "name,kind,n,x\na,drug,3,1\nb,gene,4,2\n", "ab", [1], True, ["kind"], "'kind'",
        Layout(weights="n"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_a_file_is_read_as_it_was_meant_or_says_what_was_assumed(tmp_path: Path, case: Case) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.text.encode())
    source = read(path, case.layout)
    assert list(source.table.names) == list(case.names)
    assert source.table.matrix[0].tolist() == list(case.row)
    assert (source.heading is not None) == case.heading
    assert list(source.kept) == list(case.kept)
    assert case.assumed in " ".join(source.assumed)
    assert bool(source.assumed) == bool(case.assumed)


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_a_result_differs_from_its_table_in_the_numbers_alone(tmp_path: Path, case: Case) -> None:
    path = tmp_path / case.name
    path.write_bytes(case.text.encode())
    source = read(path, case.layout)
    again = tmp_path / f"again{path.suffix}"
    content = source.write(source.table.matrix + 0.25)
    assert isinstance(content, bytes)
    again.write_bytes(content)
    back = read(again, case.layout)
    assert (back.table.names, back.heading, back.kept) == (source.table.names, source.heading, source.kept)
    assert np.array_equal(back.table.matrix, source.table.matrix + 0.25)
    ends = [b"\r\n" in data for data in (content, path.read_bytes())]
    marks = [data.startswith(b"\xef\xbb\xbf") for data in (content, path.read_bytes())]
    assert (ends[0], marks[0]) == (ends[1], marks[1])
    if case.heading:
        above = 1 + 2 * case.text.startswith("# made")
        first = [data.decode("utf-8-sig").splitlines()[:above] for data in (content, path.read_bytes())]
        assert [line.replace('"', "") for line in first[0]] == [line.replace('"', "") for line in first[1]]


WRONG = (
    ("decimal commas", "name;x\na;0,5\n", "line 2: '0,5' has a decimal comma; write 0.5 for it", OPEN),
    ("decimal commas in all lines", "a;0,5;1,0\nb;1,5;2,0\n", "line 1: '0,5' has a decimal comma", OPEN),
    ("quoted decimal commas", 'name,x\na,"0,5"\n', "'0,5' has a decimal comma", OPEN),
    ("commas between thousands", 'name,x,y\na,"1,234.5",1\n', "'1,234.5' has commas between thousands", OPEN),
    ("a list in a field", 'name,v\na,"[1, 2]"\nb,"[3, 4]"\n', "'[1, 2]' is a list in one field", OPEN),
    ("a word among numbers", "n,maker,x\na,Bayer,1\nb,3,2\n", "--columns can leave the column 'maker' out", OPEN),
    ("Excel's missing number", "name,x\na,#N/A\nb,2\n", "line 2: a number is missing: '#N/A'", OPEN),
    ("rows that are counted", ",x,y\n0,5,2\n1,3,4\n", "the first column only counts rows", OPEN),
    ("a matrix alone", "0.5,1,2\n1.5,3,4\n", "no names: the first column holds fractions", OPEN),
    ("R, names of rows without a label", "x,y\na,1,2\nb,3,4\n", "the heading has 2 labels, and each row 3", OPEN),
    ("blanks between fields", "a 1 2\nb 3 4\n", "one field alone; a name and its numbers are expected", OPEN),
    ("blanks, and what helps", "a 1 2\nb 3 4\n", "let the file's name end in .txt", OPEN),
    ("a quotation mark left open", 'n,x,y\n"a,1,2\nb,3,4\n', "is a quotation mark not closed?", OPEN),
    ("lines of old Macs", "n,x\ra,1\rb,2\r", "lines end with \\r alone", OPEN),
    ("a byte that is 0", "n,x\na\0,1\n", "line 2: a byte is 0", OPEN),
    ("a field without end", 'n,x\n"' + "a" * 200_000, "a field goes on for more than", OPEN),
    ("a missing number", "name,x,y\na,1,\nb,2,3\n", "line 2: a number is missing", OPEN),
    ("NA for a number", "a,NA,1\nb,2,3\n", "line 1: a number is missing: 'NA'", OPEN),
    ("a first row without numbers", "a,,\nb,2,3\n", "line 1: a number is missing", OPEN),
    ("a word in the first row", "a,1,two\nb,1,2\n", "line 1: 'two' is not a number", OPEN),
    ("texts alone", "a,b\nc,d\n", "line 2: 'd' is not a number", OPEN),
    ("no such column", "name,x\na,1\n", "has no column 'z' for --columns; there are name, x", Layout(columns=("z",))),
    ("no such number", "a,1\n", "has no column '3' for --name-column; it has 2 columns", Layout(name_column="3")),
    ("two columns of one label", "n,x,x\na,1,2\n", "has several columns 'x'; give --columns", Layout(columns=("x",))),
    ("names among the numbers", "n,x\na,1\n", "the column 'n' has the names, and no", Layout(columns=("n", "x"))),
    ("a column twice", "n,x\na,1\n", "--columns names a column twice", Layout(columns=("x", "2"))),
    ("a weight that is none", "n,x,w\na,1,many\n", "line 2: the weight 'many' is not a number", Layout(weights="w")),
)  # fmt: skip


@pytest.mark.parametrize(("title", "text", "says", "layout"), WRONG, ids=[each[0] for each in WRONG])
def test_what_does_not_fit_is_told(tmp_path: Path, title: str, text: str, says: str, layout: Layout) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as error:
        read(path, layout)
    assert str(error.value).startswith(str(path)), title
    assert says in str(error.value)


def test_everything_that_is_wrong_is_found_and_much_of_a_kind_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("name,x\na,nan\na,1\nb,\nc\nd,two\n" + "".join(f"e{i},inf\n" for i in range(9)), encoding="utf-8")
    source = look(path)
    said = "\n".join(source.faults)
    for words in ("holds nan", "'a' is in line 2 too", "a number is missing", "a name and 0 numbers", "'two' is not"):
        assert words in said
    assert f"{path}: 7 more rows with numbers that are not finite" in said
    assert (source.doubled, source.missing) == (1, 11)


def test_a_number_that_comes_late_in_a_column_of_texts_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = "".join(f"e{i},{'' if i < 2000 else 5},1\n" for i in range(2001))
    path.write_text(f"name,x,y\n{rows}", encoding="utf-8")
    with pytest.raises(DataError, match="line 2002: the column 'x' holds '5', and no number in the first lines"):
        read(path)
    assert read(path, Layout(columns=("y",))).kept == ("x",)


# ---------------------------------------------------------------------------------------------------- other containers


def aggregate(*words: str, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["aggregate", *words], input=given)


def other(folder: Path) -> str:
    (folder / "other.csv").write_text("name,x,y\na,3,4\n", encoding="utf-8")
    return str(folder / "other.csv")


@pytest.mark.parametrize("name", ["t.csv.gz", "t.tsv.gz", "t.vec.gz"])
def test_packed_text_is_read_and_results_are_packed_too(tmp_path: Path, name: str) -> None:
    between = {".csv": ",", ".tsv": "\t", ".vec": " "}[Path(Path(name).stem).suffix]
    path = tmp_path / name
    path.write_bytes(gzip.compress(between.join(("a", "1.5", "2")).encode() + b"\n"))
    ran = aggregate(str(path), other(tmp_path), "--out", str(tmp_path / "m"))
    assert ran.exit_code == 0, ran.output
    assert read(tmp_path / "m" / name).table.matrix[0] == pytest.approx([2.25, 3], abs=1e-5)
    path.write_bytes(path.read_bytes()[:-9])
    ran = aggregate(str(path), other(tmp_path), "--out", str(tmp_path / "n"))
    assert (ran.exit_code, f"{path} is no whole gzip file" in ran.output) == (3, True), ran.output


def test_standard_input_is_a_table_and_its_result_has_a_name(tmp_path: Path) -> None:
    ran = aggregate("-", other(tmp_path), "--out", str(tmp_path / "m"), given=b"name,x,y\na,1,2\n")
    assert ran.exit_code == 0, ran.output
    assert read(tmp_path / "m" / "stdin.csv").table.matrix[0] == pytest.approx([2, 3], abs=1e-5)
    target = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({"name": ["a"], "x": [1.0], "y": [2.0]}), target)
    data = target.getvalue().to_pybytes()
    ran = aggregate("-", other(tmp_path), "--out", str(tmp_path / "m"), "--format", "parquet", "--force", given=data)
    assert ran.exit_code == 0, ran.output
    assert read(tmp_path / "m" / "stdin.parquet").table.matrix[0] == pytest.approx([2, 3], abs=1e-5)
    ran = aggregate("-", other(tmp_path), "--out", str(tmp_path / "n"), given=b"name,x\na,one\n")
    assert "stdin.csv, line 2: 'one' is not a number" in ran.output
    assert aggregate("-", "-", "--out", str(tmp_path / "n"), given=b"").exit_code == 2


def test_a_matrix_has_its_names_in_a_file_beside_it(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([[1, 2], [5, 6]], np.float16))
    ran = aggregate(str(tmp_path / "v.npy"), other(tmp_path), "--out", str(tmp_path / "m"))
    assert (ran.exit_code, "v.names.txt, one in each line" in ran.output) == (3, True), ran.output
    (tmp_path / "v.names.txt").write_text("a\nb\n", encoding="utf-8")
    ran = aggregate(str(tmp_path / "v.npy"), other(tmp_path), "--out", str(tmp_path / "m"))
    assert ran.exit_code == 0, ran.output
    found = np.load(tmp_path / "m" / "v.npy")
    assert (found.dtype, found.tolist()) == (np.float16, [[2, 3], [5, 6]])
    assert (tmp_path / "m" / "v.names.txt").read_bytes() == (tmp_path / "v.names.txt").read_bytes()
    ran = aggregate(str(tmp_path / "v.npy"), other(tmp_path), "--out", str(tmp_path), "--force")
    assert ran.exit_code == 3
    (tmp_path / "v.names.txt").write_text("a\n", encoding="utf-8")
    with pytest.raises(DataError, match="1 names need a matrix of as many rows"):
        read(tmp_path / "v.npy")


def test_short_floats_come_back_as_such_and_their_rounding_counts(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(0, 8, (50, 4)).astype(np.float16)
    for n in range(2):
        np.savez(tmp_path / f"{n}.npz", names=np.array([f"e{i}" for i in range(50)]), matrix=rows * np.float16(1 + n))
    given = [str(tmp_path / f"{n}.npz") for n in range(2)]
    ran = aggregate(*given, "--out", str(tmp_path / "m"), "--json")
    bound = json.loads(ran.stdout)["bound"]
    with np.load(tmp_path / "m" / "0.npz") as found:
        assert found["matrix"].dtype == np.float16
        true = (rows.astype(np.float64) + (rows * np.float16(2)).astype(np.float64)) / 2
        off = np.abs(found["matrix"].astype(np.float64) - true).max()
    assert 0.1 * bound < off <= bound


# ------------------------------------------------------------------------------------------------------------- Parquet


def frames() -> dict[str, tuple[pd.DataFrame, dict[str, Any]]]:
    table = pd.DataFrame([[1.5, 2.0], [3.0, 4.5]], columns=["x", "y"])
    named = table.assign(name=["a", "b"])
    return {
        "unnamed index of names": (table.set_axis(["a", "b"]), {}),
        "named index": (table.set_axis(pd.Index(["a", "b"], name="drug")), {}),
        "index that counts rows": (named[["name", "x", "y"]], {}),
        "shuffled index of numbers": (named.set_axis([5, 3]), {}),
        "names at the end": (named, {"index": False}),
        "a list for each row": (pd.DataFrame({"name": ["a", "b"], "v": [[1.5, 2.0], [3.0, 4.5]]}), {}),
        "a list, and what is no part of it": (
            pd.DataFrame({"name": ["a", "b"], "n": [3, 4], "v": [[1.5, 2.0], [3.0, 4.5]], "kind": ["p", "q"]}), {},
        ),
        "names that are categories": (named.assign(name=named["name"].astype("category")).set_index("name"), {}),
        "float32": (named.astype({"x": np.float32, "y": np.float32}).set_index("name"), {}),
    }  # fmt: skip


@pytest.mark.parametrize("kind", frames())
def test_what_pandas_wrote_is_read_and_comes_back_to_pandas(tmp_path: Path, kind: str) -> None:
    frame, options = frames()[kind]
    path = tmp_path / "x.parquet"
    frame.to_parquet(path, **options)
    source = read(path)
    assert [str(name) for name in source.table.names] == ["a", "b"]
    assert source.table.matrix.tolist() == [[1.5, 2.0], [3.0, 4.5]]
    ran = aggregate(str(path), other(tmp_path), "--out", str(tmp_path / "m"))
    assert ran.exit_code == 0, ran.output
    back, before = pd.read_parquet(tmp_path / "m" / "x.parquet"), pd.read_parquet(path)
    assert back.columns.tolist() == before.columns.tolist()
    assert back.dtypes.tolist() == before.dtypes.tolist()
    assert back.index.equals(before.index)
    assert back.index.names == before.index.names
    for column in set(back.columns) - {"x", "y", "v"}:
        assert back[column].tolist() == before[column].tolist()
    numbers = back["v"].iloc[0] if "v" in back else back[["x", "y"]].iloc[0].to_numpy()
    assert numbers == pytest.approx([2.25, 3], abs=1e-5)


@pytest.mark.parametrize("kind", ["int64", "Int64", "lists", "fixed lists", "decimals"])
def test_means_of_integers_come_back_as_floats(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.parquet"
    if kind in ("int64", "Int64"):
        index = pd.Index(["a", "b"], name="name")
        pd.DataFrame({"x": pd.array([1, 2], kind), "y": [2.0, 3.0]}, index=index).to_parquet(path)
    elif kind == "decimals":
        given = pyarrow.array([1, 2]).cast(pyarrow.decimal128(21, 2))
        parquet.write_table(pyarrow.table({"name": ["a", "b"], "x": given, "y": [2.0, 3.0]}), path)
    else:
        own = pyarrow.list_(pyarrow.int32(), 2 if kind == "fixed lists" else -1)
        parquet.write_table(pyarrow.table({"name": ["a", "b"], "v": pyarrow.array([[1, 2], [2, 3]], own)}), path)
    ran = aggregate(str(path), other(tmp_path), "--out", str(tmp_path / "m"))
    assert ran.exit_code == 0, ran.output
    back = pd.read_parquet(tmp_path / "m" / "x.parquet")
    first = back["v"].iloc[0] if "v" in back else back[["x", "y"]].iloc[0].to_numpy()
    assert [float(each) for each in first] == pytest.approx([2, 3], abs=1e-5)
    if kind == "Int64":
        assert back.dtypes["x"] == pd.Float64Dtype()


def test_where_parquet_has_no_names_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame({"x": [1.5, 2.0], "y": [2.0, 3.0]}).to_parquet(path)
    with pytest.raises(DataError, match="the column 'x' holds double, and names must be texts or integers"):
        read(path)
    parquet.write_table(pyarrow.table({"id": [7, 9], "drug": ["a", "b"], "x": [1.5, 2.5]}), path)
    assert "from the column 'id', which holds numbers; --name-column drug takes texts" in read(path).assumed[0]
    parquet.write_table(pyarrow.table({"id": [0, 1, 2], "x": [1.5, 2.5, 3.5]}), path)
    assert "the names only count the rows" in read(path).assumed[0]


def test_columns_of_parquet_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"year": [1999], "x": [1.0], "who": ["a"], "y": [2.0], "n": [3]}), path)
    source = read(path, Layout(name_column="who", columns=("x", "y"), weights="n"))
    assert (list(source.table.names), source.table.matrix.tolist(), source.kept) == (["a"], [[1, 2]], ("year",))
    assert source.table.weights is not None
    for layout, says in (
        (Layout(columns=("z",)), "has no column 'z' for --columns"),
        (Layout(name_column="x"), "holds double, and names must be texts or integers"),
        (Layout(name_column="year", columns=("who",)), "the column 'who' holds string, not numbers"),
    ):
        with pytest.raises(DataError, match=says):
            read(path, layout)
    np.savez(tmp_path / "x.npz", names=np.array(["a"]), matrix=np.ones((1, 1)))
    with pytest.raises(DataError, match=r"--columns is for \.csv, \.tsv and \.parquet"):
        read(tmp_path / "x.npz", Layout(columns=("x",)))


def test_what_was_assumed_is_a_note_on_standard_error_and_a_field(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("drug,0,1\na,0.5,2.5\n", encoding="utf-8")
    ran = aggregate(str(path), other(tmp_path), "--out", str(tmp_path / "m"))
    assert f"note: {path}: the first line was read as a heading" in ran.stderr
    found = json.loads(aggregate(str(path), other(tmp_path), "--out", str(tmp_path / "n"), "--json").stdout)
    assert "read as a heading" in found["clients"][0]["assumed"][0]
    assert found["clients"][1]["assumed"] == []
    ran = aggregate(str(path), other(tmp_path), "--out", str(tmp_path / "o"), "--header")
    assert "read as a heading" not in ran.output
