"""The form "keyed" with clients that show what only an owner notices."""

from __future__ import annotations

from dataclasses import replace

from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.epochs import within
from secea.audit.mutants.keyed import mutant
from secea.errors import SERVER, FaultyPeer
from secea.forms.keyed.client import KeyedClient
from secea.forms.keyed.names import Naming
from secea.party.client import Client
from secea.party.form import Got
from secea.party.phases import Agreement, Standing


class WantsAnotherUnion(KeyedClient):
    """Takes a union for spent in which it got no mean."""

    def _read(self, at: Agreement) -> Agreement:
        missing = self.round is not None and not self.round.found.all()
        after = super()._read(at)
        if missing and self.union is not None:
            self.union = replace(self.union, spent=True)
        return after


class StopsWithoutMean(KeyedClient):
    """Refuses a round in which it got no mean for an entity of its own."""

    def _read(self, at: Agreement) -> Agreement:
        if self.round is not None and not self.round.found.all():
            raise FaultyPeer(SERVER, "sends no mean for an entity of ours")
        return super()._read(at)


class StopsWithoutTags(KeyedClient):
    """Refuses a union that has none of its entities."""

    def _got_tags(self, at: Agreement, got: Got) -> Agreement:
        after = super()._got_tags(at, got)
        if self.names and self.union is not None and not self.union.slots.size:
            raise FaultyPeer(SERVER, "sends a union without any of our entities")
        return after


class StopsWithoutMeans(KeyedClient):
    """Refuses a round in which it got no mean at all."""

    def _read(self, at: Agreement) -> Agreement:
        if self.round is not None and self.round.found.size and not self.round.found.any():
            raise FaultyPeer(SERVER, "sends no mean for any entity of ours")
        return super()._read(at)


STOPS_WITHOUT_TAGS = mutant(
    "stop-without-tags", "A client refuses a union without any of its entities.", Overheard(of_client=StopsWithoutTags)
)
STOPS_WITHOUT_MEANS = mutant(
    "stop-without-means", "A client that got no mean at all refuses the round.", Overheard(of_client=StopsWithoutMeans)
)
WANTS_ANOTHER_UNION = mutant(
    "union-spent-without-mean",
    "A client that got no mean asks for another union.",
    Overheard(of_client=WantsAnotherUnion),
)
STOPS_WITHOUT_MEAN = mutant(
    "stop-without-mean", "A client that got no mean refuses the round.", Overheard(of_client=StopsWithoutMean)
)
WAITS_WITH_NEW_NAMES = within(
    "waits-with-new-names",
    "Only clients with new names wait for the answers to their lists.",
    Naming,
    "pending",
    property(lambda naming: naming.names.asked > naming.names.number and bool(naming.names.fresh)),
)


class StandsApart(Client):
    """Says that it takes part in no union once its entities change."""

    @property
    def standing(self) -> Standing:
        """Settled nowhere, in the phase in which it is asked."""
        honest = super().standing
        asked = self.at.phase == self.session.form.ready_phase and self.part.renamed
        return replace(honest, settled=0) if asked else honest


STANDS_APART = Mutant(
    "standing-shows-changes",
    "Where a client stands shows that its entities change.",
    {KEYED: Subject(Overheard(), client=StandsApart)},
)


class SaysAgain(KeyedClient):
    """Makes another word whenever it is asked, if its entities change."""

    def _say(self, at: Agreement) -> None:
        if self.renamed and self.union is not None:
            self.union = replace(self.union, said=(-1, b""))
        super()._say(at)


SAYS_AGAIN = mutant(
    "says-again", "A client whose entities change makes another word each time.", Overheard(of_client=SaysAgain)
)
