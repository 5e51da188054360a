"""Clients that listen to whoever speaks, and keys of messages without a part of their labels."""

from __future__ import annotations

from dataclasses import replace

from secea.audit.mutants.common import both
from secea.errors import SERVER, FaultyPeer, ProtocolError
from secea.party.client import Client
from secea.wire import keys, link
from secea.wire.keys import Channel
from secea.wire.link import Opened
from secea.wire.messages import DIGEST_BYTES, Header

_begin, _require, _derive = Client._begin, Client._require, Channel.derive


def _whoever_orders(self: Client, opened: Opened) -> None:
    """Takes an announcement of anybody for one of the server."""
    _begin(self, Opened(replace(opened.header, sender=SERVER), opened.payload, opened.stream))


def _whoever_says(self: Client, header: Header) -> None:
    """Looks at what is due, and not from whom."""
    due = [n for kind, n in self.due.waiting if kind == header.kind] or [SERVER]
    _require(self, header if header.sender in due else replace(header, sender=due[0]))


def _without_salt(self: Channel, purpose: str, label: bytes) -> bytes:
    return _derive(self, purpose, label[:-DIGEST_BYTES] if purpose == "seal" else label)


ORDERS_OF_ANYBODY = both(
    "orders-of-anybody", "Clients do what any client orders.", within=((Client, "_begin", _whoever_orders),)
)
DUE_FROM_ANYBODY = both(
    "due-from-anybody", "Clients take what is due from anybody.", within=((Client, "_require", _whoever_says),)
)
SALT_LEFT_OUT = both(
    "salt-left-out", "The keys of messages do not have the salt in them.", within=((Channel, "derive", _without_salt),)
)


def _sender_alone(sender: int, fault: str) -> ProtocolError:
    """Whoever is said to have sent it."""
    return FaultyPeer(sender, fault)


SENDER_ALONE = both(
    "sender-alone-is-named",
    "Whatever does not open is blamed on its sender alone.",
    within=((keys, "unauthentic", _sender_alone), (link, "unauthentic", _sender_alone)),
)
