"""A federation file in the terminal: who takes part, with which keys, and what was agreed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secea.party.session import Session


def session_lines(session: Session) -> Iterator[str]:
    """Keys, parameters, the form, and who may conspire with whom."""
    from secea.engines.files import key_fingerprint

    yield f"{'server':<16}{key_fingerprint(session.roster.server)}"
    for number, (name, key) in enumerate(zip(session.roster.names, session.roster.clients, strict=True)):
        yield f"{number:>3} {name:<12}{key_fingerprint(key)}"
    yield f"parameters      {session.params.canonical().replace(';', ', ')}"
    yield f"form            {session.form.canonical(session.params).splitlines()[-1].replace(';', ', ')}"
    for i, line in enumerate(session.form.trust(session.params)):
        yield f"{'' if i else 'trust':<16}{line}"
