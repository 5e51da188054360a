"""The server of the paper's form: it adds masked tables, takes the union apart, and masks encrypted answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from secea.arithmetic.field import RING61, Residues
from secea.errors import FederationError
from secea.forms.paillier.form import NO_PLACEMENT, Kind, Paillier, answered_to_bytes, settled_context, union_context
from secea.forms.paillier.retrieval import Scrambler, public_key
from secea.params import Params
from secea.party.form import Got, Retry, ServerDefaults
from secea.party.phases import UNKNOWN, Agreement
from secea.steps import union
from secea.wire.keys import expand
from secea.wire.link import Link
from secea.wire.messages import ALL, DIGEST_BYTES, NO_CONTEXT, Buffer
from secea.wire.randomness import SEED_BYTES, KeyStream


@dataclass(slots=True)
class Masking:
    """The answers of a round on their way to becoming means."""

    seed: bytes = field(repr=False)
    """The seed of all noise."""
    answers: dict[int, dict[int, memoryview]] = field(default_factory=dict, repr=False)
    """The answers, by chunk and client."""
    done: int = 0
    """Chunks that were masked."""
    complete: set[int] = field(default_factory=set)
    """The clients that have sent all of their answers."""
    over: bool = False
    """Whether no further answers will arrive."""
    scramblers: dict[int, Scrambler] = field(default_factory=dict, repr=False)
    """The scrambler for the means of each client."""


class PaillierServer(ServerDefaults):
    """The server's part."""

    link: Link
    renamed = False  # in this form clients say it openly

    def __init__(self, form: Paillier, params: Params) -> None:
        self.form, self.params = form, params
        self.numbers = form.numbers(params)
        self.tags: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._total: Residues | None = None
        self._home = NO_CONTEXT  # the context in which rounds begin
        self._moduli: dict[int, bytes] = {}
        self._masking = Masking(b"")
        self._ahead: tuple[bytes, dict[int, Scrambler]] = b"", {}  # what was made before a round, from which seed

    def anchor(self, phase: str, at: Agreement) -> bytes:
        """What a phase builds on: an epoch on nothing, the end on the epoch."""
        return NO_CONTEXT if phase == self.form.setup_phase else self._home

    def enter(self, at: Agreement) -> None:
        """Forget what an earlier attempt left behind."""
        self._total = None
        if at.phase == self.form.setup_phase:
            self._ahead = b"", {}  # made for the keys of other lives
            self._moduli = {n: self.link.introduction(n) for n in at.members}  # of the lives that are announced
        if at.phase == "answer":
            # Noise is drawn once for a context.
            seed, scramblers = self._ahead[0] or self.link.secret("means", at.context), self._ahead[1]
            self._masking, self._ahead = Masking(seed, scramblers=scramblers), (b"", {})

    def prepare(self, at: Agreement) -> None:
        """Offline, before a round: the encrypted noise of the means to come, as if all will answer."""
        seed = self.link.entropy(SEED_BYTES)
        self._ahead = seed, {n: self._scrambler(seed, n) for n in at.participants}
        layout = self.form.mean_layout(self.params, 1)
        for scrambler in self._ahead[1].values():
            for chunk in range(layout.chunks):
                span = layout.span(chunk)
                scrambler.prepare(chunk, span.stop - span.start, at.participants)

    def prepared(self, at: Agreement) -> bool:
        """Nothing has to be made ahead."""
        return True

    def _scrambler(self, seed: bytes, n: int) -> Scrambler:
        """r, psi and R for client n's queries."""
        key = public_key(self._moduli[n], self.params.key_bits)
        return Scrambler(self.numbers, key, KeyStream(expand(seed, "noise", b"%d" % n)))

    # -------------------------------------------------------------------------------------------------------- streams

    def stream(self, kind: IntEnum, sender: int, chunk: int, payload: memoryview, at: Agreement) -> None:
        """Add a chunk of a table; keep one of answers until all of them are there."""
        layout = self.form.whole(kind, self.params, at)
        if kind is Kind.ABORT:
            if bytes(payload) != NO_PLACEMENT:
                raise ValueError("it says nothing that is known")
        elif kind is Kind.TABLE:
            span = layout.span(chunk)
            part = RING61.from_bytes(payload, span.stop - span.start, union.COLUMNS)
            if self._total is None:
                self._total = RING61.zeros(layout.rows, union.COLUMNS)
            RING61.add_rows(self._total, span, part)
        else:
            key = public_key(self._moduli[at.members[layout.section(chunk)]], self.params.key_bits)
            body = bytes(payload[DIGEST_BYTES:])
            key.ciphertexts_from_bytes(body, len(body) // key.ciphertext_bytes)  # each a unit of the right group
            self._masking.answers.setdefault(chunk, {})[sender] = payload
            if chunk + 1 == layout.chunks:
                self._masking.complete.add(sender)

    def ready(self, kind: IntEnum, at: Agreement) -> Iterator[tuple[int, Sequence[Buffer]]]:
        """The union; and each chunk of means for which all answers have come, or all that will."""
        if kind is Kind.TAGS:
            layout = self.form.whole(kind, self.params, at)
            for chunk in range(layout.chunks) if at.size != UNKNOWN else ():
                yield ALL, (RING61.to_bytes(self.tags[None, layout.span(chunk)]),)
            return
        masking = self._masking
        due = masking.complete if masking.over else set(at.members)
        chunks = self.form.whole(Kind.ANSWER, self.params, at).chunks
        while masking.done < chunks and due <= masking.answers.get(masking.done, {}).keys():
            answers = masking.answers.pop(masking.done)
            yield self._masked({v: answers[v] for v in sorted(due)}, at)
            masking.done += 1

    def _masked(self, answers: dict[int, memoryview], at: Agreement) -> tuple[int, Sequence[Buffer]]:
        """The next chunk of answers becomes a chunk of a mean."""
        masking = self._masking
        layout = self.form.whole(Kind.ANSWER, self.params, at)
        n, span = at.members[layout.section(masking.done)], layout.span(masking.done)
        if n not in masking.scramblers:
            masking.scramblers[n] = self._scrambler(masking.seed, n)
        bodies = {v: answer[DIGEST_BYTES:] for v, answer in answers.items()}
        proofs = [answer[:DIGEST_BYTES] for answer in answers.values()]
        parts = masking.scramblers[n].mask(layout.within(masking.done), bodies, span.stop - span.start)
        return n, (b"".join([answered_to_bytes(self.params, answers), *proofs]), *parts)

    # --------------------------------------------------------------------------------------------------------- phases

    def finish(self, at: Agreement, got: Got) -> Agreement:
        """What each phase gives, once everything has come."""
        match at.phase:
            case "secret":
                return replace(at, context=settled_context(at), participants=at.members)
            case "table":
                return self._peeled(at)
            case "query":
                self._home = settled_context(at)
                return replace(at, context=self._home, participants=at.members)
            case "share":
                return replace(at, context=settled_context(at))
            case "answer":
                self._masking.over = True
                return replace(at, context=self._home)
            case _:
                return at

    def _peeled(self, at: Agreement) -> Agreement:
        """The tags of the union; or another attempt, with a larger table."""
        assert self._total is not None
        tags = union.peel(self._total, self.form.geometry(self.params, at))
        if tags is None:
            raise Retry("the union does not fit into its lookup table: begin a new session with a larger max_union")
        most = self.params.max_union
        if most is not None and tags.size > most:
            raise FederationError(
                f"the clients hold {tags.size} entities, more than the public bound max_union={most}:"
                " begin a new session with a larger max_union"
            )
        self.tags = tags
        return replace(at, size=int(tags.size), context=union_context(at, tags))
