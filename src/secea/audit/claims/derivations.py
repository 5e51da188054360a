"""Claims about keys: who can derive which, from a trace of every draw, derivation and use.

Two lives of the keyed form are traced, one without and one with drop-outs: a set-up, rounds with several chunks, a
client that vanishes in the middle of an upload, another union, new names. Who may derive what is in the specification,
and said again here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import M61
from secea.arithmetic.ristretto import ORDER
from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.claims.counts import form_of
from secea.audit.derivations import SHORTEST, Trace, Use, traced
from secea.audit.laws import Coset
from secea.audit.mutants import common, numbers, options, views
from secea.audit.mutants import derivations as mutants
from secea.audit.mutants import keyed as keyed_mutants
from secea.audit.tails import kolmogorov
from secea.errors import SERVER, FederationError, RoundLost, party
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Kind
from secea.forms.paillier import Paillier
from secea.table import Table, as_table
from secea.testing import Parties
from secea.wire.messages import Header

DIM: Final = 61
"""Nine rows make a chunk: no two sizes are the same."""
NAMES: Final = 19
CHECKS: Final = 1
"""Check columns of so few clients: the prime has 56 bits."""
Tables = list[dict[str, NDArray[np.float64]]]


# ---------------------------------------------------------------------------------------------------------------- lives


@dataclass
class Life:
    """A traced life, and what is so in it."""

    trace: Trace
    clients: int
    dropouts: int
    inside: tuple[int, ...]
    """The clients that conspire."""
    identities: dict[int, bytes] = field(repr=False)
    columns: int = DIM
    """The numbers of a row."""
    sums: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Whose uploads of each attempt q are added; all who were asked, if they never were."""
    names: dict[bytes, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The entities under each key of a row."""
    known: set[str] = field(default_factory=set)
    """The entities of those who conspire."""
    tags: list[set[int]] = field(default_factory=list)
    """The slots of each union."""
    saved: dict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """What honest clients ever saved."""

    _derivable: dict[frozenset[int], set[bytes]] = field(default_factory=dict, repr=False)

    def derivable(self, adversary: Iterable[int]) -> set[bytes]:
        """What these parties can derive together."""
        if (who := frozenset(adversary)) not in self._derivable:
            self._derivable[who] = self.trace.derivable(who)
        return self._derivable[who]

    @property
    def honest(self) -> list[int]:
        """All others."""
        return [n for n in range(self.clients) if n not in self.inside]

    def uses(self, *how: str, kind: Kind | None = None) -> Iterator[Use]:
        """What honest clients did with keys: for messages of a kind, or at all."""
        honest = set(self.honest)
        for use in self.trace.uses:
            there = kind is None or (use.covers is not None and use.covers.kind is kind)
            if there and use.how in how and use.party in honest:
                yield use


def _made_tables(clients: int, shift: float) -> Tables:
    rng = np.random.default_rng([clients, NAMES])
    every = [f"name {i}" for i in range(NAMES)]
    own = [[name for i, name in enumerate(every) if i % clients == n or rng.random() < 0.4] for n in range(clients)]
    return [{name: rng.uniform(-3, 3, DIM) + shift for name in names} for names in own]


def _note(life: Life, parties: Parties) -> None:
    """What is so after a round."""
    at = parties.server.at
    life.sums[at.round] = at.members
    life.tags.append({int(tag) for tag in parties.server.part.tags})  # type: ignore[attr-defined]
    for n, client in parties.clients.items():
        part = client.part
        assert isinstance(part, KeyedClient)
        if n in life.inside:
            life.known |= set(map(str, part.names))
        else:
            life.saved[n] |= life.trace.inside(client.save())
        if part.union is not None and len(part.union.keys) == len(part.union.order):
            for i, key in zip(part.union.order, part.union.keys, strict=True):
                life.names[key.tobytes()].add(str(part.names[i]))


def _given(parties: Parties, tables: Tables) -> list[Table]:
    """With weights, where rows have some."""
    given = [as_table(table, DIM) for table in tables]
    weighted = parties.session.params.max_weight is not None
    return [each.weighing(np.arange(len(each)) % 5) if weighted else each for each in given]


def _round(life: Life, parties: Parties, tables: Tables) -> None:
    members = parties.server.at.members
    if not parties.server.part.prepared(parties.server.at):
        parties.exchange.run(parties.session.form.prepare_phase, members)
    parties.round([table if n in members else None for n, table in enumerate(_given(parties, tables))])
    _note(life, parties)


def _interrupted(life: Life, parties: Parties, tables: Tables, who: int) -> None:
    """A round in which a client vanishes when all but the last of its messages left; it comes back for a new union."""
    form, members = parties.session.form, parties.server.at.members
    parties.contribute(_given(parties, tables))
    parties.exchange.losses = {who: form.round_phase}
    before = parties.server.at
    with suppress(RoundLost):
        parties.exchange.run(form.round_phase, members)
    at = parties.server.at
    life.sums[before.round + 1] = at.members if at.union == before.union else members
    parties.exchange.losses = {}
    parties.exchange.here = set(members)
    parties.union(members)


def _dealt_in_vain(parties: Parties, who: int) -> None:
    """A set-up in which a client vanishes while the key of the names is dealt; it comes back."""
    parties.exchange.losses = {who: "deal"}
    with suppress(FederationError):
        parties.setup()
    parties.exchange.losses, parties.exchange.here = {}, set(parties.clients)


def _live(
    subject: Subject, clients: int, collusion: int, dropouts: int, inside: tuple[int, ...], options: dict[str, Any]
) -> Life:
    tables = [_made_tables(clients, shift) for shift in (0.0, 0.5, -0.5, 1.0, 0.25)]
    some = replace(subject, form=replace(form_of(subject), batch=3))
    numbers = {"collusion": collusion, "dropouts": dropouts, "max_union": 2 * NAMES, **options}
    with traced(some, tables[0], **numbers) as (trace, parties):
        identities = {n: each.secret for n, each in parties.identities.items()}
        life = Life(trace, clients, dropouts, inside, identities, parties.session.params.columns)
        _dealt_in_vain(parties, clients - 2)
        parties.setup()
        for table in (*tables[:2], *tables[:2]):
            _round(life, parties, table)
        _interrupted(life, parties, tables[2], clients - 1)
        _round(life, parties, tables[3])
        parties.restart(0)
        parties.exchange.greet()
        parties.union(range(clients))
        gone = parties.clients[0].part
        gone.update([*list(tables[4][0])[1:], "a new name"])
        parties.exchange.run(parties.session.form.names_phase, range(clients))
        tables[4][0] = {str(name): np.full(DIM, 0.5) for name in gone.next_names}
        _round(life, parties, tables[4])
    return life


def _live_with_paillier(subject: Subject, inside: tuple[int, ...]) -> Life:
    """A set-up and two rounds of the paper's form, with several chunks of shares and answers."""
    rng = np.random.default_rng(4)
    tables = [{name: rng.normal(size=9) for name in own} for own in ("abcdefg", "bdgkl", "acemno", "cdhiop")]
    with traced(subject, tables, chunk_bytes=256, collusion=len(inside)) as (trace, parties):
        parties.setup()
        parties.round(tables)
        parties.round(tables)
    return Life(trace, len(tables), 0, inside, {n: each.secret for n, each in parties.identities.items()})


LIVES: Final[tuple[tuple[int, int, int, tuple[int, ...], dict[str, Any]], ...]] = (
    (5, 2, 0, (1, 3), {"max_weight": 9}),
    (7, 2, 1, (2, 5), {"min_owners": 3, "noise": 0.125}),
)
"""Clients, T, D, who conspires, and options: T+1, T+D+1, t, N-1 and the quorum of lists are all different."""
_lived: WeakKeyDictionary[Subject, dict[int, Life]] = WeakKeyDictionary()


def lives(subject: Subject) -> Iterator[Life]:
    """One life after the other. All claims look at the same ones."""
    known = _lived.setdefault(subject, {})
    if isinstance(subject.form, Paillier):
        if 0 not in known:
            known[0] = _live_with_paillier(subject, (2,))
        yield known[0]
        return
    for number, each in enumerate(LIVES):
        if number not in known:
            known[number] = _live(subject, *each)
        yield known[number]


# ---------------------------------------------------------------------------------------------------------------- masks

Place = tuple[int, ...]
"""A client, then what was masked: an attempt and a chunk, or a union and an attempt at it."""


def _opens_only(what: str, uses: Iterable[tuple[Place, Use]], sums: Mapping[Place, set[int]], have: set[bytes]) -> int:
    """Object unless masks that are not in `have` hide everything but these sums, all places taken together."""
    placed = list(uses)
    rows = {place: i for i, place in enumerate(sorted({place for place, _ in placed}))}
    unknown: dict[tuple[bytes, int], NDArray[np.object_]] = {}
    for place, use in placed:
        if use.key not in have:
            column = unknown.setdefault((use.key, use.lane), np.zeros(len(rows), object))
            column[rows[place]] += use.sign
    span = Coset(np.zeros(len(rows), object))
    for column in unknown.values():
        span.add(column)
    admitted = [
        np.array([int(place[1:] == at and place[0] in who) for place in rows], object) for at, who in sums.items()
    ]
    for total in admitted:
        if any((total * column).sum() for column in unknown.values()):
            raise AssertionError(f"{what} do not add up: masks do not cancel")
    if len(span.rows) < len(rows) - len(admitted):
        raise Objection(
            f"{what}: {len(rows) - len(span.rows)} sums open to the server and T clients, not {len(admitted)}"
        )
    return len(rows)


@claim(
    "exact view",
    KEYED,
    mutants=(
        keyed_mutants.FEWER_MASKS, keyed_mutants.NO_MASKS, keyed_mutants.BARE_TABLES, keyed_mutants.SAME_MASKS,
        mutants.LISTED_MASKS, mutants.SHARED_MASKS, views.SAME_LANE, mutants.KEPT_MASKS, mutants.NO_SELF_MASK,
        mutants.LOW_THRESHOLD, mutants.BOTH_SHARES,
    ),
)  # fmt: skip
def masks_of_others(subject: Subject) -> int:
    """Keyed: masks whose keys the server and T clients cannot derive hide all of the others' uploads but their sums.

    Over all rounds, attempts and chunks together, with every key that they derive from all that was ever sent. Lookup
    tables of the union likewise.
    """
    cases = 0
    for life in lives(subject):
        have, honest = life.derivable({SERVER, *life.inside}), set(life.honest)
        uploads = [((u.party, c.round, c.chunk), u) for u in life.uses("masks", kind=Kind.UPLOAD) if (c := u.covers)]
        tables = [((u.party, c.epoch, c.attempt), u) for u in life.uses("masks", kind=Kind.TABLE) if (c := u.covers)]
        sent = {(c.round, c.chunk) for _, c, _ in life.trace.sealed if c.kind is Kind.UPLOAD}
        placed = {place for place, _ in uploads}
        if missing := {(n, *at) for at in sent for n in life.sums[at[0]] if n in honest} - placed:
            raise Objection(f"{len(missing)} chunks of uploads have no mask")
        cases += _opens_only("uploads", uploads, {at: honest & set(life.sums[at[0]]) for at in sent}, have)
        unions = defaultdict[Place, set[int]](set)
        for _, c, _ in life.trace.sealed:
            if c.kind is Kind.TABLE and c.sender in honest:
                unions[c.epoch, c.attempt].add(c.sender)
        if {(n, *at) for at, who in unions.items() for n in who} - {place for place, _ in tables}:
            raise Objection("lookup tables of the union have no masks")
        cases += _opens_only("lookup tables", tables, unions, have)
    return cases


@claim("record", KEYED, mutants=(mutants.LISTED_WORDS, mutants.SAME_WORDS, mutants.SHORT_WORDS))
def words_of_others(subject: Subject) -> int:
    """Keyed: the server and T clients do not learn whose entities changed: numbers that they lack hide who says so.

    What honest clients add to their words links all of them, and is fresh in each round.
    """
    cases = 0
    for life in lives(subject):
        have, spoken = life.derivable({SERVER, *life.inside}), dict[bytes, Place]()
        said: dict[Place, dict[bytes, set[int]]] = defaultdict(lambda: defaultdict(set))
        for use in life.uses("derived", kind=Kind.READY):
            assert use.covers is not None
            said[use.covers.epoch, use.covers.attempt, use.covers.round][use.key].add(use.party)
        for at, added in said.items():
            linked = {key: who for key, who in added.items() if len(who) == 2 and key not in have}
            span = Coset(np.zeros(life.clients, object))
            for key, who in linked.items():
                if spoken.setdefault(key, at) != at:
                    raise Objection("two rounds hide words under the same numbers")
                span.add(np.array([(n == min(who)) - (n == max(who)) for n in range(life.clients)], object))
            if len(span.rows) < len(life.honest) - 1:
                raise Objection("the server and T clients see which of the others' entities changed")
            cases += 1
        words = [int.from_bytes(text[-8:], "little") for _, c, text in life.trace.sealed if c.kind is Kind.READY]
        kolmogorov("words whether entities changed", np.array([min(x, M61 - x) for x in words]) / (M61 / 2))
    return cases


@claim("record", KEYED, mutants=(mutants.SAVED_MASKS, mutants.SAVED_BATCH, mutants.SAVED_NOISE, options.SAVED_SPREAD))
def saved_states(subject: Subject) -> int:
    """Keyed: a client's saved state has nothing of which its masks or its noise are made.

    The server, T clients, and whoever reads all that another client ever saved, derive no mask that it shares with a
    third one, none of its own that were not opened, none of its noise on every slot, and, without the server, no seed
    of its other noise.
    """
    cases = 0
    for life in lives(subject):
        before = life.derivable({SERVER, *life.inside})
        for n, saved in life.saved.items():
            after = life.trace.derivable({SERVER, *life.inside}, saved)
            apart = life.trace.derivable(life.inside, saved)
            for use in life.uses("masks", "noise", "stream"):
                if use.how == "masks" and use.covers is not None and use.key in after - before:
                    raise Objection(f"what client {n} saves gives away keys of masks")
                if use.how == "noise" and use.party == n and use.key in apart:
                    raise Objection(f"what client {n} saves gives away its noise")
                everywhere = use.how == "stream" and use.covers is not None and use.covers.kind is Kind.UPLOAD
                if everywhere and use.party == n and use.key in after:
                    raise Objection(f"what client {n} saves gives away what it adds to every slot")
                cases += 1
    return cases


# ------------------------------------------------------------------------------------------------ everything else


def _underivable(life: Life, what: str, uses: Iterable[Use], adversary: frozenset[int]) -> int:
    """Object if an adversary, without the client itself, has a key that a client uses."""
    cases = 0
    for use in uses:
        if use.key in life.derivable(adversary - {use.party}):
            raise Objection(f"all others can derive the key of {what} of client {use.party}")
        cases += 1
    return cases


@claim("record", KEYED, mutants=(keyed_mutants.KNOWN_KEYS, keyed_mutants.KEYLESS, mutants.LISTED_ROWS))
def keys_of_rows(subject: Subject) -> int:
    """Keyed: the server and T clients cannot derive the key of a row whose entity none of them has."""
    cases = 0
    for life in lives(subject):
        have = life.derivable({SERVER, *life.inside})
        for use in life.uses("rows"):
            names = life.names[use.key]
            if len(names) > 1:
                raise Objection(f"one key is for the rows of {len(names)} entities")
            if use.key in have and not names <= life.known:
                raise Objection(f"the server and clients {life.inside} derive the key of a row that none of them has")
            cases += 1
        if not any(use.key not in have for use in life.uses("rows")):
            raise AssertionError("the coalition has all entities: nothing was checked")
    return cases


@claim(
    "record",
    KEYED,
    mutants=(
        mutants.NO_PARTS, mutants.ONE_PART, mutants.SAME_SECRET, mutants.LISTED_SECRETS, options.PUBLIC_LEAST,
    ),
)  # fmt: skip
def shared_streams(subject: Subject) -> int:
    """Keyed: the server alone derives none of the clients' shared key streams, and each client has a fresh part in all.

    rho, alpha, J, H, theta, beta and gamma, and those of a minimum of owners: fresh in each union and attempt.
    """
    cases = 0
    for life in lives(subject):
        server, outside, drawn = life.derivable({SERVER}), life.derivable(()), defaultdict[Place, set[bytes]](set)
        for use in life.uses("vector", kind=Kind.UPLOAD):
            assert use.covers is not None
            if use.key in server:
                raise Objection(f"the server derives a key stream that clients share in round {use.covers.round}")
            origins = life.trace.origins(use.key) - outside
            whose = {life.trace.born[value] for value in origins}
            if not set(life.sums[use.covers.round]) <= whose:
                raise Objection(f"the clients' shared secret has parts of clients {sorted(whose)} alone")
            drawn[use.covers.epoch, use.covers.attempt] |= origins
            cases += 1
        for one, other in ((a, b) for a in drawn for b in drawn if a < b):
            if drawn[one] & drawn[other]:
                raise Objection("two unions have a part of their shared secrets in common")
    return cases


@claim(
    "record",
    KEYED,
    mutants=(mutants.PUBLIC_FILL, keyed_mutants.FILL_ANEW, mutants.SHARED_WEIGHTS, mutants.SHARED_NOISE,
             mutants.SHARED_BLINDS, mutants.PUBLIC_NONCE, options.SHARED_SPREAD, options.SENT_SPREAD,
             options.PUBLIC_BLUR),
)  # fmt: skip
def keys_of_ones_own(subject: Subject) -> int:
    """Keyed: all others together cannot derive what a client keeps to itself.

    The keys of its fill, of the blur of its weights, of what it adds to every slot, of its weights in the lookup table,
    of its polynomials and blinds, and the numbers behind its points: the server and all other clients. The seed of its
    other noise: all other clients, without the server.
    """
    cases = 0
    for life in lives(subject):
        clients = frozenset(range(life.clients))
        cases += _underivable(life, "the fill", life.uses("fill"), clients | {SERVER})
        cases += _underivable(life, "a stream", life.uses("stream"), clients | {SERVER})
        cases += _underivable(life, "the noise", life.uses("noise", kind=Kind.UPLOAD), clients)
        shown = frozenset[bytes]().union(*map(life.trace.inside, life.trace.shown))
        points = (use for use in life.uses("point") if use.key not in shown)  # a proof's last number is for all
        cases += _underivable(life, "a number", points, clients | {SERVER})
        for use in life.uses("fill"):
            if life.trace.origins(use.key) != {life.identities[use.party]}:
                raise Objection(f"the fill of client {use.party} depends on more than its identity")
    return cases


@claim("record", PAILLIER, mutants=(mutants.NO_PARTS, mutants.OPEN_CHANNELS))
def keys_of_either_side(subject: Subject) -> int:
    """Paillier: the server alone derives no key stream of a client, and all clients together none of the server's.

    T clients derive no randomness of an answer that another client encrypts.
    """
    cases = 0
    for life in lives(subject):
        server, clients = life.derivable({SERVER}), life.derivable(range(life.clients))
        inside = life.derivable(life.inside)
        for use in life.trace.uses:
            if use.how == "derived":  # keys of messages are what both sides have
                continue
            if use.key in (clients if use.party == SERVER else server):
                raise Objection(f"a key stream of {party(use.party)} can be derived by the other side")
            answer = use.covers is not None and use.covers.kind.name == "ANSWER"
            if answer and use.party in life.honest and use.key in inside:
                raise Objection(f"clients {life.inside} derive the randomness of an answer of client {use.party}")
            cases += 1
    return cases


@claim("record", KEYED, PAILLIER, mutants=(mutants.OPEN_CHANNELS,))
def keys_of_messages(subject: Subject) -> int:
    """Both forms: the server and all other clients cannot derive the key of a message between two clients.

    Nobody outside derives the key of any message.
    """
    cases = 0
    for life in lives(subject):
        everyone, outside = frozenset({SERVER, *range(life.clients)}), life.derivable(())
        for key, header, _ in life.trace.sealed:
            ends = {header.sender, header.receiver}
            others = everyone - ends if ends <= everyone else frozenset[int]()
            if key in outside or (SERVER not in ends and key in life.derivable(others)):
                raise Objection(f"the key of {header.title} can be derived by others than its two ends")
            cases += 1
    return cases


@claim("record", KEYED, PAILLIER, mutants=(common.ONE_KEY, mutants.ONE_BROADCAST_KEY, mutants.ONE_NONCE))
def messages_once(subject: Subject) -> int:
    """Both forms: no key seals two messages, or two chunks under one number; what is sent again is the same.

    Broadcasts too, whose keys the server draws.
    """
    cases = 0
    for life in lives(subject):
        labels, chunks = dict[bytes, bytes](), dict[tuple[bytes, int], bytes]()
        for key, header, payload in life.trace.sealed:
            if labels.setdefault(key, header.label()) != header.label():
                raise Objection(f"one key seals two messages: {header.title}")
            if chunks.setdefault((key, header.chunk), payload) != payload:
                raise Objection(f"one key and one number seal two chunks: {header.title}")
            cases += 1
        over = dict[bytes, Header]()
        for header, stretch in life.trace.covered:
            if len(stretch) == SHORTEST and over.setdefault(stretch, header) != header:
                raise Objection(f"two chunks are sealed by the same stretch of a cipher: {header.title}")
    return cases


@claim("record", KEYED, mutants=(mutants.SESSION_TAGS,))
def unions_apart(subject: Subject) -> int:
    """Keyed: the server does not recognise a slot of one union in another: all of them have other tags."""
    cases = 0
    for life in lives(subject):
        unions = [tags for i, tags in enumerate(life.tags) if tags not in life.tags[:i]]
        for i, one in enumerate(unions):
            for other in unions[:i]:
                if one & other:
                    raise Objection(f"{len(one & other)} tags are in two unions")
                cases += 1
        if len(unions) < 3:
            raise AssertionError("there were not several unions")
    return cases


# ------------------------------------------------------------------------------------------------------- used once


@claim("record", KEYED, PAILLIER, mutants=(
    mutants.ONE_LANE_OF_KEYS, numbers.ONE_POLYNOMIAL, numbers.SEED_OF_A_BATCH, mutants.KEPT_DEALING,
    options.EVERYWHERE_OF_CHUNKS, options.EVERYWHERE_OF_ROUNDS,
))  # fmt: skip
def stretches_once(subject: Subject) -> int:
    """Both forms: no stretch of a party's own key stream is for two things: for two chunks, or twice for one.

    Noise of shares and on every slot, randomness of ciphertexts, weights of lookup tables, blinds, polynomials that
    share mask keys.
    """
    cases = 0
    for life in lives(subject):
        sizes: dict[tuple[bytes, int, int], int] = {}
        went: dict[tuple[bytes, int, int, int], Place] = {}
        read: dict[tuple[bytes, int], Counter[int]] = defaultdict(Counter)
        for use in life.trace.uses:
            if use.how != "stream":
                continue
            cases += 1
            read[use.key, use.lane][use.reader] += use.size
            if sizes.setdefault((use.key, use.lane, use.start), use.size) != use.size:
                raise Objection(f"one stretch of a key stream of {party(use.party)} is for two things")
            if (c := use.covers) is not None:
                place = (c.epoch, c.attempt, c.weights, c.round, c.chunk)
                if went.setdefault((use.key, use.lane, use.start, int(c.kind)), place) != place:
                    raise Objection(f"one stretch of a key stream of {party(use.party)} goes into two chunks")
        if any(len({*readers.values()}) > 1 for readers in read.values()):
            raise Objection("one key stream is for two things: it is read from its beginning, now more of it, now less")
        once = Counter((use.key, use.lane, use.start, use.covers) for use in life.trace.uses if use.how == "stream")
        if any(count > 1 for (_, _, _, chunk), count in once.items() if chunk is not None):
            raise Objection("one stretch of a key stream goes into one chunk twice")
        assert any(c.chunk for _, c, _ in life.trace.sealed), "no message has two chunks"
    return cases


@claim(
    "record",
    KEYED,
    mutants=(
        keyed_mutants.SAME_MASKS, views.SAME_LANE, mutants.KEPT_MASKS, views.H_OF_CHUNKS, views.SAME_ALPHA,
        views.J_OF_CHUNKS, mutants.ONE_NOISE, views.SAME_NOISE, views.SAME_G, mutants.ONE_KEY_FOR_TWO,
        options.LEAST_OF_CHUNKS, options.LEAST_OF_ROUNDS,
    ),
)  # fmt: skip
def key_streams_once(subject: Subject) -> int:
    """Keyed: no stretch of a key stream goes into two chunks, or twice into one.

    Of all rounds, attempts, unions and clients. Exceptions are those of the specification: two clients share a mask
    with opposite signs; all share rho, J, theta, beta, gamma and those of a minimum in a chunk; alpha is for all chunks
    of a round.
    """
    cases = 0
    for life in lives(subject):
        went: dict[tuple[bytes, int], dict[int, list[tuple[Use, Place]]]] = defaultdict(lambda: defaultdict(list))
        for use in life.trace.uses:
            if use.covers is not None and use.party != SERVER and use.how in ("masks", "vector", "rows", "noise"):
                c = use.covers
                place = (int(c.kind), c.epoch, c.attempt, c.round, c.chunk if c.kind is Kind.UPLOAD else 0)
                went[use.key, use.lane][use.party].append((use, place))
        alphas: dict[int, set[bytes]] = defaultdict(set)
        for (key, _), users in went.items():
            cases += 1
            every = [each for uses in users.values() for each in uses]
            places, hows = {place for _, place in every}, {use.how for use, _ in every}
            if len(hows) > 1:
                raise Objection(f"one key is for {' and for '.join(sorted(hows))}")
            first = every[0][0]
            if first.how == "vector" and first.size == life.columns and len({p[3] for p in places}) == 1:
                alphas[every[0][1][3]].add(key)
                continue
            if len(places) > 1:
                raise Objection(f"{first.how} of {len(places)} chunks come from one stretch of a key stream")
            if any(len(uses) > 1 for uses in users.values()):
                raise Objection(f"a stretch of a key stream goes into one chunk twice, as {first.how}")
            signs = sum((use.sign for use, _ in every), 0)
            if first.how == "masks" and len(users) > 1 and (len(users) > 2 or signs):
                raise Objection("a mask of two clients does not have opposite signs, or is one of three")
            if first.how == "noise" and len(users) > 1:
                raise Objection("two clients draw the same noise")
        if any(len(keys) > CHECKS for keys in alphas.values()) or not alphas:
            raise Objection("a key stream other than alpha is for all chunks of a round")
    return cases


# ----------------------------------------------------------------------------------------------------- secret numbers


def coefficients(shares: Mapping[int, int]) -> list[int]:
    """Of the polynomial through these shares; client v's is its value at v+1."""
    total = [0] * len(shares)
    for v, share in shares.items():
        basis, under = [1], 1
        for u in shares:
            if u != v:
                basis = [(a - (u + 1) * b) % ORDER for a, b in zip([0, *basis], [*basis, 0], strict=True)]
                under = under * (v - u) % ORDER
        factor = share * pow(under, -1, ORDER)
        total = [(a + factor * b) % ORDER for a, b in zip(total, basis, strict=True)]
    return total


@claim(
    "statistics",
    KEYED,
    mutants=(
        mutants.SHORT_SCALARS,
        mutants.SHORT_POLYNOMIALS,
        mutants.ZERO_POLYNOMIALS,
        mutants.SHORT_PADDING,
        numbers.SEED_OF_A_BATCH,
    ),
)
def secret_numbers(subject: Subject) -> int:
    """Keyed: numbers of the group that hide something are uniform: blinds, keys of masks, and polynomials that share.

    Polynomials are made again from the shares that were dealt, and have the degree that the threshold asks for. Points
    that pad lists, and all others that are multiples of the base point, are looked at where they are made.
    """
    cases = 0
    for life in lives(subject):
        t, secrets, found = (
            life.clients - life.dropouts,
            set[int](),
            {"scalars": set(life.trace.scalars), "shares": set()},
        )
        for threshold, shares in life.trace.dealt:
            if threshold != t:
                raise Objection(f"{threshold} shares give a key of masks, and not {t}")
            secret, *others = coefficients(shares)
            secrets.add(secret)
            found["shares"] |= set(others[: t - 1])
        if found["shares"] & secrets:
            raise Objection("coefficients of polynomials that share keys of masks are such keys themselves")
        if len(found["shares"]) < (t - 1) * len(secrets):
            raise Objection("coefficients of polynomials that share keys of masks repeat")
        points = {use.key for use in life.trace.uses if use.how == "point"}
        found["numbers of points"] = {int.from_bytes(key, "little") for key in points}
        for what, drawn in found.items():
            if drawn:
                kolmogorov(what, np.array([number / ORDER for number in drawn]))
                kolmogorov(f"low digits of {what}", np.array([number % (1 << 64) / (1 << 64) for number in drawn]))
                cases += len(drawn)
    return cases
