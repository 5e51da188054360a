"""Triples, ratings and edges from files and packages, as arrays of ids and the names behind them."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.arrays import read_arrays
from secea.errors import DataError, MissingExtra
from secea.extras import installing
from secea.learn import lines
from secea.learn.lines import Columns, row, wanted
from secea.names import Rule, text_of
from secea.table import Name

Rows: TypeAlias = NDArray[Any]
"""One row for each triple, rating or edge: columns of ids (int64); of ratings (float64) the last is the rating."""


@dataclass(frozen=True)
class Kind:
    """What the columns of a task's data are."""

    columns: tuple[str, ...]
    entities: tuple[int, ...]
    """The columns of what clients share: entities, items, nodes."""
    other: int | None
    """The column of what stays at a client: relations, users."""
    valued: bool = False
    """Whether the last column is a number."""


KINDS: Final = {
    "kg": Kind(("head", "relation", "tail"), (0, 2), 1),
    "recommend": Kind(("user", "item", "rating"), (1,), 0, valued=True),
    "social": Kind(("source", "target"), (0, 1), None),
}
PACKAGED: Final = ("kinships", "nations", "umls")
"""Knowledge graphs that lie inside the `pykeen` package."""
SUFFIXES: Final = (".tsv", ".txt", ".csv", ".npz", ".parquet")
STAGES: Final = ("train", "valid", "test")


@dataclass(frozen=True)
class Part:
    """The rows of one client, or those that are still to be dealt out."""

    train: Rows
    valid: Rows
    test: Rows

    @property
    def all(self) -> Rows:
        """All rows."""
        return np.concatenate([self.train, self.valid, self.test])


@dataclass(frozen=True)
class Dataset:
    """What was read: ids are places in `entities` and `others`."""

    name: str
    entities: tuple[Name, ...]
    others: tuple[Name, ...]
    parts: tuple[Part, ...]
    """One for each client where the data came split among clients; otherwise one."""
    clients: tuple[str, ...]
    """Names of the clients where the data came split; otherwise none."""
    assumed: tuple[str, ...] = ()
    """What files do not say for certain, such as whether the first line is a heading."""


def read(task: str, sources: Sequence[str], rule: Rule = (), said: Columns = Columns()) -> Dataset:  # noqa: B008 - frozen
    """A data set by name, a file, a folder, or several files (one for each client).

    Spellings that `rule` makes alike are one entity (`Params.normalize`). `said` is about columns of files.
    """
    kind = KINDS[task]
    reader = _Files(kind, said)
    clients: tuple[str, ...] = ()
    if len(sources) > 1:
        paths = [Path(source) for source in sources]
        raw, clients = [reader.one(path) for path in paths], _stems(paths)
        name = "files"
    elif sources[0] in PACKAGED and not Path(sources[0]).exists():
        if task != "kg":
            raise DataError(f"{sources[0]} is a knowledge graph; secea train {task} needs a file: {wanted(kind)}")
        raw, name = [_Files(kind).staged(_package_folder() / sources[0])], sources[0]
    else:
        path = Path(sources[0])
        name = path.stem
        if path.is_dir():
            files = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
            if any(each.stem == "train" for each in files):
                raw = [reader.staged(path)]
            elif files:
                raw, clients = [reader.one(each) for each in files], _stems(files)
            else:
                raise DataError(f"the folder {path} holds no data: {', '.join(SUFFIXES)}")
        elif path.suffix == ".npz" and path.exists() and (numbers := _numbered(path)):
            arrays = _arrays(path)
            raw = [{s: _checked(arrays.get(f"{s}_{n}"), path, f"{s}_{n}", kind) for s in STAGES} for n in numbers]
            clients = tuple(f"client {n}" for n in range(len(numbers)))
        else:
            raw = [reader.one(path)]
    return replace(_indexed(name, raw, clients, kind, rule), assumed=tuple(reader.assumed))


Raw: TypeAlias = dict[str, list[tuple[Any, ...]]]
"""Rows of names, by stage."""


def _indexed(name: str, raw: Sequence[Raw], clients: tuple[str, ...], kind: Kind, rule: Rule) -> Dataset:
    """Names become ids: the places in their sorted list. Of several spellings of an entity the first one stays."""
    everything = list(itertools.chain.from_iterable(rows for part in raw for rows in part.values()))
    if not everything:
        raise DataError(f"{name} holds no rows; {wanted(kind)}")
    spelled = {each: text_of(each, rule) for each in _sorted({row[c] for row in everything for c in kind.entities})}
    first = {text: each for each, text in reversed(spelled.items())}
    place_of = {text: i for i, text in enumerate(dict.fromkeys(spelled.values()))}
    entities = tuple(first[text] for text in place_of)
    others = () if kind.other is None else _sorted({row[kind.other] for row in everything})
    places: list[Mapping[Any, int]] = []
    for column in range(len(kind.columns)):
        if column in kind.entities:
            places.append({each: place_of[text] for each, text in spelled.items()})
        else:
            places.append({each: i for i, each in enumerate(others if column == kind.other else ())})

    def ids(rows: list[tuple[Any, ...]]) -> Rows:
        out = np.empty((len(rows), len(kind.columns)), np.float64 if kind.valued else np.int64)
        for column, place in enumerate(places):
            out[:, column] = [place[row[column]] if place else row[column] for row in rows]
        return out

    parts = tuple(Part(*(ids(part[stage]) for stage in STAGES)) for part in raw)
    return Dataset(name, entities, others, parts, clients)


def _sorted(names: set[Name]) -> tuple[Name, ...]:
    """Numbers before texts."""
    return tuple(sorted(names, key=lambda name: (isinstance(name, str), name)))


class _Files:
    """Files that are read one after the other, and what was assumed about them."""

    def __init__(self, kind: Kind, said: Columns = Columns()) -> None:  # noqa: B008 - frozen
        self._kind, self._said = kind, said
        self.assumed: list[str] = []

    def one(self, path: Path) -> Raw:
        """One file, for one client or for all: stages where it has them, else all rows are still to be held out."""
        kind = self._kind
        if path.suffix not in SUFFIXES or not path.is_file():
            there = f"data sets that come along: {', '.join(PACKAGED)} (kg)"
            raise DataError(
                f"there is no data set and no file {str(path)!r}; {there}; files: {', '.join(SUFFIXES)}, {wanted(kind)}"
            )
        if path.suffix == ".npz":
            arrays = _arrays(path)
            if "train" in arrays:
                return {stage: _checked(arrays.get(stage), path, stage, kind) for stage in STAGES}
            if len(arrays) != 1:
                found = ", ".join(arrays) or "none"
                raise DataError(f"{path} must hold train_0, ..., or train and test, or one array; it holds {found}")
            ((name, array),) = arrays.items()
            return {"train": _checked(array, path, name, kind), "valid": [], "test": []}
        rows, assumed = (lines.parquet if path.suffix == ".parquet" else lines.text)(path, kind, self._said)
        self.assumed += assumed
        return {"train": rows, "valid": [], "test": []}

    def staged(self, folder: Path) -> Raw:
        """A folder with train, valid and test."""
        found: Raw = {}
        for stage in STAGES:
            files = [path for path in sorted(folder.iterdir()) if path.stem == stage and path.suffix in SUFFIXES]
            if len(files) > 1:
                raise DataError(f"{folder} has {files[0].name} and {files[1].name}: which one is meant?")
            found[stage] = self.one(files[0])["train"] if files else []
        return found


def _stems(paths: Sequence[Path]) -> tuple[str, ...]:
    stems = [path.stem for path in paths]
    return tuple(stems) if len(set(stems)) == len(stems) else tuple(f"client {n}" for n in range(len(stems)))


def _package_folder() -> Path:
    """Where pykeen keeps its data; pykeen itself is not imported."""
    spec = importlib.util.find_spec("pykeen")
    if spec is None or spec.submodule_search_locations is None:
        raise MissingExtra(
            f"the data sets {', '.join(PACKAGED)} come with pykeen, which is not installed: {installing('pykeen')}"
        )
    return Path(next(iter(spec.submodule_search_locations))) / "datasets"


# ------------------------------------------------------------------------------------------------------- file formats


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    return read_arrays(path, "save the arrays again with np.savez")


def _numbered(path: Path) -> list[int]:
    """The clients of a file with arrays train_0, valid_0, test_0, train_1, ..."""
    found = {int(match[1]) for name in _arrays(path) if (match := re.fullmatch(r"(?:train|valid|test)_(\d+)", name))}
    return sorted(found)


def _checked(array: NDArray[Any] | None, path: Path, name: str, kind: Kind) -> list[tuple[Any, ...]]:
    """The rows of an array: integers or texts are names; integers may come as floats beside ratings."""
    if array is None:
        return []
    where = f"{path}, array {name}"
    if array.ndim != 2 or array.shape[1] < len(kind.columns):
        raise DataError(f"{where} has shape {array.shape}; expected {wanted(kind)}")
    if array.dtype.kind not in "iufU":
        raise DataError(f"{where} has dtype {array.dtype}; expected integers, texts, or floats beside ratings")
    ids = array[:, : len(kind.columns) - kind.valued]
    if np.issubdtype(ids.dtype, np.floating):
        wrong = np.flatnonzero(~((np.abs(ids) < 2**53) & (ids == np.rint(ids))).all(axis=1))
        if wrong.size:
            raise DataError(f"{where}, row {int(wrong[0])}: ids must be whole numbers, got {ids[wrong[0]].tolist()}")
        ids = ids.astype(np.int64)
    rows: list[list[Any]] = ids.tolist()
    if kind.valued:
        for each, value in zip(rows, array[:, -1 if array.shape[1] == 3 else 2].tolist(), strict=True):
            each.append(value)
    return [row(each, f"{where}, row {number}", kind) for number, each in enumerate(rows)]
