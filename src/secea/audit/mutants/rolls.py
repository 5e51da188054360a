"""Sites and servers that take another federation file than the one that operators compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from secea.audit.mutants.common import both
from secea.engines import roll
from secea.engines.files import parse_session
from secea.engines.joining import Ask, Joining
from secea.engines.log import Log
from secea.engines.roll import Answer, Newcomer
from secea.party.session import Session

_until_all_agree, _offer = roll._until_all_agree, Newcomer.offer


def _later(self: Joining, ask: Ask, connected: Callable[[], bool]) -> bool:
    """What is offered when the operator has read the file before."""
    offered = roll.offered(self.site.federation)
    agreed = ask(Newcomer(self.site).fitting(offered.read_bytes()))
    if connected():
        roll.decide(self.site, offered.read_bytes(), agreed=agreed)
    return agreed


def _any_file(self: Newcomer, text: bytes) -> str:
    """The last one that was offered counts."""
    if self._site.federation.exists() and not self._site.federation.write_bytes(text):
        return "it is empty"
    return _offer(self, text)


def _other_key(self: Newcomer, text: bytes) -> Session:
    """Whoever has which key."""
    return parse_session(text, self._site.federation.name)


def _any_word(session: Session, sites: Mapping[str, Any], log: Log, patience: float, sleep: Any) -> None:
    """Whoever does not say no agrees."""

    class Heard:
        def __init__(self, site: Any) -> None:
            self._site = site

        def answer(self) -> object:
            said = self._site.answer()
            return said if said == Answer.NO else session.fingerprint

    _until_all_agree(session, {name: Heard(site) for name, site in sites.items()}, log, patience, sleep)  # type: ignore[misc]


def _unasked(self: Newcomer) -> str:
    """Agrees to whatever is offered."""
    offered = roll.offered(self._site.federation)
    return self.fitting(offered.read_bytes()).fingerprint if offered.exists() else _answer(self)


_answer = Newcomer.answer
UNASKED = both("agrees-unasked", "A site agrees without its operator.", within=((Newcomer, "answer", _unasked),))
LATER_FILE = both(
    "file-offered-later", "A yes is for whatever is offered by then.", within=((Joining, "_compare", _later),)
)
ANY_FILE = both(
    "agreed-file-replaced", "A file that was agreed on is replaced.", within=((Newcomer, "offer", _any_file),)
)
OTHER_KEY = both(
    "file-of-others",
    "A site may be shown a file with another key for it.",
    within=((Newcomer, "fitting", _other_key),),
)
ANY_WORD = both(
    "any-word-agrees",
    "Whatever a site answers counts as its agreement.",
    within=((roll, "_until_all_agree", _any_word),),
)
