"""Either form with a host that is careless with what it trained, saved or says."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secea import atomic
from secea.audit import KEYED, Mutant, Subject
from secea.audit.attacks.keyed import Overheard
from secea.audit.mutants.common import both
from secea.engines import files, policy
from secea.engines.driver import ACCUSED, Driver
from secea.engines.files import read_identity, read_session, write_identity
from secea.engines.host import Host, told
from secea.engines.port import Order, Reply, Task, refusal
from secea.engines.store import Store
from secea.errors import ParamsError, RoundLost
from secea.party.client import Client
from secea.party.session import Session
from secea.wire.keys import Identity, expand
from secea.wire.messages import Buffer


def _sends_again(self: Host, round: int) -> None:
    """After a lost round the same table goes out as that of the next one."""
    if self._table is None or self.client.part.has_means:
        self._train(round)
    assert self._table is not None
    try:
        self.client.contribute(self._table, self._trained)
    except RoundLost:
        self._keep(self._table, round)
        self.client.contribute(self._table, self._trained)


def _of_any_round(self: Host) -> Client | None:
    """A restored table counts as one that was never sent."""
    made = restored(self)
    self._trained += made is not None
    return made


def _sends_first(self: Host, order: Order) -> Reply:
    """Saves what it said the time before."""
    save, self._save = self._save, lambda: None  # type: ignore[method-assign]
    reply = obey(self, order)
    self._save = save  # type: ignore[method-assign]
    return reply


def _parts_unsaved(self: Host, order: Order) -> Reply:
    """Saves only with the first part of a reply."""
    return _sends_first(self, order) if order.task is Task.MORE else obey(self, order)


def _takes_aloud(self: Host, order: Order) -> Reply:
    """Says where it stands with every part of an order that it has taken."""
    reply = obey(self, order)
    return replace(reply, standing=self.client.standing.to_bytes()) if order.task is Task.TAKE else reply


def _goes_on(self: Host, order: Order) -> Reply:
    """Does not stop at what is wrong."""
    stop, self.client.stop = self.client.stop, lambda: None  # type: ignore[method-assign]
    reply = obey(self, order)
    self.client.stop = stop  # type: ignore[method-assign]
    return reply


restored, obey = Host._restored, Host.obey


def _unlocked(self: Store) -> int:
    """Locks nothing."""
    self._make_folder()
    return os.open(self.folder, os.O_RDONLY)


def _readable(self: Store, name: str, data: Buffer | Iterator[Buffer]) -> None:
    """Anybody may read."""
    saves(self, name, data)
    self._path(name).chmod(0o644)


def _sealed_alike(self: Store, name: str, data: Iterator[Buffer]) -> Iterator[bytes]:
    """The random prefix is always the same."""
    self._entropy = bytes
    return sealed(self, name, data)


class Plain:
    """A cipher that does nothing."""

    def encrypt(self, _: bytes, data: bytes, label: bytes) -> bytes:
        """As it is, with room for a tag."""
        return bytes(data) + hashlib.sha256(label).digest()[:16]

    def decrypt(self, _: bytes, data: bytes, label: bytes) -> bytes:
        """Without the tag."""
        if bytes(data[-16:]) != hashlib.sha256(label).digest()[:16]:
            raise InvalidTag
        return bytes(data[:-16])


def _without_cipher(self: Store) -> None:
    """Do not seal."""
    makes_folder(self)
    self._cipher = Plain()  # type: ignore[assignment]


def _public_key(self: Store, folder: Path | str, identity: Identity, session: bytes, *more: Any, **named: Any) -> None:
    """Seal under a key of what everybody knows."""
    begins(self, folder, identity, session, *more, **named)
    self._cipher = AESGCM(expand(identity.public, "storage"))


begins = Store.__init__
saves, sealed, makes_folder = Store.save, Store._sealed, Store._make_folder


def _both(name: str, missing: str, method: str, instead: Any) -> Mutant:
    of = Host if hasattr(Host, method) else Store
    return both(name, missing, within=((of, method, instead),))


SENT_AGAIN = Mutant(
    "lost-round-sent-again",
    "After a lost round a host uploads the same values as those of the next one.",
    {KEYED: Subject(Overheard(), within=((Host, "_contribute", _sends_again),))},
)
TABLE_OF_ANY_ROUND = Mutant(
    "restored-table-of-the-next-round",
    "A restarted host takes its table for one of the round to come.",
    {KEYED: Subject(Overheard(), within=((Host, "_restored", _of_any_round),))},
)
SAVED_AFTERWARDS = _both("saved-after-sent", "A host sends before it saves.", "obey", _sends_first)
PARTS_UNSAVED = _both("parts-unsaved", "A host sends a later part of a reply before it saves.", "obey", _parts_unsaved)
TAKES_ALOUD = _both(
    "takes-aloud", "A host says where it stands in the middle of an order, and has not saved it.", "obey", _takes_aloud
)
GOES_ON = _both("host-goes-on", "A host does not stop at an authentic message that is wrong.", "obey", _goes_on)
TELLS_ALL = both("host-tells-all", "A host reports its errors in full.", instead={told: str})
SHARED_LOCK = _both("state-not-locked", "Two processes may use a host's state.", "_lock", _unlocked)
OPEN_FILES = _both("state-for-everybody", "Anybody may read a host's state.", "save", _readable)
SAME_NONCE = _both("state-under-one-nonce", "All states are sealed with one nonce.", "_sealed", _sealed_alike)
PUBLIC_SEAL = both(
    "state-under-a-public-key", "A host's state is sealed under its public key.",
    within=((Store, "__init__", _public_key),),
)  # fmt: skip
UNSEALED = _both("state-not-sealed", "A host's state is saved as it is.", "_make_folder", _without_cipher)


def _written_for_all(identity: Identity, path: Path | str) -> None:
    """Anybody may read the key."""
    write_identity(identity, path)
    Path(path).chmod(0o644)


def _read_anyway(path: Path | str) -> Identity:
    """Whoever may read it."""
    Path(path).chmod(0o600)
    return read_identity(path)


def _believed(path: Path | str) -> Session:
    """The fingerprint is the one that the contents have, as an error says."""
    try:
        return read_session(path)
    except ParamsError as error:
        says = str(error).rpartition("fingerprint ")[2]
        text = json.loads(Path(path).read_text(encoding="utf-8")) | {"fingerprint": says}
        Path(path).write_text(json.dumps(text), encoding="utf-8")
        return read_session(path)


def _believed_toml(path: Path | str) -> Session:
    """Take a file in TOML as it is, and another one as ever."""
    try:
        return read_session(path)
    except ParamsError as error:
        says, text = str(error).rpartition("fingerprint ")[2], Path(path).read_text(encoding="utf-8")
        if text.startswith("{") or "was changed" not in str(error):
            raise
        lines = [f'fingerprint = "{says}"' if each.startswith("fingerprint =") else each for each in text.splitlines()]
        Path(path).write_text("\n".join(lines), encoding="utf-8")
        return read_session(path)


OPEN_KEYS = both(
    "keys-for-everybody", "Anybody may read a private key.", within=((files, "write_identity", _written_for_all),)
)
KEYS_FOR_ALL = both(
    "keys-of-everybody", "A private key that others may read is used.", within=((files, "read_identity", _read_anyway),)
)
CHANGED_FILE = both(
    "federation-file-unchecked",
    "A federation file may have been changed.",
    within=((files, "read_session", _believed),),
)
CHANGED_TOML = both(
    "federation-toml-unchecked",
    "A federation file in TOML may have been changed.",
    within=((files, "read_session", _believed_toml),),
)


def _unflushed(path: Path, content: atomic.Content, mode: int, durable: bool) -> None:
    """Syncs a file whose last bytes Python still has."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        if isinstance(content, bytes):
            file.write(content)
        else:
            content(file)
        if durable:
            os.fsync(file.fileno())


NOT_ON_DISK = both(
    "state-not-on-disk", "The folder of a host's state is not synced.", within=((atomic, "_sync", lambda _: None),)
)
NOT_FLUSHED = both(
    "state-not-flushed", "The end of a file of state is not synced.", within=((atomic, "_write", _unflushed),)
)


def _accuse_by_words(self: Driver, n: int, reason: str) -> None:
    """Every word counts, whoever says it."""
    T, words = self.server.session.params.T, Counter[int]()
    for v in self._everyone - {n}:
        words[v] = getattr(self, "words", Counter())[v] + (reason == refusal((v,)))
        if words[v] > T:
            self._everyone.discard(v)
            self._lose(v, ACCUSED)
    self.words = words  # type: ignore[attr-defined]


def _code_where_it_was(roles: Mapping[str, Any], rights: Sequence[str]) -> dict[str, dict[str, Any]]:
    each = {role: dict.fromkeys(rights, given) if isinstance(given, str) else given for role, given in roles.items()}
    return {role: {"byoc": "none", **given} for role, given in each.items()}


COUNTS_WORDS = Mutant(
    "counts-words",
    "A client that accuses another one often counts as many.",
    {KEYED: Subject(Overheard(), within=((Driver, "_accuse", _accuse_by_words),))},
)
ROLES_BRING_CODE = both(
    "roles-bring-code",
    "Roles that may bring code keep that right.",
    within=((policy, "without_code", _code_where_it_was),),
)
