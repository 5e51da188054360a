"""Secure embedding aggregation for federated representation learning.

    means = secea.aggregate(tables)      # one table per client in, one per client out

`Federation` runs many rounds in one process. `Client` and `Server` are the state machines behind every engine.
"""

import warnings

from secea import extras
from secea.accuracy import Accuracy, accuracy
from secea.arithmetic import _kernels
from secea.engines.federation import Federation
from secea.engines.once import aggregate
from secea.errors import (
    SERVER,
    CallError,
    FaultyPeer,
    FaultyPeerOrRelay,
    FederationError,
    NothingShared,
    ParamsError,
    ProtocolError,
    RoundLost,
    SecEAError,
    SlowKernels,
    SnapshotError,
    TableError,
    TableTypeError,
    TwoClients,
    Uncovered,
)
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.params import Params
from secea.party.client import Client
from secea.party.server import Server
from secea.party.session import Session
from secea.plan import Plan, plan
from secea.table import Table
from secea.wire.keys import Identity, Roster

__version__ = "0.1.0"

__all__ = [
    "SERVER",
    "Accuracy",
    "CallError",
    "Client",
    "FaultyPeer",
    "FaultyPeerOrRelay",
    "Federation",
    "FederationError",
    "Identity",
    "Keyed",
    "NothingShared",
    "Paillier",
    "Params",
    "ParamsError",
    "Plan",
    "ProtocolError",
    "Roster",
    "RoundLost",
    "SecEAError",
    "Server",
    "Session",
    "SlowKernels",
    "SnapshotError",
    "Table",
    "TableError",
    "TableTypeError",
    "TwoClients",
    "Uncovered",
    "accuracy",
    "aggregate",
    "plan",
]

if _kernels.MISSING:
    warnings.warn(
        f"secea runs without its compiled loops, and is many times slower ({_kernels.MISSING}). "
        "Install a wheel for this system, or install a C compiler (Debian: apt install gcc) and then secea again, from "
        f"the folder of its source: {extras.again()}",
        SlowKernels,
        stacklevel=2,
    )
