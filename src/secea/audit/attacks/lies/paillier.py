"""All lies that are told to clients of the paper's form; those about unions and answers are its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from secea.audit import Subject
from secea.audit.attacks.lies import SMALL, SMALLEST, Deviation, Lie, Play, Setting, relayed
from secea.forms.paillier.form import SHARE, Kind, union_context
from secea.forms.paillier.retrieval import public_key
from secea.forms.paillier.server import PaillierServer
from secea.party.phases import Agreement, Begin
from secea.wire.messages import DIGEST_BYTES, Buffer

WORDS: Final = 4
SEALED: Final = (("TAGS", ("table",)), ("MEAN", ("answer",)), ("BEGIN", ("secret", "query", "share")))
LARGER: Final = Setting(5, 1, 2)


class Lying(PaillierServer):
    """A server that leaves out a tag, or scales some columns of the answers that it masks."""

    leaves_out = -1
    scales = False

    def _peeled(self, at: Agreement) -> Agreement:
        after = super()._peeled(at)
        if self.leaves_out < 0:
            return after
        self.tags = np.delete(self.tags, self.leaves_out % self.tags.size)
        return replace(at, size=int(self.tags.size), context=union_context(at, self.tags))

    def _masked(self, answers: dict[int, memoryview], at: Agreement) -> tuple[int, Sequence[Buffer]]:
        return super()._masked(self._doubled(answers, at) if self.scales else answers, at)

    def _doubled(self, answers: Mapping[int, memoryview], at: Agreement) -> dict[int, memoryview]:
        """Answers with twice the sums: all plaintexts but those that hold the count."""
        n, layout = self.numbers, self.form.whole(Kind.ANSWER, self.params, at)
        asker = at.members[layout.section(self._masking.done)]
        key = public_key(self._moduli[asker], self.params.key_bits)
        counted = self.params.dim % n.block_length // n.packing.slots
        changed = {}
        for v, answer in answers.items():
            body = bytes(answer[DIGEST_BYTES:])
            sealed = key.ciphertexts_from_bytes(body, len(body) // key.ciphertext_bytes)
            twice = [c if i % n.plaintexts == counted else c * c % key.n2 for i, c in enumerate(sealed)]
            changed[v] = memoryview(bytes(answer[:DIGEST_BYTES]) + key.ciphertexts_to_bytes(twice))
        return changed


def lying(play: Play) -> Lying:
    """The server's part, as one that can lie."""
    before = play.stage.part
    if isinstance(before, Lying):
        return before
    part = Lying(before.form, before.params)
    vars(part).update(vars(before))
    play.stage.server.part = part
    return part


def tag_left_out(place: int) -> Lie:
    """A tag is left out, for everybody."""

    def lie(play: Play) -> None:
        st, part, before = play.stage, lying(play), play.refusals()
        part.leaves_out = place
        if st.union():
            st.round()
        play.outcome("a tag left out", before)
        part.leaves_out = -1

    return lie


def answers_scaled(play: Play) -> None:
    """Sums count twice, and counts once."""
    st, part, before = play.stage, lying(play), play.refusals()
    part.scales = True
    st.round()
    play.outcome("sums changed or scaled", before)
    part.scales = False


def sent_again(play: Play) -> None:
    """After a round the server begins again with fewer, and asks for the same training round."""
    st, before = play.stage, play.refusals()
    st.round()
    fewer = st.everyone[:-1]
    st.union(fewer)
    st.train(st.number)
    if st.ask(fewer):
        st.run_on()
    play.outcome("a training round asked for again", before, fewer)


def two_contributor_sets(play: Play) -> None:
    """Client 4 hears that client 0 does not contribute, and gets the means with its rows."""
    st, before = play.stage, play.refusals()

    def tap(n: int, message: Buffer) -> Iterable[Buffer]:
        header = st.header(message)
        if n != 4:
            return (message,)
        if header.kind is Kind.SHARE and header.sender == 0:
            return ()
        if header.kind is Kind.BEGIN and (text := st.payload(message))[0] == SHARE:
            begin = Begin.parse(memoryview(text), len(st.everyone))
            fewer = Begin(begin.phase, tuple(each for each in begin.members if each[0]))
            return (st.resealed(n, message, fewer.to_bytes()),)
        if header.kind is Kind.MEAN:
            return (st.resealed(n, message, context=st.at(n).context),)
        return (message,)

    st.tap = tap
    st.train()
    st.ask()
    st.here = {1, 2, 3}
    st.collect()
    st.here = set(st.everyone)
    st.server.close()
    st.deliver()
    play.outcome("two sets of members", before)


def deviations(subject: Subject) -> Iterator[Deviation]:
    """All of them."""
    yield from relayed.deviations(subject, (SMALLEST,), WORDS, SEALED)
    for place in range(4 if subject.thorough else 2):
        yield Deviation(f"tag {place + 1} left out", tag_left_out(place), SMALLEST)
    yield Deviation("answers scaled", answers_scaled, SMALLEST)
    yield Deviation("two sets of contributors", two_contributor_sets, LARGER)
    yield Deviation("sent again", sent_again, SMALL)
