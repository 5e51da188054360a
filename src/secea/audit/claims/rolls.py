"""A claim about the beginning of a hosted federation: which file an operator agrees to, whatever the server shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.mutants import rolls as mutants
from secea.engines import roll
from secea.engines.files import agreed_session, read_session, session_toml, write_identity
from secea.engines.invitation import Invitation
from secea.engines.joining import Joining
from secea.engines.roll import Answer, Draft, Newcomer
from secea.engines.site import Site
from secea.errors import FederationError, ParamsError
from secea.party.session import Session
from secea.wire.keys import Identity

NAMES: Final = ("north", "south", "east")
POLICY: Final = ("dim=2", "max_entities=10", "max_union=20")
ANSWERS: Final[tuple[object, ...]] = ("yes", "", "0000 1111", None, True, 1, b"", Answer.WAITS)
"""What is no agreement."""


class Village:
    """A server and two sites that have keys, and no federation file."""

    def __init__(self, folder: Path, form: str) -> None:
        self.form = form
        self.sites = {name: self._site(folder / (name or "server"), name) for name in ("", *NAMES)}

    def _site(self, folder: Path, name: str) -> Site:
        folder.mkdir(parents=True)
        write_identity(Identity.generate(), folder / "identity.pem")
        lines = [f"name = '{name}'"] if name else []
        lines += ["federation = 'federation.toml'", "identity = 'identity.pem'", "state = 'state'", "log = 'log'"]
        (folder / "site.toml").write_text("\n".join(lines), encoding="utf-8")
        return Site.read(folder / "site.toml")

    def file(self, **others: bytes) -> bytes:
        """A federation file, with other keys for some."""
        keys = {name: self.sites[name].key.public for name in NAMES} | others
        return session_toml(agreed_session(keys, self.sites[""].key.public, POLICY, self.form)).encode()

    def call(self, **others: Newcomer) -> None:
        """The server calls the roll, and waits for nobody."""
        newcomers: Mapping[str, Any] = {name: Newcomer(self.sites[name]) for name in NAMES} | others
        with suppress(FederationError):
            roll.call(Draft(NAMES, POLICY, self.form), self.sites[""], newcomers, patience=0.0)

    def has(self, name: str) -> str:
        """The fingerprint of what a party has agreed on; nothing if it has not."""
        file = self.sites[name].federation
        return read_session(file).fingerprint if file.exists() else ""


def _asked(village: Village, ask: Callable[[Session], bool], *, connected: bool = True) -> None:
    """The operator of "north" compares what was offered."""
    joining = Joining(cast(Invitation, None), village.sites["north"].folder)
    with suppress(FederationError):
        joining._compare(ask, lambda: connected)


def _while_somebody_reads(village: Village, *, yes: bool, connected: bool) -> None:
    """Another file is offered while the operator compares the first one."""
    seen, newcomer = list[str](), Newcomer(village.sites["north"])
    newcomer.offer(village.file())
    if newcomer.answer() != Answer.WAITS:
        raise Objection("a site agrees to what was offered before its operator has seen it")

    def ask(session: Session) -> bool:
        seen.append(session.fingerprint)
        newcomer.offer(village.file(south=Identity.generate().public))
        return yes

    _asked(village, ask, connected=connected)
    if village.has("north") != (seen[0] if yes and connected else ""):
        raise Objection(f"an operator who says {'yes' if yes else 'no'} to one file gets another, or none")
    if newcomer.answer() == seen[0] and not (yes and connected):
        raise Objection("a site agrees, and its operator does not")


def _never_shown(village: Village) -> int:
    """Files that are not for this site are not even shown."""
    north, keys = village.sites["north"], [Identity.generate().public for _ in range(4)]
    stranger = session_toml(agreed_session(dict(zip("abc", keys, strict=False)), keys[3], POLICY, village.form))
    files = {"with another key for it": village.file(north=keys[0]), "without it": stranger.encode()}
    files["with its key for another site"] = village.file(north=keys[0], south=north.key.public)
    files |= {"that is none": b"clients = 3", "of a megabyte": village.file() + b"\n" * (1 << 20)}
    for what, text in files.items():
        if not Newcomer(north).offer(text) or roll.offered(north.federation).exists():
            raise Objection(f"an operator is shown a file {what}")
        with suppress(ParamsError):
            roll.decide(north, text, agreed=True)
        if village.has("north"):
            raise Objection(f"an operator can agree to a file {what}")
    return len(files)


def _agreed(village: Village) -> None:
    """What was agreed on stays, and the server begins when the last one has agreed on just that."""
    north, text = village.sites["north"], village.file()
    for name in ("north", "east"):
        roll.decide(village.sites[name], text, agreed=True)
    before = village.has("north")
    if not Newcomer(north).offer(village.file(south=Identity.generate().public)) or village.has("north") != before:
        raise Objection("a site takes another file than the one that it has agreed on")
    for said in ANSWERS:

        class Other(Newcomer):
            def answer(self, said: Any = said) -> Any:
                return said

        village.call(south=Other(village.sites["south"]))
        if village.has(""):
            raise Objection(f"{said!r} of a site counts as its agreement")
    roll.decide(village.sites["south"], text, agreed=True)
    village.call()
    if not village.has("") == before == village.has("south"):
        raise Objection("all have agreed on one file, and the server has another")


@claim(
    "attack",
    KEYED,
    PAILLIER,
    mutants=(mutants.LATER_FILE, mutants.ANY_FILE, mutants.OTHER_KEY, mutants.ANY_WORD, mutants.UNASKED),
)
def operators_agree(subject: Subject) -> int:
    """Both forms: in a hosted federation an operator agrees to the file that was shown, and to no other one, for good.

    The server is in the middle of everybody until fingerprints are compared. It may offer each site another file, with
    keys of its own for all others, at any time.
    """
    cases = 0
    with TemporaryDirectory() as above:
        for yes in (False, True):
            for connected in (False, True):
                place = Path(above) / f"{yes}-{connected}"
                _while_somebody_reads(Village(place, subject.form.name), yes=yes, connected=connected)
                cases += 1
        cases += _never_shown(Village(Path(above) / "never", subject.form.name))
        _agreed(Village(Path(above) / "agreed", subject.form.name))
    return cases + len(ANSWERS) + 1
