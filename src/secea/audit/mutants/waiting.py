"""The form "keyed" with clients that show how many of their new names found no room."""

from __future__ import annotations

from secea.audit.mutants.epochs import within
from secea.forms.keyed.client import KeyedClient

DUE_FOR_THE_REST = within(
    "epochs-for-the-rest",
    "Names that found no room make the next epoch due.",
    KeyedClient,
    "renamed",
    property(lambda part: part.naming.names.coming is not None or part.naming.pending),
)
UNSETTLED_BY_THE_REST = within(
    "unsettled-by-the-rest",
    "A client stands in no union as long as names of it wait.",
    KeyedClient,
    "unsettled",
    property(lambda part: bool(part.naming.names.waiting)),
)
