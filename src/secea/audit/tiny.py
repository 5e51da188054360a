"""A federation over a tiny field: the product's own clients and server, from the queries on, under labelled coins.

Channels, Paillier's cryptosystem and the ring are stand-ins (`stand_ins.py`). All else (placing, dealing, adding,
opening, inverting, re-sharing, answering, masking, reading) is done by `Client`, `Server` and what they call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import Residues, Ring
from secea.audit.coins import Coins, Label, expanded, key_of
from secea.audit.stand_ins import Sent, TinyScheme, Wire
from secea.client import Client, Phase
from secea.errors import SERVER
from secea.params import Params
from secea.server import Server
from secea.sharing import blocks, expand_rows, seeded_clients, share_from_seed
from secea.wire.keys import Identity
from secea.wire.messages import DIGEST_BYTES, NO_CONTEXT, Announcement, Header, Kind, Step


@dataclass(frozen=True)
class World:
    """The inputs: for each client, its entities (rows of the union) with their embeddings."""

    owned: tuple[Mapping[int, Sequence[int]], ...]

    @property
    def union(self) -> int:
        """M."""
        return len({m for rows in self.owned for m in rows})

    def counts(self, contributors: Iterable[int]) -> list[int]:
        """How many of the contributors own each entity."""
        among = [self.owned[n] for n in contributors]
        return [sum(m in rows for rows in among) for m in range(self.union)]


class Tiny:
    """One epoch of a world. `coins` may be exchanged between steps: a run draws from those that are there.

    Queries run over buckets, or over the whole union where their number is given.
    """

    def __init__(
        self,
        params: Params,
        world: World,
        *,
        form: str = "reciprocal",
        queries: int | None = None,
        followed: int = 1,
    ) -> None:
        bounded = params.with_bounds(max_entities=3, max_union=3)
        self.scheme = TinyScheme(bounded, form, "buckets" if queries is None else "full", followed, queries)
        self.params, self.world, self.coins = self.scheme.params, world, Coins()
        self.ring: Ring = self.scheme.ring
        self.everyone = tuple(range(params.N))
        self.dealt: list[Sent] = []
        """What clients sent each other in the last step."""
        session: Any = self.scheme
        with patch("secea.client.Endpoint", lambda _, n, *a, **k: Wire(self, n)):
            self.clients = [Client(session, n, Identity(bytes(32)), own) for n, own in enumerate(world.owned)]
        with patch("secea.server.Endpoint", lambda *a, **k: Wire(self, SERVER)):
            self.server = Server(session, Identity(bytes(32)))
        tags = np.arange(world.union, dtype=np.uint64)
        for n, client in enumerate(self.clients):
            client.epoch, client.secret, client.tags = 1, key_of("secret"), tags
            client.rows = np.array(sorted(world.owned[n]), np.int64)
            client.union_members = client.query_members = client.contributors = self.everyone
        self.server.epoch, self.server.tags, self.server.query_members = 1, tags, self.everyone

    @property
    def p(self) -> int:
        """The prime."""
        return self.ring.primes[0]

    @contextmanager
    def labelled(self) -> Iterator[None]:
        """Within this, all keys are labels, and all streams draw from `coins`."""
        with ExitStack() as stack:
            for module in ("client", "server", "retrieval.paillier", "retrieval.reciprocal", "sharing"):
                stack.enter_context(patch(f"secea.{module}.KeyStream", lambda key: self.coins.from_key(key)))
                if module != "sharing":
                    stack.enter_context(patch(f"secea.{module}.expand", expanded))
            stack.enter_context(patch("secea.retrieval.paillier.RING61", self.ring))
            yield

    # ------------------------------------------------------------------------------------------------------ delivering

    def sent(self, n: int, *kinds: Kind) -> list[Sent]:
        """What client n deals to the others now."""
        client = self.clients[n]
        messages: list[Any] = []
        for stage in client.pending:
            if not kinds or stage.kind in kinds:
                messages += client._share_messages(stage)
        return messages

    def shares(self, n: int, *kinds: Kind) -> dict[Kind, Residues]:
        """The shares in what client n deals now, as their receivers see them: [N, elements] for each kind."""
        return self.shares_in(self.sent(n, *kinds))

    def shares_in(self, messages: Iterable[Sent]) -> dict[Kind, Residues]:
        """The shares in what one client dealt: [N, elements] for each kind."""
        by_kind: dict[Kind, dict[int, list[Residues]]] = {}
        for message in messages:
            header, of = message.header, by_kind.setdefault(message.header.kind, {})
            part = of.setdefault(header.receiver, [])
            if header.receiver in seeded_clients(self.params, header.sender, header):
                contributors = self.clients[header.sender].contributors
                layout = self.scheme.layout(header.kind, self.world.union, len(contributors))
                width = self.scheme.form.block_length if header.kind is Kind.SHARE else 1
                part += share_from_seed(bytes(message.payload), self.ring, layout, width)
            else:
                part.append(self.ring.from_bytes(message.payload, len(message.payload) // self.ring.element_bytes))
        found = {}
        for kind, of in by_kind.items():
            whole = {v: np.concatenate([part.reshape(-1) for part in parts]) for v, parts in of.items()}
            none = np.zeros_like(next(iter(whole.values())))  # what the dealer keeps is not sent
            found[kind] = np.stack([whole.get(v, none) for v in self.everyone])
        return found

    def announce(
        self, step: Step, members: Sequence[int], receivers: Sequence[int], *, weights: int = 0, round: int = 0
    ) -> None:
        """The server's word on who takes part in a step."""
        body = Announcement(step, tuple((n, NO_CONTEXT) for n in members)).to_bytes()
        header = Header(Kind.CONTRIBUTORS, SERVER, 0, 1, weights, round, 0, 0, 1, NO_CONTEXT, NO_CONTEXT)
        for v in receivers:
            self.clients[v]._announced(Sent(header, body).opened)

    def deal(
        self, step: Step, members: Sequence[int], receivers: Sequence[int], *, weights: int = 0, round: int = 0
    ) -> None:
        """A step in which the members deal shares, and all receivers take them."""
        self.dealt = [message for n in members for message in self.sent(n)]
        self.announce(step, members, receivers, weights=weights, round=round)
        for message in self.dealt:
            if message.header.receiver in receivers:
                self.clients[message.header.receiver]._got_share(message.opened)

    # ----------------------------------------------------------------------------------------------------------- steps

    def ask(self, clients: Sequence[int] | None = None) -> None:
        """Clients place their entities: their queries and indicators are ready to be dealt."""
        for n in self.everyone if clients is None else clients:
            self._place(n)

    def _place(self, n: int) -> None:
        client = self.clients[n]
        rows, client.rows = client.rows, client.rows[: self.scheme.query_count]
        client._begin_query()
        client.rows = rows

    def asked(self) -> Tiny:
        """Queries and indicators are dealt."""
        self.ask()
        self.deal(Step.QUERY, self.everyone, self.everyone)
        return self

    def deal_again(self, kind: Kind, *dealers: int) -> dict[int, Residues]:
        """Queries or indicators of some clients, dealt anew with the coins of now: [N, elements] for each dealer."""
        found = {}
        for n in dealers:
            client = self.clients[n]
            kept = client.queries, client.indicators
            state = client.phase, client.pending, client.members, client.missing
            self._place(n)
            client.queries, client.indicators = kept
            found[n] = self.shares(n, kind)[kind]
            layout = self.scheme.layout(kind, self.world.union, 0)
            for v in self.everyone:
                if v != n:
                    self.clients[v]._sink(kind, n, layout, 0, np.ascontiguousarray(found[n][v][None, :, None]))
            (stage,) = (stage for stage in client.pending if stage.kind is kind)
            client._keep_own_share(stage)
            client.phase, client.pending, client.members, client.missing = state
        return found

    def placed(self, n: int) -> list[int]:
        """The rows that the queries of client n ask for; -1 for dummies."""
        rows: list[int] = self.clients[n].placement.tolist()
        return rows

    def begin_weights(self, contributors: Sequence[int], number: int = 1) -> None:
        """New weights are asked for."""
        for n in contributors:
            self.clients[n].weights = 0  # a run may be repeated
        self.announce(Step.OPENING, contributors, contributors, weights=number)
        self.server.contributors, self.server.weights = tuple(contributors), number

    def openings(self, contributors: Sequence[int], number: int = 1) -> Residues:
        """What the server gets: [contributors, askers, queries]."""
        self.begin_weights(contributors, number)
        return np.stack([self.clients[v]._openings()[0] for v in contributors])

    def reciprocals(self, contributors: Sequence[int], opened: Residues) -> dict[int, list[Sent]]:
        """What the server sends to each contributor when it has the openings: reciprocals, and who re-shares."""
        server = self.server
        server.openings = {v: opened[i][None] for i, v in enumerate(contributors)}
        server.queue, server.context = {}, NO_CONTEXT  # a run may be repeated
        server._close_openings(tuple(contributors))
        queue: Any = server.queue
        return dict(queue)

    def begin_resharing(self, contributors: Sequence[int], number: int = 1) -> None:
        """The reciprocals are with the clients, and what they re-share is ready to be dealt."""
        told = self.reciprocals(contributors, self.openings(contributors, number))
        for v in contributors:
            for message in told[v]:
                client = self.clients[v]
                reciprocal = message.header.kind is Kind.RECIPROCAL
                (client._got_reciprocals if reciprocal else client._announced)(message.opened)

    def weighted(self, contributors: Sequence[int], number: int = 1) -> Tiny:
        """The weights are made."""
        self.begin_resharing(contributors, number)
        self.deal(Step.WEIGHTS, self.server.resharers, contributors, weights=number)
        return self

    def give(self, n: int, number: int = 1) -> None:
        """Client n's embeddings are ready to be dealt, in the layout of the form."""
        client, params = self.clients[n], self.params
        own = np.array([self.world.owned[n][m] for m in client.rows.tolist()], np.int64).reshape(-1, params.dim)
        width = params.K * self.scheme.form.block_length
        padded = (
            np.pad(own, ((0, 0), (0, width - params.dim))) if self.scheme.form.weighted else expand_rows(own, params)
        )
        client.values, client.round, client.means = blocks(self.ring.reduce(padded), params.K), number, None
        client.sums = None
        client._send(Phase.SHARE, Kind.SHARE)

    def shared(self, contributors: Sequence[int], number: int = 1) -> Tiny:
        """Embeddings are dealt, and added: answers are ready."""
        for n in contributors:
            self.clients[n]._leave_round()
            self.give(n, number)
        self.deal(Step.SHARE, contributors, contributors, round=number)
        return self

    def answers(self, contributors: Sequence[int], asking: int) -> dict[int, bytes]:
        """What each contributor sends the server for one of them: covered answers."""
        found, section = {}, list(contributors).index(asking)
        for v in contributors:
            client = self.clients[v]
            _, _, body = next(islice(client._answers(client.pending[0]), section, None))
            found[v] = bytes(body)
        return found

    def mean(self, contributors: Sequence[int], asking: int) -> bytes:
        """What the server sends to one of them."""
        server = self.server
        server.contributors, server.round = tuple(contributors), self.clients[asking].round
        section, answers = list(contributors).index(asking), self.answers(contributors, asking)
        stage = server._stage(Kind.MEAN)
        server.mean_stage, server.masked, server._maskers, server.made = stage, section, {}, {}
        server.answers = {section: {v: bytes(DIGEST_BYTES) + answer for v, answer in answers.items()}}
        server._mask()
        made: Any = server.made[asking]
        return bytes(made[0].payload[self.scheme.answered_bytes + len(contributors) * DIGEST_BYTES :])

    def result(self, contributors: Sequence[int], asking: int, body: bytes) -> NDArray[np.int64]:
        """What client n reads from a mean in 7b, as integers: C times the mean, and noise; [queries, K*L]."""
        client = self.clients[asking]
        reader = self.scheme.form.reader(client.wire, client.pending[0], contributors, b"")
        found, _ = reader.read(0, contributors, memoryview(body), self.scheme.query_count)
        middle = 1  # of noise of one bit, as the reader takes it off
        integers: NDArray[np.int64] = (np.rint(found * self.params.C).astype(np.int64) + middle) % self.p
        return integers


def known_to(coalition: Sequence[int]) -> Callable[[Label], bool]:
    """Whether a coalition knows the coins of a label: those with which it deals."""

    def knows(label: Label) -> bool:
        return label[0] in ("query", "indicator", "share", "reshare") and label[1] in coalition

    return knows
