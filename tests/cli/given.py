"""Some hundred tables as people have them, and what is typed: inputs.py runs them."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
from pyarrow import parquet

USUAL = "secea aggregate north.csv south.csv west.csv --out means"
OTHERS = {
    "south.csv": "name,x,y\naspirin,1.5,3.0\ncodeine,0.0,4.0\n",
    "west.csv": "name,x,y\ncodeine,1.0,2.0\n",
}
Content = str | bytes | Callable[[Path], object]


@dataclass(frozen=True)
class Given:
    """A file or an object, what is typed, and what the answer has to say."""

    what: str
    shown: str
    """The file's beginning, or the code, for the page."""
    typed: str
    says: tuple[str, ...]
    code: int = 0
    files: dict[str, Content] = field(default_factory=dict)


def text(what: str, content: str, *says: str, more: str = "", name: str = "north.csv", code: int = 0) -> Given:
    """A file of text as north's table, with two others."""
    typed = f"secea aggregate {name} south.csv west.csv --out means{more and ' '}{more}"
    data = content.encode()
    return Given(what, content, typed, says, code, {name: data})


def stored(what: str, shown: str, name: str, write: Content, *says: str, more: str = "", code: int = 0) -> Given:
    """A file that is not text."""
    typed = f"secea aggregate {name} south.csv west.csv --out means{more and ' '}{more}"
    return Given(what, shown, typed, says, code, {name: write})


def python(what: str, typed: str, *says: str, code: int = 0) -> Given:
    """Lines of Python; what the last one gives. An error counts as code 1."""
    return Given(what, "", typed, says, code)


def _npz(**arrays: Any) -> Callable[[Path], object]:
    return lambda path: np.savez(path, **arrays)


def _frame(path: Path) -> None:
    frame = pandas.DataFrame(
        {"x": [0.5, 2.0], "y": [1.0, -1.0]}, index=pandas.Index(["aspirin", "ibuprofen"], name="drug")
    )
    frame.to_parquet(path)


def _lists(path: Path) -> None:
    parquet.write_table(pyarrow.table({"drug": ["aspirin", "ibuprofen"], "vector": [[0.5, 1.0], [2.0, -1.0]]}), path)


def _integers(path: Path) -> None:
    pandas.DataFrame({"x": [1, 2], "y": [2, -1]}, index=pandas.Index(["aspirin", "b"], name="drug")).to_parquet(path)


def _nameless(path: Path) -> None:
    pandas.DataFrame({"x": [0.5, 2.0], "y": [1.0, -1.0]}).to_parquet(path)


def _missing(path: Path) -> None:
    parquet.write_table(pyarrow.table({"drug": ["aspirin"], "x": [0.5], "y": pyarrow.array([None], "float64")}), path)


ROWS = "aspirin,0.5,1.0\nibuprofen,2.0,-1.0\n"
TABLES = ", *others])"
GROUPS: tuple[tuple[str, tuple[Given, ...]], ...] = (
    (
        "Headings and columns",
        (
            text("a heading", f"name,x,y\n{ROWS}", "aspirin,1.00,2.00"),
            text("no heading", ROWS, "aspirin,1.00,2.00"),
            text("pandas' to_csv", f",0,1\n{ROWS}", "aspirin,1.00,2.00"),
            text("pandas' to_csv of a named index", f"drug,0,1\n{ROWS}", "aspirin,1.00,2.00"),
            text("a heading like data", f"a,b,c\n{ROWS}", "aspirin,1.00,2.00"),
            text("a heading of years", f"drug,2019,2020\n{ROWS}", "--header", code=3),
            text("the same, said to be one", f"drug,2019,2020\n{ROWS}", "aspirin,1.00,2.00", more="--header"),
            text("R counts columns from 1", f"drug,1,2\n{ROWS}", "read as a heading"),
            text("some columns of many", f"name,2,7\n{ROWS}", "read as a heading"),
            text("R's names of rows, without a label", f"x,y\n{ROWS}", "put a label", code=3),
            text("columns in another order", f"name,y,x\n{ROWS}", "where north.csv has 'y'", code=3),
            text("the same, told the order", f"name,y,x\n{ROWS}", "1.75,1.25", more="--columns x,y"),
            text("columns called otherwise", f"name,u,v\n{ROWS}", "by place"),
            text("pandas' to_csv of a frame without names", ",0,1\n0,0.5,1.0\n1,2.0,-1.0\n", "no names", code=3),
            text("a matrix and nothing else", "0.5,1.0,2.0\n2.5,-1.0,3.0\n", "no names", code=3),
            text("numbers of rows, and names", "id,drug,x,y\n1,aspirin,0.5,1.0\n2,ibuprofen,2.0,-1.0\n", "takes texts"),
            text("names that are numbers", "7,0.5,1.0\n8,2.0,-1.0\n", "7,0.50,1.00"),
            text("a heading, though told there is none", f"name,x,y\n{ROWS}", "line 1", more="--no-header", code=3),
            Given(
                "names in another column",
                "x,y,drug⏎0.5,1.0,aspirin",
                "secea aggregate north.csv south.csv --out means --name-column drug",
                ("1.00,2.00,aspirin",),
                0,
                {"north.csv": "x,y,drug\n0.5,1.0,aspirin\n", "south.csv": "drug,x,y\naspirin,1.5,3.0\n"},
            ),
            text(
                "the same, beside a table without that column",
                "x,y,drug\n0.5,1.0,aspirin\n",
                "south.csv has no column",
                more="--name-column drug",
                code=3,
            ),
            text(
                "a column that is no embedding",
                "drug,x,y,year\naspirin,0.5,1.0,1897\n",
                "aspirin,1.00,2.00,1897",
                more="--columns x,y",
            ),
            text("a column of text", "drug,maker,x,y\naspirin,Bayer,0.5,1.0\n", "maker"),
            text("triples of a graph", "drug,rel,disease\naspirin,treats,pain\n", "treats", code=3),
            text("a heading and nothing else", "name,x,y\n", "no entities", code=3),
            text("a column that is not there", f"name,x,y\n{ROWS}", "no column", more="--columns x,z", code=3),
        ),
    ),
    (
        "Files of text",
        (
            text("tabs", ROWS.replace(",", "\t"), "1.00", name="north.tsv"),
            text("tabs in a .csv", ROWS.replace(",", "\t"), "tab"),
            text("semicolons", ROWS.replace(",", ";"), "semicolon"),
            text("decimal commas", "name;x;y\naspirin;0,5;1,0\n", "decimal", code=3),
            text(
                "Excel in Germany",
                '\ufeff"name";"x";"y"\r\n"aspirin";"0,5";"1,0"\r\n;;\r\n',
                "decimal=','",
                code=3,
            ),
            text("commas between thousands", 'name,x,y\naspirin,"1,234,567",1.0\n', "1234567", code=3),
            text("a list in a field", 'name,vector\naspirin,"[0.5, 1.0]"\n', "a list in one field", code=3),
            text("blanks in a .csv", ROWS.replace(",", " "), ".txt", code=3),
            text("lines of old Macs", f"name,x,y\n{ROWS}".replace("\n", "\r"), "alone", code=3),
            text("a quotation mark left open", 'name,x,y\n"aspirin,0.5,1.0\nibuprofen,2.0,-1.0\n', "closed?", code=3),
            text("a comma at the end of each line", "name,x,y,\naspirin,0.5,1.0,\n", "aspirin,1.00,2.00"),
            text("a missing number of Excel", "name,x,y\naspirin,#N/A,1.0\nibuprofen,2.0,-1.0\n", "missing", code=3),
            text("a word among numbers", "name,x,y\naspirin,0.5,high\nibuprofen,2.0,-1.0\n", "--columns", code=3),
            text("a byte order mark", f"\ufeffname,x,y\n{ROWS}", "aspirin,1.00,2.00"),
            text("lines of Windows", f"name,x,y\n{ROWS}".replace("\n", "\r\n"), "aspirin,1.00,2.00"),
            text("a quoted name", '"aspirin, 500 mg",0.5,1.0\n', '"aspirin, 500 mg",0.50,1.00'),
            text("an empty line", f"{ROWS}\n", "aspirin,1.00,2.00"),
            text("a number too few", "aspirin,0.5,1.0\nibuprofen,2.0\n", "line 2", code=3),
            text("an empty cell", "aspirin,0.5,\n", "missing", code=3),
            text("not a number (nan)", "aspirin,0.5,nan\n", "finite", code=3),
            text("infinity", "aspirin,0.5,inf\n", "finite", code=3),
            text("out of range", "aspirin,0.5,100\n", "--max-abs", code=3),
            text("the same name twice", "aspirin,0.5,1.0\naspirin,2.0,-1.0\n", "keep one", code=3),
            text("another length", "aspirin,0.5,1.0,2.0\n", "length 3", code=3),
            text("three decimals", "".join(f"d{i},{i / 7:.3f},{-i / 9:.3f}\n" for i in range(40)), "north.csv"),
            text("an empty file", "", "empty", code=3),
            stored(
                "Latin-1",
                "Ibuprofène in Latin-1",
                "north.csv",
                "Ibuprofène,0.5,1.0\n".encode("latin-1"),
                "UTF-8",
                code=3,
            ),
            stored("UTF-16", "saved by Excel as Unicode text", "north.csv", ROWS.encode("utf-16"), "UTF-8", code=3),
            stored("packed", "north.csv.gz", "north.csv.gz", gzip.compress(ROWS.encode()), "aspirin,1.00,2.00"),
            stored(
                "packed, its name says not",
                "north.csv, packed by gzip",
                "north.csv",
                gzip.compress(ROWS.encode()),
                "gzip",
                code=3,
            ),
            stored("not packed, though its name says so", "north.csv.gz", "north.csv.gz", ROWS, "gzip", code=3),
            stored(
                "a spreadsheet that is called .csv", "north.csv", "north.csv", b"PK\x03\x04\x14\x00", "workbook", code=3
            ),
            Given(
                "standard input",
                ROWS,
                "secea aggregate - south.csv west.csv --out means < north.csv",
                ("1.00",),
                0,
                {"north.csv": ROWS},
            ),
            text(
                "word2vec's text", "2 2\naspirin 0.5 1.0\nibuprofen 2.0 -1.0\n", "aspirin 1.00 2.00", name="north.vec"
            ),
            text("GloVe's text", "aspirin 0.5 1.0\nibuprofen 2.0 -1.0\n", "aspirin 1.00 2.00", name="north.txt"),
            text("a wrong count in word2vec's text", "3 2\naspirin 0.5 1.0\n", "3 entities", name="north.vec", code=3),
            stored("a spreadsheet", "north.xlsx", "north.xlsx", b"PK\x03\x04", "ends in", code=3),
            Given("no such file", "", "secea aggregate nroth.csv south.csv west.csv --out means", ("no such file",), 3),
            Given(
                "a folder",
                "",
                "secea aggregate folder.csv south.csv west.csv --out means",
                ("folder",),
                3,
                {"folder.csv/more.txt": "a"},
            ),
            Given("a single table", "", "secea aggregate south.csv --out means", ("2 tables",), 2),
        ),
    ),
    (
        "Files of arrays",
        (
            stored(
                "numpy, two arrays",
                "names, matrix (float32)",
                "north.npz",
                _npz(names=np.array(["aspirin"]), matrix=np.array([[0.5, 1.0]], np.float32)),
                "1.00",
            ),
            stored(
                "names that are integers",
                "names (int64), matrix",
                "north.npz",
                _npz(names=np.array([7, 8]), matrix=np.eye(2)),
                "7: [1.00, 0.00]",
            ),
            stored(
                "half precision",
                "names, matrix (float16)",
                "north.npz",
                _npz(names=np.array(["aspirin"]), matrix=np.array([[0.5, 1.0]], np.float16)),
                "1.00",
            ),
            stored(
                "arrays of other names",
                "ids, vectors",
                "north.npz",
                _npz(ids=np.array(["aspirin"]), vectors=np.eye(1, 2)),
                "names=names",
                code=3,
            ),
            stored(
                "pickled names",
                "names (object)",
                "north.npz",
                _npz(names=np.array(["aspirin"], object), matrix=np.eye(1, 2)),
                "north.npz",
                code=3,
            ),
            stored(
                "a damaged file", "half of an .npz", "north.npz", b"PK\x03\x04 and nothing more", "north.npz", code=3
            ),
            Given(
                "a matrix, and names beside it",
                "north.npy, north.names.txt",
                "secea aggregate north.npy south.csv west.csv --out means",
                ("[1.00, 2.00]",),
                0,
                {
                    "north.npy": lambda path: np.save(path, np.array([[0.5, 1.0], [2.0, -1.0]])),
                    "north.names.txt": "aspirin\nibuprofen\n",
                },
            ),
            stored(
                "a matrix without names",
                "north.npy alone",
                "north.npy",
                lambda path: np.save(path, np.eye(2)),
                "names",
                code=3,
            ),
            stored("Parquet by pandas, with its index", "index drug; x, y", "north.parquet", _frame, "1.00"),
            stored("Parquet, a column of lists", "drug; vector", "north.parquet", _lists, "1.00"),
            stored("Parquet, integers", "drug; x, y (int64)", "north.parquet", _integers, "1.25"),
            stored("Parquet, no names", "x; y", "north.parquet", _nameless, "names must be", code=3),
            stored("Parquet, a number missing", "drug; x; y (null)", "north.parquet", _missing, "missing", code=3),
        ),
    ),
    (
        "Names",
        (
            Given(
                "7 here, and the text 7 there",
                "names (int64): 7",
                "secea aggregate north.npz south.csv --out means",
                ("7: [1.00, 2.00]",),
                0,
                {"north.npz": _npz(names=np.array([7]), matrix=np.array([[0.5, 1.0]])), "south.csv": "7,1.5,3.0\n"},
            ),
            text("blanks at the ends", '" aspirin ",0.5,1.0\n', "--normalize strip"),
            text("the same, made alike", '" aspirin ",0.5,1.0\n', " aspirin ,1.00,2.00", more="--normalize strip"),
            text("another case", "Aspirin,0.5,1.0\n", "--normalize casefold"),
            text("the same, made alike", "Aspirin,0.5,1.0\n", "Aspirin,1.00,2.00", more="--normalize casefold"),
            text(
                "two forms of one name in one file",
                "Å,0.5,1.0\nA\u030a,2.0,-1.0\n",
                "line 2",
                more="--normalize nfc",
                code=3,
            ),
            text("a column of integers with gaps", "7.0,0.5,1.0\n8.0,2.0,-1.0\n7,1.0,2.0\n", "nearly match"),
            text("nothing in common", "heparin,0.5,1.0\n", "no entity in common"),
            text("zeros in front", "01,0.5,1.0\n1,2.0,-1.0\n", "two entities"),
            text("an empty name", ",0.5,1.0\n", "empty", code=3),
        ),
    ),
    (
        "In Python",
        (
            python(
                "mappings", 'secea.aggregate([{"aspirin": [0.5, 1.0]}' + TABLES + '[0]["aspirin"].round(2)', "1., 2."
            ),
            python(
                "clients with names",
                'secea.aggregate({"north": {"a": [1.0]}, "south": {"a": [3.0]}, "west": {}})["south"]["a"].round(2)',
                "2.",
            ),
            python(
                "pandas",
                'north = pandas.DataFrame([[0.5, 1.0]], index=["aspirin"])\nsecea.aggregate([north'
                + TABLES
                + "[0].round(2)",
                "aspirin",
            ),
            python(
                "pandas, without an index", "secea.aggregate([pandas.DataFrame([[0.5, 1.0]])" + TABLES, "index", code=1
            ),
            python(
                "pandas, a number missing",
                'north = pandas.DataFrame([[0.5, np.nan]], index=["aspirin"])\nsecea.aggregate([north' + TABLES,
                "aspirin",
                code=1,
            ),
            python(
                "pandas, names in a column",
                'north = pandas.DataFrame({"drug": ["aspirin"], "x": [0.5], "y": [1.0]})\nsecea.aggregate([north'
                + TABLES
                + "[0].round(2)",
                "aspirin",
            ),
            python(
                "pandas, columns in another order",
                'north = pandas.DataFrame({"y": [1.0], "x": [0.5]}, index=["aspirin"])\n'
                'south = pandas.DataFrame({"x": [1.5], "y": [3.0]}, index=["aspirin"])\n'
                "secea.aggregate([north, south])",
                "another order",
                code=1,
            ),
            python(
                "polars",
                'north = polars.DataFrame({"drug": ["aspirin"], "x": [0.5], "y": [1.0]})\nsecea.aggregate([north'
                + TABLES
                + "[0].shape",
                "(1, 3)",
            ),
            python(
                "an Arrow table",
                'north = pyarrow.table({"drug": ["aspirin"], "x": [0.5], "y": [1.0]})\nsecea.aggregate([north'
                + TABLES
                + "[0].column_names",
                "drug",
            ),
            python(
                "a matrix",
                "north = secea.Table(['aspirin'], np.array([[0.5, 1.0]], np.float32))\nsecea.aggregate([north"
                + TABLES
                + "[0]",
                "Table(1 x 2, float32)",
            ),
            python(
                "half precision",
                "north = secea.Table(['aspirin'], np.array([[0.5, 1.0]], np.float16))\nsecea.aggregate([north"
                + TABLES
                + "[0]",
                "float32",
            ),
            python(
                "tensors of PyTorch",
                'north = {"aspirin": torch.tensor([0.5, 1.0], dtype=torch.bfloat16)}\nsecea.aggregate([north'
                + TABLES
                + '[0]["aspirin"].dtype',
                "bfloat16",
            ),
            python("lists of texts", 'secea.aggregate([{"aspirin": ["a", "b"]}' + TABLES, "aspirin", code=1),
            python(
                "integers", 'secea.aggregate([{"aspirin": [1, 2]}' + TABLES + '[0]["aspirin"].round(2)', "1.25, 2.5"
            ),
            python("a matrix without names", "secea.aggregate([np.zeros((2, 2))" + TABLES, "secea.Table(", code=1),
            python("names that are None", "secea.aggregate([{None: [0.5, 1.0]}" + TABLES, "None", code=1),
            python("another length", 'secea.aggregate([{"aspirin": [0.5]}' + TABLES, "length", code=1),
            python(
                "a misspelt parameter",
                'secea.aggregate([{"a": [0.5]}, {"a": [1.5]}], presicion=20)',
                "presicion",
                code=1,
            ),
        ),
    ),
    (
        "Data to train on",
        (
            Given(
                "ratings with a heading",
                "user,item,rating,ts",
                "secea train recommend --data ratings.csv --clients 2 --rounds 1 --methods local --out run",
                ("rmse",),
                0,
                {
                    "ratings.csv": "user,item,rating,ts\n"
                    + "".join(f"u{i % 7},i{i % 5},{i % 4 + 1},{i}\n" for i in range(60))
                },
            ),
            Given(
                "no test data",
                "train.tsv and valid.tsv in a folder",
                "secea train kg --data graph --rounds 1 --clients 2 --methods local --out run",
                ("test",),
                5,
                {
                    "graph/train.tsv": "".join(f"a{i % 7}\tr\tb{i % 5}\n" for i in range(30)),
                    "graph/valid.tsv": "a1\tr\tb2\n",
                },
            ),
            Given("an unknown data set", "", "secea train kg --data freebase", ("no data set",), 3),
        ),
    ),
)
