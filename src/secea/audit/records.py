"""What the product's own state machines do, recorded in small federations: the keys they use, what they accept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from secea import client
from secea.arithmetic.field import RING61
from secea.audit import Claim, Objection
from secea.audit.server_views import OWNERS
from secea.audit.stand_ins import Wire
from secea.client import Client
from secea.engines.local import Federation
from secea.errors import SERVER, ProtocolError
from secea.params import Params
from secea.retrieval.paillier import _Encrypter, _Scrambler
from secea.retrieval.reciprocal import _Drowner, _Padder
from secea.server import Phase, Server
from secea.session import Scheme, Session
from secea.sharing import Dealer
from secea.steps import union
from secea.wire.endpoint import Endpoint
from secea.wire.keys import Identity, Roster, Sealer
from secea.wire.messages import Announcement, Step
from secea.wire.randomness import KeyStream

SMALL_KEYS: Mapping[str, Any] = {"key_bits": 256, "insecure_small_keys": True}
"""Paillier keys that cost little, and protect nothing: what is recorded does not depend on their size."""

# ------------------------------------------------------------------------------------------- no key covers two things


class Ledger:
    """Which key covered what. A key may cover the same thing again (a repeated message), and nothing else."""

    def __init__(self) -> None:
        self.covered: dict[tuple[object, ...], bytes] = {}
        self.purposes: dict[bytes, str] = {}

    def note(self, purpose: str, key: bytes, what: bytes, *where: object) -> None:
        """A key covers something; `where` says at which end and in which lane."""
        digest = hashlib.sha256(what).digest()
        if self.covered.setdefault((purpose, key, *where), digest) != digest:
            raise Objection(f"a key that covered something as '{purpose}' covers something else: {where}")
        if self.purposes.setdefault(key, purpose) != purpose:
            raise Objection(f"a key serves as '{purpose}' and as '{self.purposes[key]}'")


@contextmanager
def recording(ledger: Ledger) -> Iterator[None]:
    """Notes what is sealed, padded, masked, shared, blinded and drowned."""
    init, seal, deal, fill, mask = Sealer.__init__, Sealer.seal, Dealer.deal, union.fill, union.mask
    pad, drown, encrypt, scramble = _Padder.cover, _Drowner.mask, _Encrypter.cover, _Scrambler.mask
    module: Any = client
    open_masked, stages = module.open_masked, Endpoint.stages

    def keep_key(self: Any, key: bytes, header: Any) -> None:
        init(self, key, header)
        self.key = key

    def sealed(self: Any, chunk: int, *payload: Any) -> Any:
        message = seal(self, chunk, *payload)
        ledger.note("seal", self.key, bytes(message), chunk)
        return message

    def dealt(self: Any, chunk: int, data: Any, *more: Any) -> Any:
        for stream in self._streams:
            ledger.note("share", stream._key, data.tobytes(), chunk)
        return deal(self, chunk, data, *more)

    def filled(tags: Any, geometry: Any, source: Any, *ring: Any) -> Any:
        ledger.note("weights of the union", source._key, tags.tobytes())
        return fill(tags, geometry, source, *ring)

    def masked(table: Any, me: int, streams: Any, *ring: Any) -> Any:
        plain, known = table.tobytes(), list(streams)
        for _, stream in known:
            ledger.note("mask of the union", stream._key, plain, me)
        return mask(table, me, known, *ring)

    def padded(self: Any, chunk: int, answers: Any) -> Any:
        ledger.note("pad", self._stream._key, answers.tobytes(), chunk)
        return pad(self, chunk, answers)

    def drowned(self: Any, chunk: int, answers: Any, rows: int) -> Any:
        ledger.note("noise of a mean", self._stream._key, _bodies(answers), chunk)
        return drown(self, chunk, answers, rows)

    def encrypted(self: Any, chunk: int, answers: Any) -> Any:
        ledger.note("blinds", self._stream._key, answers.tobytes(), chunk)
        return encrypt(self, chunk, answers)

    def scrambled(self: Any, chunk: int, answers: Any, rows: int) -> Any:
        ledger.note("r, psi and R", self._stream._key, _bodies(answers), chunk)
        return scramble(self, chunk, answers, rows)

    def opened(code: Any, counts: Any, rho: Any, zeta: Any, v: int) -> Any:
        ledger.note("zeta", zeta._key, counts.tobytes(), v)
        ledger.note("rho", hashlib.sha256(rho.tobytes()).digest(), counts.tobytes(), v)
        return open_masked(code, counts, rho, zeta, v)

    def staged(self: Any, labels: Any, context: bytes, *, seed: bytes = b"") -> Any:
        made = stages(self, labels, context, seed=seed)
        for stage in made:
            ledger.note("stage", b"stage " + stage.seed, repr(stage.plain()[:-1]).encode())
        return made

    recorders = [
        (Sealer, "__init__", keep_key), (Sealer, "seal", sealed), (Dealer, "deal", dealt), (union, "fill", filled),
        (union, "mask", masked), (_Padder, "cover", padded), (_Drowner, "mask", drowned),
        (_Encrypter, "cover", encrypted), (_Scrambler, "mask", scrambled), (client, "open_masked", opened),
        (Endpoint, "stages", staged),
    ]  # fmt: skip
    with ExitStack() as stack:
        for where, name, recorder in recorders:
            stack.enter_context(patch.object(where, name, recorder))
        yield


def _bodies(answers: Mapping[int, Any]) -> bytes:
    return b"".join(bytes(answers[v]) for v in sorted(answers))


def check_keys() -> int:
    """Rounds with a loss, an absence, restarts, and an update, in both forms of retrieval."""
    ledger = Ledger()
    sets = [["a", "b", "c"], ["b", "c", "d"], ["a", "d"], ["c", "d", "e"], ["a", "e"]]
    rng = np.random.default_rng(1)  # made-up data
    for form in ("reciprocal", "paillier"):
        with recording(ledger):
            fed = Federation(Params(clients=5, dim=3, dropouts=1, **SMALL_KEYS), form)
            fed.setup(sets)
            names = [list(own) for own in sets]
            for number in range(5):
                tables: list[Any] = [{name: rng.normal(size=3) for name in own} for own in names]
                if number == 2:
                    tables[4] = None
                fed.round(tables, vanish=[3] if number == 1 else [])
                fed.restart(*[(0, SERVER), (), (1,), (), ()][number] or (2,))
                if number == 3:
                    names[1] = ["a", "b"]
                    fed.update(1, names[1])
    return len(ledger.covered)


# ------------------------------------------------------------------------------------------------ one contributor set


class Machines:
    """A server and its clients, driven by hand."""

    def __init__(self, sets: Sequence[Sequence[str]], dropouts: int, form: str) -> None:
        everyone = (*range(len(sets)), SERVER)
        self.identities = {n: Identity.generate() for n in everyone}
        params = Params(len(sets), 2, dropouts=dropouts, **SMALL_KEYS)
        params = params.with_bounds(max_entities=max(map(len, sets)), max_union=len({e for own in sets for e in own}))
        roster = Roster(tuple(self.identities[n].public for n in range(len(sets))), self.identities[SERVER].public)
        self.session = Session(params, roster, form, "full")
        self.server = Server(self.session, self.identities[SERVER])
        self.clients = [Client(self.session, n, self.identities[n], own) for n, own in enumerate(sets)]

    def exchange(self) -> None:
        """Clients to server, and back."""
        for n, each in enumerate(self.clients):
            for message in list(each.outbox()):
                self.server.receive(n, bytes(message))
        self.server.close()
        for n, message in list(self.server.outbox()):
            self.clients[n].receive(bytes(message))

    def contribute(self) -> None:
        """A round begins, and every client has its shares ready."""
        while self.server.phase is not Phase.READY:
            self.exchange()
        self.server.begin_round()
        for n, each in enumerate(self.clients):
            each.contribute({name: [float(n), 1.0] for name in each.names}, self.server.round)

    def two_faces(self, absent: int) -> Server:
        """The server gets the shares of all; a second face of it, which is returned, lacks those of one client."""
        late: list[bytes] = []
        for n, each in enumerate(self.clients):
            for message in list(each.outbox()):
                if n == absent:
                    late.append(bytes(message))
                else:
                    self.server.receive(n, bytes(message))
        liar = Server.restore(self.session, self.identities[SERVER], self.server.save())
        for part in late:
            self.server.receive(absent, part)
        self.server.close()
        liar.close()
        return liar


FIVE_SETS = (("a", "b"), ("b", "a"), ("c", "a"), ("a", "c"), ("a", "d"))
TOLD_AND_ABSENT = ((0, 4), (4, 1), (2, 3), (1, 0))


def check_one_set() -> int:
    """The server tells one client of all contributors, and the others that one is missing; or the other way round."""
    for told, absent in TOLD_AND_ABSENT:
        _told_of_all(told, absent)
        _told_of_fewer(told, absent)
    return 2 * len(TOLD_AND_ABSENT)


def _told_of_all(told: int, absent: int) -> None:
    """With Paillier: three answers of others, who were told of fewer contributors, would make a mean."""
    machines = Machines(FIVE_SETS, 2, "paillier")
    machines.contribute()
    liar = machines.two_faces(absent)
    others = set(range(5)) - {told, absent}
    for server, to in ((machines.server, {told, absent}), (liar, others)):
        for n, message in list(server.outbox()):
            if n in to:
                machines.clients[n].receive(bytes(message))
    victim, stage = machines.clients[told], liar.mean_stage
    assert stage is not None
    liar.mean_stage = replace(stage, context=victim.context)  # it writes on the result the set that the client knows
    for n in sorted(others):
        for message in list(machines.clients[n].outbox()):
            liar.receive(n, bytes(message))
    liar.close()
    refused = 0
    for n, message in list(liar.outbox()):
        if n == told:
            try:
                victim.receive(bytes(message))
            except ProtocolError:
                refused += 1
    if not refused or (victim.means is not None and not np.isnan(victim.means).all()):
        raise Objection(f"client {told} took a mean over other contributors than those that it was told")


def _told_of_fewer(told: int, absent: int) -> None:
    """By reciprocals: a client whose weights are for all contributors is told that one is missing."""
    machines = Machines(FIVE_SETS, 2, "reciprocal")
    machines.contribute()
    salts = {n: each.pending[0].salt for n, each in enumerate(machines.clients) if n != absent}
    machines.server.queue = {}
    machines.server._tell_announcement(Announcement(Step.SHARE, tuple(salts.items())), (told,))
    ((_, message),) = machines.server.outbox()
    try:
        machines.clients[told].receive(bytes(message))
    except ProtocolError:
        return
    raise Objection(f"client {told} takes part in a round whose contributors are not those of its weights")


# --------------------------------------------------------------------------------------- the union: what clients get


def check_union_total() -> int:
    """What the server tells a client of the union is the same whoever owns what, and whatever the weights are."""
    cases, told = 0, set()
    tags = np.arange(3, dtype=np.uint64) * np.uint64(10**15) + np.uint64(7)
    scheme: Any = Scheme(Params(3, 1, max_entities=3, max_union=3))
    geometry = scheme.geometry(0, bytes(16))
    for owners in OWNERS:
        for _ in range(8):
            stand_in = SimpleNamespace(params=scheme.params)
            with patch("secea.server.Endpoint", lambda *a, s=stand_in, **k: Wire(s, SERVER)):
                server = Server(scheme, Identity(bytes(32)))
            server.members, server.context, server.phase = (0, 1, 2), bytes(16), Phase.TABLE
            total = RING61.zeros(geometry.cells, union.COLUMNS)
            for own in owners:
                RING61.add_into(total, union.fill(tags[list(own)], geometry, KeyStream(os.urandom(32))))
            server.total = total
            server._close_table((0, 1, 2))
            queue: Any = server.queue
            told.add(tuple((m.header.kind, m.payload) for n in range(3) for m in queue[n]))
            cases += 1
            if len(told) > 1:
                raise Objection("what the server tells clients of the union depends on who owns what, or on weights")
    return cases


CLAIMS = (
    Claim(
        "union-total",
        "Clients get the sorted tags of the union, the same whoever owns what, and not the total of the tables.",
        "record",
        check_union_total,
    ),
    Claim(
        "one-contributor-set",
        "A server that tells one client another contributor set gets no result out of it.",
        "record",
        check_one_set,
    ),
    Claim(
        "keys",
        "No key covers two different things: in rounds with a loss, restarts and an update, in both forms.",
        "record",
        check_keys,
    ),
)
