"""The data of `secea demo`: a real graph, split between organisations. Each makes embeddings from its own part.

An entity's embedding is a sum with one fixed random vector for each (relation, neighbour) that its organisation knows.
Nothing is trained, so it is quick. Still, the mean over all owners points in the direction of the embedding that all
data together would give.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from secea.errors import MissingExtra, ParamsError

Triple: TypeAlias = tuple[str, str, str]
Tables: TypeAlias = list[dict[str, NDArray[np.float32]]]

SHARE: Final = 0.4
CORE: Final = 0.15
ALONE, NOBODY = 0.1, 0.15
"""An organisation knows a random share of the entities, a core that all know, and some that nobody else knows. Some
entities are known to nobody: an attacker who guesses names will guess these too."""

BORDERS: Final = """
Alabama: Florida, Georgia, Mississippi, Tennessee
Arizona: California, Nevada, New Mexico, Utah
Arkansas: Louisiana, Mississippi, Missouri, Oklahoma, Tennessee, Texas
California: Nevada, Oregon
Colorado: Kansas, Nebraska, New Mexico, Oklahoma, Utah, Wyoming
Connecticut: Massachusetts, New York, Rhode Island
Delaware: Maryland, New Jersey, Pennsylvania
Florida: Georgia
Georgia: North Carolina, South Carolina, Tennessee
Idaho: Montana, Nevada, Oregon, Utah, Washington, Wyoming
Illinois: Indiana, Iowa, Kentucky, Missouri, Wisconsin
Indiana: Kentucky, Michigan, Ohio
Iowa: Minnesota, Missouri, Nebraska, South Dakota, Wisconsin
Kansas: Missouri, Nebraska, Oklahoma
Kentucky: Missouri, Ohio, Tennessee, Virginia, West Virginia
Louisiana: Mississippi, Texas
Maine: New Hampshire
Maryland: Pennsylvania, Virginia, West Virginia
Massachusetts: New Hampshire, New York, Rhode Island, Vermont
Michigan: Ohio, Wisconsin
Minnesota: North Dakota, South Dakota, Wisconsin
Mississippi: Tennessee
Missouri: Nebraska, Oklahoma, Tennessee
Montana: North Dakota, South Dakota, Wyoming
Nebraska: South Dakota, Wyoming
Nevada: Oregon, Utah
New Hampshire: Vermont
New Jersey: New York, Pennsylvania
New Mexico: Oklahoma, Texas
New York: Pennsylvania, Vermont
North Carolina: South Carolina, Tennessee, Virginia
North Dakota: South Dakota
Ohio: Pennsylvania, West Virginia
Oklahoma: Texas
Oregon: Washington
Pennsylvania: West Virginia
South Dakota: Wyoming
Tennessee: Virginia
Utah: Wyoming
Virginia: West Virginia
"""
"""The states of the continental United States, each border once."""


@dataclass(frozen=True)
class World:
    """A data set, split between organisations."""

    name: str
    about: str
    tables: Tables
    """One table for each organisation. The first organisation has the most entities that nobody else has."""
    names: tuple[str, ...]
    """All entities of the data set, including those that no organisation has: the names an attacker could guess."""
    whole: dict[str, NDArray[np.float64]]
    """The embeddings that all data in one place would give."""


def world(source: str | None, *, clients: int, dim: int, seed: int) -> World:
    """The graph of this name (None: the largest available), split at random."""
    name, about, triples = _graph(source)
    rng = np.random.Generator(np.random.PCG64([seed, 0xDE40]))  # decides who knows what; not a secret of the protocol
    entities = sorted({end for h, _, t in triples for end in (h, t)})
    parts = _dealt(triples, entities, clients, rng)
    if not all(parts):
        raise ParamsError(f"{name} is too small for {clients} clients: take fewer, or --entities for made-up data")
    tables = [{name: sums.astype(np.float32) for name, sums in _embedded(part, dim).items()} for part in parts]
    owners = Counter(itertools.chain.from_iterable(tables))
    tables.sort(key=lambda table: -sum(owners[name] == 1 for name in table))
    whole = _embedded(list(itertools.chain.from_iterable(parts)), dim)
    return World(name, about, tables, tuple(entities), whole)


def _graph(source: str | None) -> tuple[str, str, list[Triple]]:
    if source != "borders":
        try:
            return "umls", "UMLS, a network of medical concepts", list(_umls())
        except MissingExtra:
            if source is not None:
                raise
    triples = [(one, "borders", other) for one, others in _listed() for other in others]
    return "borders", "the states of the continental US and their borders", triples


def _listed() -> Iterator[tuple[str, list[str]]]:
    for line in BORDERS.strip().splitlines():
        state, _, others = line.partition(": ")
        yield state, others.split(", ")


def _umls() -> Iterator[Triple]:
    """The UMLS triples from the installed pykeen package, which is not imported."""
    from secea.learn.data import read

    found = read("kg", ["umls"])
    for h, r, t in found.parts[0].all.tolist():
        yield str(found.entities[h]), str(found.others[r]), str(found.entities[t])


def _dealt(
    triples: Sequence[Triple], entities: Sequence[str], clients: int, rng: np.random.Generator
) -> list[list[Triple]]:
    """Give each triple to one organisation that knows both ends. Triples that nobody knows are left out."""
    kind, alone = rng.random(len(entities)), rng.integers(clients, size=len(entities))
    knows = (rng.random((clients, len(entities))) < SHARE) | (kind < CORE)
    knows[:, kind > 1 - ALONE - NOBODY] = False
    knows[alone[kind > 1 - ALONE], np.flatnonzero(kind > 1 - ALONE)] = True
    place = {name: i for i, name in enumerate(entities)}
    parts: list[list[Triple]] = [[] for _ in range(clients)]
    for triple in triples:
        both = np.flatnonzero(knows[:, place[triple[0]]] & knows[:, place[triple[2]]])
        if both.size:
            parts[int(rng.choice(both))].append(triple)
    return parts


def _embedded(triples: Sequence[Triple], dim: int) -> dict[str, NDArray[np.float64]]:
    sums: dict[str, NDArray[np.float64]] = {}
    for h, r, t in sorted(triples):
        for name, known in ((h, f"{r} {t}"), (t, f"{r} by {h}")):
            sums[name] = sums.get(name, 0.0) + _direction(known, dim)
    return sums


def _direction(known: str, dim: int) -> NDArray[np.float64]:
    """The random vector for one (relation, neighbour); the same for everybody."""
    seed = int.from_bytes(hashlib.blake2b(known.encode(), digest_size=8).digest(), "little")
    return np.random.Generator(np.random.PCG64(seed)).normal(size=dim) / 2
