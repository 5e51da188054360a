"""The form "keyed" with first epochs of names of newcomers that go without some clients."""

from __future__ import annotations

from secea.audit.mutants.epochs import within
from secea.forms.keyed.handover import Following
from secea.params import Params

_fewest = Following.fewest


def _quorum(self: Following, params: Params, phase: str = "secret", names: int = 2) -> int:
    """Z are enough to confirm newcomers' lists."""
    return self.signatures(params) if phase == self.names_phase else _fewest(self, params, phase, names)


def _as_many_as_before(self: Following, params: Params, phase: str = "secret", names: int = 2) -> int:
    """As many as were members of the session before."""
    few = _fewest(self, params, phase, names)
    return min(few, len(self.taken_over.members)) if phase == self.names_phase and names == 1 else few


NEWCOMERS_QUORUM = within(
    "newcomers-with-a-quorum", "The newcomers' epoch of names goes without everybody: Z are enough.",
    Following, "fewest", _quorum,
)  # fmt: skip
AS_MANY_AS_BEFORE = within(
    "newcomers-with-as-many-as-before",
    "The newcomers' epoch of names needs as many as the session before had members.",
    Following, "fewest", _as_many_as_before,
)  # fmt: skip
