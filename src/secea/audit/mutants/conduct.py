"""Either form with a flaw that shows only where something goes wrong: in blame, in a log, at the edge of a parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from secea.audit import Mutant
from secea.audit.mutants import common, sites
from secea.audit.mutants.common import both
from secea.engines.log import Log
from secea.errors import SERVER, ProtocolError
from secea.party.client import Client
from secea.party.phases import Standing
from secea.wire.messages import Buffer

_overdue, _refused, _parse = Client.overdue, Log.refused, Standing.parse.__func__  # type: ignore[attr-defined]


def _only_the_server(self: Client) -> ProtocolError | None:
    """Whatever is missing, the server kept it back."""
    error = _overdue(self)
    return error and ProtocolError((SERVER,), error.fault)


def _once(self: Log, message: Buffer, error: ProtocolError) -> None:
    """The first refusal is enough."""
    if not getattr(self, "_complained", False):
        self._complained = True  # type: ignore[attr-defined]
        _refused(self, message, error)


def _one_later(cls: type[Standing], data: Buffer, rounds: int, epochs: int) -> Standing:
    """A client may stand one round after the last."""
    return _parse(cls, data, rounds + 1, epochs)  # type: ignore[no-any-return]


def _within(name: str, missing: str, *within: tuple[object, str, Any]) -> Mutant:
    return both(name, missing, within=within)


BLAMED_ALONE = _within(
    "server-blamed-alone", "Of what does not arrive a client names the server alone.",
    (Client, "overdue", _only_the_server),
)  # fmt: skip
LOGGED_ONCE = _within("refusal-logged-once", "A log has the first refusal alone.", (Log, "refused", _once))
STANDS_LATER = _within(
    "stands-one-round-later", "It is believed that a client stands one round after the last of a session.",
    (Standing, "parse", classmethod(_one_later)),
)  # fmt: skip

OF_PARTIES: Final[Sequence[Mutant]] = (BLAMED_ALONE, common.ANY_NUMBERS)
OF_SITES: Final[Sequence[Mutant]] = (LOGGED_ONCE, sites.SENDS_UNSAVED)
OF_FIGURES: Final[Sequence[Mutant]] = (STANDS_LATER,)
