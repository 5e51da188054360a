"""An invitation to a federation on NVFlare: a text with an address, a certificate and its key, and no code.

Whoever hosts writes one for each site. The site builds its kit from the NVFlare that it has installed itself, and takes
from the invitation nothing but these texts. It is a secret between the two: whoever has it can connect as that site. It
gives no right to be that client to the others: their federation file has the site's own key.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from secea.errors import ParamsError

VERSION: Final = 1
ENDING: Final = ".invitation"
MOST_BYTES: Final = 1 << 20
"""Larger than any invitation, with the federation file of a hundred clients in it."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
"""What can be the name of a site here: NVFlare puts it into scripts and paths."""
ADDRESS: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def named(name: str, what: str) -> str:
    """A name that NVFlare takes. A `ParamsError` for any other."""
    if not NAME.fullmatch(name):
        raise ParamsError(f"{what} {name!r}: a name on NVFlare has letters, digits, - and _, and at most 63 of them")
    if name.lower() == "server":
        raise ParamsError(f"{what} {name!r}, which is what NVFlare calls its server: choose another name")
    return name


def address(server: str, port: int) -> None:
    """A `ParamsError` for what is no address of a server."""
    if not ADDRESS.fullmatch(server):
        raise ParamsError(f"{server!r} is neither a host's name nor its IPv4 address")
    if not 0 < port < 1 << 16:
        raise ParamsError(f"{port} is no port: there are 1 to 65535")


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a site needs to connect."""

    federation: str
    """The name that NVFlare has for it."""
    site: str
    """As in the federation file."""
    server: str
    """The name or address at which the server is reached."""
    port: int
    root: str = field(repr=False)
    """The certificate of this deployment's authority, as PEM."""
    certificate: str = field(repr=False)
    """Of the site, for its connection."""
    key: str = field(repr=False)
    """Of that certificate."""
    agreed: str = field(default="", repr=False)
    """The federation file, if there is one already."""

    def __post_init__(self) -> None:
        named(self.federation, "the federation is called")
        named(self.site, "the site is called")
        address(self.server, self.port)

    def checked(self) -> Invitation:
        """The same. A `ParamsError` if its certificates do not belong together, or are not for this site."""
        try:
            root = x509.load_pem_x509_certificate(self.root.encode())
            own = x509.load_pem_x509_certificate(self.certificate.encode())
            public = load_pem_private_key(self.key.encode(), None).public_key()
        except (ValueError, TypeError):
            raise ParamsError("its certificates or their key are no PEM") from None
        try:
            own.verify_directly_issued_by(root)
        except (ValueError, TypeError, InvalidSignature):
            raise ParamsError("its certificate was not made by the authority that it names") from None
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if public.public_bytes(*form) != own.public_key().public_bytes(*form):
            raise ParamsError("its key belongs to another certificate")
        if [each.value for each in own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] != [self.site]:
            raise ParamsError(f"its certificate is not for {self.site}")
        return self

    def text(self) -> str:
        """As it is written to a file."""
        lines = [
            f"# An invitation for {self.site}. Join with: secea join {self.site}{ENDING}",
            "# It has the key of a connection: hand it over where nobody else reads it.",
            f"invitation = {VERSION}",
            *(f'{name} = "{getattr(self, name)}"' for name in ("federation", "site", "server")),
            f"port = {self.port}",
        ]
        for name in ("root", "certificate", "key", "agreed"):
            if value := getattr(self, name):
                assert "'''" not in value
                lines.append(f"{name} = '''\n{value.rstrip()}\n'''")
        return "\n".join(lines) + "\n"


def parse(data: bytes, path: Path | str) -> Invitation:
    """An invitation, whose certificates are what they should be; or a `ParamsError` that names the file."""
    try:
        return Invitation(**_entries(data)).checked()
    except ParamsError as error:
        raise ParamsError(f"{path} is no invitation: {error}") from None


def _entries(data: bytes) -> dict[str, Any]:
    """All that an invitation has, each of its type."""
    if len(data) > MOST_BYTES:
        raise ParamsError("it is too large")
    try:
        found = tomllib.loads(data.decode())
    except (ValueError, RecursionError):
        raise ParamsError("it is not TOML") from None
    if found.pop("invitation", None) != VERSION:
        raise ParamsError(f"it has no line invitation = {VERSION}, which this version of secea writes")
    types = {each.name: int if each.name == "port" else str for each in fields(Invitation)}
    if unknown := found.keys() - types.keys():
        raise ParamsError(f"it has {min(unknown)!r}, for which there is no use")
    if missing := types.keys() - found.keys() - {"agreed"}:
        raise ParamsError(f"it has no {min(missing)}")
    if wrong := [name for name, value in found.items() if type(value) is not types[name]]:
        raise ParamsError(f"its {wrong[0]} is of the wrong type")
    return found


def read(path: Path | str) -> Invitation:
    """The invitation in a file."""
    try:
        with Path(path).open("rb") as file:
            return parse(file.read(MOST_BYTES + 1), path)
    except OSError as error:
        raise ParamsError(f"{path} cannot be read: {error.strerror}") from None
