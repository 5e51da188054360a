"""The form "keyed" without one of the protections that only a server that deviates brings to light."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np

from secea.arithmetic.field import Residues, Ring
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.keyed import checking, masked, mutant, named
from secea.errors import SERVER, FaultyPeer, ProtocolError
from secea.forms.keyed.client import KeyedClient, Released, Union
from secea.forms.keyed.form import Kind
from secea.forms.keyed.masking import Masking, statement
from secea.forms.keyed.names import Naming
from secea.forms.keyed.opening import Opening
from secea.forms.keyed.shared import RoundSecrets
from secea.forms.keyed.values import each
from secea.params import Params
from secea.party.client import Client
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import masks, means
from secea.table import TableLike
from secea.wire.keys import digest, expand
from secea.wire.messages import Buffer
from secea.wire.randomness import SEED_BYTES

# ---------------------------------------------------------------------------------------------------------------- means


@dataclass(frozen=True)
class NoQ(RoundSecrets):
    """All rounds of a union have the same secrets."""

    def key(self, name: str, *of: int) -> bytes:
        """Whatever the round."""
        return expand(self.secret, name, self.union, *(b"%d" % number for number in of))


class Patient(Client):
    """Waits for another broadcast of means where one was wrong."""

    def stop(self) -> None:
        """Go on, if it was about means."""
        if self.at.phase in ("upload", "open"):
            self._running = None
        else:
            super().stop()


class OwnSlots(KeyedClient):
    """Checks only the slots of its own entities."""

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Let wrong slots of others pass."""
        try:
            super().stream(kind, sender, chunk, chunks, payload, at)
        except ProtocolError:
            assert self.union is not None
            n, size = self.numbers, at.size
            rows = n.ring.from_bytes(payload[:-size], size, self.params.columns + n.checks)
            marks = np.frombuffer(payload[-size:], np.uint8)
            shared = self.secrets(at).of(chunk, size, self.form.noise_clients(self.params, at))
            if not means.right(n.ring, rows, marks, shared, len(at.members))[self.union.slots].all():
                raise


NO_Q = mutant(
    "round-in-no-secret", "What clients share in a round is the same in all rounds.", checking(NoQ), "old means"
)
JUDGED_TWICE = Mutant(
    "second-broadcast-judged",
    "A client that refused the means of a round takes others for it.",
    {KEYED: Subject(Overheard(), client=Patient, first=("wrong means 1",))},
)
OWN_SLOTS = mutant(
    "only-own-slots-checked",
    "A client checks only the slots of its own entities.",
    Overheard(of_client=OwnSlots),
    "wrong slot 0",
)


# --------------------------------------------------------------------------------------------------------------- unions


class Stopping(KeyedClient):
    """Stops where one of its own tags is missing."""

    def _got_tags(self, at: Agreement, got: Got) -> Agreement:
        after = super()._got_tags(at, got)
        assert self.union is not None
        if self.union.slots.size < len(self.names):
            raise FaultyPeer(SERVER, "leaves out one of our entities")
        return after


class ListFree(KeyedClient):
    """L says nothing of the list of tags."""

    def _got_tags(self, at: Agreement, got: Got) -> Agreement:
        after = super()._got_tags(at, got)
        assert self.union is not None
        L = digest(b"L", at.context, digest(b"L of a secret", self.union.secret))
        key = expand(self.union.secret, "rows", L)
        keys = b"".join(
            hashlib.blake2b(self._kappa(value), digest_size=32, key=key).digest()
            for value in each(self.naming.names.prf.of(self.names)[self.union.order])
        )
        self.union = replace(self.union, L=L, keys=np.frombuffer(keys, np.uint8).reshape(-1, 32))
        return after


class SameSecret(KeyedClient):
    """Has the same part in the secret of every union."""

    def enter(self, at: Agreement) -> None:
        """Keep the part of before."""
        before = self.union
        super().enter(at)
        if at.phase == self.form.union_phase and before is not None:
            self.union = Union(before.part, before.mask_key)


class Forgetting(KeyedClient):
    """Goes on in a union after somebody dropped out."""

    def enter(self, at: Agreement) -> None:
        """Forget that somebody did."""
        super().enter(at)
        if self.union is not None:
            self.union = replace(self.union, spent=False)


class Indifferent(KeyedClient):
    """Takes part in a round with other members than the union has."""

    def check_begin(self, at: Agreement) -> None:
        """Whoever they are."""
        try:
            super().check_begin(at)
        except ValueError as error:
            if "other members than it has" not in str(error):
                raise


STOPS = mutant(
    "stop-on-a-missing-tag",
    "A client stops if the union lacks one of its entities.",
    Overheard(of_client=Stopping),
    "tag 1 left out",
)
LIST_FREE = mutant(
    "tags-in-no-key", "Nothing depends on the list of tags.", Overheard(of_client=ListFree), "two lists of tags"
)
SAME_SECRET = mutant(
    "union-under-the-same-secret",
    "A union that is made again has the secret of the one before.",
    Overheard(of_client=SameSecret),
    "a union made again",
)
FEWER = mutant(
    "round-of-fewer",
    "A round may have fewer members than the union.",
    Overheard(of_client=Indifferent),
    "fewer in a round",
)
SLOTS_KEPT = mutant(
    "slots-kept",
    "A union goes on after a round in which somebody dropped out.",
    Overheard(of_client=Forgetting),
    "slots kept",
)


# --------------------------------------------------------------------------------------------------------- one opening


class NoSelfMask(Masking):
    """Uploads have no mask of one's own."""

    def seeds(self, at: Agreement, L: bytes, pairs: Any) -> tuple[dict[int, bytes], bytes]:
        """Only masks of pairs."""
        return super().seeds(at, L, pairs)[0], b""


class PairsOnly(Opening):
    """Takes away masks of pairs, and nothing else."""

    def recover(self, at: Agreement, L: bytes, got: Got) -> list[tuple[bytes, int]]:
        """Leave out what the shares of self seeds give."""
        left, over = super().recover(at, L, got), [(bytes(32), 1), (bytes(32), -1)]  # these two cancel
        for v in at.participants:
            near = masks.neighbours(at.participants, self.form.degree(self.params), v)
            count = 1 if v in at.members else len(set(near) & set(at.members))
            over += [] if v in at.members else left[:count]
            left = left[count:]
        return over


class Bare(Overheard):
    """Without self masks, at the clients and at the server."""

    def server(self, params: Any, session: bytes) -> Any:
        """The server's part."""
        part = super().server(params, session)
        part.opening = PairsOnly(self, params, session)
        return part


class Forgetful(Masking):
    """Does not remember what it opened."""

    def check_begin(self, at: Agreement, uploaded: int) -> None:
        """As if every round were still to be opened."""
        super().check_begin(at, at.round)


class Unconfirmed(Masking):
    """Opens without votes."""

    def _check_votes(self, at: Agreement, votes: bytes) -> None:
        """Whatever they are."""


class Doubling(Masking):
    """Counts a vote as often as it is shown."""

    def _check_votes(self, at: Agreement, votes: bytes) -> None:
        """Take any vote twice."""
        try:
            super()._check_votes(at, votes)
        except FaultyPeer as error:
            if "or another one" not in str(error):
                raise


def _timeless(session: bytes, at: Agreement, noisy: Sequence[int]) -> bytes:
    """A vote for members, in whatever round and union."""
    return statement(session, replace(at, context=b"", round=0), ())


class Wavering(KeyedClient):
    """Signs until a sum is opened."""

    def enter(self, at: Agreement) -> None:
        """An upload counts as not signed."""
        super().enter(at)
        self.uploaded = at.round if at.phase in (self.form.round_phase, "agree") else 0


class Untrained(KeyedClient):
    """Uploads what it has for the next round, too."""

    def check_begin(self, at: Agreement) -> None:
        """As if it had not begun."""
        before = self.round
        if before is not None:
            self.round = replace(before, begun=False)
        try:
            super().check_begin(at)
        finally:
            self.round = before


class Noiseless(Masking):
    """Opens sums with few noise clients."""

    def check_begin(self, at: Agreement, uploaded: int) -> None:
        """Whoever adds noise."""
        try:
            super().check_begin(at, uploaded)
        except ValueError as error:
            if "noise clients" not in str(error):
                raise


class FewNoisy(Overheard):
    """T+1 noise clients in each round, whoever drops out."""

    def noise_count(self, params: Params, members: int) -> int:
        """None to spare."""
        return min(members, params.T + 1)


class Quick(Overheard):
    """T+D+1 shares open a mask key, and as many votes let clients do it."""

    def threshold(self, params: Params) -> int:
        """The number of shares that open a mask key."""
        return params.T + params.dropouts + 1


class Two(Overheard):
    """Two clients are enough for anything."""

    def fewest(self, params: Params, phase: str = "secret", names: int = 2) -> int:
        """The fewest participants."""
        return 2


@dataclass(frozen=True)
class Counted(Overheard):
    """t is counted over those who take part."""

    here: list[int] = field(default_factory=list, compare=False)
    """How many that are."""

    def checked(self, params: Params) -> Params:
        """A session begins, with all clients."""
        self.here.clear()
        return super().checked(params)

    def threshold(self, params: Params) -> int:
        """The number of shares that open a mask key."""
        return (self.here[-1] if self.here else params.clients) - params.dropouts


class Counting(KeyedClient):
    """Counts who takes part in a union."""

    def enter(self, at: Agreement) -> None:
        """Tell the form."""
        if at.phase == self.form.union_phase:
            assert isinstance(self.form, Counted)
            self.form.here.append(len(at.members))
        super().enter(at)


class Restless(KeyedClient):
    """Draws its noise anew whenever it sends its upload."""

    def _upload(self, at: Agreement) -> Iterator[Sequence[Buffer]]:
        assert self.round is not None
        if self.round.noise_seed:
            self.round = replace(self.round, noise_seed=self._entropy(SEED_BYTES))
        yield from super()._upload(at)


class Releasing(KeyedClient):
    """Sends the values of a training round as often as it is asked."""

    def contribute(self, table: TableLike, round: int, at: Agreement) -> None:
        """Forget what it sent."""
        self.released = Released()
        super().contribute(table, round, at)


NO_SELF_MASK = mutant(
    "no-self-mask",
    "With drop-outs, uploads have masks of pairs alone.",
    Bare(of_client=masked(NoSelfMask)),
    "left out",
)
BOTH_SHARES = mutant(
    "shares-as-often-as-asked",
    "A client gives out shares for one round as often as it is asked.",
    Overheard(of_client=masked(Forgetful)),
    "opened twice",
)
NO_VOTES = mutant(
    "no-confirmation",
    "A client opens a sum without the others' votes.",
    Overheard(of_client=masked(Unconfirmed)),
    "different sets, votes under other names",
)
TWO_VOTES = mutant(
    "votes-counted-twice",
    "A vote counts as often as the server shows it.",
    Overheard(of_client=masked(Doubling)),
    "different sets, votes doubled",
)
OLD_VOTES = Mutant(
    "votes-of-any-round",
    "A vote says nothing of the round and the union.",
    {KEYED: Subject(Overheard(), instead={statement: _timeless}, first=("old votes",))},
)
VOTES_AGAIN = mutant(
    "votes-for-two-sums",
    "A client signs another set of clients as long as nothing is opened.",
    Overheard(of_client=Wavering),
    "signed twice",
)


def _empty_or_right(ring: Ring, found: Residues, empty: Any, shared: means.Secrets, members: int) -> Any:
    """A slot that is called empty may have its right row."""
    return is_right(ring, found, empty, shared, members) | is_right(ring, found, empty & False, shared, members)


is_right = means.right


EMPTY_OR_RIGHT = Mutant(
    "right-or-empty",
    "A slot that is called empty passes with its right row, too.",
    {KEYED: Subject(Overheard(), instead={means.right: _empty_or_right}, first=("wrong means 4",))},
)


UNTRAINED = mutant(
    "rounds-without-training",
    "A client uploads its table in the next round, too.",
    Overheard(of_client=Untrained),
    "next round at once",
)
FEW_NOISY = mutant(
    "few-noise-clients",
    "A sum may leave out noise clients, and there are none to spare.",
    FewNoisy(of_client=masked(Noiseless)),
    "left out",
)
LOW_T = mutant("threshold-of-neighbours", "T+D+1 votes and shares are enough to open a sum.", Quick(), "two groups")
TWO = mutant("two-take-part", "Clients take part in a union of two.", Two(), "few members")
PRESENT = mutant(
    "t-over-participants", "t is counted over those who take part.", Counted(of_client=Counting), "too few"
)
NOISE_ANEW = mutant(
    "noise-drawn-anew",
    "An upload that is sent again has other noise, under the same pads.",
    Overheard(of_client=Restless),
    "wrong means 1",
)
SENT_AGAIN = mutant(
    "values-sent-again",
    "The values of a training round are uploaded again, whoever takes part.",
    Overheard(of_client=Releasing),
    "sent again",
    "opened again",
)


# ---------------------------------------------------------------------------------------------------------------- names


class Unsigned(Naming):
    """A holder answers lists that nobody signed."""

    def _got_confirmations(self, at: Agreement, got: Got) -> Agreement:
        try:
            return super()._got_confirmations(at, got)
        except FaultyPeer:
            layout = self.form.layout(Kind.LISTS, self.params, at, SERVER)
            every = np.frombuffer(got[Kind.LISTS, SERVER], np.uint8).reshape(layout.sections, layout.rows, 32)
            self.names = replace(self.names, lists=dict(zip(at.members, every, strict=True)))
            return at


class Generous(Naming):
    """A holder answers a point in two lists."""

    def _check_apart(self, lists: Any) -> None:
        """Nobody's points are anybody's."""


class Unmarked(Naming):
    """Confirms another list of a client in each attempt."""

    def _got_marks(self, at: Agreement, got: Got) -> Agreement:
        self.names = replace(self.names, marks={})
        return super()._got_marks(at, got)


TWO_LISTS = mutant(
    "any-list-answered",
    "Holders answer any list that the server hands them.",
    Overheard(of_client=named(Unsigned)),
    "other lists",
)
COPIED = mutant(
    "name-in-two-lists",
    "Holders answer a blinded name that is in two lists.",
    Overheard(of_client=named(Generous)),
    "points copied",
)
LISTS_CHANGED = mutant(
    "two-lists-in-one-epoch",
    "Clients confirm another list of a client in each attempt.",
    Overheard(of_client=named(Unmarked)),
    "lists changed",
)
