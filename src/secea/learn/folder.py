"""The folder of a run: what is written, atomically, and what a killed run continues from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.arrays import read_arrays
from secea.atomic import Content, replace_files
from secea.errors import DataError
from secea.table import Name

State = dict[str, NDArray[Any]]
AFRESH: Final = "remove it, and this method begins afresh"


class Folder:
    """Files are replaced whole; the lines of a log belong to a round that has a checkpoint, or are taken back."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """One JSON file."""
        self._write(self.path / name, f"{json.dumps(value, indent=2)}\n".encode())

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A JSON file, None if it is not there."""
        try:
            text: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DataError(f"{self.path / name} is damaged: {error}") from None
        return text

    @staticmethod
    def _write(target: Path, content: Content, mode: int = 0o666) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_files({target: content}, mode=mode)

    # ------------------------------------------------------------------------------------------------------- logs

    def log(self, name: str, line: Mapping[str, Any]) -> None:
        """One more line."""
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self, name: str) -> list[dict[str, Any]]:
        """All whole lines."""
        try:
            text = (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def take_back(self, rounds: Mapping[str, int]) -> None:
        """Only what belongs to rounds with a checkpoint stays in the logs; `rounds` is by method."""
        for name in ("metrics.jsonl", "protocol.jsonl"):
            kept = [x for x in self.lines(name) if x["round"] <= rounds.get(x.get("method", "secea"), -1)]
            if (self.path / name).exists():
                self._write(self.path / name, "".join(json.dumps(line) + "\n" for line in kept).encode())

    # ------------------------------------------------------------------------------------------------ checkpoints

    def save(self, method: str, round: int, states: Sequence[State], seconds: Mapping[str, float]) -> None:
        """Save the state of a method after a round. `seconds` were spent since its last line."""
        arrays = {f"{n}/{name}": array for n, state in enumerate(states) for name, array in state.items()}
        about = np.array(json.dumps({"round": round, "clients": len(states), "seconds": dict(seconds)}))
        self._write(self.path / "checkpoint" / f"{method}.npz", _archive(about=about, **arrays))

    def saved(self, method: str) -> tuple[int, list[State], dict[str, float]] | None:
        """The newest checkpoint of a method."""
        path = self.path / "checkpoint" / f"{method}.npz"
        if not path.exists():
            return None
        arrays = read_arrays(path, AFRESH)
        try:
            about = json.loads(str(arrays.pop("about")))
            states: list[State] = [{} for _ in range(about["clients"])]
            for key, array in arrays.items():
                number, _, name = key.partition("/")
                states[int(number)][name] = array
            return about["round"], states, about["seconds"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise DataError(f"{path} is no checkpoint of a run ({error!r}); {AFRESH}") from None

    def secret(self, fresh: bytes) -> bytes:
        """The key of the run's noise. It is kept, only for this user, until the run is finished."""
        path = self.path / "checkpoint" / "noise.key"
        if not path.exists():
            self._write(path, fresh, 0o600)
        return path.read_bytes()

    def forget(self) -> None:
        """The run is finished."""
        shutil.rmtree(self.path / "checkpoint", ignore_errors=True)

    # ------------------------------------------------------------------------------------------------- embeddings

    def embeddings(self, method: str, client: str, names: Sequence[Name], matrix: NDArray[np.float64]) -> None:
        """What a client has in the end."""
        target = self.path / "embeddings" / method / f"{client}.npz"
        self._write(target, _archive(names=np.array(names), matrix=matrix.astype(np.float32)))


def _archive(**arrays: NDArray[Any]) -> Content:
    return lambda file: np.savez(file, **arrays)  # type: ignore[arg-type]  # numpy's types take no names from a mapping
