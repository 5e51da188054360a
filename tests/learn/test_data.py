"""What is read from files, and what is refused with file and line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from secea.errors import DataError
from secea.learn.data import Dataset, read
from secea.learn.lines import Columns

TRIPLES = [("a", "likes", "b"), ("b", "likes", "c"), ("c", "hates", "a")]


def named(data: Dataset, task: str = "kg") -> list[list[tuple[Any, ...]]]:
    """The rows of each part by name."""
    out: list[list[tuple[Any, ...]]] = []
    for part in data.parts:
        if task == "kg":
            out.append([(data.entities[h], data.others[r], data.entities[t]) for h, r, t in part.all])
        elif task == "recommend":
            out.append([(data.others[int(u)], data.entities[int(i)], x) for u, i, x in part.all])
        else:
            out.append([(data.entities[u], data.entities[v]) for u, v in part.all])
    return out


@pytest.mark.parametrize("name", ["t.tsv", "t.txt", "t.csv", "blanks.txt", "head.csv", "t.parquet", "named.parquet"])
def test_every_format_gives_the_same_triples(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if path.suffix == ".parquet":
        names = ["tail", "extra", "head", "relation"] if name == "named.parquet" else ["x", "y", "z"]
        columns = [[t for _, _, t in TRIPLES], [0] * 3, [h for h, _, _ in TRIPLES], [r for _, r, _ in TRIPLES]]
        chosen = columns if name == "named.parquet" else [columns[2], columns[3], columns[0]]
        parquet.write_table(pyarrow.table(dict(zip(names, chosen, strict=True))), path)
    else:
        between = "," if path.suffix == ".csv" else " " if name == "blanks.txt" else "\t"
        head = "head,relation,tail\n" if name == "head.csv" else ""
        path.write_text(head + "\n".join(between.join(row) for row in TRIPLES) + "\n\n", encoding="utf-8")
    data = read("kg", [str(path)])
    assert named(data) == [TRIPLES]
    assert data.clients == ()
    assert data.entities == ("a", "b", "c")


def test_an_npz_of_numbered_arrays_has_one_client_for_each_number(tmp_path: Path) -> None:
    rows = np.array([[7, 1, 9], [9, 0, 7]], np.int32)
    np.savez(tmp_path / "x.npz", train_0=rows, valid_0=rows[:1], test_0=rows[1:], train_1=rows[:1])
    data = read("kg", [str(tmp_path / "x.npz")])
    assert data.clients == ("client 0", "client 1")
    assert data.entities == (7, 9)
    assert named(data) == [[(7, 1, 9), (9, 0, 7), (7, 1, 9), (9, 0, 7)], [(7, 1, 9)]]
    assert [len(part.test) for part in data.parts] == [1, 0]


def test_spellings_of_one_entity_are_one_in_all_files(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train=np.array([[7, 1, 9]]))
    (tmp_path / "b.csv").write_text("7,1,nine\nNINE,1,9\n", encoding="utf-8")
    sources = [str(tmp_path / name) for name in ("a.npz", "b.csv")]
    data = read("kg", sources)
    assert data.entities == (7, 9, "NINE", "nine")
    assert [part.all[:, [0, 2]].tolist() for part in data.parts] == [[[0, 1]], [[0, 3], [2, 1]]]
    data = read("kg", sources, ("casefold",))
    assert data.entities == (7, 9, "NINE")
    assert [part.all[:, [0, 2]].tolist() for part in data.parts] == [[[0, 1]], [[0, 2], [2, 1]]]


def test_ratings_and_edges_are_read_with_their_stages(tmp_path: Path) -> None:
    ratings = np.array([[0.0, 5.0, 3.5], [2.0, 5.0, 1.0]], np.float32)
    np.savez(tmp_path / "r.npz", train=ratings, test=ratings[:1])
    data = read("recommend", [str(tmp_path / "r.npz")])
    assert named(data, "recommend") == [[(0, 5, 3.5), (2, 5, 1.0), (0, 5, 3.5)]]
    (tmp_path / "r.csv").write_text("userId,itemId,rating,timestamp\nu,i,4,99\n", encoding="utf-8")
    assert named(read("recommend", [str(tmp_path / "r.csv")]), "recommend") == [[("u", "i", 4.0)]]
    np.savez(tmp_path / "e.npz", edges=np.array([[1, 2], [2, 3]]))
    assert named(read("social", [str(tmp_path / "e.npz")]), "social") == [[(1, 2), (2, 3)]]
    (tmp_path / "e.csv").write_text("node_1,node_2\n0,747\n", encoding="utf-8")
    assert named(read("social", [str(tmp_path / "e.csv")]), "social") == [[("0", "747")]]


def test_several_files_or_a_folder_of_files_are_one_client_each(tmp_path: Path) -> None:
    for name in ("north", "south"):
        (tmp_path / f"{name}.tsv").write_text(f"{name}\tr\tx\n", encoding="utf-8")
    files = [str(tmp_path / f"{name}.tsv") for name in ("south", "north")]
    assert read("kg", files).clients == ("south", "north")
    assert read("kg", [str(tmp_path)]).clients == ("north", "south")


def test_a_folder_of_stages_is_one_graph(tmp_path: Path) -> None:
    for stage, row in zip(("train", "valid", "test"), TRIPLES, strict=True):
        (tmp_path / f"{stage}.txt").write_text("\t".join(row) + "\n", encoding="utf-8")
    data = read("kg", [str(tmp_path)])
    assert data.clients == ()
    assert [len(rows) for rows in (data.parts[0].train, data.parts[0].valid, data.parts[0].test)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "entities", "triples"), [("umls", 135, 6529), ("kinships", 104, 10686), ("nations", 14, 1992)]
)
def test_packaged_graphs_have_their_known_sizes(name: str, entities: int, triples: int) -> None:
    data = read("kg", [name])
    assert len(data.entities) == entities
    assert len(data.parts[0].all) == triples


@pytest.mark.parametrize(
    ("task", "text", "error"),
    [
        ("kg", "a\tb\tc\na\tb\n", r"x\.tsv, line 2: 2 columns; expected 3 columns: head, relation, tail"),
        ("kg", "a\tb\tc\td\n", r"line 1: 4 columns"),
        ("kg", "a\t\tc\n", r"line 1: the relation is empty"),
        ("recommend", "u\ti\tgood\n", r"line 1: the rating 'good' is not a number"),
        ("recommend", "u\ti\t3\nu\tj\tnan\n", r"line 2: the rating nan is not finite"),
        ("kg", "", r"x holds no rows; 3 columns"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path: Path, task: str, text: str, error: str) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=error):
        read(task, [str(path)])


def test_a_data_set_that_does_not_exist_brings_the_list_of_those_that_do() -> None:
    with pytest.raises(DataError, match=r"no data set and no file 'freebase'; .*kinships, nations, umls"):
        read("kg", ["freebase"])
    with pytest.raises(DataError, match="umls is a knowledge graph; secea train social needs a file"):
        read("social", ["umls"])


@pytest.mark.parametrize("name", ["x.npz", "x.parquet", "x.tsv"])
def test_damaged_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe\x00garbage")
    with pytest.raises(DataError, match=name):
        read("kg", [str(tmp_path / name)])


@pytest.mark.parametrize(
    ("arrays", "error"),
    [
        ({"train_0": np.zeros((2, 2))}, r"array train_0 has shape \(2, 2\); expected 3 columns"),
        ({"train": np.array([[0.5, 1, 1]])}, r"array train, row 0: ids must be whole numbers, got \[0\.5, 1"),
        ({"train": np.array([[1e300, 1, 1]])}, r"array train, row 0: ids must be whole numbers, got \[1e\+300, 1"),
        ({"train": np.array([[1j, 1, 1]])}, r"array train has dtype complex128; expected integers, texts"),
        ({"train": np.array([[b"a", b"b", b"c"]])}, r"array train has dtype \|S1; expected integers, texts"),
        ({"a": np.zeros((1, 3)), "b": np.zeros((1, 3))}, r"must hold train_0, \.\.\., or train and test, or one array"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, arrays: dict[str, Any], error: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=error):
        read("kg", [str(tmp_path / "x.npz")])


# ------------------------------------------------------------------------------------------------------------ headings

GRAPH = [(f"d{i}", "treats", f"s{i % 3}") for i in range(12)]


def lines(rows: Sequence[tuple[str, ...]], between: str = ",") -> str:
    return "".join(between.join(row) + "\n" for row in rows)


HEADINGS: dict[str, tuple[str, str, Columns, int, str]] = {
    "known words": ("kg", "head,relation,tail\nx,r,y\n", Columns(), 1, ""),
    "a word that is known": ("kg", "drug,rel,disease\na,treats,b\n", Columns(), 1, "read as a heading"),
    "words that are nowhere else": ("kg", "drug,cures,illness\n" + lines(GRAPH), Columns(), 12, "read as a heading"),
    "the same in a few lines": ("kg", "drug,cures,illness\n" + lines(GRAPH[:3]), Columns(), 4, "read as a row"),
    "a first row of the graph": ("kg", lines(GRAPH), Columns(), 12, ""),
    "a first row that shares its relation": ("kg", "x,treats,y\n" + lines(GRAPH), Columns(), 13, ""),
    "edges without a connection": ("social", "a,b\nc,d\ne,f\n", Columns(), 3, "read as a row"),
    "words over numbers": ("social", "a,b\n1,2\n2,3\n", Columns(), 2, "it has words where the others have numbers"),
    "numbers": ("social", "1,2\n2,3\n", Columns(), 2, ""),
    "ratings with a time": ("recommend", "user,item,rating,ts\nu,i,4,99\n", Columns(), 1, ""),
    "ratings of books": ("recommend", "reader,book,stars\nu,i,4\nu,j,3\n", Columns(), 2, "read as a heading"),
    "ratings": ("recommend", "u,i,4\nu,j,3\n", Columns(), 2, ""),
    "told: a heading": ("kg", "x,r,y\na,r,b\n", Columns(header=True), 1, ""),
    "told: no heading": ("kg", "head,relation,tail\na,r,b\n", Columns(header=False), 2, ""),
    "told: columns by label": ("kg", "id,to,how,of\n1,b,r,a\n", Columns(columns=("of", "how", "to")), 1, ""),
    "told: columns by number": ("kg", "1,b,r,a\n", Columns(columns=("4", "3", "2")), 1, ""),
    "known labels in another order": ("kg", "tail,x,head,relation\nb,0,a,r\n", Columns(), 1, "read as a heading"),
}


@pytest.mark.parametrize("case", HEADINGS)
def test_a_first_line_is_recognised_or_it_is_said_what_was_assumed(tmp_path: Path, case: str) -> None:
    task, text, said, rows, assumed = HEADINGS[case]
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    data = read(task, [str(tmp_path / "x.csv")], (), said)
    assert len(data.parts[0].all) == rows
    assert assumed in " ".join(data.assumed)
    assert bool(data.assumed) == bool(assumed)
    if "column" in case or "order" in case:
        assert named(data) == [[("a", "r", "b")]]


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (("a", "b"), r"--columns needs 3 columns: head, relation, tail; it has 2"),
        (("head", "relation", "z"), r"x\.csv has no column 'z'; there are head, relation, tail"),
        (("1", "2", "9"), r"x\.csv has no column '9'; there are head"),
    ],
)
def test_columns_that_are_not_there_are_told(tmp_path: Path, columns: tuple[str, ...], error: str) -> None:
    (tmp_path / "x.csv").write_text("head,relation,tail\na,r,b\n", encoding="utf-8")
    with pytest.raises(DataError, match=error):
        read("kg", [str(tmp_path / "x.csv")], (), Columns(columns=columns))


def test_columns_of_parquet_are_chosen_by_label_too(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"n": [0], "to": ["b"], "of": ["a"], "how": ["r"]}), tmp_path / "x.parquet")
    data = read("kg", [str(tmp_path / "x.parquet")], (), Columns(columns=("of", "how", "to")))
    assert named(data) == [[("a", "r", "b")]]
