"""A session: the parameters, the roster and the form that all parties know. Its hash binds everything public."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar

from secea.errors import ParamsError
from secea.notebook import html_table
from secea.params import Params
from secea.party.form import Form
from secea.party.phases import Row
from secea.wire.keys import Identity, Roster, spelled
from secea.wire.link import Link
from secea.wire.messages import WIRE_VERSION
from secea.wire.randomness import Entropy


@dataclass(frozen=True)
class Session:
    """Parties whose sessions have different hashes refuse each other."""

    params: Params
    roster: Roster
    form: Form
    link_type: ClassVar[type[Link]] = Link

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

    def row(self, phase: str) -> Row:
        """The row of a phase; phases in which nothing is due have an empty one."""
        return self._by_phase.get(phase) or Row(phase)

    @cached_property
    def _by_phase(self) -> dict[str, Row]:
        return {row.phase: row for row in reversed(self.rows)}

    @cached_property
    def asks(self) -> bool:
        """Whether the server asks for training in a message. If not, whoever drives the clients does."""
        return not self.row(self.form.ready_phase).silent

    @cached_property
    def hash(self) -> bytes:
        """32 bytes over wire version, the form's own line, and roster."""
        text = f"secea session {WIRE_VERSION}\n{self.form.canonical(self.params)}\n"
        return hashlib.sha256(text.encode() + self.roster.canonical()).digest()

    def link(self, number: int, identity: Identity, entropy: Entropy, introduction: bytes = b"") -> Link:
        """A new life of a party: its end of all connections."""
        form, params = self.form, self.params
        return self.link_type(
            self.hash, self.roster, form.kinds, number, identity, entropy, introduction=introduction,
            introduction_bytes=form.introduction_bytes(params), check=partial(form.check_introduction, params),
        )  # fmt: skip

    def __repr__(self) -> str:
        names = self.roster.names[: self.params.clients]
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        return f"Session({self.form.name}, {shown}, fingerprint {self.fingerprint})"

    def _repr_html_(self) -> str:
        facts = (
            ("form", repr(self.form)),
            ("params", repr(self.params)),
            ("clients", ", ".join(self.roster.names[: self.params.clients])),
            ("fingerprint", self.fingerprint),
        )
        return html_table("Session", ["", ""], facts)

    @property
    def fingerprint(self) -> str:
        """What the parties compare over another channel before they start."""
        return spelled(self.hash)
