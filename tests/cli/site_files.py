"""A site's files, as its operator writes them."""

from __future__ import annotations

from pathlib import Path

from secea.engines.files import write_identity, write_session
from secea.forms import form_of
from secea.params import Params
from secea.party.session import Session
from secea.wire.keys import Identity, Roster

SITE = """\
name = "north"
federation = "federation.toml"
identity = "north.pem"
state = "state"
log = "audit.jsonl"
participant = "{module}:participant"
"""
MINE = """\
import numpy as np
from secea.adapters import participant as bring
from secea.adapters.numpy import NumpyRows


def participant():
    return bring(NumpyRows(["aspirin", "codeine"], np.zeros((2, 2), np.float32)), lambda round: None)
"""


def make_site(folder: Path, module: str = "mine") -> None:
    """A site that is ready for its first run."""
    keys = {name: Identity.generate() for name in ("north", "south", "west", "server")}
    write_identity(keys["north"], folder / "north.pem")
    clients = ("north", "south", "west")
    roster = Roster(tuple(keys[name].public for name in clients), keys["server"].public, clients)
    params = Params(clients=3, dim=2, max_entities=1000, max_union=2500)
    write_session(Session(params, roster, form_of("keyed")), folder / "federation.toml")
    (folder / "site.toml").write_text(SITE.format(module=module))
    (folder / f"{module}.py").write_text(MINE)
