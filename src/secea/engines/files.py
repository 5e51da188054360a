"""The files of a party: its identity key (PEM), and the federation file with the public agreement (TOML, or JSON)."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from secea.atomic import replace_files
from secea.engines.agreement import as_toml, from_json, from_toml
from secea.errors import ParamsError
from secea.forms import NAMES, form_of, options_of
from secea.params import Params
from secea.party.session import Session
from secea.wire.keys import Identity, Roster, spelled


def write_identity(identity: Identity, path: Path | str) -> None:
    """Write the private key as PEM (PKCS #8), readable only by its owner, and the public key next to it, as `.pub`."""
    key = Ed25519PrivateKey.from_private_bytes(identity.secret)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for target, data, mode in ((Path(path), private, 0o600), (public_path(path), public, 0o644)):
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            raise ParamsError(f"{target} exists; a key is not overwritten: choose another name") from None
        except OSError as error:
            raise ParamsError(f"{target} cannot be written: {error.strerror}") from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except OSError as error:
            target.unlink()
            raise ParamsError(f"{target} cannot be written: {error.strerror}") from None


def public_path(path: Path | str) -> Path:
    """The path of the public half of a key."""
    return Path(path).with_name(Path(path).name + ".pub")


def read_identity(path: Path | str) -> Identity:
    """A party's private key. It must not be readable by others."""
    data = _read(path)
    if os.name == "posix" and Path(path).stat().st_mode & 0o077:
        raise ParamsError(f"{path} can be read by others; make it private: chmod 600 {path}")
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError):
        raise ParamsError(f"{path} is no private key in PEM: make one with `secea keygen`") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ParamsError(f"{path} is no Ed25519 key: make one with `secea keygen`")
    return Identity(key.private_bytes_raw())


def read_public(path: Path | str) -> bytes:
    """A party's public key, 32 bytes."""
    data = _read(path)
    if b"PRIVATE KEY" in data:
        raise ParamsError(f"{path} is a private key, and must not leave its owner; the public one is {path}.pub")
    try:
        key = load_pem_public_key(data)
    except ValueError:
        raise ParamsError(f"{path} is no public key in PEM; `secea keygen` writes one, with the ending .pub") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ParamsError(f"{path} is no Ed25519 key")
    return key.public_bytes_raw()


def key_fingerprint(public: bytes) -> str:
    """The fingerprint of a public key, for people to compare."""
    return spelled(hashlib.sha256(b"secea key\n" + public).digest())


def make_session(server: str, clients: Sequence[str], params: Sequence[str], form: str) -> Session:
    """A session from command line arguments: the server's file, NAME=FILE per client, NAME=VALUE per parameter."""
    named = [_pair(client, "--client NAME=FILE") for client in clients]
    keys = {name: read_public(path) for name, path in named}
    if len(keys) < len(named):
        raise ParamsError("two clients have the same name: each --client has one of its own")
    return agreed_session(keys, read_public(server), params, form)


def agreed_session(clients: Mapping[str, bytes], server: bytes, params: Sequence[str], form: str) -> Session:
    """A session of these public keys, with NAME=VALUE for each parameter."""
    roster = Roster(tuple(clients.values()), server, tuple(clients))
    given = {name: _value(name, value) for name, value in (_pair(param, "--param NAME=VALUE") for param in params)}
    options = set(options_of(form))
    known = [each.name for each in fields(Params) if each.name != "clients"] + sorted(options)
    if unknown := given.keys() - {"clients", *known}:
        raise ParamsError(f"there is no parameter {min(unknown)!r}; there are {', '.join(known)}")
    if missing := {"dim", "max_entities", "max_union"} - given.keys():
        raise ParamsError(f"the parameter {min(missing)} is missing: --param {min(missing)}=...")
    chosen = {name: given.pop(name) for name in options & given.keys()}
    return Session(Params(**({"clients": len(clients)} | given)), roster, form_of(form, **chosen))


def _pair(text: str, expected: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ParamsError(f"expected {expected}, got {text!r}")
    return name, value


def _value(name: str, text: str) -> Any:
    if text in ("true", "false"):  # as the file has it
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if name == "normalize":
            return text
        raise ParamsError(f"the parameter {name} must be a number, or true or false, got {text!r}") from None


def write_session(session: Session, path: Path | str) -> None:
    """Write the federation file: all that the parties agree on. Nothing in it is secret.

    It is TOML, or JSON where the name ends in .json.
    """
    if callable(session.params.normalize):
        raise ParamsError("normalize is a function, which no file can hold: take steps out of nfc, strip and casefold")
    text = f"{session_json(session)}\n" if Path(path).suffix.lower() == ".json" else session_toml(session)
    try:
        replace_files({Path(path): text.encode()})
    except OSError as error:
        raise ParamsError(f"{path} cannot be written: {error.strerror}") from None


def session_toml(session: Session) -> str:
    """The content of the federation file, with a word on each line."""
    keys = (session.roster.server, *session.roster.clients)
    return as_toml(session, {key: key_fingerprint(key) for key in keys})


def session_json(session: Session) -> str:
    """The same for programs."""
    text = {
        "secea": 1,
        "params": asdict(session.params),
        "form": session.form.name,
        "options": asdict(cast(Any, session.form)),
        "server": session.roster.server.hex(),
        "clients": [
            {"name": name, "key": key.hex()}
            for name, key in zip(session.roster.names, session.roster.clients, strict=True)
        ],
        "fingerprint": session.fingerprint,
    }
    return json.dumps(text, indent=2)


def read_session(path: Path | str) -> Session:
    """Read the federation file, TOML or JSON. Refuses one whose fingerprint does not match its contents."""
    return parse_session(_read(path), path)


def parse_session(data: bytes, path: Path | str) -> Session:
    """The same of the content of a file that is to be at `path`."""
    try:
        text = from_json(data) if data.lstrip().startswith(b"{") else from_toml(data)
        roster = Roster(
            tuple(bytes.fromhex(client["key"]) for client in text["clients"]),
            bytes.fromhex(text["server"]),
            tuple(client["name"] for client in text["clients"]),
        )
        form = text["retrieval" if "retrieval" in text else "form"]  # its older name
        options = {"queries": text["queries"]} if "queries" in text else text.get("options", {})  # 0.1.0 had the former
        session = Session(Params(**text["params"]), roster, form_of(form, **options)) if form in NAMES else None
        fingerprint = text["fingerprint"]
    except RecursionError:
        raise ParamsError(f"{path} is no federation file: it is nested too deeply") from None
    except (ValueError, KeyError, TypeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ParamsError(f"{path} is no federation file: {what}; make one with `secea roster`") from None
    if session is None:
        raise ParamsError(
            f"{path} is for the form {form!r}, which this version does not have: make a new one with `secea roster`"
        )
    if fingerprint != session.fingerprint:
        raise ParamsError(
            f"{path} was changed after it was made: take the file that all parties compared, or let all compare a new"
            f" one of `secea roster`; it says {fingerprint!r}, and its contents have the fingerprint"
            f" {session.fingerprint}"
        )
    return session


def _read(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ParamsError(f"{path} cannot be read: {error.strerror}") from None
