"""Rogue dealers, rogue holders and rogue askers of the names' PRF, and a server that helps them.

A dealer that sees the others' commitments first chooses the key, or a part of it (`ground`, `chosen`, `unknown`). A
coalition of the server and T clients has lists of guessed names answered as often as honest clients let it (`Askers`).
`Next` is a session that takes over the key of another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from enum import IntEnum
from typing import Any, Final

import numpy as np

from secea.arithmetic.ristretto import ORDER, add, multiply, multiply_base, read_scalar, scalar_rows, total
from secea.engines.exchange import Exchange
from secea.errors import SERVER, FederationError, ProtocolError
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.form import Keyed, Kind
from secea.forms.keyed.handover import Following
from secea.forms.keyed.names import Naming
from secea.params import Params
from secea.party.client import Client
from secea.party.form import Form
from secea.party.server import Server
from secea.party.session import Session
from secea.steps import oprf
from secea.table import Name, name_bytes
from secea.testing import Parties
from secea.wire.keys import Identity, Roster
from secea.wire.link import Signer, broadcast_name
from secea.wire.messages import HEADER_BYTES, Buffer, Header
from secea.wire.randomness import Entropy, KeyStream

Lie = Callable[[IntEnum, int, bytes], bytes]
"""(kind, receiver, what it should say) -> what it says."""
Errors = dict[int, ProtocolError]
"""What each party refused first."""
HIGH: Final = 1 << 20
"""A number of a message that is higher than all before."""
TRIES: Final = 2048
"""Of a dealer that wants one key in 128: all fail with e^-16."""


def naming(client: Client) -> Naming:
    """The part of a client that asks for names."""
    assert isinstance(client.part, KeyedClient)
    return client.part.naming


def corrupt(client: Client, lie: Lie) -> None:
    """From now on the client says something else than it should."""
    part: Any = client.part
    honest = part.payloads

    def payloads(kind: IntEnum, receivers: Sequence[int], at: Any) -> Iterator[tuple[int, Sequence[Buffer]]]:
        for receiver, parts in honest(kind, receivers, at):
            yield receiver, (lie(kind, receiver, b"".join(bytes(each) for each in parts)),)

    part.payloads = payloads


def driven(server: Server, clients: Mapping[int, Client], until: str) -> Errors:
    """Phase after phase, up to the beginning of this one, or until somebody refuses something."""
    errors: Errors = {}
    while True:
        for n, inbox in server.drain().items():
            for message in inbox:
                try:
                    clients[n].receive(message)
                except ProtocolError as error:
                    errors.setdefault(n, error)
        if errors or server.at.phase == until:
            return errors
        for n in server.at.members:
            for message in clients[n].outbox():
                try:
                    server.receive(n, message)
                except ProtocolError as error:
                    errors.setdefault(SERVER, error)
        if errors:
            return errors
        server.close()


# -------------------------------------------------------------------------------------------------------------- dealers


def begun(parties: Parties) -> None:
    """The key is about to be dealt."""
    parties.exchange.greet()
    parties.server.begin("commit", range(parties.session.params.clients))


def seen_first(parties: Parties, rogue: int) -> list[bytes]:
    """The commitments that all others are about to send: whoever is last has seen them."""
    size, found = 32 * (parties.session.params.T + 1), list[bytes]()
    for client in (client for n, client in parties.clients.items() if n != rogue):
        for message in client.outbox():
            if Header.parse(message, client.number, Kind).kind is Kind.DEALING:
                found.append(bytes(message)[HEADER_BYTES : HEADER_BYTES + size])
    return found


def ground(parties: Parties, rogue: int) -> None:
    """Deals one of many polynomials, which it all knows: the one with which the public key begins with a zero."""
    others = total(np.frombuffer(b"".join(each[:32] for each in seen_first(parties, rogue)), np.uint8).reshape(-1, 32))
    tried = oprf.polynomial(TRIES - 1, KeyStream(os.urandom(32)))
    keys = add(multiply_base(scalar_rows(tried)), np.tile(others, (TRIES, 1)))
    constant = tried[int(np.argmin(keys[:, 0]))]
    polynomial = (constant, *naming(parties.clients[rogue])._polynomial()[1:])
    _deals(naming(parties.clients[rogue]), polynomial)


def _deals(dealer: Any, polynomial: tuple[int, ...]) -> None:
    dealer._polynomial = lambda: polynomial


def chosen(parties: Parties, rogue: int, k: int) -> None:
    """At T = N-1: deals what makes k the key of all. It does not know its own constant term, and need not know it."""
    others = b"".join(each[:32] for each in seen_first(parties, rogue))
    minus = multiply(np.frombuffer(others, np.uint8).reshape(-1, 32), scalar_rows([ORDER - 1])[0])
    _in_the_exponent(parties, rogue, total(np.concatenate([multiply_base(scalar_rows([k])), minus])).tobytes())


def unknown(parties: Parties, rogue: int) -> None:
    """At T = N-1: deals a constant term that nobody knows."""
    _in_the_exponent(parties, rogue, oprf.hash_to_group([b"nobody knows its logarithm"])[0].tobytes())


def _in_the_exponent(parties: Parties, rogue: int, constant: bytes) -> None:
    """Commitments with this constant, and shares that fit them: one for each of the N-1 = T others."""
    others = [n for n in parties.clients if n != rogue]
    given = oprf.polynomial(len(others) - 1, KeyStream(os.urandom(32)))
    points = np.concatenate([np.frombuffer(constant, np.uint8)[None], multiply_base(scalar_rows(given))])
    basis = _lagrange([0, *(n + 1 for n in others)])
    rows = [constant]  # the only one in which there are factors 0
    rows += [total(multiply(points, scalar_rows(column))).tobytes() for column in list(zip(*basis, strict=True))[1:]]
    commitments, shares = b"".join(rows), dict(zip(others, given, strict=True))
    dealer: Any = naming(parties.clients[rogue])
    dealer._own_hash = lambda: oprf.commitments_hash(commitments)
    dealer._dealing = lambda: commitments + rows[0] + bytes(32)  # the proof is made up

    def lie(kind: IntEnum, receiver: int, said: bytes) -> bytes:
        return scalar_rows([shares[receiver]]).tobytes() if kind is Kind.SHARE else said

    corrupt(parties.clients[rogue], lie)


def _lagrange(xs: Sequence[int]) -> list[list[int]]:
    """For each place the coefficients of the polynomial that is 1 there and 0 at the others."""
    basis = []
    for j, x in enumerate(xs):
        row = [1]
        for other in (other for k, other in enumerate(xs) if k != j):
            factor = pow(x - other, -1, ORDER)
            shifted, scaled = [0, *row], [*(-other * c for c in row), 0]
            row = [(a + b) * factor % ORDER for a, b in zip(shifted, scaled, strict=True)]
        basis.append(row)
    return basis


# --------------------------------------------------------------------------------------------------------------- askers


class Askers:
    """The server and some clients. The first of these asks for guesses, the others forget whatever they confirmed."""

    def __init__(self, parties: Parties, inside: Sequence[int]) -> None:
        self.parties, self.inside = parties, tuple(inside)
        self.known: dict[int, set[Name]] = {}
        """The guesses that were answered, by epoch of names."""
        self._asked = 0
        lenient(parties.server)

    @property
    def rogue(self) -> Naming:
        """Who asks."""
        return naming(self.parties.clients[self.inside[0]])

    def guesses(self) -> tuple[Name, ...]:
        """As many new ones as the rogue's memory has room for: how many are answered is for the holders to say."""
        self._asked += 1
        return tuple(f"guess {self._asked} {i}" for i in range(3 * (self.parties.session.params.max_entities or 1)))

    def ask(self, honest: Sequence[int], epoch: int) -> bool:
        """Have a new list answered by these honest clients. Whether they did."""
        parties, guesses = self.parties, self.guesses()
        for n in self.inside:
            own = naming(parties.clients[n])
            own.names = replace(own.names, number=epoch - 1, asked=epoch - 1, listed=0, marks={}, blinding=None)
        self.rogue.names = replace(self.rogue.names, coming=guesses)
        parties.server.give_up()
        try:
            parties.server.begin("list", {*self.inside, *honest}, names=epoch)
        except FederationError:
            return False
        if driven(parties.server, parties.clients, "secret"):
            return False
        answered = {name for name in guesses if name in self.rogue.names.prf}
        self.known.setdefault(epoch, set()).update(name for name in answered if self._right(name))
        return True

    def _right(self, name: Name) -> bool:
        """Whether it is F of the name, under the key that all clients together have."""
        shares = {n: naming(client).key.share for n, client in self.parties.clients.items()}
        return self.rogue.names.prf[name] == prf_of(name, shares)


def split(parties: Parties, rogue: int, inside: Sequence[int], honest: Sequence[int]) -> list[int]:
    """In one attempt, each honest holder is shown another list of the rogue, and all that it needs to confirm it.

    Clients are about to confirm lists. Who answers the list that it was shown.
    """
    server, clients = parties.server, parties.clients
    mine, at = naming(clients[rogue]), server.at
    shown = {n: mine._blinded((f"guess {n}",), at.names, os.urandom(32)).points for n in honest}
    waiting = {n: list(inbox) for n, inbox in server.drain().items()}
    for n in honest:
        for i, message in enumerate(waiting[n]):
            header = Header.parse(message, SERVER, Kind)
            if (header.kind, header.sender) == (Kind.MARK, rogue):
                waiting[n][i] = _signed(parties, header, oprf.list_hash(shown[n]))
        with suppress(ProtocolError):
            _hand(clients[n], waiting[n])
    said = {n: [bytes(each) for each in clients[n].outbox()] for n in honest if clients[n].at.phase == "confirm"}
    for n in said:
        ours = _first_header(clients[n])
        forged = [_signed(parties, _by(ours, v), naming(clients[n])._confirmation(clients[n].at)) for v in inside]
        with suppress(ProtocolError):
            _hand(clients[n], [*forged, *(each for v in said if v != n for each in said[v])])
        with suppress(ProtocolError):
            _hand(clients[n], _broadcast(parties, clients[n], {**_lists(parties), rogue: shown[n].tobytes()}))
    return [n for n in said if clients[n].at.phase == "evaluate" and list(clients[n].outbox())]


def _hand(client: Client, messages: Iterable[Buffer]) -> None:
    for message in messages:
        client.receive(message)


def _signed(parties: Parties, header: Header, payload: bytes) -> bytes:
    """A client of the coalition signs this."""
    identity = parties.identities[header.sender]
    return Signer(identity, parties.session.hash, header).seal(0, payload)


def _first_header(client: Client) -> Header:
    return client.due.sends[0]


def _by(header: Header, sender: int) -> Header:
    """As another client would send it."""
    return replace(header, sender=sender, sequence=HIGH, salt=os.urandom(16))


def _lists(parties: Parties) -> dict[int, bytes]:
    part: Any = parties.server.part
    return dict(part._lists)


def _broadcast(parties: Parties, client: Client, lists: Mapping[int, bytes]) -> Iterator[Buffer]:
    """These lists, for one client alone: their key, themselves, their tag."""
    link, at, key = parties.server.link, client.at, os.urandom(32)
    chunks = [lists[v] for v in at.members]
    first, label = (link.label(kind, at.numbers, at.context) for kind in (Kind.KEY, Kind.LISTS))
    label = replace(label, chunks=len(chunks))
    yield link.sealer(first, client.number).seal(0, key, broadcast_name(label), bytes(8))
    sealer, running = link.broadcaster(label, len(chunks), key), link.mac(client.number, broadcast_name(label))
    for i, each in enumerate(chunks):
        message = sealer.seal(i, each)
        running.update(message)
        yield message
    yield link.sealer(link.label(Kind.DIGEST, at.numbers, at.context), client.number).seal(0, running.digest())


def prf_of(name: Name, shares: Mapping[int, bytes]) -> bytes:
    """F of a name, from enough shares of the key."""
    point = oprf.hash_to_group([oprf.input_of(name_bytes(name))])
    element = multiply(point, scalar_rows([key_of(shares)])[0])
    return oprf.finalize([oprf.input_of(name_bytes(name))], element)[0]


def key_of(shares: Mapping[int, bytes]) -> int:
    """What shares give, taken for enough of them: k, if they are."""
    return sum(oprf.holder_weight(shares, j) * read_scalar(share) for j, share in shares.items()) % ORDER


def lenient(server: Server) -> None:
    """A server that announces whatever it likes: only clients count how many take part."""
    form = server.session.form

    class Lenient(type(form)):  # type: ignore[misc]  # whatever form it is
        def fewest(self, params: Params, phase: str = "secret", names: int = 2) -> int:
            """One is enough for new names."""
            few: int = super().fewest(params, phase, names)
            return 1 if phase == "list" else few

    same: Form = Lenient(**{each.name: getattr(form, each.name) for each in fields(form)})  # type: ignore[arg-type]
    server.session = replace(server.session, form=same)
    assert server.session.hash == server.part.link.session


# ------------------------------------------------------------------------------------------------------------- sessions


class Next:
    """A session that takes over the key of another one, with its guests."""

    def __init__(
        self, old: Parties, form: Following, collusion: int, entropy: Callable[[int], Entropy] = lambda _: os.urandom
    ) -> None:
        numbers, draw = form.taken_over.numbers, {i: entropy(i) for i in range(len(form.taken_over.numbers))}
        self.identities = {
            i: Identity.generate(draw[i]) if n is None else old.identities[n] for i, n in enumerate(numbers)
        }
        roster = Roster(tuple(each.public for each in self.identities.values()), old.identities[SERVER].public)
        params = replace(old.session.params, clients=len(numbers) - form.guests, collusion=collusion)
        self.session = Session(params, roster, form)
        self.identities[SERVER] = old.identities[SERVER]
        self.server = Server(self.session, old.identities[SERVER], entropy(SERVER))
        self.clients: dict[int, Client] = {}
        for i, n in enumerate(numbers):
            names = ("a", "b") if n is None else old.clients[n].part.next_names
            self.clients[i] = Client(self.session, i, self.identities[i], names, draw[i])
        for i, n in enumerate(numbers):
            if n is not None:
                self.clients[i].part.inherit(old.session, old.clients[n].part)
        self.exchange = Exchange(self.server, self.clients)

    def setup(self) -> None:
        """Take over the key, and answer the newcomers."""
        self.exchange.greet()
        self.exchange.run("commit", self.clients)


def following(old: Parties, stay: Sequence[int | None], collusion: int) -> Following | None:
    """The form of the next session, if clients keep the key for it."""
    form, params = old.session.form, old.session.params
    assert isinstance(form, Keyed)
    parts = {n: client.part for n, client in old.clients.items()}
    wanted: Params = replace(params, clients=len(stay), collusion=collusion)
    found = form.following(wanted, old.session, parts, stay)
    assert found is None or isinstance(found, Following)
    return found
