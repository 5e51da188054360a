"""Sessions that nobody should be able to set up."""

from __future__ import annotations

from dataclasses import replace

from secea.audit import KEYED, PAILLIER, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.epochs import within
from secea.forms.keyed.form import Keyed
from secea.forms.paillier import Paillier
from secea.params import Params
from secea.party.session import Session
from secea.wire.keys import Roster


def _any_options(self: Params) -> None:
    """Whatever the user wants."""


_checked, _of_roster, _of_session = Keyed.checked, Roster.__post_init__, Session.__post_init__


def _clients_alone(self: Roster) -> None:
    """Looks for a key that two clients have."""
    server = bytes(32) if self.server in self.clients else self.server
    other = object.__new__(Roster)
    for name, value in (("clients", self.clients), ("server", server), ("names", self.names)):
        object.__setattr__(other, name, value)
    _of_roster(other)
    object.__setattr__(self, "names", other.names)


def _any_size(self: Session) -> None:
    """Takes a roster as it is."""
    clients = len(self.roster.clients) - self.form.guests
    given = self.params
    object.__setattr__(self, "params", replace(given, clients=clients))
    _of_session(self)
    object.__setattr__(self, "params", replace(self.params, clients=given.clients))


def _any_batch(self: Keyed, params: Params) -> Params:
    """Takes as many rounds at once as it is told."""
    return _checked(replace(self, batch=64), params)


def _both(name: str, missing: str, owner: object, attribute: str, other: object) -> Mutant:
    changed = ((owner, attribute, other),)
    return Mutant(
        name, missing, {KEYED: Subject(Overheard(), within=changed), PAILLIER: Subject(Paillier(), within=changed)}
    )


ANY_OPTIONS = _both(
    "any-options", "Options that do not cover each other go together.", Params, "_check_options", _any_options
)
SERVER_TAKES_PART = _both(
    "server-takes-part", "The server may have a client's key.", Roster, "__post_init__", _clients_alone
)
ANY_SIZE = _both(
    "roster-of-any-size", "A roster may have fewer or more clients than agreed.", Session, "__post_init__", _any_size
)
ANY_BATCH = within(
    "batch-of-any-size", "Mask keys are made for as many rounds at once as one likes.", Keyed, "checked", _any_batch
)
