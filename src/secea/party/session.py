"""What all parties of a session know: parameters, roster and form. Its hash binds everything public."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from secea.errors import ParamsError
from secea.params import Params
from secea.party.form import Form
from secea.party.phases import Row
from secea.wire.keys import Roster, spelled
from secea.wire.messages import WIRE_VERSION


@dataclass(frozen=True)
class Session:
    """Parties whose sessions have different hashes refuse each other."""

    params: Params
    roster: Roster
    form: Form

    def __post_init__(self) -> None:
        if not self.params.bounded:
            raise ParamsError("max_entities and max_union must be known: set both in Params")
        object.__setattr__(self, "params", self.form.checked(self.params))
        if len(self.roster.clients) != self.params.clients + self.form.guests:
            and_guests = f" and {self.form.guests} leave" if self.form.guests else ""
            raise ParamsError(
                f"the roster has {len(self.roster.clients)} clients, Params has {self.params.clients}{and_guests}"
            )

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The form's table of phases for these parameters."""
        return self.form.table(self.params)

    @cached_property
    def hash(self) -> bytes:
        """32 bytes over wire version, the form's own line, and roster."""
        text = f"secea session {WIRE_VERSION}\n{self.form.canonical(self.params)}\n"
        return hashlib.sha256(text.encode() + self.roster.canonical()).digest()

    @property
    def fingerprint(self) -> str:
        """What the parties compare over another channel before they start."""
        return spelled(self.hash)
