"""The roll call: how a federation without a federation file comes to one, over an engine that already connects it.

The server asks every site for its public key, makes the federation file, and offers it to all. Nothing begins before
the operator of each site has compared its fingerprint with the others, over another channel, and agreed. What is
carried here is not authenticated: a server that shows a site other keys shows it another fingerprint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from secea.atomic import replace_files
from secea.engines.files import agreed_session, parse_session, public_path, read_public, session_toml
from secea.engines.invitation import named
from secea.engines.log import Log
from secea.engines.site import Site
from secea.errors import FederationError, ParamsError, SecEAError
from secea.party.session import Session
from secea.wire.keys import Identity, Roster

MOST_BYTES: Final = 1 << 20
"""More than the federation file of a hundred clients has."""
LOOK_SECONDS: Final = 1.0
CALL_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 3600.0
"""So long the server waits for people to compare fingerprints."""


class Answer(StrEnum):
    """What the operator of a site says about the file that was offered, if it is not yes: then it is a fingerprint."""

    WAITS = "waits"
    NO = "no"


@dataclass(frozen=True)
class Draft:
    """What is agreed on before anybody's key is known."""

    names: tuple[str, ...]
    params: tuple[str, ...]
    """NAME=VALUE for each parameter."""
    form: str

    def checked(self) -> Session:
        """A session of this policy with keys of nobody. A `ParamsError` if there can be none."""
        if twice := [name for name in self.names if self.names.count(name) > 1]:
            raise ParamsError(f"two sites are called {twice[0]!r}")
        keys = {name: Identity.generate().public for name in self.names}
        return agreed_session(keys, Identity.generate().public, self.params, self.form)

    def with_keys(self, roster: Roster) -> Session:
        """The same policy with the keys of a roster. Where it is for others, it has keys of nobody for them."""
        known = dict(zip(roster.names, roster.clients, strict=True))
        keys = {name: known.get(name) or Identity.generate().public for name in self.names}
        return agreed_session(keys, roster.server, self.params, self.form)

    def as_arguments(self) -> dict[str, Any]:
        """As a job's configuration carries it."""
        return {"names": list(self.names), "params": list(self.params), "form": self.form}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Draft:
        """The same from there."""
        return cls(tuple(arguments["names"]), tuple(arguments["params"]), str(arguments["form"]))


# --------------------------------------------------------------------------------------------------------- at a site


def offered(federation: Path) -> Path:
    """Where a file lies that was offered, until its site's operator has compared it."""
    return federation.with_name(f"{federation.name}.offered")


def declined(federation: Path) -> Path:
    """Where it lies when the operator did not agree."""
    return federation.with_name(f"{federation.name}.declined")


class Newcomer:
    """A site without a federation file, as whoever calls the roll sees it."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def introduce(self) -> bytes:
        """The public key of this site."""
        return read_public(public_path(self._site.identity))

    def offer(self, text: bytes) -> str:
        """Keep a federation file for the operator; or say why it cannot be this site's. One that is agreed on stays."""
        try:
            session = self.fitting(text)
            if self._site.federation.exists():
                return self._other(session)
            replace_files({offered(self._site.federation): text}, mode=0o600)
        except ParamsError as error:
            return str(error)
        except OSError as error:
            return f"a federation file cannot be kept at its side: {error.strerror}"
        return ""

    def fitting(self, text: bytes) -> Session:
        """The session of a federation file, if it has this site with its own key. A `ParamsError` otherwise."""
        if len(text) > MOST_BYTES:
            raise ParamsError("the federation file is too large")
        session = parse_session(text, self._site.federation.name)
        roster = session.roster
        for name in roster.names:
            named(name, "a client is called")
        if self._site.name not in roster.names:
            raise ParamsError(f"the federation file does not have {self._site.name}")
        if roster.clients[roster.names.index(self._site.name)] != self.introduce():
            raise ParamsError(f"the federation file has another key for {self._site.name}")
        return session

    def _other(self, session: Session) -> str:
        if self._site.session.hash == session.hash:
            return ""
        return (
            f"it has agreed on another federation file before, with the fingerprint {self._site.session.fingerprint}:"
            f" for this one its operator removes {self._site.federation.name} there, and joins again"
        )

    def answer(self) -> str:
        """What the operator says: the fingerprint of the file that is agreed on, or an `Answer`."""
        if self._site.federation.exists():
            return self._site.session.fingerprint
        return Answer.NO if declined(self._site.federation).exists() else Answer.WAITS


def decide(site: Site, text: bytes, *, agreed: bool) -> None:
    """The operator has seen just this text, and agrees or does not. What was offered since then does not count."""
    session = Newcomer(site).fitting(text)
    target = site.federation if agreed else declined(site.federation)
    replace_files({target: session_toml(session).encode()}, durable=True)  # no comments but ours
    offered(site.federation).unlink(missing_ok=True)
    Log(site.log).noted("agreed" if agreed else "declined", fingerprint=session.fingerprint)


# ------------------------------------------------------------------------------------------------------ at the server


class Called(Protocol):
    """A newcomer, over an engine. What it gives is whatever the other side sent."""

    def introduce(self) -> object:
        """See `Newcomer`."""

    def offer(self, text: bytes) -> object:
        """See `Newcomer`."""

    def answer(self) -> object:
        """See `Newcomer`."""


def call(
    draft: Draft,
    site: Site,
    sites: Mapping[str, Called],
    *,
    patience: float = PATIENCE_SECONDS,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Call the roll, and write the federation file of the server's site when everybody has agreed on it.

    A `FederationError` says who is not there, who did not agree, or did not answer in time. So does the server's log.
    """
    log = Log(site.log)
    try:
        if site.name:
            raise FederationError(f"{site.name} is no server: nobody calls the roll there")
        _call(draft, site, sites, log, patience, sleep)
    except SecEAError as error:
        log.noted("failed", why=str(error))
        raise


def _call(
    draft: Draft,
    site: Site,
    sites: Mapping[str, Called],
    log: Log,
    patience: float,
    sleep: Callable[[float], object],
) -> None:
    if missing := [name for name in draft.names if name not in sites]:
        raise FederationError(f"{', '.join(missing)}: not connected, and everybody has to be there for the roll call")
    keys = {name: _key(name, sites[name].introduce()) for name in draft.names}
    session = agreed_session(keys, read_public(public_path(site.identity)), draft.params, draft.form)
    text = session_toml(session).encode()
    log.noted("offered", fingerprint=session.fingerprint, clients=list(draft.names))
    for name in draft.names:
        if fault := sites[name].offer(text):
            raise FederationError(f"{name} refuses the federation file: {_said(fault)}")
    _until_all_agree(session, sites, log, patience, sleep)
    replace_files({site.federation: text}, durable=True)
    log.noted("agreed", fingerprint=session.fingerprint)


def _until_all_agree(
    session: Session, sites: Mapping[str, Called], log: Log, patience: float, sleep: Callable[[float], object]
) -> None:
    waiting, end = list(session.roster.names), time.monotonic() + patience
    while True:
        for name in list(waiting):
            said = sites[name].answer()
            if said == session.fingerprint:
                waiting.remove(name)
                log.noted("agrees", client=name)
            elif said == Answer.NO:
                log.noted("declines", client=name)
                raise FederationError(
                    f"{name} did not agree: find out why, and host again; for another policy, those who have agreed"
                    " remove their federation file first"
                )
            elif said != Answer.WAITS:
                raise FederationError(f"{name} agreed on another federation file: {_said(said)}")
        if not waiting:
            return
        if time.monotonic() > end:
            raise FederationError(f"{', '.join(waiting)}: no answer on the fingerprint within {patience:.0f} s")
        sleep(LOOK_SECONDS)


def _key(name: str, given: object) -> bytes:
    if not isinstance(given, bytes | bytearray) or len(given) != 32:
        raise FederationError(f"{name} did not give a public key: {_said(given)}")
    return bytes(given)


def _said(given: object) -> str:
    return given[:500] if isinstance(given, str) else f"it sent a {type(given).__name__}"
