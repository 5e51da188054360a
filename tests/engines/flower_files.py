"""The files of all parties of a federation on Flower, and what its clients should have got."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import flower_site
from federation import true_means
from secea import Identity, Params, Roster, Session
from secea.engines.files import write_identity, write_session

N = 5
NAMES = tuple(f"site-{n}" for n in range(N))
PARAMS = Params(N, dim=flower_site.DIM, dropouts=1, max_entities=8, max_union=12)


class Files:
    """Five sites and a server, each with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.results = folder, folder / "results"
        self.results.mkdir()
        self.identities = [Identity.generate() for _ in range(N + 1)]
        for name, identity in zip((*NAMES, "server"), self.identities, strict=True):
            (folder / name).mkdir()
            write_identity(identity, folder / name / "identity.pem")
            shutil.copy(flower_site.__file__, folder / name)
        self.agree("federation.json", PARAMS)
        self.begin()

    def begin(self) -> None:
        """As before the first run: all descriptions are right, nothing was logged, there are no results."""
        self.describe_server()
        for n in range(N):
            self.describe(n)
        for path in (*self.results.iterdir(), *self.folder.glob("*/audit.jsonl")):
            path.unlink()

    def agree(self, name: str, params: Params) -> None:
        """A federation file."""
        roster = Roster(tuple(i.public for i in self.identities[:N]), self.identities[N].public, NAMES)
        write_session(Session(params, roster), self.folder / name)

    def site(self, n: int) -> Path:
        """The description of client n."""
        return self.folder / NAMES[n] / "site.toml"

    @property
    def server(self) -> Path:
        """The description of the server."""
        return self.folder / "server" / "site.toml"

    def describe(
        self, n: int, federation: str = "federation.json", identity: str = "identity.pem", **more: str
    ) -> None:
        """Write the description of client n."""
        own = {"name": NAMES[n], "participant": "flower_site:participant", "log": "audit.jsonl"}
        self._write(self.site(n), federation, own | {"identity": identity} | more)
        with self.site(n).open("a") as file:
            file.write(f'\n[arguments]\nclient = {n}\nfolder = "{self.results}"\n')

    def describe_server(self, federation: str = "federation.json") -> None:
        """Write the description of the server."""
        self._write(self.server, federation, {"identity": "identity.pem", "log": "audit.jsonl"})

    def _write(self, path: Path, federation: str, items: dict[str, str]) -> None:
        items = {"federation": f"../{federation}", "state": "state", **items}
        path.write_text("".join(f'{name} = "{value}"\n' for name, value in items.items()))

    def audit(self, party: str) -> list[dict[str, object]]:
        """A party's audit log, but for a line that is being written."""
        log = self.folder / party / "audit.jsonl"
        text = log.read_text() if log.exists() else ""
        return [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]

    def heard(self, **what: object) -> bool:
        """Whether the server has noted something like this."""
        return any(what.items() <= line.items() for line in self.audit("server"))

    def check(
        self, clients: Iterable[int], when: str, contributors: Iterable[int], round: int, *, old: Iterable[int] = ()
    ) -> None:
        """These clients have kept numpy's means of what the contributors trained in a round; `old` is from round 2."""
        expected = true_means(flower_site.table(v, 2 if v in old else round) for v in contributors)
        for n in clients:
            means = np.load(self.results / f"means-{n}-{when}.npy")
            for name, mean in zip(flower_site.ENTITIES[n], means, strict=True):
                assert np.abs(mean - expected[name]).max() <= PARAMS.resolution, (n, name)
