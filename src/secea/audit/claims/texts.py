"""Claims about both forms: what parties show contains no secret, and their secrets come from the operating system."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np

import secea
from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.mutants import texts as mutants
from secea.audit.texts import Secrets, error_texts, reachable
from secea.errors import SERVER, SecEAError
from secea.testing import Parties
from secea.wire.messages import ALL, Buffer, Header

NAME: Final = "merchant in the high street"
PRODUCT: Final = ("arithmetic", "engines", "forms", "party", "steps", "wire")
"""Where parties draw secrets."""


def held(parties: Parties, secrets: Secrets) -> None:
    """The long-lived secrets of all parties."""
    for n, identity in parties.identities.items():
        secrets.add("an identity", identity.secret)
        link = (parties.server if n == SERVER else parties.clients[n]).link
        secrets.add("a session's key", link._key.secret)
        for channel in link.channels.values():
            secrets.add("the key of a pair", channel._pair_key)
        part: Any = None if n == SERVER else parties.clients[n].part
        for shared in (getattr(part, "union", None), getattr(part, "epoch", None)):
            if shared is not None:
                secrets.add("the shared secret", shared.secret)
        if part is not None and hasattr(part, "naming"):
            secrets.add("a share of the names' key", part.naming.key.share)
            for prf in part.naming.names.prf.values():
                secrets.add("the key of a name", prf)


@claim(
    "record", KEYED, PAILLIER, mutants=(mutants.SHOWN_SEED, mutants.SHOWN_KEY, mutants.SHOWN_NAMES, mutants.TOLD_KEY)
)
def texts_without_secrets(subject: Subject) -> int:
    """Both forms: no repr of what a party holds, and no error that a peer can cause, shows a secret or a name.

    At each kind of message: all objects of all parties, and the errors of messages that are damaged.
    """
    rng, secrets, texts, seen = np.random.default_rng(1), Secrets(), list[str](), set[tuple[object, bool]]()
    tables = [{f"{NAME} {i}": rng.normal(size=2) for i in range(5) if (i + n) % 3} for n in range(4)]
    parties = subject.parties(tables, collusion=1, dropouts=1, entropy=secrets.drawn)

    def tap(sender: int, receiver: int, message: Buffer) -> Iterable[Buffer]:
        header = Header.parse(message, sender, subject.form.kinds)
        place = header.kind, receiver == SERVER
        if place not in seen:
            seen.add(place)
            held(parties, secrets)
            texts.extend(shown(parties))
            damaged = bytes(message[:-1]) + bytes([message[-1] ^ 1])
            readable = header.receiver in (ALL, receiver)  # the server passes on what it cannot read
            for wrong in (message[:40], message[:-1], *([damaged] if readable else ())):
                texts.extend(refused(parties, sender, receiver, wrong))
        return (message,)

    parties.exchange.tap = tap
    parties.setup()
    parties.round(tables)
    held(parties, secrets)
    texts.extend(shown(parties))
    assert {"drawn", "an identity", "the key of a pair", "the shared secret"} <= {*secrets.seen.values()}
    if leaks := secrets.leaks(texts):
        raise Objection(f"{', '.join(sorted(leaks))} can be read in what parties show")
    if any(NAME in text for text in texts):
        raise Objection("the name of an entity can be read in what parties show")
    return len(texts)


def shown(parties: Parties) -> Iterator[str]:
    """What a debugger, a log or a traceback shows of the parties."""
    roots = (parties.clients, parties.server, parties.session, parties.identities)
    for thing in reachable(*roots, without=(Parties,)):
        yield f"{thing!r} {thing!s}"


def refused(parties: Parties, sender: int, receiver: int, message: Buffer) -> Iterator[str]:
    """What is said of a message that is refused."""
    try:
        if receiver == SERVER:
            parties.server.receive(sender, message)
        else:
            parties.clients[receiver].receive(message)
    except SecEAError as error:
        yield from error_texts(error)


def drawing() -> Iterator[tuple[str, inspect.Parameter]]:
    """Every argument of the product that is a source of randomness."""
    for module in pkgutil.walk_packages(secea.__path__, "secea."):
        if module.name.split(".")[1] not in PRODUCT or module.name in ("secea.engines.nvflare", "secea.engines.flower"):
            continue  # these need an engine, and draw nothing
        for name, thing in vars(importlib.import_module(module.name)).items():
            if getattr(thing, "__module__", "") == module.name:
                inside = vars(thing).items() if inspect.isclass(thing) else ()
                for of, each in ((name, thing), *((f"{name}.{method}", each) for method, each in inside)):
                    function = getattr(each, "__func__", each)
                    if inspect.isfunction(function):
                        parameters = inspect.signature(function).parameters
                        yield from ((f"{module.name}.{of}", parameters[x]) for x in parameters if x == "entropy")


@claim("record", KEYED, PAILLIER, mutants=(mutants.WEAK_CLIENT, mutants.WEAK_IDENTITY))
def randomness_of_the_system(subject: Subject) -> int:
    """Both forms: whoever draws secrets draws them from the operating system, unless another source is given."""
    cases = 0
    for where, parameter in drawing():
        if parameter.default not in (inspect.Parameter.empty, os.urandom):
            raise Objection(f"{where} draws from something else than the operating system")
        cases += 1
    assert cases > 10
    return cases
