"""The negative vectors: one fault each, as data. `make.py` writes them to negative.json with the message they change.

A change is one of

    {"xor": [at, bits]}           one byte of the message, as it travels
    {"put": [at, hex]}            some bytes of it
    {"truncate": size}            the first bytes of it
    {"append": hex}               more bytes
    {"header": {name: value}}     another header before the same body
    {"body_of": [place, nth]}     the same header before the body of another message
    {"replay": [place, nth]}      another message of the transcript in its place
    {"carrier": n}                the same message, handed over by another client
    {"taken_by": n}               the same message, given to another party
    {"again": true}               the same message, once more
    {"sign": {name: value}}       a hello with another field, signed by its sender
    {"reseal": {name: value}}     another header, sealed by its sender: authentic, and wrong
    {"payload": [at, hex]}        other bytes in the payload, sealed by its sender; at counts from the end if negative
    {"payload_size": size}        the payload cut, or filled with zeros, sealed by its sender; less if negative

Where a change names a place, the file has the number of that message. Numbers of parties: 65535 is the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from secea.errors import SERVER

CARRIER, PEER, RELAYED, STALE = "ProtocolError", "FaultyPeer", "FaultyPeerOrRelay", "Stale"
SENDER, THIRD = -1, -2
"""The sender of the message, and the client that neither sent nor gets it: who that is depends on the turn of seeds."""
TOO_LARGE: Final = "ff" * 8
"""No element of any field."""


@dataclass(frozen=True)
class Case:
    """A fault: where, how, and what must come of it."""

    fault: str
    place: str
    change: dict[str, Any]
    error: str
    suspects: tuple[int, ...]
    nth: int = 0
    """Which of the messages at that place."""

    @property
    def stops(self) -> bool:
        """Whether a client ends its attempt: at what its sender sealed under the label that is due.

        An announcement brings a label of its own. Any other message under another label is refused unopened.
        """
        announced = "announcement" in self.place or "chunks" in self.change.get("reseal", {})
        authentic = "payload" in self.change or "payload_size" in self.change or ("reseal" in self.change and announced)
        return self.place.endswith("to a client") and authentic


def _case(place: str, fault: str, change: dict[str, Any], error: str, *suspects: int, nth: int = 0) -> Case:
    return Case(fault, place, change, error, suspects, nth=nth)


_HELLO, _KEY, _SIGNATURE = 64, 64 + 32 + 16, 64 + 32 + 16 + 32  # where they stand in a hello's message

HELLOS: Final = (
    _case("hello to the server", "shorter than a header", {"truncate": 63}, CARRIER, 0),
    _case("hello to the server", "empty", {"truncate": 0}, CARRIER, 0),
    _case("hello to the server", "another wire version", {"put": [0, "02"]}, CARRIER, 0),
    _case("hello to the server", "unknown kind", {"put": [1, "63"]}, CARRIER, 0),
    _case("hello to the server", "kind 0", {"put": [1, "00"]}, CARRIER, 0),
    _case("hello to the server", "chunk 1 of 1", {"put": [24, "01"]}, CARRIER, 0),
    _case("hello to the server", "no chunks at all", {"put": [28, "00"]}, CARRIER, 0),
    _case("hello to the server", "unsigned", {"put": [_SIGNATURE, "00" * 64]}, PEER, 0),
    _case("hello to the server", "flipped bit in the key", {"xor": [_KEY, 1]}, PEER, 0),
    _case("hello to the server", "flipped bit in the header", {"xor": [50, 1]}, PEER, 0),
    _case("hello to the server", "one byte short", {"truncate": 207}, PEER, 0),
    _case("hello to the server", "one byte long", {"append": "00"}, PEER, 0),
    _case("hello to the server", "another session", {"sign": {"session": "07" * 32}}, PEER, 0),
    _case("hello to the server", "X25519 key of small order", {"sign": {"public": "00" * 32}}, PEER, 0),
    _case("hello to the server", "in the name of another", {"header": {"sender": 1}}, PEER, 0),
    _case("hello to the server", "handed over by another", {"carrier": 1}, PEER, 1),
    _case("hello to the server", "handed over by a stranger", {"carrier": 3}, CARRIER, 3),
    _case("hello to the server", "twice", {"again": True}, STALE, 0),
    _case("hello to the server", "even Paillier modulus", {"sign": {"paillier": "00" * 31 + "80"}}, PEER, 0),
    _case("hello to the server", "short Paillier modulus", {"sign": {"paillier": "05" + "00" * 31}}, PEER, 0),
    _case("hello to the server", "Paillier key missing", {"sign": {"paillier": ""}}, PEER, 0),
    _case("server's hello to a client", "unsigned", {"put": [_SIGNATURE, "00" * 64]}, PEER, SERVER),
    _case("server's hello to a client", "another session", {"sign": {"session": "07" * 32}}, PEER, SERVER),
    _case("server's hello to a client", "another wire version", {"put": [0, "00"]}, CARRIER, SERVER),
    _case("server's hello to a client", "from an unknown party", {"header": {"sender": 3}}, CARRIER, SERVER),
    _case("server's hello to a client", "our own name on it", {"header": {"sender": 0}}, PEER, SERVER),
    _case("hello to a client", "unsigned", {"put": [_SIGNATURE, "00" * 64]}, RELAYED, 1, SERVER),
    _case("hello to a client", "swapped", {"body_of": ["hello to a client", 1]}, RELAYED, 1, SERVER),
    _case("hello to a client", "swapped key", {"put": [_KEY, "09" + "00" * 31]}, RELAYED, 1, SERVER),
    _case("hello to a client", "twice", {"again": True}, STALE, 1, SERVER),
)

_STRANGER = "0700" + "00" * 16

ANNOUNCEMENTS: Final = (
    _case("greeting announcement to a client", "fewer than T+2", {"payload_size": 37}, PEER, SERVER),
    _case("greeting announcement to a client", "nobody", {"payload_size": 1}, PEER, SERVER),
    _case("greeting announcement to a client", "empty", {"payload_size": 0}, PEER, SERVER),
    _case("greeting announcement to a client", "half a member", {"payload_size": -1}, PEER, SERVER),
    _case("greeting announcement to a client", "unknown step", {"payload": [0, "63"]}, PEER, SERVER),
    _case("greeting announcement to a client", "another step", {"payload": [0, "06"]}, PEER, SERVER),
    _case("greeting announcement to a client", "a stranger", {"payload": [37, _STRANGER]}, PEER, SERVER),
    _case("greeting announcement to a client", "out of order", {"payload": [19, "0000"]}, PEER, SERVER),
    _case("greeting announcement to a client", "another incarnation of ours", {"payload": [3, "07"]}, PEER, SERVER),
    _case("greeting announcement to a client", "another incarnation", {"payload": [21, "07"]}, RELAYED, 1, SERVER),
    _case("greeting announcement to a client", "epoch that is past", {"reseal": {"epoch": 0}}, PEER, SERVER),
    _case("greeting announcement to a client", "with a history", {"reseal": {"context": "07" * 16}}, PEER, SERVER),
    _case("greeting announcement to a client", "in two chunks", {"reseal": {"chunks": 2}}, PEER, SERVER),
    _case("greeting announcement to a client", "flipped bit", {"xor": [70, 4]}, PEER, SERVER),
    _case("greeting announcement to a client", "twice", {"again": True}, STALE, SERVER),
    _case("secret announcement to a client", "fewer than T+2", {"payload_size": 37}, PEER, SERVER),
    _case("secret announcement to a client", "another message of ours", {"payload": [3, "07" * 16]}, PEER, SERVER),
    _case("secret announcement to a client", "another epoch", {"reseal": {"epoch": 2}}, PEER, SERVER),
    _case("secret announcement to a client", "another attempt", {"reseal": {"attempt": 1}}, PEER, SERVER),
    _case("secret announcement to a client", "another history", {"reseal": {"context": "07" * 16}}, PEER, SERVER),
    _case("query announcement to a client", "fewer than T+2", {"payload_size": 37}, PEER, SERVER),
    _case("query announcement to a client", "another step", {"payload": [0, "01"]}, PEER, SERVER),
    _case("share announcement to a client", "fewer than T+2", {"payload_size": 37}, PEER, SERVER),
    _case("share announcement to a client", "another round", {"reseal": {"round": 2}}, PEER, SERVER),
    _case("share announcement to a client", "another message of ours", {"payload": [3, "07" * 16]}, PEER, SERVER),
    _case("share announcement to a client", "for another client", {"taken_by": 1}, PEER, SERVER),
)  # fmt: skip

LABELS: Final = {"epoch": 2, "attempt": 1, "weights": 7, "round": 7, "context": "07" * 16}
"""Another value of each number of a label than the one that is due."""


def _labels(place: str, error: str, *suspects: int) -> tuple[Case, ...]:
    return tuple(
        _case(place, f"another {name}", {"reseal": {name: value}}, error, *suspects) for name, value in LABELS.items()
    )


SETUP: Final = (
    _case("part to the server", "truncated", {"truncate": 100}, PEER, 0),
    _case("part to the server", "oversize", {"append": "00" * 64}, PEER, 0),
    _case("part to the server", "for its own sender", {"header": {"receiver": 0}}, PEER, 0),
    _case("part to the server", "for a stranger", {"header": {"receiver": 3}}, PEER, 0),
    _case("part to the server", "of a kind that is not due", {"header": {"kind": 2}}, STALE, 0),
    _case("part to the server", "handed over by another", {"carrier": 2}, PEER, 2),
    _case("part to the server", "twice", {"again": True}, STALE, 0),
    *_labels("part to the server", PEER, 0),
    _case("part to a client", "flipped bit", {"xor": [80, 16]}, RELAYED, SENDER, SERVER),
    _case("part to a client", "flipped bit in the tag", {"xor": [-1, 1]}, RELAYED, SENDER, SERVER),
    _case("part to a client", "truncated", {"truncate": 111}, RELAYED, SENDER, SERVER),
    _case("part to a client", "a header and nothing more", {"truncate": 64}, RELAYED, SENDER, SERVER),
    _case("part to a client", "oversize", {"append": "00"}, RELAYED, SENDER, SERVER),
    _case("part to a client", "for another client", {"taken_by": THIRD}, RELAYED, SENDER, SERVER),
    _case("part to a client", "spliced", {"body_of": ["part to a client", 1]}, RELAYED, SENDER, SERVER),
    _case("part to a client", "not the announced one", {"reseal": {"salt": "07" * 16}}, RELAYED, SENDER, SERVER),
    _case("part to a client", "authentic, too short", {"payload_size": 31}, PEER, SENDER),
    _case("part to a client", "authentic, too long", {"payload_size": 33}, PEER, SENDER),
    _case("part to a client", "authentic, in two chunks", {"reseal": {"chunks": 2}}, PEER, SENDER),
    _case("part to a client", "twice", {"again": True}, STALE, SENDER, SERVER),
    *_labels("part to a client", RELAYED, SENDER, SERVER),
    _case("table to the server", "flipped bit", {"xor": [1000, 1]}, PEER, 0),
    _case("table to the server", "element out of the field", {"payload": [0, TOO_LARGE]}, PEER, 0),
    _case("table to the server", "the prime itself", {"payload": [-8, "ffffffffffffff1f"]}, PEER, 0),
    _case("table to the server", "one byte short", {"payload_size": -1}, PEER, 0),
    _case("table to the server", "oversize", {"payload_size": 1 << 20}, PEER, 0),
    _case("table to the server", "in two chunks", {"reseal": {"chunks": 2}}, PEER, 0),
    _case("table to the server", "number of an earlier message", {"reseal": {"sequence": 0}}, PEER, 0),
    _case("table to the server", "twice", {"again": True}, STALE, 0),
    _case("table to the server", "an earlier message", {"replay": ["part to the server", 0]}, STALE, 0),
    *_labels("table to the server", PEER, 0),
    _case("tags to a client", "out of order", {"payload": [8, "00" * 8]}, PEER, SERVER),
    _case("tags to a client", "element out of the field", {"payload": [-8, TOO_LARGE]}, PEER, SERVER),
    _case("tags to a client", "without ours", {"payload_size": 0}, PEER, SERVER),
    _case("tags to a client", "half a tag", {"payload_size": -4}, PEER, SERVER),
    _case("tags to a client", "more than max_union", {"payload_size": 8 * 100}, PEER, SERVER),
    _case("tags to a client", "twice", {"again": True}, STALE, SERVER),
    *_labels("tags to a client", PEER, SERVER),
    _case("query to the server", "truncated", {"truncate": 100}, PEER, 0),
    _case("query to the server", "a seed in its place", {"replay": ["query seed to the server", 0]}, STALE, 0),
    _case("query to a client", "element out of the field", {"payload": [0, TOO_LARGE]}, PEER, SENDER),
    _case("query to a client", "element short", {"payload_size": -4}, PEER, SENDER),
    _case("query to a client", "flipped bit", {"xor": [100, 1]}, RELAYED, SENDER, SERVER),
    _case("query seed to a client", "seed of 31 bytes", {"payload_size": 31}, PEER, SENDER),
    *_labels("query to a client", RELAYED, SENDER, SERVER),
)

ROUND: Final = (
    _case("share to the server", "handed over by another", {"carrier": 1}, PEER, 1),
    _case("share to the server", "another kind of share", {"header": {"kind": 4}}, STALE, 0),
    _case("share to the server", "another try's salt", {"header": {"salt": "07" * 16}}, PEER, 0),
    *_labels("share to the server", PEER, 0),
    _case("share to a client", "element out of the field", {"payload": [-8, TOO_LARGE]}, PEER, SENDER),
    _case("share to a client", "element long", {"payload_size": 4096}, PEER, SENDER),
    _case("share to a client", "of the set-up", {"replay": ["query to a client", 0]}, STALE, 2, SERVER),
    _case("share to a client", "for another client", {"taken_by": THIRD}, RELAYED, SENDER, SERVER),
    _case("share to a client", "from the server itself", {"header": {"sender": SERVER}}, PEER, SERVER),
    _case("share to a client", "of a kind for the server", {"header": {"kind": 11}}, RELAYED, SENDER, SERVER),
    *_labels("share to a client", RELAYED, SENDER, SERVER),
    _case("answer to the server", "flipped bit", {"xor": [100, 1]}, PEER, 0),
    _case("answer to the server", "one byte short", {"payload_size": -1}, PEER, 0),
    _case("answer to the server", "oversize", {"payload_size": 1 << 20}, PEER, 0),
    _case("answer to the server", "twice", {"again": True}, STALE, 0),
    *_labels("answer to the server", PEER, 0),
    _case("answer to the server", "ciphertext above n^2", {"payload": [-64, "ff" * 64]}, PEER, 0),
    _case("answer to the server", "ciphertext 0", {"payload": [-64, "00" * 64]}, PEER, 0),
    _case("mean to a client", "nobody answered", {"payload": [0, "00"]}, PEER, SERVER),
    _case("mean to a client", "fewer than need answered", {"payload": [0, "03"]}, PEER, SERVER),
    _case("mean to a client", "a stranger answered", {"payload": [0, "0f"]}, PEER, SERVER),
    _case("mean to a client", "for others, says client 1", {"payload": [17, "00" * 16]}, RELAYED, 1, SERVER),
    _case("mean to a client", "for others, says client 2", {"payload": [33, "00" * 16]}, RELAYED, 2, SERVER),
    _case("mean to a client", "other bytes for our own answer", {"payload": [1, "07" * 16]}, PEER, SERVER),
    _case("mean to a client", "one byte short", {"payload_size": -1}, PEER, SERVER),
    _case("mean to a client", "oversize", {"payload_size": 1 << 20}, PEER, SERVER),
    _case("mean to a client", "empty", {"payload_size": 0}, PEER, SERVER),
    _case("mean to a client", "for another client", {"taken_by": 1}, PEER, SERVER),
    _case("mean to a client", "flipped bit", {"xor": [-20, 1]}, PEER, SERVER),
    _case("mean to a client", "twice", {"again": True}, STALE, SERVER),
    *_labels("mean to a client", PEER, SERVER),
    _case("mean to a client", "ciphertext above n^2", {"payload": [-64, "ff" * 64]}, PEER, SERVER),
    _case("mean to a client", "ciphertext 0", {"payload": [-64, "00" * 64]}, PEER, SERVER),
)  # fmt: skip


CASES: Final = (*HELLOS, *ANNOUNCEMENTS, *SETUP, *ROUND)
