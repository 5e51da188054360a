"""Start a new session that keeps the previous session's key of names, when clients join or leave (section K2).

`Handover` holds what is public about it. It is part of the new session's hash, so everybody who takes part signs it.
`Following` is the keyed form of the new session; `Federation` gets it from `following`. Clients who leave are *guests*
of the new session. They come after the clients in its roster. They sign, may have to deal, and do nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from secea.arithmetic.ristretto import POINT_BYTES
from secea.errors import FederationError, ParamsError, party
from secea.forms.keyed.form import Keyed, Kind
from secea.params import Params
from secea.party.phases import Agreement, Row
from secea.party.session import Session
from secea.steps import oprf
from secea.wire.keys import KEY_BYTES, Roster

if TYPE_CHECKING:
    from secea.forms.keyed.names import Naming


@dataclass(frozen=True)
class Handover:
    """What a session takes over from the previous one. All members of the previous session sign it, even leavers."""

    session: bytes
    """The hash of the previous session."""
    joint: bytes
    """The commitments to the previous session's key: T+1 points."""
    numbers: tuple[int | None, ...]
    """For each place in the new roster, the client's number in the previous session. None for a newcomer."""
    left: int = 0
    """How many of these leave. They come last."""
    updates: int = 0
    """How many epochs with new names this key has seen."""

    def __post_init__(self) -> None:
        old = sorted(n for n in self.numbers if n is not None)
        if old != list(range(len(old))):
            raise ParamsError(f"every member of the previous session needs one place in the new roster, got {old}")
        if len(self.session) != KEY_BYTES or len(self.joint) % POINT_BYTES or not 1 <= self.collusion < len(old):
            raise ParamsError("a handover needs the hash of the previous session, and T+1 commitments to its key")
        if self.left < 0 or self.updates < 0 or None in self.numbers[len(self.numbers) - self.left :]:
            raise ParamsError("only members of the previous session can leave, and numbers cannot be negative")
        try:
            oprf.public_share(self.joint, 0)
        except ValueError as error:
            raise ParamsError(f"the key that is handed over is not valid: {error}") from None

    @property
    def collusion(self) -> int:
        """T of the previous session."""
        return len(self.joint) // POINT_BYTES - 1

    @cached_property
    def members(self) -> tuple[int, ...]:
        """The members of the previous session, by their places in the new roster."""
        return tuple(i for i, n in enumerate(self.numbers) if n is not None)

    @cached_property
    def newcomers(self) -> tuple[int, ...]:
        """All who were not members of the previous session, by their places in the new roster."""
        return tuple(i for i, n in enumerate(self.numbers) if n is None)

    @property
    def dealers(self) -> tuple[int, ...]:
        """Who deals its part of the key again: T+1 members of the previous session. Leavers deal only if necessary."""
        return self.members[: self.collusion + 1]

    def old(self, client: int) -> int:
        """A client's number in the previous session."""
        number = self.numbers[client]
        assert number is not None
        return number

    @property
    def holders(self) -> tuple[int, ...]:
        """The dealers by their old numbers, which are the points of the old polynomial."""
        return tuple(map(self.old, self.dealers))

    def part(self, share: bytes, dealer: int) -> int:
        """The part of the key that a dealer deals: lambda_j * k_j."""
        return oprf.part_of_key(share, self.holders, self.old(dealer))

    def public_part(self, dealer: int) -> bytes:
        """The commitment to a dealer's part. With it everybody, newcomers too, can tell if a dealer cheats."""
        return oprf.public_part(self.joint, self.holders, self.old(dealer))

    def canonical(self) -> str:
        """The handover's part of the form's line in the session's hash."""
        numbers = ",".join("new" if n is None else str(n) for n in self.numbers)
        return (
            f"before={self.session.hex()};joint={self.joint.hex()};numbers={numbers};left={self.left};"
            f"updates={self.updates}"
        )

    def check(self, roster: Roster, before: Session, naming: Naming, me: int) -> None:
        """Check the handover as a member of the previous session, before signing. An error says what is not true."""
        N, keys = before.params.clients, before.roster.clients
        faults = {
            "it names another session": self.session != before.hash,
            "it names another key": self.joint != naming.key.joint,
            "it has other members than that session": len(self.members) != N,
            "that session has no names yet": not naming.names.number,
            f"it counts {self.updates} epochs with new names, but there were {naming.updates}": (
                self.updates < naming.updates
            ),
            "our share does not belong to that key": not oprf.fits(naming.key.share, naming.key.joint, naming.number),
            f"it takes us for {party(self.old(me))}, but we were {party(naming.number)}": self.old(me) != naming.number,
        }
        for i, n in enumerate(self.numbers):
            if n is None:
                faults[f"{party(i)} comes as a newcomer, but was a member"] = roster.key(i) in keys[:N]
            else:
                faults[f"{party(i)} is not {party(n)} of that session"] = n >= N or roster.key(i) != keys[n]
        for fault, found in faults.items():
            if found:
                raise FederationError(f"{party(me)} does not hand over the key of its names: {fault}")


@dataclass(frozen=True)
class Following(Keyed):
    """The keyed form in a session that keeps the previous key. Its first epoch of names is for newcomers only."""

    before: Handover | None = None

    @property
    def taken_over(self) -> Handover:
        """What this session takes over."""
        assert self.before is not None
        return self.before

    @property
    def guests(self) -> int:
        """The number of clients who leave."""
        return self.taken_over.left

    @property
    def last_epoch(self) -> int:
        """The last epoch of names. Earlier epochs with new names count too."""
        return 1 + self.max_updates - self.taken_over.updates

    def checked(self, params: Params) -> Params:
        """Check as in any session. Also, the leavers and T conspiring clients together must be too few for the key."""
        resolved, before = super().checked(params), self.taken_over
        if resolved.T + before.left > before.collusion:
            raise ParamsError(
                f"with {before.left} clients who left and collusion={resolved.T}, the key of a session with collusion="
                f"{before.collusion} cannot be kept: begin a session with a new key"
            )
        if self.last_epoch < 1:
            raise ParamsError(f"max_updates is {self.max_updates}, but the key has seen {before.updates} updates")
        return resolved

    def canonical(self, params: Params) -> str:
        """The form's line in the session's hash, with the handover."""
        return f"{super().canonical(params)};{self.taken_over.canonical()}"

    def table(self, params: Params) -> tuple[Row, ...]:
        """Leavers go after the dealing. Not everybody waits for answers, so the server says when a union begins."""
        first = self.names_phase if self.taken_over.newcomers else self.union_phase
        rows = {row.phase: row for row in super().table(params)}
        rows["deal"] = replace(rows["deal"], then=first)
        for phase in (self.names_phase, self.union_phase):
            rows[phase] = replace(rows[phase], decides=True)
        return tuple(rows.values())

    def fewest(self, params: Params, phase: str = "secret", names: int = 2) -> int:
        """For the key, all leavers are needed too."""
        return super().fewest(params, phase, names) + (self.guests if phase == self.setup_phase else 0)

    def _askers(self, at: Agreement) -> tuple[int, ...]:
        return self.taken_over.newcomers if at.names == 1 else at.members

    def senders(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """All members of the previous session sign, and T+1 of them deal. In the first epoch only newcomers ask."""
        match kind:
            case Kind.COMMITMENT:
                return self.taken_over.members
            case Kind.DEALING | Kind.SHARE:
                return self.taken_over.dealers
            case Kind.LIST:
                return self._askers(at)
            case _:
                return super().senders(kind, params, at)

    def receivers(self, kind: IntEnum, params: Params, at: Agreement) -> tuple[int, ...]:
        """Leavers get no share. Clients that did not ask get no answers."""
        match kind:
            case Kind.SHARE:
                return tuple(range(params.clients))
            case Kind.EVALUATION:
                return self._askers(at)
            case _:
                return super().receivers(kind, params, at)

    def ticks(self, params: Params, names: int) -> int:
        """The points of the newcomers' lists, for progress bars."""
        size = self.list_size(params, 1)
        return len(self.taken_over.newcomers) * ((params.T + 1) * (size + 1) + size) + names


def following(
    form: Keyed, params: Params, before: Session, parts: Mapping[int, Any], stay: Sequence[int | None]
) -> Following | None:
    """The form of a session that keeps the key. None if the session needs a new key.

    `stay` has the old number of each client of the new session, or None for a newcomer. `parts` are those of the
    previous session's members that can still hand the key over. All members are needed.
    """
    N = before.params.clients
    left = tuple(n for n in range(N) if n not in stay)
    if form.checked(params).T + len(left) > before.params.T or set(parts) != set(range(N)):
        return None
    namings: list[Naming] = [parts[n].naming for n in range(N)]
    updates = max(naming.updates for naming in namings)
    if updates > form.max_updates or any(naming.successor or not naming.names.number for naming in namings):
        return None
    record = Handover(before.hash, namings[0].key.joint, (*stay, *left), len(left), updates)
    return Following(**{each.name: getattr(form, each.name) for each in fields(Keyed)}, before=record)
