"""Sites on one machine for the engines' tests, and what the means must be by what the parties wrote down."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import trial
from secea.engines.files import write_identity, write_session
from secea.keys import Identity, Roster
from secea.params import Params
from secea.session import Session


@dataclass
class Sites:
    """A folder with everything that each party keeps at its site; in a real federation they are on many machines."""

    folder: Path
    params: Params
    deaths: Mapping[int, Sequence[Sequence[object]]] = field(default_factory=dict)
    """By client: see `trial.participant`."""
    seconds: float = 0.0
    """The time that training takes."""
    entities: int = 30

    def __post_init__(self) -> None:
        self.names = tuple(f"site-{n + 1}" for n in range(self.params.clients))
        self._sites: dict[str, dict[str, str]] = {}
        self._arguments: dict[str, dict[str, object]] = {}
        identities = {name: Identity.generate() for name in (*self.names, "server")}
        for name, identity in identities.items():
            (self.folder / name).mkdir(parents=True)
            write_identity(identity, self.folder / name / "identity.pem")
            shutil.copy(trial.__file__, self.folder / name)
        roster = Roster(tuple(identities[n].public for n in self.names), identities["server"].public, self.names)
        write_session(Session(self.params, roster), self.folder / "federation.json")
        self.write("server")
        for n, name in enumerate(self.names):
            options: dict[str, object] = {"number": n, "entities": self.entities, "dim": self.params.dim}
            options |= {"record": str(self.folder / name / "record"), "die": self.deaths.get(n, [])}
            self._arguments[name] = options | {"seconds": self.seconds}
            self.write(name, participant="trial:participant")

    def argue(self, name: str, **more: object) -> None:
        """More arguments for a site's function."""
        self._arguments[name] |= more
        self.write(name)

    def write(self, name: str, **more: str) -> None:
        """A site's file; what is given is changed, the rest stays as it was."""
        files = {"federation": "../federation.json", "identity": "identity.pem", "state": "state", "log": "audit.jsonl"}
        site = self._sites.setdefault(name, {"name": name} | files)
        site |= more
        lines = [f"{key} = {json.dumps(value)}" for key, value in site.items()]
        if name in self._arguments:
            lines += ["[arguments]", *(f"{key} = {json.dumps(v)}" for key, v in self._arguments[name].items())]
        (self.folder / name / "site.toml").write_text("\n".join(lines) + "\n")

    def log(self, name: str) -> list[dict[str, Any]]:
        """The audit log of a party."""
        return [json.loads(line) for line in (self.folder / name / "audit.jsonl").read_text().splitlines()]

    def rounds(self) -> list[dict[str, Any]]:
        """The rounds that gave means: number, and who was there to the end."""
        return [line for line in self.log("server") if line["event"] == "round"]

    def lost(self) -> dict[str, str]:
        """Whom the server lost, with the last reason."""
        return {line["client"]: line["why"] for line in self.log("server") if line["event"] == "lost"}

    def check_means(self) -> int:
        """Every mean that a client was given is numpy's mean over the contributors; how many tables were checked."""
        rounds = [(line["number"], line["clients"]) for line in self.rounds()]
        checked = 0
        for n, name in enumerate(self.names):
            for got in self._record(name):
                if got["means"] is None:
                    continue
                number = max(r for r, there in rounds if n in there and (r < got["round"] or not got["round"]))
                self._check(n, got["means"], number)
                checked += 1
        return checked

    def _check(self, n: int, means: Mapping[str, Sequence[float]], number: int) -> None:
        shares = (line for line in self.log("server") if line["event"] == "accepted" and line["kind"] == "share")
        who = {int(line["from"].split()[1]) for line in shares if line["round"] == number}
        tables = [self._contributed(v, number) for v in sorted(who)]
        assert set(means) == set(trial.names_of(n, self.entities))
        for entity, mean in means.items():
            owned = [table[entity] for table in tables if entity in table]
            assert np.abs(np.mean(owned, axis=0) - mean).max() <= self.params.resolution

    def _contributed(self, n: int, number: int) -> dict[object, Any]:
        """What client n had trained last when that round began."""
        trained = max(got["round"] for got in self._record(self.names[n]) if 0 < got["round"] <= number)
        table = trial.table_of(n, trained, self.entities, self.params.dim)
        return dict(zip(table.names, table.matrix, strict=True))

    def _record(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name / "record"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
