"""A federation file in the terminal: who takes part, with which keys, and what was agreed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from secea.commands.shell import printable

if TYPE_CHECKING:
    from secea.party.session import Session


def session_lines(session: Session) -> Iterator[str]:
    """Keys, parameters, the form, and who may conspire with whom."""
    from secea.engines.files import key_fingerprint

    yield f"{'server':<16}{key_fingerprint(session.roster.server)}"
    for number, (name, key) in enumerate(zip(session.roster.names, session.roster.clients, strict=True)):
        yield f"{number:>3} {printable(name):<12}{key_fingerprint(key)}"
    yield f"parameters      {session.params.canonical().replace(';', ', ')}"
    yield f"form            {session.form.canonical(session.params).splitlines()[-1].replace(';', ', ')}"
    for i, line in enumerate(session.form.trust(session.params)):
        yield f"{'' if i else 'trust':<16}{line}"


def offered_lines(session: Session) -> Iterator[str]:
    """The same for somebody who has to decide: the policy has a line for each value, with its meaning."""
    from secea.engines.agreement import policy_lines

    parties = [line for line in session_lines(session) if not line.startswith(("parameters", "form"))]
    yield from parties
    for i, line in enumerate(policy_lines(session)):
        yield f"{'' if i else 'policy':<16}{line}"


def weaknesses(session: Session) -> Iterator[str]:
    """What protects less in this policy than it does by default."""
    from secea.params import Params

    params, usual = session.params, Params(clients=2, dim=1)
    if params.sigma < usual.sigma:
        yield f"sigma = {params.sigma}: less statistical security than the usual {usual.sigma} bits"
    if params.insecure_small_keys or params.key_bits < usual.key_bits:
        yield f"key_bits = {params.key_bits}: shorter keys than the usual {usual.key_bits} bits"
    if params.partial:
        yield "partial = true: all see which slots nobody gave a row"
    if params.T < session.form.checked(replace(params, collusion=None)).T:
        yield f"collusion = {params.T}: a larger conspiracy can test names, and learn rows"
