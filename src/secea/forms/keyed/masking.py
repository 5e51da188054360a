"""What hides a client's upload, and what opens the sum if somebody vanishes (section K4, and K5.2 with drop-outs).

`Masking` holds the mask keys of client n. Without drop-outs, each pair in a union has one key, and nothing is ever
revealed. With drop-outs, a client draws an X25519 key and a seed of its own for each round of a batch, and shares both.
After an upload the shares of one of the two are given out, never of both. All of it is kept only in memory, so a
restarted client cannot send a second time under the same keys.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from secea.arithmetic.ristretto import ORDER, scalar_bytes
from secea.errors import SERVER, FaultyPeer, party
from secea.forms.keyed.form import Keyed, Kind
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import masks
from secea.wire.keys import SIGNATURE_BYTES, Identity, Roster, expand
from secea.wire.messages import Buffer
from secea.wire.randomness import SEED_BYTES, Entropy, KeyStream

_VOTE = b"secea vote 1\n"
_P25519: Final = 2**255 - 19
_SMALL_ORDER: Final = frozenset(
    {
        0,
        1,
        _P25519 - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)
"""The u coordinates of the points of order 1 to 8, on the curve and on its twist."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Mask keys of some rounds: this client's own, everybody's public halves, and the shares that it holds."""

    first: int
    """q of the first round."""
    keys: tuple[int, ...] = field(repr=False)
    """a_q: the keys for masks with other clients."""
    seeds: tuple[int, ...] = field(repr=False)
    """b_q: the seeds of its own mask."""
    seed: bytes = field(repr=False)
    """The seed of the polynomials with which both are shared."""
    members: tuple[int, ...] = ()
    public: Mapping[int, bytes] = field(default_factory=dict)
    """A_q and H(b_q) of each member, round after round; empty until all have come."""
    shares: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    """Shares of a_q and b_q of each member."""

    def __contains__(self, q: int) -> bool:
        return bool(self.public) and self.first <= q < self.first + len(self.keys)


def key_of(scalar: int) -> X25519PrivateKey:
    """The X25519 key that is derived from a shared scalar."""
    return X25519PrivateKey.from_private_bytes(scalar_bytes(scalar))


def hash_of(scalar: int) -> bytes:
    """The hash of a self seed, which is published."""
    return hashlib.sha256(b"secea self seed\n" + scalar_bytes(scalar)).digest()


def seed_of(scalar: int) -> bytes:
    """The self seed that is derived from a shared scalar."""
    return expand(scalar_bytes(scalar), "self seed")


def pair_of(mine: X25519PrivateKey, theirs: bytes, peer: int, session: bytes) -> bytes:
    """What two clients share for their masks."""
    try:
        shared = mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:
        raise FaultyPeer(peer, "has a key for masks that is of small order") from None
    return expand(shared, "pair of a batch", session)


def of_small_order(public: bytes) -> bool:
    """Whether X25519 gives only zeros with this key. The top bit does not count, and u is taken modulo p."""
    return (int.from_bytes(public, "little") & (1 << 255) - 1) % _P25519 in _SMALL_ORDER


def public_of(batch: bytes, index: int) -> tuple[bytes, bytes]:
    """A_q and H(b_q) of one round."""
    at = 64 * index
    return batch[at : at + 32], batch[at + 32 : at + 64]


def statement(session: bytes, at: Agreement, noisy: Sequence[int]) -> bytes:
    """What is signed before an opening: session, L and q (both in the context), members, U, and the noise list."""
    lists = [at.participants, at.members, noisy]
    numbers = b"\n".join(b" ".join(b"%d" % v for v in each) for each in lists)
    return _VOTE + session + at.context + numbers


def voted(key: bytes, vote: bytes, said: bytes) -> bool:
    """Whether the client with this key signed this statement."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(vote, said)
    except InvalidSignature:
        return False
    return True


class Masking:
    """Client n: its masks, its votes, and the shares that it gives out."""

    def __init__(
        self,
        form: Keyed,
        params: Params,
        session: bytes,
        roster: Roster,
        number: int,
        identity: Identity,
        entropy: Entropy,
    ) -> None:
        self.form, self.params, self.session, self.roster = form, params, session, roster
        self.number, self._identity, self._entropy = number, identity, entropy
        self.batch: Batch | None = None
        self._made: Mapping[int, bytes] = {}  # shares of the batch for each member, until all have come

    def enter(self, at: Agreement) -> None:
        """Draw the keys of a batch when it begins."""
        if at.phase != self.form.prepare_phase:
            return
        stream, count = KeyStream(self._entropy(SEED_BYTES)), self.form.batch
        keys, seeds = (tuple(masks.scalars(stream, count)) for _ in range(2))
        self.batch, self._made = Batch(at.round + 1, keys, seeds, self._entropy(SEED_BYTES), at.members), {}

    def check_begin(self, at: Agreement, uploaded: int) -> None:
        """Refuse a sum that must not be opened, with a `ValueError`. `uploaded` is the last q that was sent."""
        ready = self.batch is not None and at.round in self.batch and self.batch.members == at.participants
        if at.phase == self.form.round_phase and self.params.dropouts and not ready:
            raise ValueError(f"announces round {at.round}, for which there are no mask keys")
        if at.phase != "agree":
            return
        noisy = self.form.noise_clients(self.params, at)
        if not ready or uploaded != at.round or not set(at.members) <= set(at.participants):
            raise ValueError(f"wants to open round {at.round}, to which we did not upload")
        if len(noisy) <= self.params.T:
            raise ValueError(f"wants to open a sum with {len(noisy)} noise clients; {self.params.T + 1} are needed")
        designated = self.form.designated(self.params, at)
        if designated is not None and designated not in at.members:
            raise ValueError(f"wants to open a sum without {party(designated)}, which subtracts the minimum of owners")

    # ------------------------------------------------------------------------------------------------------- masks

    def seeds(self, at: Agreement, L: bytes, pairs: Mapping[int, bytes]) -> tuple[dict[int, bytes], bytes]:
        """The key of the masks with each neighbour, and of the client's own mask; empty without drop-outs."""
        near = masks.neighbours(at.members, self.form.degree(self.params), self.number)
        if not self.params.dropouts:
            return {v: masks.pair_seed(pairs[v], L, at.round) for v in near}, b""
        assert self.batch is not None
        index = at.round - self.batch.first
        mine = key_of(self.batch.keys[index])
        with_near = {v: pair_of(mine, public_of(self.batch.public[v], index)[0], v, self.session) for v in near}
        own = masks.self_seed(seed_of(self.batch.seeds[index]), L, at.round)
        return {v: masks.pair_seed(pair, L, at.round) for v, pair in with_near.items()}, own

    # ------------------------------------------------------------------------------------------------------ phases

    def payload(self, kind: IntEnum, receiver: int, at: Agreement) -> Iterator[Sequence[Buffer]]:
        """The payload of each kind of message."""
        assert self.batch is not None
        match kind:
            case Kind.BATCH:
                yield (self._published(),)
            case Kind.SECRETS:
                yield (self._shares()[receiver],)
            case Kind.VOTE:
                yield (self._identity.sign(statement(self.session, at, self.form.noise_clients(self.params, at))),)
            case _:
                assert kind is Kind.OPENING
                yield (self._opening(at),)

    def _published(self) -> bytes:
        assert self.batch is not None
        publics = (key_of(key).public_key().public_bytes_raw() for key in self.batch.keys)
        return b"".join(a + hash_of(b) for a, b in zip(publics, self.batch.seeds, strict=True))

    def _dealt(self) -> dict[int, bytes]:
        """The shares of all keys and seeds of the batch, for each member."""
        assert self.batch is not None
        stream, members = KeyStream(self.batch.seed), self.batch.members
        threshold, dealt = self.form.threshold(self.params), {v: bytearray() for v in members}
        for pair in zip(self.batch.keys, self.batch.seeds, strict=True):
            for secret in pair:
                for v, share in masks.shares(secret, threshold, members, stream).items():
                    dealt[v] += scalar_bytes(share)
        return {v: bytes(data) for v, data in dealt.items()}

    def _shares(self) -> Mapping[int, bytes]:
        """The same, computed once."""
        assert self.batch is not None
        self._made = self._made or self._dealt()
        return self._made

    def _opening(self, at: Agreement) -> bytes:
        """One share for each participant: of its self seed if it is in the sum, of its pair key if it is not."""
        assert self.batch is not None
        assert at.round in self.batch
        index, opening = at.round - self.batch.first, b""
        for v in at.participants:
            start = 64 * index + (32 if v in at.members else 0)
            opening += self.batch.shares[v][start : start + 32]
        return opening

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """Finish a phase: a batch has arrived, or enough clients have signed what is to be opened."""
        if at.phase == self.form.prepare_phase:
            return self._got_batch(at, got)
        self._check_votes(at, got[Kind.VOTES, SERVER])
        return at

    def _got_batch(self, at: Agreement, got: Got) -> Agreement:
        assert self.batch is not None
        public = {v: got[Kind.BATCH, v] for v in at.members if v != self.number} | {self.number: self._published()}
        shares = {v: got[Kind.SECRETS, v] for v in at.members if v != self.number}
        shares[self.number], self._made = self._shares()[self.number], {}
        for v, data in shares.items():
            if any(int.from_bytes(data[i : i + 32], "little") >= ORDER for i in range(0, len(data), 32)):
                raise FaultyPeer(v, "shares its mask keys by numbers that are no scalars")
            if any(of_small_order(public_of(public[v], i)[0]) for i in range(self.form.batch)):
                raise FaultyPeer(v, "has a key for masks that is of small order")
        mine = self.batch
        self.batch = Batch(mine.first, mine.keys, mine.seeds, mine.seed, mine.members, public, shares)
        return at

    def _check_votes(self, at: Agreement, votes: bytes) -> None:
        """Check that t clients of the sum have signed the same as we did. No other sum of this round can be opened."""
        signed, said = set(), statement(self.session, at, self.form.noise_clients(self.params, at))
        width = 2 + SIGNATURE_BYTES
        for start in range(0, len(votes), width):
            v = int.from_bytes(votes[start : start + 2], "little")
            if v not in at.members or v in signed:
                raise FaultyPeer(SERVER, f"counts a vote of client {v}, who has none, or another one")
            if not voted(self.roster.key(v), votes[start + 2 : start + width], said):
                raise FaultyPeer(SERVER, f"shows a vote of client {v} that is not for this sum")
            signed.add(v)
        if len(signed) < self.form.threshold(self.params):
            raise FaultyPeer(SERVER, f"opens a sum with {len(signed)} votes")


def same_share(one: bytes, other: bytes) -> bool:
    """Whether two published values are the same."""
    return hmac.compare_digest(one, other)
