"""Either form with parties that show what they should not, or draw from the wrong source."""

from __future__ import annotations

import hashlib
from typing import Any

from secea.audit.mutants.common import both
from secea.errors import ProtocolError
from secea.party.client import Client
from secea.wire.keys import Channel, Identity
from secea.wire.link import Link


def _told(self: Link, n: int, fault: str) -> ProtocolError:
    """With the key of the pair in it."""
    key = self.channels[n]._pair_key.hex() if n in self.channels else ""
    return ProtocolError((n,), f"{fault} {key}")


def _weak(count: int) -> bytes:
    """The same for everybody."""
    return hashlib.shake_256(b"%d" % count).digest(count)


def _shown(name: str, missing: str, owner: Any, method: str, instead: Any) -> Any:
    return both(name, missing, within=((owner, method, instead),))


SHOWN_SEED = _shown(
    "identity-shown", "The repr of an identity shows its secret.", Identity, "__repr__", lambda self: self.secret.hex()
)
SHOWN_KEY = _shown(
    "pair-key-shown", "The repr of a channel shows its key.", Channel, "__repr__", lambda self: str([*self._pair_key])
)
SHOWN_NAMES = _shown(
    "names-shown", "The repr of a client shows its entities.", Client, "__repr__", lambda self: str(self.part.names)
)
TOLD_KEY = _shown("key-in-an-error", "An error shows the key of a pair.", Link, "unauthentic", _told)
WEAK_CLIENT = _shown(
    "weak-source-of-a-client", "A client draws from a weak source by itself.", Client.__init__, "__defaults__", (_weak,)
)
WEAK_IDENTITY = _shown(
    "weak-source-of-identities",
    "Identities come from a weak source by themselves.",
    Identity.generate.__func__,  # type: ignore[attr-defined]
    "__defaults__",
    (_weak,),
)
