"""How the server removes the masks from a sum if somebody vanished (K5.2 and K5.3 with drop-outs)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, islice

from secea.arithmetic import streams
from secea.arithmetic.field import Residues
from secea.errors import ProtocolError, RoundLost
from secea.forms.keyed.form import Keyed, Kind
from secea.forms.keyed.masking import hash_of, key_of, pair_of, public_of, same_share, seed_of, statement, voted
from secea.params import Params
from secea.party.form import Got
from secea.party.phases import Agreement
from secea.steps import masks
from secea.wire.keys import Roster

MOST_TRIED = 64
"""How many sets of shares are tried, besides one for each client, before an opening counts as failed."""


class Opening:
    """The server's knowledge of a batch of mask keys, and what it recovers from the shares of those who are left."""

    def __init__(self, form: Keyed, params: Params, session: bytes) -> None:
        self.form, self.params, self.session = form, params, session
        self.first = 0
        self.public: Mapping[int, bytes] = {}

    def got_batch(self, at: Agreement, got: Got) -> None:
        """Keep the public halves."""
        self.first, self.public = at.round + 1, {v: got[Kind.BATCH, v] for v in at.members}

    def forget(self) -> None:
        """Forget the keys of the last batch, since another one begins."""
        self.public = {}

    def covers(self, q: int, members: Sequence[int]) -> bool:
        """Whether there are mask keys of these members for a round."""
        return set(self.public) == set(members) and self.first <= q < self.first + self.form.batch

    def votes(self, at: Agreement, got: Got, roster: Roster) -> bytes:
        """The votes of the first t who signed this sum. Other votes do not count, as long as there are t right ones."""
        said, threshold = statement(self.session, at, self.form.noise_clients(self.params, at)), self._threshold
        given = {v: got[Kind.VOTE, v] for v in at.members if (Kind.VOTE, v) in got}
        right = [v for v, vote in given.items() if voted(roster.key(v), vote, said)]
        if len(right) < threshold:
            raise ProtocolError(set(given) - set(right), "signs another sum than the one that was announced")
        return b"".join(v.to_bytes(2, "little") + given[v] for v in right[:threshold])

    @property
    def _threshold(self) -> int:
        return self.form.threshold(self.params)

    def recover(self, at: Agreement, L: bytes, got: Got) -> list[tuple[bytes, int]]:
        """The key streams that still mask the sum, each with its sign. They have to be subtracted."""
        opened = {n: got[Kind.OPENING, n] for n in at.members if (Kind.OPENING, n) in got}
        index, over = at.round - self.first, []
        for place, v in enumerate(at.participants):
            given = {n: int.from_bytes(data[32 * place : 32 * place + 32], "little") for n, data in opened.items()}
            key, hashed = public_of(self.public[v], index)
            if v in at.members:
                seed = self._secret(given, v, partial(_has_hash, hashed))
                over.append((masks.self_seed(seed_of(seed), L, at.round), 1))
                continue
            private = key_of(self._secret(given, v, partial(_has_key, key)))
            for n in masks.neighbours(at.participants, self.form.degree(self.params), v):
                if n in at.members:
                    pair = pair_of(private, public_of(self.public[n], index)[0], n, self.session)
                    over.append((masks.pair_seed(pair, L, at.round), 1 if n < v else -1))
        return over

    def _secret(self, given: Mapping[int, int], of: int, right: Callable[[int], bool]) -> int:
        """The secret from t of these shares. Wrong shares are left out, as long as there are t right ones."""
        for some in islice(_sets(sorted(given), self._threshold), len(given) + MOST_TRIED):
            secret = masks.recovered(given, masks.weights_at_zero(some))
            if right(secret):
                return secret
        raise RoundLost(f"the shares of the mask keys of client {of} do not fit together: there is no result")


def _sets(clients: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Sets of `size` clients. Neighbours in a circle come first, so that a single wrong share is soon left out."""
    for start in range(len(clients) if len(clients) > size else 0):
        yield tuple((*clients, *clients)[start : start + size])
    yield from combinations(clients, size)


def _has_hash(hashed: bytes, scalar: int) -> bool:
    return same_share(hash_of(scalar), hashed)


def _has_key(key: bytes, scalar: int) -> bool:
    return same_share(key_of(scalar).public_key().public_bytes_raw(), key)


def unmasked(form: Keyed, params: Params, total: Residues, over: Sequence[tuple[bytes, int]], chunk: int) -> Residues:
    """The sum of one chunk, without the masks that were recovered."""
    ring = form.numbers(params).ring
    streams.add_streams(ring, total, [key for key, _ in over], [-sign for _, sign in over], chunk)
    return total
