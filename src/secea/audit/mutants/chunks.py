"""Forms whose clients take messages that are not whole."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.common import both
from secea.audit.mutants.keyed import mutant
from secea.errors import SERVER, ProtocolError
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.tables import Result
from secea.party.phases import Agreement
from secea.wire.keys import Opener
from secea.wire.link import Link, Opened, Verifier
from secea.wire.messages import Buffer, Header

_open, _opener, _take = Link.open, Link._opener, Link.take


def _any_later(self: Link, header: Header, message: Buffer) -> Opened:
    """Takes whatever chunk comes next."""
    stream = self._streams.get(header.sender)
    if stream is None or stream.label != header.label():
        return _open(self, header, message)
    due, stream.next = stream.next, max(stream.next, header.chunk)
    try:
        return _open(self, header, message)
    finally:
        stream.next = due


def _goes_on_there(self: Link, opened: Opened) -> None:
    """The next chunk is the one after this."""
    opened.stream.next = opened.header.chunk
    _take(self, opened)


def _from_here_on(self: Link, header: Header) -> Opener | Verifier:
    """A message begins with the chunk that comes first."""
    made = _opener(self, header)
    made.next = header.chunk
    return made


class BeforeTheTag(KeyedClient):
    """Has means when the last chunk was right."""

    all_chunks = True

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Do not wait for the tag."""
        super().stream(kind, sender, chunk, chunks, payload, at)
        if chunk + 1 == chunks or not self.all_chunks:
            assert self.round is not None
            self.result = Result(tuple(self.round.table.names), self.round.table.matrix, self.round.found)


class SoFar(BeforeTheTag):
    """Has means of all chunks that were right."""

    all_chunks = False


class OwnChunks(KeyedClient):
    """Checks the chunks in which it has a slot."""

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Take others as they are."""
        span = self.form.layout(kind, self.params, at, SERVER).span(chunk)
        own = self._own(span)
        if own.start == own.stop and self.round is not None:
            self.round = replace(self.round, read=chunk + 1)
            return
        super().stream(kind, sender, chunk, chunks, payload, at)


class OwnRounds(KeyedClient):
    """Checks the means of unions in which it has a slot."""

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Whoever has nothing looks at nothing."""
        if self.names or self.round is None:
            super().stream(kind, sender, chunk, chunks, payload, at)


class OthersLater(OwnChunks):
    """Refuses a wrong chunk in which it has no slot at the end of the broadcast."""

    late: ProtocolError | None = None

    def stream(self, kind: IntEnum, sender: int, chunk: int, chunks: int, payload: memoryview, at: Agreement) -> None:
        """Remember that it was wrong."""
        try:
            KeyedClient.stream(self, kind, sender, chunk, chunks, payload, at)
        except ProtocolError as error:
            self.late = error
            super().stream(kind, sender, chunk, chunks, payload, at)
        if chunk + 1 == chunks and self.late is not None:
            raise self.late


CHUNKS_MISSING = both(
    "chunks-missing", "Chunks of a message may be missing.",
    within=((Link, "open", _any_later), (Link, "take", _goes_on_there), (Link, "_opener", _from_here_on)),
)  # fmt: skip
MEANS_BEFORE_THE_TAG = mutant(
    "means-before-the-tag",
    "Means count when the last chunk was right, before the broadcast's tag comes.",
    Overheard(of_client=BeforeTheTag),
)
MEANS_SO_FAR = mutant("means-so-far", "Means of chunks before a wrong one count.", Overheard(of_client=SoFar))
OWN_CHUNKS = mutant(
    "own-chunks-checked", "A client checks the chunks of means in which it has a slot.", Overheard(of_client=OwnChunks)
)
OWN_ROUNDS = mutant("own-means-checked", "A client without entities checks no means.", Overheard(of_client=OwnRounds))
OTHERS_LATER = mutant(
    "other-chunks-later",
    "A client refuses a wrong chunk in which it has no slot at the end, others at once.",
    Overheard(of_client=OthersLater),
)
