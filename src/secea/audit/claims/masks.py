"""Claims about the form "keyed": of uploads, lookup tables and ready messages under masks only the sum opens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import streams
from secea.arithmetic.field import M61
from secea.arithmetic.ristretto import SCALAR_BYTES
from secea.audit import KEYED, Objection, Subject, claim
from secea.audit import specification as spec
from secea.audit.claims.counts import form_of
from secea.audit.claims.derivations import coefficients
from secea.audit.laws import Coset, Tiny, coset_of, reduced
from secea.audit.mutants import keyed, numbers, views
from secea.audit.tiny import Draws
from secea.audit.views import Case, Stage
from secea.errors import SERVER
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.params import Params
from secea.steps import masks
from secea.wire.keys import expand
from secea.wire.messages import DIGEST_BYTES

PRIME: Final = 101
"""For ranks; any prime does."""


def only_the_sum(unknown: NDArray[np.bool_], masked: Tiny, honest: NDArray[np.bool_], U: NDArray[np.bool_]) -> bool:
    """Whether, in each of many cases, of what honest clients sent the sum over U opens, and no other combination.

    `masked` [masks, clients]: with which sign each client adds each mask. The others are [cases, masks] and [cases,
    clients].
    """
    rows = masked * unknown[:, :, None] * honest[:, None]
    spans, _ = reduced(rows, np.zeros((len(rows), 0, rows.shape[2]), np.int64), PRIME)
    free = honest.sum(axis=1) - spans.any(axis=2).sum(axis=1)
    return bool((free == 1).all() and not np.einsum("bmn,bn->bm", rows, U & honest).any())


@claim("exact view", KEYED, mutants=(keyed.FEWER_MASKS, keyed.NO_MASKS, views.NEIGHBOUR_LESS))
def graph_of_masks(subject: Subject) -> int:
    """Keyed: masks that the server and any T clients do not know hide all of the others' uploads but the sum over U.

    Every N, D and T, every set of participants, every U, every coalition; late uploads are seen too.
    """
    form, cases = form_of(subject), 0
    for N in range(2, 8 if subject.thorough else 7):
        for D, T in ((lost, few) for lost in range(N - 1) for few in range(1, N - lost)):
            degree = form.degree(Params(N, 1, collusion=T, dropouts=D))
            fewest = N - D if D else 2 if T == N - 1 else T + 2
            for size in range(fewest, N + 1):
                for members in combinations(range(N), size):
                    cases += _opened(members, degree, N - D, D, T)
    return cases


def _opened(members: tuple[int, ...], degree: int, t: int, D: int, T: int) -> int:
    """Every U and every coalition of some participants: how many there are."""
    size = len(members)
    near = {n: masks.neighbours(members, degree, n) for n in members}
    edges = [(i, j) for i, j in combinations(range(size), 2) if members[j] in near[members[i]]]
    masked = np.zeros((len(edges) + size, size), np.int64)
    for k, (i, j) in enumerate(edges):
        masked[k, i], masked[k, j] = 1, -1
    masked[len(edges) :] = np.eye(size)
    sums = [u for few in range(t if D else size, size + 1) for u in combinations(range(size), few)]
    pairs = [(u, c) for u in sums for few in range(T + 1) for c in combinations(range(size), few) if set(u) - set(c)]
    U, honest = np.zeros((len(pairs), size), np.bool_), np.ones((len(pairs), size), np.bool_)
    for k, (u, c) in enumerate(pairs):
        U[k, list(u)], honest[k, list(c)] = True, False
    both = [U[:, i] & U[:, j] & honest[:, i] & honest[:, j] for i, j in edges]
    own = ~U & honest if D else np.zeros_like(U)
    unknown = np.concatenate([np.array(both, np.bool_).reshape(len(edges), len(pairs)).T, own], axis=1)
    if not only_the_sum(unknown, masked, honest, U):
        bad = next(k for k in range(len(pairs)) if not only_the_sum(unknown[[k]], masked, honest[[k]], U[[k]]))
        u, c = (tuple(members[i] for i in some) for some in pairs[bad])
        raise Objection(f"D={D}, T={T}, members {members}, sum over {u}: clients {c} see more than that sum")
    return len(pairs)


MANY: Final = ((17, 15, 0), (21, 9, 8), (22, 12, 3))
"""N, T and D where the graph of masks, or a threshold, is larger than in any other claim."""


@claim("record", KEYED, mutants=(numbers.FEW_NEIGHBOURS, numbers.SHARES_OF_FEW, views.NEIGHBOUR_LESS))
def masks_of_many(subject: Subject) -> int:
    """Keyed: among many clients, too, each has masks with all neighbours of the specification, and t shares open a key.

    The keys that clients hold after a set-up are compared pair by pair, and the polynomials that share them made again.
    """
    cases, few = 0, replace(subject, form=replace(form_of(subject), batch=1))
    for N, T, D in MANY:
        parties = few.parties([{"a": [1.0]}] * N, collusion=T, dropouts=D, max_entities=1, max_union=2)
        parties.setup()
        parts = {n: client.part for n, client in parties.clients.items() if isinstance(client.part, KeyedClient)}
        at = replace(parties.server.at, round=1)
        seeds = {
            n: part.masking.seeds(at, part.union.L, part.union.pairs)[0] for n, part in parts.items() if part.union
        }
        for n, mine in seeds.items():
            shared = {v for v, seed in mine.items() if seeds[v].get(n) == seed}
            if missing := spec.masks_with(at.members, n, T, D) - shared:
                raise Objection(f"N={N}, T={T}, D={D}: client {n} has no masks with clients {sorted(missing)}")
            if D:
                cases += _shared(parts, n, spec.threshold(N, D))
        pairs = Counter(seed for mine in seeds.values() for seed in mine.values())
        if max(pairs.values()) > 2:
            raise Objection(f"N={N}, T={T}, D={D}: two pairs of clients have the same masks")
        cases += len(pairs)
    return cases


def _shared(parts: Mapping[int, KeyedClient], n: int, t: int) -> int:
    """Object if fewer than t shares give a key of client n, or the seed of its own mask."""
    held = {v: part.masking.batch.shares[n] for v, part in parts.items() if part.masking.batch}
    for start in (0, SCALAR_BYTES):
        shares = {v: int.from_bytes(data[start : start + SCALAR_BYTES], "little") for v, data in held.items()}
        if not all(coefficients(shares)[:t]):
            raise Objection(f"fewer than {t} shares of {len(shares)} open what client {n} shared")
    return 2


@claim("exact view", KEYED, mutants=(keyed.BARE_TABLES, views.FEWER_TABLE_MASKS))
def masks_of_tables(subject: Subject) -> int:
    """Keyed: the server and any T clients open the sum of all lookup tables of a union, and of no fewer of them."""
    tried = 0
    for N, T in ((3, 1), (4, 2), (5, 1), *(((4, 1), (5, 3), (6, 2), (6, 4)) if subject.thorough else ())):
        stage = Stage(subject, Case(N, T))
        draws, at = Draws(stage.ring), replace(stage.at(0), phase="table")
        with streams.use(0, draws):
            for n in range(N):
                with draws.of(n):
                    assert list(stage.part(n).payloads(Kind.TABLE, (SERVER,), at))
        keys = sorted({key for added in draws.added.values() for key in added})
        masked = np.array([[draws.added.get(n, {}).get(key, 0) for n in range(N)] for key in keys], np.int64)
        coalitions = [some for size in range(T + 1) for some in combinations(range(N), size)]
        honest = np.array([[n not in some for n in range(N)] for some in coalitions])
        unknown = ~((masked.reshape(-1, N)[None] != 0) & ~honest[:, None]).any(axis=2)
        if not only_the_sum(unknown, masked.reshape(-1, N), honest, np.ones_like(honest)):
            raise Objection(f"N={N}, T={T}: tables of fewer than all others open")
        tried += len(coalitions)
    return tried


@claim("exact view", KEYED, mutants=(views.BARE_READY,))
def changes_under_masks(subject: Subject) -> int:
    """Keyed: the server and T clients learn before a round whether entities of others changed, and not whose."""
    tried = 0
    for case in (
        Case(3, 1, slots=2, inside=(1,)),
        Case(4, 2, slots=2, inside=(0, 3)),
        Case(4, 1, slots=2, inside=(2,)),
    ):
        nobody, *changed = (_ready(subject, case, who) for who in (None, *case.honest))
        assert not nobody.same(changed[0]), "the check does not see what is admitted"
        if not all(changed[0].same(other) for other in changed[1:]):
            raise Objection(f"{case}: the server and clients {case.inside} learn whose entities changed")
        tried += len(changed)
    return tried


def _ready(subject: Subject, case: Case, who: int | None) -> Coset:
    """The law of what honest clients say before a round, and of known masks, if one of them gives up a name."""
    stage, found = Stage(subject, case), []
    if who is not None:
        stage.part(who).update(["name 0"])
    for q in range(2, 2 * case.clients + 6):
        at, seen = replace(stage.at(0), phase="ready", round=q), []
        for n in case.honest:
            part = stage.part(n)
            part.contribute({name: np.zeros(case.dim) for name in part.next_names}, q, at)
            (payload,) = (b"".join(parts) for _, parts in part.payloads(Kind.READY, (SERVER,), at))
            seen.append(payload[DIGEST_BYTES:])
            for union in (stage.part(v).union for v in case.inside):
                assert union is not None
                seen.append(expand(union.pairs[n], "ready", union.L, b"%d" % q))
        found.append(np.array([int.from_bytes(each, "little") % M61 for each in seen], object))
    return coset_of(found)
