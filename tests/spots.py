"""One message at every place of a federation, with its receiver as it was just before: where bad bytes are tried.

The law: whatever comes, the receiver takes it, or raises a `ProtocolError` and is as it was; then the honest message is
still taken. Any other exception is a bug, and goes through.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from unittest import mock

from federation import PLACES, Hook, Hop, Parties, untouched
from secea import buckets
from secea import client as client_module
from secea.client import Client
from secea.errors import SERVER, FederationError, ProtocolError
from secea.server import Phase, Server
from secea.wire.messages import HEADER_BYTES, Header, Kind

BOTH = ("reciprocal", "paillier")
NUMBERS = ("epoch", "attempt", "weights", "round", "sequence", "chunks", "chunk")
"""The numbers in a header."""


@dataclass(frozen=True)
class Spot:
    """A message, and the receiver's saved state before it."""

    parties: Parties
    place: str
    hop: Hop
    before: bytes

    def receiver(self) -> Client | Server:
        """The receiver, as it was."""
        parties, n = self.parties, self.hop.receiver
        identity, entropy = parties.identities[n], parties.entropy[n]
        if n == SERVER:
            return Server.restore(parties.session, identity, self.before, entropy, early=parties.early)
        return Client.restore(parties.session, identity, self.before, entropy)

    @property
    def sealed(self) -> bool:
        """Whether the message can be sealed anew; hellos are signed."""
        return "hello" not in self.place

    @property
    def blind(self) -> bool:
        """Whether the server passes it on and cannot read it: then only the receiver can refuse what is in it."""
        words = ("part", "query", "indicator", "reshare", "share")
        return self.hop.receiver == SERVER and self.place.split()[0] in words

    def resealed(self, header: Header, payload: bytes) -> bytes:
        """Another header and payload, sealed with the keys of the true sender and receiver."""
        true = self.hop.header
        label = {name: getattr(header, name) for name in (*NUMBERS, "kind", "context", "salt")}
        label["chunk"] = min(label["chunk"], label["chunks"] - 1)
        assert (header.sender, header.receiver) == (true.sender, true.receiver)
        return self.parties.resealed(self.hop, payload, **label).message

    def payload(self) -> bytes:
        """What the message says."""
        return self.parties.opened(self.hop)


class Streaming(Parties):
    """The server announces early, and passes everything on at once, as in `secea.engines.local`."""

    def exchange(self, hook: Hook = untouched) -> None:
        self.stream(1, hook)


ABORTS = ("abort to the server", "abort to a client")


@lru_cache
def spots(form: str, early: bool = False) -> tuple[Spot, ...]:
    """The first message at each place of a set-up and a round; of those in several chunks also the last chunk.

    In the set-up a client cannot place its entities at first; a second round breaks off for want of answers.
    """
    kind, found = Streaming if early else Parties, dict[tuple[str, bool], Spot]()
    parties = kind(form=form, seed="spots", early=early)

    def watch(hop: Hop) -> Iterable[Hop]:
        place, header = parties.place(hop), hop.header
        at = (place, header.chunk > 0)
        if at not in found and header.chunk in (0, header.chunks - 1):
            found[at] = Spot(parties, place, hop, parties.party(hop.receiver).save())
        return [hop]

    with mock.patch.object(client_module, "place", side_effect=[None, *[mock.DEFAULT] * 9], wraps=buckets.place):
        parties.setup(watch)
    parties.round(parties.tables(), watch)
    parties.begin(parties.tables())
    parties.until(Phase.ANSWER)
    try:
        parties.server.close()
    except FederationError:
        parties.down(watch)
    assert {place for place, _ in found} == {*PLACES[form], *ABORTS}
    return tuple(found.values())


def every_spot() -> tuple[Spot, ...]:
    """Those of both forms, and of both kinds of servers."""
    return tuple(spot for early in (False, True) for form in BOTH for spot in spots(form, early))


def deliver(party: Client | Server, carrier: int, message: bytes) -> None:
    """As a network would."""
    if isinstance(party, Server):
        party.receive(carrier, message)
    else:
        party.receive(message)


def taken(spot: Spot, message: bytes, carrier: int | None = None) -> bool:
    """The law of this module. Says whether the message was taken."""
    party, error = spot.receiver(), None
    try:
        deliver(party, spot.hop.carrier if carrier is None else carrier, message)
    except ProtocolError as refusal:
        error = refusal
    if error is None:
        restored = replace(spot, before=party.save()).receiver()  # what it has become can be saved and restored
        assert restored.save() == party.save()
        return True
    assert error.suspects, "nobody is blamed"
    assert spot.hop.receiver not in error.suspects, "a party suspects itself"
    assert party.save() == spot.before, f"a refusal changed the state: {error}"
    deliver(party, spot.hop.carrier, spot.hop.message)  # the honest message still counts
    assert party.save() != spot.before
    return False


def may_be_taken(spot: Spot, message: bytes) -> bool:
    """Whether a message that was not sealed anew may pass: a true one; or one that only its receiver can tell."""
    same = spots(spot.parties.session.form.name, spot.parties.early)
    honest = (other.hop for other in same if other.hop.receiver == spot.hop.receiver)
    if message in (hop.message for hop in honest):  # another sender's, or the next one, may come before this one
        return True
    if not spot.blind or len(message) != len(spot.hop.message):
        return False
    ours, true = message[:HEADER_BYTES], spot.hop.message[:HEADER_BYTES]
    # The server knows nothing of sequence and salt, nor for whom a message was sealed: it passes it on to whom its
    # header names, if nothing came for that one before. A receiver that is absent from the round gets nothing anyway.
    return ours[:4] == true[:4] and ours[6:20] == true[6:20] and ours[24:48] == true[24:48]


def header_of(spot: Spot, **changes: object) -> Header:
    """The header of the spot's message with some fields changed."""
    return replace(spot.hop.header, **changes)  # type: ignore[arg-type]


KINDS = tuple(Kind)
