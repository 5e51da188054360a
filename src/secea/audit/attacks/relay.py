"""A server that does not relay what it got: other keys, two announcements, old messages; and one that counts bytes.

The adversary is the server. It deviates from the protocol, which the threat model does not cover; all the same these
attacks must fail, because they would give it embeddings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic import fixedpoint
from secea.arithmetic.field import RING61, Residues
from secea.arithmetic.paillier import PrivateKey
from secea.audit import Claim, Mutant, Objection
from secea.audit.attacks.paillier import true_sums
from secea.audit.attacks.streams import unnumbered
from secea.audit.recorded import SMALL, Hop, Recorded, random_tables
from secea.client import Client
from secea.errors import SERVER, ProtocolError
from secea.retrieval.paillier import Paillier
from secea.server import Server
from secea.sharing import Deal
from secea.steps import union
from secea.wire import keys
from secea.wire.endpoint import Endpoint, Stage
from secea.wire.keys import Channel, Hello, Opener, Sealer, SessionKey, expand, shared_secret
from secea.wire.messages import ALL, DIGEST_BYTES, HEADER_BYTES, Kind, Layout

SETS: Final = ({"a", "b", "c"}, {"b", "c", "d"}, {"a", "c", "e"}, {"b", "e"})
DIM: Final = 3


class Middleman:
    """A server that is client v towards every client but v, for each v: with keys of its own in forged hellos."""

    def __init__(self, run: Recorded) -> None:
        self.run = run
        self.keys = {v: SessionKey(os.urandom(32)) for v in run.clients}
        self.paillier = PrivateKey.generate(SMALL["key_bits"]) if run.session.form.paillier_bytes else None
        modulus = self.paillier.public.to_bytes() if self.paillier else b""
        self.forged = {
            v: Hello(run.session.hash, client.wire.hello.incarnation, self.keys[v].public, modulus, os.urandom(64))
            for v, client in run.clients.items()
        }
        self.parts: dict[int, bytes] = {}
        self.tables: dict[int, Residues] = {}
        self.answers: dict[tuple[int, int], bytes] = {}

    def _towards(self, honest: int, played: int) -> Channel:
        """What client `honest` takes for its channel with client `played`."""
        return Channel.between(
            played, self.forged[played], self.keys[played], honest, self.run.clients[honest].wire.hello
        )

    def __call__(self, hop: Hop) -> Iterable[Hop]:
        """Open and seal anew what clients send each other."""
        header = hop.header
        if header.kind is Kind.ANSWER:
            self.answers[header.chunk, header.sender] = self.run.opened(hop)
            return []
        if header.kind is Kind.TABLE:
            return [self._unmasked(hop)]
        if hop.carrier != SERVER or header.sender == SERVER:
            return [hop]
        if header.receiver == ALL:
            return [replace(hop, message=hop.message[:HEADER_BYTES] + self.forged[header.sender].to_bytes())]
        key = self._towards(header.sender, header.receiver).derive("seal", header.label())
        payload = Opener(key, header).open(header, hop.message)
        if header.kind is Kind.HELLO:
            self.parts[header.sender] = bytes(payload)
        sealer = Sealer(self._towards(header.receiver, header.sender).derive("seal", header.label()), header)
        return [replace(hop, message=bytes(sealer.seal(header.chunk, payload)))]

    def _unmasked(self, hop: Hop) -> Hop:
        """A client's table without its masks, which would not cancel any more: the server shares all of them."""
        n, context, others = hop.header.sender, hop.header.context, set(self.run.clients) - {hop.header.sender}
        masks = union.mask(
            RING61.zeros(*self.run.residues(hop).shape[1:]),
            n,
            ((v, self._towards(n, v).stream("mask", context)) for v in others),
        )
        self.tables[n] = RING61.subtract(self.run.residues(hop), masks)
        return self.run.resealed(hop, RING61.to_bytes(self.tables[n]))


def key_swap() -> int:
    """Sit in the middle of every pair, learn the shared secret and every client's table, and name its entities."""
    run = Recorded(SETS, dim=DIM)
    relay = Middleman(run)
    try:
        run.setup(relay)
    except ProtocolError:
        return len(SETS)
    secret = shared_secret(sorted(relay.parts.items()))
    (context,) = {hop.header.context for hop in run.of(Kind.TABLE)}
    names = [*"abcdefgh"]
    tags = union.tags_of(names, expand(secret, "tags", context))
    own = union.peel(relay.tables[1], run.session.geometry(run.server.attempt, context))
    assert own is not None
    found = [name for name, tag in zip(names, tags, strict=True) if tag in own]
    raise Objection(f"a server with keys of its own in the hellos sees that client 1 has the entities {found}")


def paillier_key_swap() -> int:
    """Let others encrypt their answers to client 0 under the server's own key, and decode the sums."""
    run = Recorded(SETS, form="paillier", dim=DIM)
    relay, tables = Middleman(run), random_tables(SETS, DIM, np.random.default_rng(4))
    try:
        run.setup(relay)
        run.begin(tables)
        run.exchange(relay)
        run.up(relay)
    except ProtocolError:
        return len(SETS)
    form, L, clients = run.session.form, run.session.form.block_length, sorted(run.clients)[1:]
    assert isinstance(form, Paillier)
    assert relay.paillier is not None
    public, values = relay.paillier.public, []
    for v in clients:  # three answers are enough; client 0 itself uses its own key
        body = relay.answers[0, v][DIGEST_BYTES:]  # the first chunk: answers to client 0
        ciphertexts = public.ciphertexts_from_bytes(body, len(body) // public.ciphertext_bytes)
        values.append(form.packing.unpack(relay.paillier.decrypt(ciphertexts), L)[None])
    sums = fixedpoint.centred(RING61, form.code.decode(clients, values, degree=form.code.need - 1)[:, 0]).tolist()
    found = sorted(name for name, total in true_sums(tables, run.params).items() if total in sums)
    raise Objection(f"a server with a Paillier key of its own decrypted the sums of {found}, which client 0 asked for")


# -------------------------------------------------------------------------------------------------- two announcements

EVERYONE: Final = tuple({"x", f"{n}"} for n in range(7))


def denominator(mean: NDArray[np.float64], fraction_bits: int, most: int) -> int:
    """The count behind an exact mean (a documented limit of retrieval with Paillier)."""
    exact = [Fraction(float(x)) * 2**fraction_bits for x in mean]
    near = (c for c in range(1, most + 1) if all(abs(c * x - round(c * x)) < Fraction(1, 2**20) for x in exact))
    return next(near, 0)


def two_sets() -> int:
    """Tell clients 1 to 3 that all seven contribute, and 4 to 6 that 0 does not; give client 5 the result of 1 to 3.

    Clients 5 and 6 then hold the sums of x with and without client 0, from one and the same round.
    """
    run = Recorded(EVERYONE, form="paillier", dim=DIM, dropouts=4).setup()  # three answers are enough
    tables = random_tables(EVERYONE, DIM, np.random.default_rng(5))
    run.begin(tables)
    run.up(clients=range(1, 7))
    other = run.fork(run.server.save())
    run.up(clients=[0])
    run.server.close()
    other.close()
    run.down(clients=range(4))
    run.down(clients=range(4, 7), server=other)
    for server, answering in ((run.server, range(1, 4)), (other, range(4, 7))):
        for n in answering:
            for hop in run.sending(n):
                server.receive(n, hop.message)
        server.close()
    context = run.clients[5].context
    mine = [Hop(SERVER, 5, bytes(message)) for message in run.server.drain()[5]]
    theirs = other.drain()[6]
    for message in theirs:
        run.clients[6].receive(message)
    try:
        for hop in mine:
            run.clients[5].receive(run.resealed(hop, context=context).message)
    except ProtocolError:
        return len(EVERYONE)
    f, sums = run.params.fraction_bits, []
    for client in (run.clients[5], run.clients[6]):
        assert client.means is not None
        mean = client.means[client.names.index("x")]
        sums.append(denominator(mean, f, 7) * mean)
    if np.allclose(sums[0] - sums[1], fixedpoint.decode(fixedpoint.encode(tables[0]["x"], f), f), atol=2.0**-f):
        raise Objection("two contributor sets in one round, and the difference of two sums is client 0's embedding")
    raise Objection("a client took a result that was made for other contributors than those announced to it")


# ---------------------------------------------------------------------------------------------------- old messages


def replays() -> int:
    """Before each message of a second round, offer its receiver all messages that it took before."""
    tried = 0
    for form in ("reciprocal", "paillier"):
        run = Recorded(SETS[:3], form=form, dim=DIM).setup()
        run.round(random_tables(SETS[:3], DIM, np.random.default_rng(6)))
        old = list(run.hops)

        def first_the_old(hop: Hop) -> Iterable[Hop]:
            nonlocal tried
            for past in old:  # noqa: B023 - used within this turn
                if past.receiver == hop.receiver:
                    tried += 1
                    try:
                        run.deliver(past)  # noqa: B023
                    except ProtocolError:
                        continue
                    kind = past.header.kind.name.lower()
                    raise Objection(f"{form}: an old {kind} was taken again")  # noqa: B023
            return [hop]

        run.round(random_tables(SETS[:3], DIM, np.random.default_rng(7)), first_the_old)
    return tried


# ------------------------------------------------------------------------------------------------------ counting bytes


def traffic(owned: int, form: str) -> list[tuple[int, int, str, int]]:
    """What the network shows of a set-up and a round if client 1 has so many entities: who, to whom, what, size."""
    sets = [set("abcdef"), set("abcdef"[:owned]), set("af")]
    while True:  # a stalled union or a failed placement shows as a retry: rare, and documented
        run, seen = Recorded(sets, form=form, dim=DIM), []

        def watch(hop: Hop) -> Iterable[Hop]:
            seen.append((hop.carrier, hop.receiver, hop.header.kind.name, len(hop.message)))  # noqa: B023
            return [hop]

        try:
            run.setup(watch)
            run.round(random_tables(sets, DIM, np.random.default_rng(8)), watch)
        except ProtocolError as refused:  # what was seen was seen
            return [*seen, (-1, -1, str(refused), 0)]
        if run.server.attempt == 0:
            return seen


def counting() -> int:
    """Compare the traffic for every number of entities that client 1 can have."""
    for form in ("reciprocal", "paillier"):
        shown = [traffic(owned, form) for owned in range(1, 7)]
        if (different := len({tuple(seen) for seen in shown})) > 1:
            raise Objection(f"{form}: six numbers of entities show as {different} different sequences of messages")
        assert shown[0][-1][2] == Kind.MEAN.name, f"the round was not finished: {shown[0][-1]}"
    return 12


# ------------------------------------------------------------------------------------------------------------ mutants

_deal = Client._deal


def _require_nothing(self: Endpoint, header: Any, **expected: object) -> None:
    return


def _asked_alone(self: Client, stage: Stage) -> Deal:
    deal = _deal(self, stage)
    if stage.kind is not Kind.QUERY:
        return deal
    asked = int(np.diff(self.shape.starts)[self.placement >= 0].sum())
    return Deal(Layout(asked, self.session.ring.element_bytes), 1, lambda chunk: deal.data(0)[:, :, :asked])


CLAIMS: Final = (
    Claim(
        "key-swap",
        "A server that puts X25519 keys of its own into the hellos does not get into the middle of two clients.",
        "attack",
        key_swap,
    ),
    Claim(
        "paillier-key-swap",
        "A server that puts a Paillier key of its own into the hellos does not decrypt answers.",
        "attack",
        paillier_key_swap,
    ),
    Claim(
        "two-contributor-sets",
        "A server that announces two sets of contributors in one round gets no client to take the other set's result.",
        "attack",
        two_sets,
    ),
    Claim("replays", "No message of the set-up or of an earlier round is taken again.", "attack", replays),
    Claim(
        "counting-messages",
        "Numbers and sizes of messages are the same however many entities a client has.",
        "attack",
        counting,
    ),
)


@contextmanager
def _freshness_unchecked() -> Iterator[None]:
    with (
        patch.multiple(Endpoint, require=_require_nothing, take=unnumbered),
        patch.object(Server, "_past", lambda server, header: False),
    ):
        yield


MUTANTS: Final = (
    Mutant(
        "hellos-not-verified",
        "The signature of a hello is not checked.",
        lambda: patch.object(keys, "Ed25519PublicKey"),
        ("key-swap", "paillier-key-swap"),
    ),
    Mutant(
        "freshness-unchecked",
        "Receivers check neither the labels of messages nor the numbers of stages.",
        _freshness_unchecked,
        ("replays",),
    ),
    Mutant(
        "queries-for-entities-alone",
        "A client sends no dummies: only queries for entities that it has.",
        lambda: patch.object(Client, "_deal", _asked_alone),
        ("counting-messages",),
    ),
)
