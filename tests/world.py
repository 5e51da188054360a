"""A federation with random tables and the truth about each of its rounds; and a ledger of every key that was used."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

from federation import SMALL, Floats, true_means
from secea import Federation, Params
from secea.errors import SERVER
from secea.table import Name
from secea.wire.endpoint import Endpoint, Stage
from secea.wire.keys import Channel, Sealer
from secea.wire.messages import Buffer, Header, Kind

BOTH: Final = ("reciprocal", "paillier")
Losses: TypeAlias = Collection[int] | Mapping[int, str]


def few_each(clients: int) -> list[list[Name]]:
    """At most three entities each, the fewest queries: owners alone, shared ones, and a client that owns nothing."""
    names: list[list[Name]] = [list[Name]((n, f"next {(n + 1) % clients}", "all"))[: 1 + n % 3] for n in range(clients)]
    return [*names[:3], [], [4, "all", "next 2"], *names[5:]]


class World:
    """A federation in one process, what its clients own, and random tables from a printed seed."""

    def __init__(self, sets: Sequence[Sequence[Name]], form: str, *, seed: int = 0, **params: Any) -> None:
        print(f"world: seed {seed}, {form}, sets {sets!r}, {params}")  # shown where a test fails
        self.rng = np.random.default_rng(seed)
        self.sets: list[list[Name]] = [list(names) for names in sets]
        self.fed = Federation(Params(**{"clients": len(sets), "dim": 2, **SMALL, **params}), form)
        self.rounds = 0

    def setup(self, **losses: Any) -> World:
        self.fed.setup(self.sets, **losses)
        return self

    def tables(self) -> list[dict[Name, Floats]]:
        most, dim = self.fed.params.max_abs, self.fed.params.dim
        return [{name: self.rng.uniform(-most, most, dim) for name in names} for names in self.sets]

    def round(self, absent: Collection[int] = (), vanish: Losses = (), *, contributors: Iterable[int] = ()) -> None:
        """The means are those over the contributors: all that are present, unless named; the others get None."""
        tables, losses = self.tables(), vanish if isinstance(vanish, Mapping) else dict.fromkeys(vanish, "answer")
        early = {n for n, stage in losses.items() if stage != "answer"}
        among = set(contributors) or set(range(len(tables))) - set(absent) - early
        means = self.fed.round([None if n in absent else table for n, table in enumerate(tables)], vanish=vanish)
        self.rounds += 1
        self.check(tables, means, among, {*absent, *losses})

    def check(self, tables: Sequence[Mapping[Name, Floats]], means: Any, among: set[int], gone: set[int]) -> None:
        expected = true_means(table for n, table in enumerate(tables) if n in among)
        for n, table in enumerate(tables):
            if n in gone:
                assert means[n] is None, n
                continue
            assert means[n].keys() == table.keys()
            for name, mean in means[n].items():
                assert np.abs(mean - expected[name]).max() <= self.fed.params.resolution, (n, name)


class Ledger:
    """Everything that a key, a mask or a pad was used for, on each side: no two different things."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used: Counter[tuple[int, int, str, bytes]] = Counter()
        """(me, peer, purpose, key): how often this side derived a key for sealing, or a key stream."""
        self.seeds: Counter[bytes] = Counter()
        self.sealed: dict[tuple[bytes, int], bytes] = {}
        """(label, chunk): a digest of what was sealed."""
        self.hidden: dict[tuple[Kind, int, int, bytes, int], bytes] = {}
        """(kind, sender, receiver, context, chunk) of tables: what the masks of a context hide."""
        derive, seal, stages = Channel.derive, Sealer.seal, Endpoint.stages

        def derived(channel: Channel, purpose: str, label: bytes) -> bytes:
            key = derive(channel, purpose, label)
            if purpose in ("mask", "pad") or (purpose == "seal" and Header.parse(label, SERVER).sender == channel.me):
                self.used[channel.me, channel.peer, purpose, key] += 1
            return key

        def sealing(sealer: Sealer, chunk: int, *payload: Buffer) -> memoryview:
            header, content = sealer.header, hashlib.sha256(b"".join(payload)).digest()
            place = (header.label(), chunk)
            assert self.sealed.setdefault(place, content) == content, f"a key sealed two contents: {header.title}"
            if header.kind is Kind.TABLE:
                spot = (header.kind, header.sender, header.receiver, header.context, chunk)
                assert self.hidden.setdefault(spot, content) == content, "masks of one context hid two tables"
            return seal(sealer, chunk, *payload)

        def drawn(wire: Endpoint, *args: Any, **more: Any) -> tuple[Stage, ...]:
            new = stages(wire, *args, **more)
            self.seeds.update(stage.seed for stage in new)
            return new

        monkeypatch.setattr(Channel, "derive", derived)
        monkeypatch.setattr(Sealer, "seal", sealing)
        monkeypatch.setattr(Endpoint, "stages", drawn)

    def check(self) -> None:
        """In a run without crashes no side derives a key twice for sending, nor draws a seed twice."""
        twice = {(me, peer, purpose) for (me, peer, purpose, _), count in self.used.items() if count > 1}
        assert not twice, f"a key served twice on one side: {sorted(twice)}"
        assert len({key for _, _, purpose, key in self.used if purpose == "seal"}) == sum(
            purpose == "seal" for _, _, purpose, _ in self.used
        )
        assert max(self.seeds.values()) == 1
