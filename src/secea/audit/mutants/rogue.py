"""Either form with what bounds a client that deviates taken away: who is named, what is kept, what a lie costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from secea.arithmetic.streams import weighted_sums
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Listening, Overheard
from secea.audit.mutants.common import both
from secea.audit.mutants.derivations import replaced
from secea.errors import SERVER, FaultyPeer, ProtocolError, RoundLost, Stale
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.keyed.opening import Opening, _sets
from secea.params import Params
from secea.party.client import Client
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import masks
from secea.testing import WatchedLink, WatchedSession
from secea.wire.keys import Roster
from secea.wire.link import Link
from secea.wire.messages import Buffer, Header


class Blaming(Client):
    """Blames the server, whoever it was."""

    def receive(self, message: Buffer) -> None:
        """Take one chunk."""
        try:
            super().receive(message)
        except Stale:
            raise
        except ProtocolError as error:
            raise FaultyPeer(SERVER, error.fault) from None


class Hoard(WatchedLink):
    """Keeps every message before it looks at it."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.hoard: list[bytes] = []

    def parse(self, message: Buffer, carrier: int) -> Header:
        """Keep it."""
        self.hoard.append(bytes(message))
        return super().parse(message, carrier)


class Hoarding(WatchedSession):
    """With such links."""

    link_type: ClassVar[type[Link]] = Hoard


class AnyVotes(Opening):
    """Passes on whatever comes as a vote."""

    def votes(self, at: Agreement, got: Got, roster: Roster) -> bytes:
        """Those of the first t."""
        given = {v: got[Kind.VOTE, v] for v in at.members if (Kind.VOTE, v) in got}
        first = sorted(given)[: self.form.threshold(self.params)]
        return b"".join(v.to_bytes(2, "little") + given[v] for v in first)


class FirstShares(Opening):
    """Takes the first t shares, and no others if these do not fit."""

    def _secret(self, given: Mapping[int, int], of: int, right: Callable[[int], bool]) -> int:
        some = tuple(sorted(given))[: self.form.threshold(self.params)]
        secret = masks.recovered(given, masks.weights_at_zero(some))
        if not right(secret):
            raise RoundLost(f"the shares of the mask keys of client {of} do not fit together: there is no result")
        return secret


def opening(kind: type[Opening]) -> Subject:
    """A form whose server opens in this way."""

    class Server(Listening):
        def __init__(self, form: Any, params: Params, session: bytes) -> None:
            super().__init__(form, params, session)
            self.opening = kind(form, params, session)

    class Form(Overheard):
        def server(self, params: Params, session: bytes) -> Listening:
            """The other one."""
            return Server(self, params, session)

    return Subject(Form())


class Believing(KeyedClient):
    """Takes for the check of a mean whatever fits it."""

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """With other check columns than came."""
        layout, n, dim = self.form.layout(kind, self.params, at, sender), self.numbers, self.params.dim
        count = layout.span(chunk).stop - layout.span(chunk).start
        body = len(payload) - count
        rows = n.ring.from_bytes(bytes(payload[:body]), count, dim + n.checks).copy()
        shared = self.secrets(at).of(chunk, count, self.form.noise_clients(self.params, at))
        for k, alpha in enumerate(shared.alpha):
            check = weighted_sums(n.ring, np.ascontiguousarray(rows[:, :, :dim]), alpha)
            rows[:, :, dim + k] = n.ring.add(n.ring.add(check, shared.J[k]), shared.H[k])
        whole = bytes(n.ring.to_bytes(rows)) + bytes(payload[body:])
        super().stream(kind, sender, chunk, chunks, memoryview(whole), at)


BLAMING = both("culprits-not-named", "A client blames the server for what another client sent.", client=Blaming)
HOARDING = both("messages-kept-unseen", "Parties keep every message before they look at it.", session=Hoarding)
ANY_VOTES = Mutant(
    "votes-not-verified", "The server passes on votes without a look at the signatures.", {KEYED: opening(AnyVotes)}
)
FIRST_SHARES = Mutant(
    "first-shares-only", "The server opens with the first t shares or not at all.", {KEYED: opening(FirstShares)}
)
BELIEVING = Mutant(
    "means-unchecked", "Clients do not check the means.", {KEYED: Subject(Overheard(of_client=Believing))}
)


def _in_order(clients: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Sets of clients, whose first one is in most of those that come first."""
    return combinations(clients, size)


IN_ORDER = replaced("sets-in-order", "Sets of shares are tried in order.", {_sets: _in_order})
