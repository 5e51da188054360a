"""Claims about a client at its site: the `Host` that all engines drive trains anew, saves first, and says nothing."""

from __future__ import annotations

import ast
import base64
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from secea.audit import KEYED, PAILLIER, Objection, Subject, claim
from secea.audit.mutants import hosts as mutants
from secea.audit.standing import attributes_stand_in
from secea.engines import files, policy
from secea.engines.driver import ACCUSED, Driver
from secea.engines.exchange import Exchange
from secea.engines.host import Host, Participant
from secea.engines.port import Failure, Order, Reply, Task, Terms, refusal
from secea.engines.store import Store
from secea.errors import FederationError, ParamsError, RoundLost, SnapshotError
from secea.forms import form_of
from secea.forms.keyed.client import KeyedClient
from secea.party.client import Client
from secea.party.phases import REST, STOPPED
from secea.table import Table
from secea.wire.keys import Identity
from secea.wire.messages import Buffer

SETS: Final = tuple([f"merchant {letter}" for letter in own] for own in ("abc", "bcd", "ace", "abd"))
ME: Final = 1
LOST: Final = 2
DIM: Final = 2


class Site:
    """A federation in which one client is a host with saved state; others contribute what they always did."""

    def __init__(self, subject: Subject, folder: Path, dropouts: int = 0) -> None:
        rng = np.random.default_rng(len(SETS))
        self.tables = [{name: rng.normal(size=DIM) for name in own} for own in SETS]
        self.parties = subject.parties(self.tables, collusion=1, dropouts=dropouts)
        self.trained: list[int] = []
        """The rounds for which the host trained."""
        self.wrong = False
        """Whether what it trains is no table."""
        identity, session = self.parties.identities[ME], self.parties.session
        self.store = Store(folder, identity, session.hash)
        self._participant = Participant(lambda: SETS[ME], self._train)
        self.host = self.born()

    def born(self) -> Host:
        """A new life of the host, from its store."""
        self.host = Host(self.parties.session, ME, self.parties.identities[ME], self._participant, self.store)
        self.parties.clients[ME] = self.host.client
        return self.host

    def _train(self, _: Table | None, round: int) -> dict[str, NDArray[np.float64]]:
        self.trained.append(round)
        added = np.inf if self.wrong else len(self.trained)
        return {name: row + added for name, row in self.tables[ME].items()}

    def obeys(self, *messages: Buffer) -> Reply:
        """What the host does when it is its turn."""
        return self.host.obey(Order(Task.ROUND, self.host.client.at.round + 1, [*messages]))

    def ask(self) -> None:
        """Everybody who is here trains, if it must, and says that it is ready."""
        parties = self.parties
        parties.number += 1

        def contribute(n: int) -> None:
            if n == ME:
                self.obeys()
            else:
                parties.clients[n].contribute(self.tables[n], parties.number)

        parties.exchange.ask(parties.server.at.members, contribute)

    @property
    def part(self) -> KeyedClient:
        """The host's client."""
        part = self.host.client.part
        assert isinstance(part, KeyedClient)
        return part


@claim("attack", KEYED, mutants=(mutants.SENT_AGAIN, mutants.TABLE_OF_ANY_ROUND))
def lost_rounds(subject: Subject) -> int:
    """Keyed: a host whose round was lost trains again before it uploads to others, also after a restart.

    Else the difference of two sums is one client's row, to an owner in league with the server.
    """
    for restarts in (False, True):
        with TemporaryDirectory() as folder:
            site = Site(subject, Path(folder))
            parties, exchange = site.parties, site.parties.exchange
            parties.setup()
            site.ask()
            exchange.losses = {LOST: parties.session.form.round_phase}
            with suppress(RoundLost):
                exchange.run(parties.session.form.round_phase, range(len(SETS)))
            out = site.part.released
            assert (out.round, out.members) == (1, (0, 1, 2, 3))
            assert site.part.round is not None
            went, exchange.losses = site.part.round.table.matrix.copy(), {}
            if restarts:
                site.obeys()  # and saves
                site.born()
                exchange.greet()
                exchange.deliver()
            parties.union([n for n in range(len(SETS)) if n != LOST])
            site.ask()
            now = site.part.round
            assert now is not None
            if np.isin(now.table.matrix, went).any() or site.trained != [1, 2]:
                raise Objection("a host uploads to others what it trained for a round that was lost")
    return 2


@claim("record", KEYED, PAILLIER, mutants=(mutants.SAVED_AFTERWARDS, mutants.PARTS_UNSAVED, mutants.TAKES_ALOUD))
def saved_first(subject: Subject) -> int:
    """Both forms: what a host sends is in its saved state before it is sent."""
    cases = 0
    with TemporaryDirectory() as folder:
        site = Site(subject, Path(folder))
        parties, form = site.parties, site.parties.session.form

        def saved() -> None:
            nonlocal cases
            for act in (
                partial(site.host.obey, Order(Task.TAKE)),
                partial(site.host.obey, Order(Task.MORE)),
                site.obeys,
            ):
                reply = act()
                before = site.store.load("client")
                if reply.to_bytes() != Reply().to_bytes() and before != site.host.client.save():
                    raise Objection(f"a host sends {len(reply.messages)} messages before it saves where it is")
                cases += bool(reply.messages)

        parties.exchange.greet()
        parties.exchange.deliver()
        parties.server.begin(form.setup_phase, range(len(SETS)))
        parties.exchange.deliver()
        while parties.server.at.phase != REST:
            saved()
            parties.exchange.step()
        site.ask()
        saved()
    assert cases > 3
    return cases


@claim("attack", KEYED, PAILLIER, mutants=(mutants.GOES_ON, mutants.TELLS_ALL))
def refusals_at_hosts(subject: Subject) -> int:
    """Both forms: an authentic message that is wrong ends a host's attempt, and what it reports names no entity."""
    with TemporaryDirectory() as folder:
        site = Site(subject, Path(folder))
        parties = site.parties
        parties.setup()
        link, at = parties.server.link, site.host.client.at
        wrong = link.sealer(link.label(parties.session.form.kinds["BEGIN"], at.numbers, at.context), ME)
        reply = site.obeys(wrong.seal(0, b"no word on who takes part"))
        if site.host.client.at.phase != STOPPED or reply.messages:
            raise Objection("a host goes on after an authentic message that is wrong")
    with TemporaryDirectory() as folder:
        site = Site(subject, Path(folder))
        parties = site.parties
        parties.setup()
        site.wrong = True
        parties.server.begin(parties.session.form.ready_phase, range(len(SETS)))
        parties.exchange.deliver()
        reply = site.obeys()
        assert reply.fault, "the host did not object to its own table"
        if "merchant" in reply.fault:
            raise Objection("a host tells the server's side the name of an entity")
    return 2


@claim(
    "record",
    KEYED,
    PAILLIER,
    mutants=(
        mutants.SHARED_LOCK,
        mutants.OPEN_FILES,
        mutants.SAME_NONCE,
        mutants.UNSEALED,
        mutants.PUBLIC_SEAL,
        mutants.NOT_ON_DISK,
        mutants.NOT_FLUSHED,
    ),
)
def stored_state(subject: Subject) -> int:
    """Both forms: a host's state is sealed under its own key, for its user alone, and one process uses it at a time."""
    cases = 0
    with TemporaryDirectory() as above:
        folder = Path(above) / "state"
        site = Site(subject, folder)
        site.parties.setup()
        site.ask()
        texts = []
        for _ in range(2):
            site.store.save("client", site.host.client.save())
            texts += [file.read_bytes() for file in sorted(folder.iterdir())]
        wanted = [site.parties.identities[ME].secret, b"merchant", site.host.client.save()[40:56]]
        if any(part in text for part in wanted for text in texts):
            raise Objection("a secret or a name is in a file as it is")
        stretches = [text[i : i + 16] for text in texts[-1:] + texts[:1] for i in range(0, len(text) - 15, 16)]
        if len({*stretches}) < len(stretches) - 1:
            raise Objection("what is saved twice is sealed twice alike")
        if folder.stat().st_mode & 0o077 or any(file.stat().st_mode & 0o177 for file in folder.iterdir()):
            raise Objection("others than its user may read a host's state")
        identities, session = site.parties.identities, site.parties.session.hash
        for identity, of in ((identities[0], session), (identities[ME], bytes(32))):
            if Store(folder, identity, of).load("client") is not None:
                raise Objection("a host's state opens under another key, or in another session")
        cases += _opened_by_what_all_know(folder, identities[ME], session)
        if not _on_disk(site):
            raise Objection("state is not on the disk when something is sent: after a power cut the one before is back")
        with site.store.held(0):
            try:
                with Store(folder, identities[ME], session).held(0):
                    raise Objection("two processes may use a host's state at a time")
            except SnapshotError:
                pass
        cases += len(texts) + len(stretches) + 4
    return cases


def _opened_by_what_all_know(folder: Path, identity: Identity, session: bytes) -> int:
    """Try to open state with all that is public of its owner, and with all of its key but for one bit."""
    for at in range(len(identity.secret)):
        other = Identity(identity.secret[:at] + bytes([identity.secret[at] ^ 1]) + identity.secret[at + 1 :])
        vars(other)["public"] = identity.public
        with suppress(SnapshotError):
            Store(folder, other, session).load("client")
            raise Objection(
                "a host's state opens for one who has only what is public of its owner, or not all of its key"
            )
    return len(identity.secret)


def _on_disk(site: Site) -> bool:
    """Whether the whole file is written through to the disk, then moved into place, and then its folder, too."""
    done: list[tuple[str, int]] = []

    def synced(descriptor: int) -> None:
        found = os.fstat(descriptor)
        done.append(("folder", 0) if stat.S_ISDIR(found.st_mode) else ("file", found.st_size))
        sync(descriptor)

    def moved(path: Path, target: Path) -> Path:
        done.append(("move", path.stat().st_size))
        return move(path, target)

    sync, move, data = os.fsync, Path.replace, site.host.client.save()
    with attributes_stand_in((os, "fsync", synced), (Path, "replace", moved)):
        site.store.save("client", data)
    (_, size), *_ = done
    return size > len(data) and done == [("file", size), ("move", size), ("folder", 0)]


@claim(
    "record",
    KEYED,
    PAILLIER,
    mutants=(mutants.KEYS_FOR_ALL, mutants.CHANGED_FILE, mutants.CHANGED_TOML, mutants.OPEN_KEYS),
)
def key_files(subject: Subject) -> int:
    """Both forms: a private key is for its owner alone and for no roster, and a federation file that was changed fails.

    The public half shows nothing of the private one. The federation file is refused after a change of any field:
    as JSON, and every line of it as TOML.
    """
    with TemporaryDirectory() as above:
        key, federation = Path(above) / "key", Path(above) / "federation.json"
        identity = Identity.generate()
        files.write_identity(identity, key)
        if key.stat().st_mode & 0o077:
            raise Objection("others than its owner may read a private key")
        public = files.public_path(key).read_bytes()
        if identity.secret in public or base64.b64encode(identity.secret)[4:-4] in public.replace(b"\n", b""):
            raise Objection("the public file of a key has the private one in it")
        if _taken(lambda: files.read_public(key)):
            raise Objection("a private key is taken for a public one")
        key.chmod(0o644)
        if _taken(lambda: files.read_identity(key)):
            raise Objection("a private key that others may read is used")
        if _taken(lambda: files.write_identity(Identity.generate(), key)):
            raise Objection("a private key is overwritten")
        parties = subject.parties([{"a": [1.0]}, {"a": [1.0]}, {"b": [1.0]}, {"b": [2.0]}], collusion=1)
        form = KEYED if subject.form.name == KEYED else PAILLIER
        files.write_session(replace(parties.session, form=form_of(form)), federation)
        text = json.loads(federation.read_text())
        changes = {f"params.{name}": ("params", name) for name in ("dim", "rounds", "sigma", "max_union")}
        for what, place in {**changes, "server": ("server",), "a key": ("clients", 0, "key")}.items():
            *path, last = place
            inner = changed = json.loads(json.dumps(text))
            for step in path:
                inner = inner[step]
            inner[last] = inner[last] + 1 if isinstance(inner[last], int) else inner[last][::-1]
            federation.write_text(json.dumps(changed))
            if _taken(lambda: files.read_session(federation)):
                raise Objection(
                    f"a federation file in which {what} was changed is taken for the one that was agreed on"
                )
        federation.write_text(json.dumps(text))
        assert files.read_session(federation).hash == replace(parties.session, form=form_of(form)).hash
        toml = federation.with_suffix(".toml")
        files.write_session(replace(parties.session, form=form_of(form)), toml)
        return 11 + _lines_are_bound(toml)


def _lines_are_bound(toml: Path) -> int:
    """A federation file in TOML is refused after a change of any of its values."""
    text, cases = toml.read_text(encoding="utf-8"), 0
    lines = text.splitlines()
    for i, line in enumerate(lines):
        name, equals, rest = line.partition(" = ")
        if equals and not line.startswith("#") and name != "batch":  # without drop-outs nothing depends on it
            value = rest.partition("  #")[0].strip()
            toml.write_text("\n".join([*lines[:i], f"{name} = {_another(value)}", *lines[i + 1 :]]), encoding="utf-8")
            if _taken(lambda: files.read_session(toml)):
                raise Objection(
                    f"a federation file in which {name} was changed is taken for the one that was agreed on"
                )
            cases += 1
    toml.write_text(text, encoding="utf-8")
    assert _taken(lambda: files.read_session(toml)), "the file as it was written is refused"
    return cases


def _another(value: str) -> str:
    """Another value of the same kind, as TOML writes it."""
    if value.startswith('"'):
        return f'"{value[1:-1][::-1]}"'
    if value.startswith("["):
        return '["nfc"]'
    return {"true": "false", "false": "true"}.get(value) or repr(type(made := ast.literal_eval(value))(made + 1))


def _taken(call: Callable[[], object]) -> bool:
    """Whether a call goes through."""
    try:
        call()
    except ParamsError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------- the server


class Framing:
    """A port on which some clients say, whatever they are asked, that they refuse what another one sent."""

    def __init__(self, exchange: Exchange, liars: Sequence[int], accused: int) -> None:
        self._exchange, self._liars, self._fault = exchange, liars, refusal((accused,))

    def exchange(
        self, tasks: Mapping[int, Task], round: int, inboxes: Callable[[], Mapping[int, list[Buffer]]], terms: Terms
    ) -> Iterator[tuple[int, Reply | Failure]]:
        """See `Port`."""
        for n, reply in self._exchange.exchange(tasks, round, inboxes, terms):
            if n not in self._liars or isinstance(reply, Failure) or tasks[n] is Task.HELLO:
                yield n, reply
            elif not reply.more:
                yield n, replace(reply, messages=[], fault=self._fault)


@claim("attack", KEYED, mutants=(mutants.COUNTS_WORDS,))
def accusations(subject: Subject) -> int:
    """Keyed: T clients cannot have another one thrown out, however often they accuse it.

    Whom more accuse is called no more, since one of them is honest.
    """
    cases = 0
    for liars, accused in ((0,), 2), ((3,), 0), ((0, 4), 1), ((2, 3, 4), 1):
        parties = subject.parties([{name: np.ones(DIM) for name in "abc"}] * 5, collusion=2)
        parties.setup()
        driver = Driver(parties.server, Framing(parties.exchange, liars, accused))
        for number in range(1, 5):

            def contribute(n: int, number: int = number, clients: Mapping[int, Client] = parties.clients) -> None:
                clients[n].contribute({name: np.ones(DIM) for name in "abc"}, number)

            parties.exchange.contribute = contribute
            with suppress(FederationError, RoundLost):
                driver.expect(range(5))
                driver.round()
        out, cases = driver.failures.get(accused) == ACCUSED, cases + 1
        if out != (len(liars) > 2):
            raise Objection(
                f"{len(liars)} clients accuse another one, T = 2, and it is {'' if out else 'not '}thrown out"
            )
    return cases


# ------------------------------------------------------------------------------------------------------------ the site

ROLES: Final[Mapping[str, Any]] = {
    "project_admin": "any",
    "org_admin": {"manage_job": "o:site", "byoc": "any", "operate": "o:site"},
    "lead": {"submit_job": "any", "byoc": "any"},
    "member": {"view": "any"},
    "nobody": "none",
}
"""Rights as an engine's own policies give them."""


@claim("record", KEYED, PAILLIER, mutants=(mutants.ROLES_BRING_CODE,))
def site_policies(subject: Subject) -> int:
    """Both forms: once a site takes part, nobody may bring code of their own; other rights stay as they are."""
    rights = ("manage_job", "operate", "submit_job", "view", "byoc")
    found = policy.without_code(ROLES, rights)
    for role, given in ROLES.items():
        before = dict.fromkeys(rights, given) if isinstance(given, str) else given
        if found[role] != {**before, "byoc": "none"}:
            raise Objection(f"the role {role!r} has the rights {found[role]}")
    return len(found)
