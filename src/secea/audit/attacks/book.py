"""A book of what clients give away in the keyed form: uploads, shares of mask keys, answers to lists, parts of secrets.

It is a referee's: it knows every client's secrets, and says what a server could make of what it got. `opened` finds the
sums that a server and its friends can open, by taking away every mask that they know and looking at the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import numpy as np

from secea.arithmetic.field import Residues, Ring
from secea.arithmetic.streams import add_streams
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.masking import Batch, hash_of, key_of, public_of, same_share
from secea.party.phases import Agreement
from secea.steps import masks

MOST_COUNT: Final = 64
"""No count is above this: a larger number is not a count."""


@dataclass(frozen=True)
class Upload:
    """One upload, and what a referee knows of it: its masks, and the blinding of its counts."""

    sender: int
    training: int
    """The training round whose values it has."""
    at: Agreement
    rows: Residues = field(repr=False)
    pairs: Mapping[int, bytes] = field(repr=False)
    """The seed of the masks with each neighbour."""
    own: bytes = field(repr=False)
    rho: Residues = field(repr=False)
    ring: Ring = field(repr=False)
    keys: Mapping[int, bytes]
    """A_q of each member; empty without drop-outs."""
    noisy: bool = False
    """Whether it brings noise."""


class Book:
    """All uploads, and every share of a mask key that was given out: what a server and some clients make of them."""

    def __init__(self) -> None:
        self.uploads: dict[tuple[bytes, int, int], Upload] = {}
        """By context of the round, q and sender."""
        self.asked = 0
        """How many openings there were."""
        self.given: dict[tuple[str, bytes], dict[int, int]] = {}
        """(a or b, A_q) of somebody to the share of each who gave one."""
        self.held: dict[tuple[str, bytes], dict[int, int]] = {}
        """All shares that clients hold."""
        self.published: dict[bytes, tuple[int, bytes]] = {}
        """Whose A_q is, and H(b_q), by A_q."""
        self.smaller: set[tuple[int, bytes]] = set()
        """Who opened a sum without some participant, in which union."""
        self.kept: list[str] = []
        """Uploads in a union after that, or with fewer members than it has: slots lose owners, and are known."""
        self.reused: list[str] = []
        """Masks that cover two uploads."""
        self.sent: dict[tuple[int, int], tuple[bytes, int]] = {}
        """In which context and round each client uploaded a training round, where clients may drop out."""
        self.signed: dict[tuple[int, bytes, int], tuple[int, ...]] = {}
        """The U that each client signed, by its L and q."""
        self.torn: list[str] = []
        """Rounds of which a client signed two."""
        self._covered: dict[tuple[int, bytes], bytes] = {}
        self.lists: dict[int, set[bytes]] = {}
        """The lists of blinded names that each client sent."""
        self.answered: dict[tuple[int, int], set[bytes]] = {}
        """The lists that holders answered, by epoch of names and whose they are."""
        self.parts: dict[tuple[int, bytes], bytes] = {}
        """The context in which each client sent a part of a union's secret."""
        self.again: list[str] = []
        """Parts that were sent in two unions."""
        self._learnt: set[tuple[int, bytes]] = set()
        self._known: dict[tuple[int, bytes], tuple[str, bytes]] = {}
        self._fit: dict[tuple[str, bytes, tuple[int, ...]], bool] = {}  # whether the shares of these give a secret

    def learn(self, n: int, batch: Batch) -> None:
        """Tell the shares that client n holds apart by their bytes."""
        if not batch.public or (n, batch.public[n]) in self._learnt:
            return
        self._learnt.add((n, batch.public[n]))
        for v, data in batch.shares.items():
            for i in range(len(batch.keys)):
                A, hashed = public_of(batch.public[v], i)
                self.published[A] = v, hashed
                for half, start in (("a", 64 * i), ("b", 64 * i + 32)):
                    share = data[start : start + 32]
                    self._known[n, share] = half, A
                    self.held.setdefault((half, A), {})[n] = int.from_bytes(share, "little")

    def upload(self, part: KeyedClient, at: Agreement, payload: bytes) -> None:
        """A client uploads."""
        assert part.union is not None
        assert part.round is not None
        numbers, size, batch = part.numbers, at.size, part.masking.batch
        width = part.params.dim + numbers.checks + 2
        body = size * width * numbers.ring.element_bytes
        if (part.number, part.union.L) in self.smaller:
            self.kept.append(f"client {part.number} uploads again in a union in which somebody dropped out")
        if at.members != at.participants:
            self.kept.append(f"client {part.number} uploads in a round with fewer members than its union has")
        once = at.context, at.round
        if batch is not None and self.sent.setdefault((part.number, part.round.number), once) != once:
            self.reused.append(f"client {part.number} uploads what it trained for one round a second time")
        pairs, own = part.masking.seeds(at, part.union.L, part.union.pairs)
        for seed in (*pairs.values(), own) if pairs else ():
            if seed and self._covered.setdefault((part.number, seed), payload) != payload:
                self.reused.append(f"client {part.number} has the same masks over two uploads")
        keys = {v: public_of(data, at.round - batch.first)[0] for v, data in batch.public.items()} if batch else {}
        if batch is not None:
            self.learn(part.number, batch)
        self.uploads[at.context, at.round, part.number] = Upload(
            part.number, part.round.number, at, numbers.ring.from_bytes(payload[:body], size, width).copy(), pairs, own,
            part.secrets(at).of(0, size, ()).rho, numbers.ring, keys, len(payload) > body,
        )  # fmt: skip

    def vote(self, part: KeyedClient, at: Agreement) -> None:
        """A client signs who is in the sum."""
        assert part.union is not None
        if self.signed.setdefault((part.number, part.union.L, at.round), at.members) != at.members:
            self.torn.append(f"client {part.number} signs two sets for one round")

    def opening(self, part: KeyedClient, at: Agreement, payload: bytes) -> None:
        """A client gives out shares."""
        assert part.union is not None
        assert part.masking.batch is not None
        self.learn(part.number, part.masking.batch)
        if at.members != at.participants:
            self.smaller.add((part.number, part.union.L))
        self.note(part.number, payload)

    def note(self, n: int, opening: bytes) -> None:
        """These shares are out."""
        self.asked += 1
        for start in range(0, len(opening), 32):
            share = opening[start : start + 32]
            self.given.setdefault(self._known[n, share], {})[n] = int.from_bytes(share, "little")

    def answer(self, part: KeyedClient, receiver: int, at: Agreement) -> None:
        """A holder answers a list."""
        points = part.naming.names.lists[receiver].tobytes()
        self.answered.setdefault((at.names, receiver), set()).add(points)

    def part(self, n: int, context: bytes, payload: bytes) -> None:
        """A client sends its part of a union's secret."""
        if self.parts.setdefault((n, payload), context) != context:
            self.again.append(f"client {n} has the same part in the secrets of two unions")

    def names(self) -> list[str]:
        """Lists that were answered and must not have been."""
        said, owners = list[str](), dict[bytes, int]()
        for (epoch, v), lists in self.answered.items():
            if len(lists) > 1:
                said.append(f"{len(lists)} lists of client {v} are answered in epoch {epoch} of names")
            if not lists <= self.lists[v]:
                said.append(f"a list is answered for client {v} that it did not send")
            for point in (points[i : i + 32] for points in lists for i in range(0, len(points), 32)):
                if (other := owners.setdefault(point, v)) != v:
                    said.append(f"a blinded name is answered for client {other} and for client {v}")
        return said

    def both(self) -> list[tuple[int, int]]:
        """Who gave out both shares of whom, of a_q and b_q for one q."""
        return [
            (n, self.published[A][0])
            for (half, A), shares in self.given.items() if half == "a"
            for n in shares.keys() & self.given.get(("b", A), {}).keys()
        ]  # fmt: skip

    def _too_few_open(self, A: bytes, few: int) -> bool:
        """Whether so few of the shares of a mask key, or of the self seed beside it, give it away."""
        return any(
            self._fits(half, A, dict(sorted(self.held[half, A].items())[:few]))
            for half in "ab"
            if (half, A) in self.held
        )

    def _open(self, half: str, A: bytes, friends: Sequence[int]) -> bool:
        """Whether the server has a secret, from shares that it got and those that its friends hold."""
        held = self.held.get((half, A), {})
        return self._fits(half, A, self.given.get((half, A), {}) | {n: held[n] for n in friends if n in held})

    def _fits(self, half: str, A: bytes, shares: Mapping[int, int]) -> bool:
        """Whether these shares give the secret that was published."""
        place = half, A, tuple(sorted(shares))
        if shares and place not in self._fit:
            secret = masks.recovered(shares, masks.weights_at_zero(sorted(shares)))
            if half == "b":
                self._fit[place] = same_share(hash_of(secret), self.published[A][1])
            else:
                self._fit[place] = secret > 0 and same_share(key_of(secret).public_key().public_bytes_raw(), A)
        return bool(shares) and self._fit[place]

    def _bare(self, upload: Upload, friends: Sequence[int]) -> Residues:
        """The counts of an upload, without the masks that the server and its friends know."""
        n, rows = upload.sender, upload.rows.copy()
        mine = upload.keys.get(n, b"")
        over = {v: seed for v, seed in upload.pairs.items() if v in friends}
        if mine:
            known = self._open("a", mine, friends)
            over |= {v: s for v, s in upload.pairs.items() if known or self._open("a", upload.keys[v], friends)}
        keys, signs = list(over.values()), [-1 if n < v else 1 for v in over]
        if upload.own and self._open("b", mine, friends):
            keys, signs = [*keys, upload.own], [*signs, -1]
        if keys:
            add_streams(upload.ring, rows, keys, signs, 0)
        return np.ascontiguousarray(rows[:, :, -2])

    def opened(self, friends: Sequence[int], since: int = 0) -> dict[int, set[tuple[int, ...]]]:
        """For each training round the sets of other clients whose rows the server can add up, with these friends."""
        found: dict[int, set[tuple[int, ...]]] = {}
        rounds: dict[tuple[bytes, int], list[Upload]] = {}
        for (context, q, n), upload in self.uploads.items():
            if n not in friends and upload.training > since:
                rounds.setdefault((context, q), []).append(upload)
        for uploads in rounds.values():
            ring, rho = uploads[0].ring, uploads[0].rho
            sums: dict[tuple[int, ...], Residues] = {(): ring.zeros(rho.shape[1])}
            for each in uploads:
                bare = self._bare(each, friends)
                if bare.shape == rho.shape:
                    sums |= {tuple(sorted((*some, each.sender))): ring.add(t, bare) for some, t in sums.items()}
            del sums[()]
            inverse = ring.inverse(rho)
            for some, total in sums.items():
                counts = ring.multiply(total, inverse)
                if (counts <= MOST_COUNT).all() and (counts == counts[:1]).all():
                    found.setdefault(uploads[0].training, set()).add(some)
        return found

    def objections(self, N: int, D: int, T: int, since: int = 0) -> list[str]:
        """What must not be, for a server with any T friends (K1: t = N-D; without drop-outs T+2 take part, or all).

        Of sums only those of later training rounds than `since`.
        """
        said = [f"client {n} gives out shares of both secrets of client {v} for one round" for n, v in self.both()]
        said += self.reused + self.torn
        fewest = N - D if D else (2 if T == N - 1 else min(N, T + 2))
        for upload in self.uploads.values():
            if upload.training > since and D and self._too_few_open(upload.keys[upload.sender], N - D - 1):
                said.append(f"{N - D - 1} shares are enough to open a mask key of client {upload.sender}")
        for friends in combinations(range(N), T):
            for training, sets in self.opened(friends, since).items():
                if len(sets) > 1:
                    said.append(f"helped by {friends}: {len(sets)} sums of training round {training} open, {sets}")
                elif any(len(some) + T < fewest for some in sets):
                    said.append(f"helped by {friends}: a sum over only {sets} opens; {fewest} are due")
        return said
