"""Forms with another key in the place of one: a public one, a shared one, one that was used before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.ristretto import (
    ORDER,
    multiply,
    multiply_base,
    scalar_bytes,
    scalar_of,
    scalar_rows,
    total,
)
from secea.arithmetic.streams import Noise, add_noise
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.common import both, connected
from secea.audit.mutants.keyed import checking, filling, masked, mutant, named
from secea.errors import SERVER
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.keyed.masking import Masking
from secea.forms.keyed.names import Naming
from secea.forms.keyed.numbers import Numbers
from secea.forms.keyed.shared import RoundSecrets
from secea.forms.keyed.tables import Tables
from secea.forms.keyed.values import each
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps.masks import pair_seed, self_seed, shares
from secea.steps.oprf import Blinding, blind
from secea.steps.oprf import _hashed as hashed
from secea.steps.union import Words, tags_of_keys
from secea.table import Name
from secea.testing import WatchedChannel, WatchedLink, WatchedSession
from secea.wire.keys import KEY_BYTES, Channel, Hello, Identity, SessionKey, expand, shared_secret
from secea.wire.keys import _nonce as nonce
from secea.wire.link import Link
from secea.wire.messages import ALL, Layout
from secea.wire.randomness import KeyStream


def replaced(name: str, missing: str, instead: Mapping[Any, Any]) -> Mutant:
    """A mutant with other functions."""
    return Mutant(name, missing, {KEYED: Subject(Overheard(), instead=instead)})


def of_client(name: str, missing: str, client: type[KeyedClient]) -> Mutant:
    """A mutant with such clients."""
    return mutant(name, missing, Overheard(of_client=client))


# --------------------------------------------------------------------------------------------------------------- masks


def _listed(pair_key: bytes, context: bytes, q: int) -> bytes:
    return expand(context, "mask", b"%d" % q)


class SharedMasks(KeyedClient):
    """Pairs mask with keys that every client can make."""

    def _got_parts(self, at: Agreement, got: Got) -> Agreement:
        after = super()._got_parts(at, got)
        assert self.union is not None
        secret, me = self.union.secret, self.number
        pairs = {v: expand(secret, "pair", b"%d %d" % (min(me, v), max(me, v))) for v in self.union.pairs}
        self.union = replace(self.union, pairs=pairs)
        return after


class KeptMasks(KeyedClient):
    """Has one key for masks in all unions."""

    _before = b""

    def enter(self, at: Agreement) -> None:
        """Take the key of the union before."""
        super().enter(at)
        if at.phase == self.form.union_phase:
            assert self.union is not None
            self._before = self._before or self.union.mask_key
            self.union = replace(self.union, mask_key=self._before)


def _kept_pair(pair_key: bytes, context: bytes, q: int) -> bytes:
    return pair_seed(pair_key, b"", q % 2)


def _bare_pair(secret: bytes, purpose: str, *label: bytes) -> bytes:
    """As expand, but what pairs share does not depend on the union."""
    return (
        expand(secret, purpose) if purpose in ("pair of masks", "pair of a batch") else expand(secret, purpose, *label)
    )


class LowThreshold(Overheard):
    """T shares open a key of masks."""

    def threshold(self, params: Params) -> int:
        """t."""
        return params.T


def _open_seed(seed: bytes, context: bytes, q: int) -> bytes:
    return self_seed(context, context, q)


class BothShares(Masking):
    """Gives out shares of keys and of seeds."""

    def _opening(self, at: Agreement) -> bytes:
        others = replace(at, members=tuple(v for v in at.participants if v not in at.members))
        return super()._opening(at) + super()._opening(others)


class TwiceAsLong(Overheard):
    """With room for them."""

    def layout(self, kind: IntEnum, params: Params, at: Agreement, sender: int, receiver: int = ALL) -> Layout:
        """Openings are twice as long."""
        whole = super().layout(kind, params, at, sender, receiver)
        return Layout(1, 64 * len(at.participants)) if kind is Kind.OPENING else whole


LISTED_MASKS = replaced(
    "masks-from-the-list", "Masks are keyed by the public digest of the union.", {pair_seed: _listed}
)
SHARED_MASKS = of_client("masks-from-the-secret", "Every client can make the masks of all pairs.", SharedMasks)
KEPT_MASKS = Mutant(
    "masks-of-an-earlier-union",
    "Clients keep their keys for masks, and masks do not depend on the union.",
    {KEYED: Subject(Overheard(of_client=KeptMasks), instead={pair_seed: _kept_pair, expand: _bare_pair})},
)
NO_SELF_MASK = replaced(
    "self-masks-from-the-list", "A client's own mask is keyed by the public digest.", {self_seed: _open_seed}
)
LOW_THRESHOLD = mutant("low-threshold", "T shares open a key of masks.", LowThreshold())
BOTH_SHARES = mutant(
    "both-shares", "Clients give out shares of keys and of seeds.", TwiceAsLong(of_client=masked(BothShares))
)


def _listed_words(secret: bytes, purpose: str, *label: bytes) -> bytes:
    """As expand, but words are hidden by what everybody can make."""
    return expand(label[0], purpose, *label[1:]) if purpose == "ready" else expand(secret, purpose, *label)


def _same_words(secret: bytes, purpose: str, *label: bytes) -> bytes:
    """As expand, but words of all rounds are hidden alike."""
    return expand(secret, purpose) if purpose == "ready" else expand(secret, purpose, *label)


def _short_words(secret: bytes, purpose: str, *label: bytes) -> bytes:
    """As expand, but words are hidden by short numbers."""
    whole = expand(secret, purpose, *label)
    return whole[:7] if purpose == "ready" else whole


SHORT_WORDS = replaced(
    "words-of-short-masks", "Whether entities changed is hidden by numbers of 56 bits.", {expand: _short_words}
)
LISTED_WORDS = replaced(
    "words-from-the-list", "Whether entities changed is hidden by public numbers.", {expand: _listed_words}
)
SAME_WORDS = replaced(
    "words-of-any-round", "Whether entities changed is hidden alike in all rounds.", {expand: _same_words}
)


class Hoarding(KeyedClient):
    """Saves more than it should."""

    def more(self) -> list[bytes]:
        """What it saves besides."""
        return [*self.union.pairs.values()] if self.union else []

    def plain(self) -> dict[str, Any]:
        """What survives a restart."""
        return super().plain() | {"more": self.more()}


class SavesBatch(Hoarding):
    """The keys of masks that it shares."""

    def more(self) -> list[bytes]:
        """The seeds and keys of the batch."""
        batch = self.masking.batch
        return [scalar_bytes(each) for each in (*batch.keys, *batch.seeds)] if batch else []


class SavesNoise(Hoarding):
    """The last seed of its noise."""

    _noise = b""

    def enter(self, at: Agreement) -> None:
        """Note it."""
        super().enter(at)
        self._noise = (self.round.noise_seed if self.round else b"") or self._noise

    def more(self) -> list[bytes]:
        """The seed."""
        return [self._noise]


SAVED_MASKS = of_client("masks-in-the-saved-state", "A client saves what it shares with others for masks.", Hoarding)
SAVED_BATCH = of_client("batch-in-the-saved-state", "A client saves its mask keys and seeds of a batch.", SavesBatch)
SAVED_NOISE = of_client("noise-in-the-saved-state", "A client saves the seed of its noise.", SavesNoise)


# ---------------------------------------------------------------------------------------------------------------- rows


class ListedRows(KeyedClient):
    """Keys of rows come from what the server chose."""

    def _got_tags(self, at: Agreement, got: Got) -> Agreement:
        after = super()._got_tags(at, got)
        assert self.union is not None
        mine = self.union
        keys = [hashlib.blake2b(b"%d" % tag, digest_size=32, key=mine.L).digest() for tag in self._tags()[mine.order]]
        self.union = replace(mine, keys=np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 32))
        return after


LISTED_ROWS = of_client("row-keys-from-tags", "The key of a row comes from numbers that the server chose.", ListedRows)


# ------------------------------------------------------------------------------------------------------ shared streams


def _without_parts(parts: Sequence[tuple[int, bytes]]) -> bytes:
    return expand(bytes(32), "shared secret", *(b"%d" % n for n, _ in sorted(parts)))


def _of_the_first(parts: Sequence[tuple[int, bytes]]) -> bytes:
    return shared_secret(sorted(parts)[:1])


class SameSecret(KeyedClient):
    """Has one part for the secrets of all unions."""

    _before = b""

    def enter(self, at: Agreement) -> None:
        """Take the part of the union before."""
        super().enter(at)
        if at.phase == self.form.union_phase:
            assert self.union is not None
            self._before = self._before or self.union.part
            self.union = replace(self.union, part=self._before)


class Listed(RoundSecrets):
    """All keys come from the public digest of the union."""

    def key(self, name: str, *of: int) -> bytes:
        """The key of one stream."""
        return expand(self.union, name, b"%d" % self.q, *(b"%d" % number for number in of))


NO_PARTS = both(
    "secret-without-parts", "The shared secret has no part of any client.", instead={shared_secret: _without_parts}
)
ONE_PART = replaced("secret-of-one-client", "One client draws the shared secret.", {shared_secret: _of_the_first})
SAME_SECRET = of_client("same-secret-again", "All unions have the same shared secret.", SameSecret)
LISTED_SECRETS = mutant("streams-from-the-list", "rho and the others come from the public digest.", checking(Listed))


# -------------------------------------------------------------------------------------------------------- of one's own


class PublicFill(Tables):
    """The fill is keyed by a public key."""

    def __init__(self, params: Params, numbers: Numbers, number: int, identity: Identity) -> None:
        super().__init__(params, numbers, number, Identity(identity.public))


def _known_weights(secret: bytes, purpose: str, *label: bytes) -> bytes:
    """As expand, but weights come from what all clients have."""
    return expand(label[-1], purpose) if purpose == "weights" else expand(secret, purpose, *label)


class SharedNoise(KeyedClient):
    """Draws its noise from what all clients have."""

    def enter(self, at: Agreement) -> None:
        """Take another seed."""
        super().enter(at)
        if at.phase == self.form.round_phase and self.round is not None and self.round.noise_seed:
            assert self.union is not None
            seed = expand(self.union.secret, "noise", b"%d %d" % (at.round, self.number))
            self.round = replace(self.round, noise_seed=seed)


class KnownBlinds(Naming):
    """Blinds names with what everybody knows."""

    def _blinded(self, fresh: Sequence[Name], epoch: int, seed: bytes) -> Blinding:
        return super()._blinded(fresh, epoch, expand(self.session, "blinds", b"%d %d" % (self.number, epoch)))


def _open_nonce(domain: str, *parts: bytes) -> bytes:
    """As the hash of the PRF, but a proof's nonce has nothing secret in it."""
    return hashed(domain, *parts[2:]) if domain == "nonce" else hashed(domain, *parts)


PUBLIC_NONCE = replaced("nonce-of-a-proof-public", "The nonce of a dealer's proof is public.", {hashed: _open_nonce})
PUBLIC_FILL = mutant("fill-of-the-public-key", "The fill is keyed by a client's public key.", filling(PublicFill))
SHARED_WEIGHTS = replaced(
    "weights-from-the-secret", "Every client can make the weights of all.", {expand: _known_weights}
)
SHARED_NOISE = of_client("noise-from-the-secret", "Every client can make the noise of all.", SharedNoise)
SHARED_BLINDS = of_client("blinds-without-seed", "The blinds of names have no secret seed.", named(KnownBlinds))


# ------------------------------------------------------------------------------------------------ messages and unions


class OpenChannel(WatchedChannel):
    """What two parties share is public."""

    @classmethod
    def between(cls, me: int, mine: Hello, key: SessionKey, peer: int, theirs: Hello) -> Channel:
        """The channel of two hellos."""
        ends = sorted([mine.public, theirs.public])
        return cls(me, peer, expand(mine.session, "pair", *ends))


class SessionTags(KeyedClient):
    """Tags are keyed by the public hash of the session."""

    def _tags(self) -> Words:
        return tags_of_keys(each(self.naming.names.prf.of(self.names)), expand(self.session, "tags"))


class OneBroadcastKey(WatchedLink):
    """The server seals all broadcasts under one key."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        if self.number == SERVER:
            draw, key = self.entropy, self.entropy(KEY_BYTES)
            self.entropy = lambda count: key if count == KEY_BYTES else draw(count)


class OneBroadcastSession(WatchedSession):
    """With such links."""

    link_type: ClassVar[type[Link]] = OneBroadcastKey


ONE_BROADCAST_KEY = Mutant(
    "one-key-for-all-broadcasts",
    "The server seals all broadcasts under one key.",
    {KEYED: Subject(Overheard(), session=OneBroadcastSession)},
)
ONE_NONCE = both(
    "one-nonce-for-all-chunks",
    "All chunks of a message are sealed with one nonce.",
    instead={nonce: lambda _: bytes(12)},
)
OPEN_CHANNELS = both(
    "channels-without-exchange", "The key of a pair comes from public keys.", session=connected(OpenChannel)
)
SESSION_TAGS = of_client("tags-of-the-session", "Tags are keyed by the public hash of the session.", SessionTags)


# ----------------------------------------------------------------------------------------------------------------- once


class ThetaIsJ(RoundSecrets):
    """theta and J are the same."""

    def key(self, name: str, *of: int) -> bytes:
        """The key of one stream."""
        return super().key("J", 0) if name == "theta" else super().key(name, *of)


def _noise_of_any_lane(ring: Ring, acc: Residues, seed: bytes, lane: int, noise: Noise) -> None:
    add_noise(ring, acc, seed, 0, noise)


ONE_KEY_FOR_TWO = mutant("theta-is-j", "theta and J come from one key.", checking(ThetaIsJ))
ONE_NOISE = replaced(
    "one-noise-for-all-chunks", "The noise of all chunks is the same.", {add_noise: _noise_of_any_lane}
)


class OneLaneOfKeys(KeyStream):
    """A key stream that has one lane."""

    def lane(self, number: int) -> KeyStream:
        """The first."""
        return type(self)(self._key)


ONE_LANE_OF_KEYS = both(
    "one-lane-of-key-streams", "All lanes of a key stream are the same.", instead={KeyStream: OneLaneOfKeys}
)


class KeptDealing(Naming):
    """Deals the same polynomial in each attempt."""

    def enter(self, at: Agreement) -> None:
        """With the seed of the attempt before."""
        before = self.key.seed
        super().enter(at)
        if at.phase == self.form.setup_phase and before:
            self.key = replace(self.key, seed=before)


KEPT_DEALING = of_client("same-dealing-again", "All attempts at a key deal the same polynomials.", named(KeptDealing))


# ----------------------------------------------------------------------------------------------------- secret numbers


def _short(uniform: bytes) -> int:
    return int.from_bytes(uniform[:16], "little")


def _short_polynomials(secret: int, threshold: int, clients: Sequence[int], stream: KeyStream) -> dict[int, int]:
    rest = [int.from_bytes(stream.bytes(16), "little") for _ in range(threshold - 1)]
    return {v: (secret + sum(c * (v + 1) ** (e + 1) for e, c in enumerate(rest))) % ORDER for v in clients}


def _same_for_all(secret: int, threshold: int, clients: Sequence[int], stream: KeyStream) -> dict[int, int]:
    return dict.fromkeys(clients, secret)


SHORT_SCALARS = replaced("half-scalars", "Keys of masks have 128 bits.", {scalar_of: _short})
SHORT_POLYNOMIALS = replaced(
    "short-polynomials", "Polynomials that share mask keys have short coefficients.", {shares: _short_polynomials}
)
ZERO_POLYNOMIALS = replaced("shares-are-secrets", "Every share of a mask key is that key.", {shares: _same_for_all})


def _short_padding(inputs: Sequence[bytes], size: int, seed: bytes) -> Blinding:
    """Points that pad a list are small multiples of the base point; the check point fits."""
    made, padding = blind(inputs, size, seed), slice(len(inputs), size)
    if len(inputs) == size:
        return made
    points, weights = made.points[made._places], made._weights[padding]
    words = np.frombuffer(KeyStream(seed).bytes(4 * len(weights)), "<u4")
    small = multiply_base(scalar_rows(int(word) + 1 for word in words))
    minus = scalar_rows(ORDER - int.from_bytes(weight.tobytes(), "little") for weight in weights)
    parts = [points[-1:], multiply(points[padding], minus), multiply(small, weights)]
    points[padding], points[-1] = small, total(np.concatenate(parts))
    shuffled = np.empty_like(points)
    shuffled[made._places] = points
    return replace(made, points=shuffled)


SHORT_PADDING = replaced("short-padding", "Points that pad a list of names have 32 bits.", {blind: _short_padding})
