"""All settings of a run, resolved once; the same text goes into the run folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from secea import __version__
from secea.errors import DataError
from secea.learn.methods import METHODS
from secea.params import rule_of

DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "kg": {"model": "transe", "dim": 64, "batch": 256, "negatives": 64, "lr": 0.01, "margin": 2.0, "rounds": 40},
    "recommend": {"model": "mf", "dim": 16, "batch": 1024, "negatives": 0, "lr": 0.005, "margin": 0.0, "rounds": 20},
    "social": {"model": "dot", "dim": 32, "batch": 1024, "negatives": 256, "lr": 0.02, "margin": 2.0, "rounds": 20},
}
"""What differs between tasks where the user says nothing."""


@dataclass(frozen=True)
class Config:
    """Every setting of a run."""

    task: str
    sources: tuple[str, ...]
    """Data sets by name, or absolute paths."""
    model: str
    dim: int
    batch: int
    negatives: int
    lr: float
    margin: float
    rounds: int
    norm: int = 2
    """The norm of TransE's distance."""
    clients: int | None = None
    """None: as the data came, or 8."""
    split: str | None = None
    """None: as the data came, or `own`."""
    share: float = 0.4
    core: float = 0.25
    epochs: int = 3
    temperature: float = 1.0
    seed: int = 0
    methods: tuple[str, ...] = METHODS
    collusion: int | None = None
    """None: all other clients may conspire."""
    max_abs: float | None = None
    """The range of embeddings in `secea`. None: what training needs, see `Run.max_abs`."""
    every: int = 5
    device: str = "cpu"
    min_owners: int = 1
    """No mean for entities of fewer clients: each keeps its own row."""
    weights: bool = False
    """Means are weighted by how many training examples of a client touch the entity."""
    dp: dict[str, Any] | None = None
    """epsilon, delta and clip; and shared: whether all clients make the noise together."""
    normalize: tuple[str, ...] = ()
    """The steps of `Params.normalize`: which spellings in the data are one entity."""
    header: bool | None = None
    """Whether the first line of a text file is a heading. None: found out."""
    columns: tuple[str, ...] = ()
    """Which columns of files are the task's, in its order. Empty: the first ones."""

    @property
    def data(self) -> str:
        """A short name for people."""
        return Path(self.sources[0]).stem if len(self.sources) == 1 else f"{len(self.sources)} files"

    def to_json(self) -> dict[str, Any]:
        """What goes into config.json, but for the metric, which the task knows."""
        lists = {"sources": list(self.sources), "methods": list(self.methods), "normalize": list(self.normalize)}
        lists["columns"] = list(self.columns)
        return {"secea": __version__, "data": self.data, "optimizer": "reset", **asdict(self), **lists}


def resolved(task: str, sources: tuple[str, ...], **given: Any) -> Config:
    """What the user said, and the task's defaults for the rest."""
    said = {name: value for name, value in given.items() if value is not None}
    places = tuple(str(Path(source).resolve()) if Path(source).exists() else source for source in sources)
    said["normalize"] = rule_of(said.get("normalize", ()))
    config = Config(task=task, sources=places, **(DEFAULTS[task] | said))
    return replace(config, methods=tuple(name for name in METHODS if name in config.methods))


def read(path: Path) -> Config:
    """The settings of a run that was begun."""
    try:
        text = json.loads(path.read_text(encoding="utf-8"))
        fields = {name: text[name] for name in Config.__dataclass_fields__}
    except FileNotFoundError:
        raise DataError(f"{path.parent} is no run folder: it has no {path.name}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} does not hold the settings of a run: {error}") from None
    fields |= {name: tuple(fields[name]) for name in ("sources", "methods", "normalize", "columns")}
    return Config(**fields)
