"""A server that does not relay what it got: it sits in the middle of every pair of clients, with keys of its own."""

from __future__ import annotations

import os
from collections.abc import Iterable

from secea.arithmetic.field import RING61, Residues
from secea.arithmetic.paillier import PrivateKey
from secea.audit.mutants.common import FORGED
from secea.errors import SERVER
from secea.forms.paillier import Paillier
from secea.steps import union
from secea.testing import Parties
from secea.wire.keys import SIGNATURE_BYTES, Channel, Hello, Opener, Sealer, SessionKey
from secea.wire.link import Signer
from secea.wire.messages import ALL, HEADER_BYTES, Buffer, Header


class Middleman:
    """A tap that is client v towards every client but v, for each v: with keys of its own in hellos of its own."""

    def __init__(self, parties: Parties) -> None:
        self.parties, form, params = parties, parties.session.form, parties.session.params
        self.keys = {v: SessionKey(os.urandom(32)) for v in parties.clients}
        self.paillier = PrivateKey.generate(params.key_bits) if isinstance(form, Paillier) else None
        extra = self.paillier.public.to_bytes() if self.paillier else b""
        self.hellos = {
            v: Hello.make(FORGED[v], v, parties.session.hash, each.link.hello.incarnation, self.keys[v].public, extra)
            for v, each in parties.clients.items()
        }
        self.read: dict[tuple[str, int, int], bytes] = {}
        """What it opened, by kind, sender and receiver."""
        self.tables: dict[int, Residues] = {}
        """Lookup tables of the paper's form without masks, which would not cancel any more."""

    def _towards(self, honest: int, played: int) -> Channel:
        """What client `honest` takes for its channel with client `played`."""
        hello = self.parties.clients[honest].link.hello
        return Channel.between(played, self.hellos[played], self.keys[played], honest, hello)

    def __call__(self, sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        """Open what clients send each other, and seal it again."""
        header = Header.parse(message, sender, self.parties.session.form.kinds)
        if sender != SERVER:
            unmask = self.paillier is not None and header.kind.name == "TABLE"
            return (self._unmasked(header, message) if unmask else message,)
        if header.sender == SERVER:
            return (message,)
        if header.kind.name == "HELLO" and header.receiver == ALL:
            return (bytes(message[:HEADER_BYTES]) + self.hellos[header.sender].to_bytes(),)
        if header.receiver == ALL:
            payload = bytes(message[HEADER_BYTES:-SIGNATURE_BYTES])
            return (Signer(FORGED[header.sender], self.parties.session.hash, header).seal(header.chunk, payload),)
        key = self._towards(header.sender, header.receiver).derive("seal", header.label())
        opened = Opener(key, header).open(header, message)
        self.read[header.kind.name, header.sender, header.receiver] = bytes(opened)
        key = self._towards(header.receiver, header.sender).derive("seal", header.label())
        return (Sealer(key, header).seal(header.chunk, opened),)

    def _unmasked(self, header: Header, message: Buffer) -> Buffer:
        """A client's table without masks: the server shares all of them."""
        key = self.parties.server.link.channels[header.sender].derive("seal", header.label())
        payload, n = Opener(key, header).open(header, message), header.sender
        cells = len(payload) // (union.COLUMNS * RING61.element_bytes)
        others = (v for v in self.parties.clients if v != n)
        streams = ((v, self._towards(n, v).stream("mask", header.context)) for v in others)
        masks = union.mask(RING61.zeros(cells, union.COLUMNS), n, streams)
        self.tables[n] = RING61.subtract(RING61.from_bytes(payload, cells, union.COLUMNS), masks)
        return Sealer(key, header).seal(header.chunk, RING61.to_bytes(self.tables[n]))
