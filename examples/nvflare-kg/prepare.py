"""Play all parties at once: `python prepare.py FOLDER` makes keys, the federation file, data, and one site per party.

In earnest each party makes its own key, and they exchange public halves: see docs/deploy-nvflare.md.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

from secea import Identity, Keyed, Params, Roster
from secea.engines.files import write_identity, write_session
from secea.party.session import Session

HOSPITALS = ("north", "east", "south", "west", "harbour")
DIM = 16


def triples(site: int, entities: int = 120, count: int = 400) -> list[tuple[str, str, str]]:
    """A part of one graph: each site knows about two thirds of its entities, and some of the edges among them."""
    world = np.random.default_rng(0).integers(0, 6, entities)  # what each entity is like decides its edges
    rng = np.random.default_rng(site + 1)
    own = rng.choice(entities, entities * 2 // 3, replace=False)
    heads, tails = rng.choice(own, count), rng.choice(own, count)
    kinds = (world[heads] - world[tails]) % 6
    return [(f"drug-{h}", f"acts-{k}", f"drug-{t}") for h, k, t in zip(heads, kinds, tails, strict=True) if h != t]


def main(folder: Path) -> None:
    """All files of all parties."""
    identities = [Identity.generate() for _ in (*HOSPITALS, "server")]
    roster = Roster(tuple(i.public for i in identities[:-1]), identities[-1].public, HOSPITALS)
    params = Params(len(HOSPITALS), dim=DIM, dropouts=1, max_entities=100, max_union=150, rounds=100)
    session = Session(params, roster, Keyed())
    for name, identity in zip((*HOSPITALS, "server"), identities, strict=True):
        site = folder / name
        (site / "results").mkdir(parents=True)
        write_identity(identity, site / "identity.pem")
        write_session(session, site / "federation.toml")
        text = 'federation = "federation.toml"\nidentity = "identity.pem"\nstate = "state"\nlog = "audit.jsonl"\n'
        if name != "server":
            rows = triples(HOSPITALS.index(name))
            (site / "triples.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
            shutil.copy(Path(__file__).with_name("kg.py"), site)
            text = f'name = "{name}"\n{text}participant = "kg:participant"\n\n[arguments]\n'
            text += f'triples = "{site.absolute() / "triples.tsv"}"\nresults = "{site.absolute() / "results"}"\n'
        (site / "site.toml").write_text(text, encoding="utf-8")
    print(f"{folder}: {len(HOSPITALS)} sites and a server; fingerprint {session.fingerprint}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
