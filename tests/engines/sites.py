"""Sites on one machine for the engines' tests, and what the means must be by what the parties wrote down."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import trial
from optional import dues
from secea.engines.files import write_identity, write_session
from secea.forms import form_of
from secea.params import Params
from secea.party.session import Session
from secea.table import Name, Table
from secea.wire.keys import Identity, Roster

UPLOADS = {"keyed": "upload", "paillier": "share"}
"""What a client sends when it contributes."""


@dataclass
class Sites:
    """A folder with everything that each party keeps at its site; in a real federation they are on many machines."""

    folder: Path
    params: Params
    scenes: Sequence[Sequence[trial.Fault]] = ()
    seconds: float = 0.0
    """The time that training takes."""
    late: float = 0.0
    """The time after which what is late comes."""
    entities: int = 30
    form: str = "keyed"

    def __post_init__(self) -> None:
        self.names = tuple(f"site-{n + 1}" for n in range(self.params.clients))
        self._sites: dict[str, dict[str, str]] = {}
        self._arguments: dict[str, dict[str, object]] = {}
        self.identities = {name: Identity.generate() for name in (*self.names, "server")}
        for name, identity in self.identities.items():
            (self.folder / name).mkdir(parents=True)
            write_identity(identity, self.folder / name / "identity.pem")
            shutil.copy(trial.__file__, self.folder / name)
        self.agree("federation.json", self.params)
        self.write("server")
        for n, name in enumerate(self.names):
            options: dict[str, object] = {"number": n, "entities": self.entities, "dim": self.params.dim}
            options |= {"folder": str(self.folder / name), "scenes": self.scenes, "seconds": self.seconds}
            self._arguments[name] = options | {"late": self.late, "most": self.most}
            self.write(name, participant="trial:participant")

    @property
    def most(self) -> int:
        """The largest weight of a row; 0 where rows have none."""
        return self.params.max_weight or int(self.params.partial)

    def agree(self, file: str, params: Params, **other: bytes) -> None:
        """A federation file; `other`: public keys that are not those of the sites."""
        keys = {name: other.get(name.replace("-", "_"), each.public) for name, each in self.identities.items()}
        roster = Roster(tuple(keys[name] for name in self.names), keys["server"], self.names)
        write_session(Session(params, roster, form_of(self.form)), self.folder / file)

    def play(self, scenes: Sequence[Sequence[trial.Fault]]) -> None:
        """All sites are as they were at first, and have these faults before them."""
        self.scenes = scenes
        for name in self.names:
            self._arguments[name]["scenes"] = scenes
            self.write(name, federation="../federation.json", identity="identity.pem")

    def argue(self, name: str, **more: object) -> None:
        """More arguments for a site's function."""
        self._arguments[name] |= more
        self.write(name)

    def write(self, name: str, /, **more: str) -> None:
        """A site's file; what is given is changed, the rest stays as it was."""
        files = {"federation": "../federation.json", "identity": "identity.pem", "state": "state", "log": "audit.jsonl"}
        site = self._sites.setdefault(name, {"name": name} | files)
        site |= more
        lines = [f"{key} = {json.dumps(value)}" for key, value in site.items()]
        if name in self._arguments:
            lines += ["[arguments]", *(f"{key} = {json.dumps(v)}" for key, v in self._arguments[name].items())]
        (self.folder / name / "site.toml").write_text("\n".join(lines) + "\n")

    def file(self, name: str) -> Path:
        """A site's file."""
        return self.folder / name / "site.toml"

    def forget_the_past(self) -> None:
        """What was written down so far does not count."""
        for path in (*self.folder.glob("*/audit.jsonl"), *self.folder.glob("*/record"), *self.folder.glob("scene-*")):
            path.unlink()

    # --------------------------------------------------------------------------------------------- what came of it

    def log(self, name: str, **what: object) -> list[dict[str, Any]]:
        """Lines like this in the audit log of a party, but for a line that is being written."""
        path = self.folder / name / "audit.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]
        return [line for line in map(self._numbered, lines) if what.items() <= line.items()]

    def _numbered(self, line: dict[str, Any]) -> dict[str, Any]:
        """The same line with numbers for clients, which a log names as the federation file does."""
        numbers = {name: n for n, name in enumerate(self.names)}
        for part in ("client", "from", "to"):
            if line.get(part) in numbers:
                line[part] = f"client {numbers[line[part]]}"
        if line["event"] == "round":
            line["clients"] = [numbers[name] for name in line["clients"]]
        return line

    def rounds(self) -> list[dict[str, Any]]:
        """The rounds that gave means: number, and who was there to the end."""
        return self.log("server", event="round")

    def lost(self) -> list[tuple[str, str]]:
        """Whom the server lost, and why."""
        return [(line["client"], line["why"]) for line in self.log("server", event="lost")]

    def scenes_left(self) -> list[str]:
        """Faults that did not happen, and victims that did not come back."""
        marks = [
            f"scene-{i}-client-{client}-{what}"
            for i, scene in enumerate(self.scenes) for client, _, _ in scene for what in ("done", "back")
        ]  # fmt: skip
        return [mark for mark in marks if not (self.folder / mark).exists()]

    def kept(self) -> dict[str, set[str]]:
        """The pieces of state of each party that has some; an empty file to lock is none."""
        found: dict[str, set[str]] = {}
        for path in self.folder.glob("*/state/*.state"):
            if path.name == "lock.state":
                assert not path.read_bytes()
                continue
            found.setdefault(path.parts[-3], set()).add(path.name.partition(".")[0])
        return found

    def check_means(self) -> None:
        """Every mean that a client was given is numpy's over the contributors; and whoever was there was given them."""
        log, rounds = self.log("server"), [(line["number"], line["clients"]) for line in self.rounds()]
        given = set()
        for n, name in enumerate(self.names):
            record = self._record(name)
            for i, got in enumerate(record):
                if got["means"] is not None:
                    before = next((later["round"] for later in record[i:] if later["round"]), math.inf)
                    number = max(r for r, there in rounds if n in there and r < before)
                    self._check(n, got["means"], got["below"], number)
                    given.add((n, number))
        for i, line in enumerate(log):
            if line["event"] == "round":
                assert {n for n in line["clients"] if not _lost_next(log[i:], n)} <= {
                    n for n, number in given if number == line["number"]
                }, line

    def _check(self, n: int, means: Mapping[str, Sequence[float]], below: Sequence[str], number: int) -> None:
        shares = self.log("server", event="accepted", kind=UPLOADS[self.form], round=number)
        who = {int(line["from"].split()[1]) for line in shares if line["chunk"] + 1 == line["chunks"]}
        tables = [self._contributed(v, number) for v in sorted(who)]
        due = dues(self.params, [(table.as_dict(), self._weights(table)) for table in tables])
        own = self._contributed(n, number).as_dict()
        assert set(means) == set(trial.names_of(n, self.entities))
        for entity, mean in means.items():
            assert due[entity].meets(np.array(mean), own[entity])
        assert set(below) == {entity for entity in means if due[entity].below}

    def _contributed(self, n: int, number: int) -> Table:
        """What client n had trained last when that round began."""
        trained = max(got["round"] for got in self._record(self.names[n]) if 0 < got["round"] <= number)
        return trial.table_of(n, trained, self.entities, self.params.dim, self.most)

    @staticmethod
    def _weights(table: Table) -> dict[Name, int] | None:
        return None if table.weights is None else dict(zip(table.names, table.weights.tolist(), strict=True))

    def _record(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name / "record"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def lasting(sites: Sites) -> dict[str, set[str]]:
    """What the parties keep when a run is over: keys, and numbers that only grow."""
    return {name: {"client"} for name in sites.names} | {"server": {"server"}}


def _lost_next(log: Sequence[Mapping[str, Any]], n: int) -> bool:
    """Whether the next that the server heard of a client is that it is lost."""
    who = f"client {n}"
    return next((line["event"] == "lost" for line in log if who in (line.get("client"), line.get("from"))), False)
