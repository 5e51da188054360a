"""Startup kits as NVFlare's provisioning makes them, in short; and a server that answers with one."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from secea.engines import kits

NOW = datetime.now(UTC).replace(microsecond=0)


@dataclass
class Provisioning:
    """A root, and the kits that it issued."""

    folder: Path
    port: int
    begins: datetime = NOW - timedelta(days=1)
    expires: datetime = NOW + timedelta(days=359)
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self._root = self._certificate("trial", self.key, ca=True)

    def _certificate(self, name: str, key: ec.EllipticCurvePrivateKey, *, ca: bool = False) -> x509.Certificate:
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, "trial"))
        made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(self.begins).not_valid_after(self.expires)
        made = made.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        made = made.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
        )
        return made.sign(self.key, hashes.SHA256())

    def kit(self, name: str, *, site: Path | None = None, permitted: bool = True) -> Path:
        """A kit; `server` is that of the server. It leads to this site."""
        kit, role = self.folder / name, "server" if name == "server" else "client"
        for part in ("startup", "local"):
            (kit / part).mkdir(parents=True)
        target = {"name": "trial", "service": {"target": f"localhost:{self.port}", "scheme": "http"}}
        config: dict[str, object] = {"servers": [target]}
        if role == "client":
            config["client"] = {"fqsn": name}
        (kit / "startup" / f"fed_{role}.json").write_text(json.dumps(config))
        key = ec.generate_private_key(ec.SECP256R1())
        own = self._certificate("localhost" if role == "server" else name, key)
        (kit / "startup" / "rootCA.pem").write_bytes(self._root.public_bytes(Encoding.PEM))
        (kit / "startup" / f"{role}.crt").write_bytes(own.public_bytes(Encoding.PEM))
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (kit / "startup" / f"{role}.key").write_bytes(secret)
        (kit / "local" / "resources.json.default").write_text('{"class_allow_list": ["a.B"]}')
        roles = {"permissions": {"lead": {"submit_job": "any", "byoc": "any"}}}
        (kit / "local" / "authorization.json.default").write_text(json.dumps(roles))
        if permitted:
            kits.permit(kit)
        if site is not None:
            (kit / "local" / "secea.toml").symlink_to(site)
        return kit


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def answering(port: int, kit: Path | None) -> Iterator[None]:
    """Somebody takes connections: with the certificate of a server's kit, or with words that are no TLS."""
    context = None
    if kit is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(kit / "startup" / "server.crt", kit / "startup" / "server.key")
        context.load_verify_locations(kit / "startup" / "rootCA.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not over.is_set():
            with suppress(OSError):
                plain, _ = listener.accept()
                with plain:
                    if context is None:
                        plain.sendall(b"220 hello\r\n" * 20)
                    else:
                        with context.wrap_socket(plain, server_side=True) as sealed:
                            sealed.recv(1)

    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
