"""Secure embedding aggregation for federated representation learning.

    means = secea.aggregate(tables)      # one table per client in, one per client out

`Federation` runs many rounds in one process; `Client` and `Server` are the state machines behind every engine.
"""

from secea.client import Client
from secea.engines.federation import TwoClients, Uncovered
from secea.engines.local import Federation, aggregate
from secea.errors import (
    SERVER,
    CallError,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    ParamsError,
    ProtocolError,
    RoundLost,
    SecEAError,
    SnapshotError,
    TableError,
    TableTypeError,
)
from secea.forms.keyed import Keyed
from secea.params import Params
from secea.plan import Plan, plan
from secea.server import Server
from secea.session import Session
from secea.table import Table
from secea.wire.keys import Identity, Roster

__version__ = "0.1.0"

__all__ = [
    "SERVER",
    "CallError",
    "Client",
    "FaultyPeer",
    "FaultyPeerOrRelay",
    "Federation",
    "FederationError",
    "Identity",
    "Keyed",
    "Params",
    "ParamsError",
    "Plan",
    "ProtocolError",
    "Roster",
    "RoundLost",
    "SecEAError",
    "Server",
    "Session",
    "SnapshotError",
    "Table",
    "TableError",
    "TableTypeError",
    "TwoClients",
    "Uncovered",
    "aggregate",
    "plan",
]
