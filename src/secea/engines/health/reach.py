"""One connection to a server of NVFlare, to see who answers. TLS is the engine's, with the certificates of its kit."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Final

from cryptography import x509

from secea.engines.health.finding import Finding, ok, wrong

ROOT: Final = "rootCA.pem"
REACH_SECONDS: Final = 5.0


def server(startup: Path, host: str, port: int) -> Finding:
    """Whether the federation's own server answers. NVFlare checks its certificate, and not its name."""
    where = f"{host}:{port}"
    try:
        _shaken(startup, host, port, "client")
    except socket.gaierror:
        return wrong("server", f"the name {host} is not known here", "ask whoever hosts, or add it to /etc/hosts")
    except ConnectionRefusedError:
        return wrong("server", f"nobody answers at {where}", "is the server started? does a firewall refuse?")
    except TimeoutError:
        return wrong(
            "server", f"{where} did not answer within {REACH_SECONDS:.0f} s", "does a firewall drop what you send?"
        )
    except ssl.SSLCertVerificationError as error:
        return wrong(
            "server",
            f"who answers at {where} is not the server of this kit: {error.verify_message}",
            "is it the right address, and a kit of the newest provisioning?",
        )
    except ssl.SSLError as error:
        return wrong(
            "server",
            f"who answers at {where} does not speak TLS with this kit: {error.reason}",
            "is it the right port?",
        )
    except OSError as error:
        return wrong("server", f"{where} cannot be reached: {error.strerror or error}", "look into the network")
    return ok("server", f"{where} answers, with a certificate of this federation")


def port(startup: Path, number: int) -> Finding:
    """Whether the server's port is free on this machine, or this server has it already."""
    about, taken = "port", f"another program uses the port {number}"
    do = "end it, or provision the kits with another port"
    try:
        shown = _shaken(startup, "127.0.0.1", number, "server")
    except ConnectionRefusedError:
        return ok(about, f"{number} is free")
    except (TimeoutError, OSError):
        return wrong(about, f"{taken}, and does not speak as this server does", do)
    mine = x509.load_pem_x509_certificate((startup / "server.crt").read_bytes())
    if x509.load_der_x509_certificate(shown) == mine:
        return ok(about, f"this server answers at {number} already")
    return wrong(about, f"{taken}: another server of this federation", do)


def _shaken(startup: Path, host: str, port: int, own: str) -> bytes:
    """The certificate of who answers there, after a handshake in which both sides show theirs."""
    context = ssl.create_default_context(cafile=str(startup / ROOT))
    context.check_hostname = False  # as NVFlare has it
    context.load_cert_chain(startup / f"{own}.crt", startup / f"{own}.key")
    with (
        socket.create_connection((host, port), REACH_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as sealed,
    ):
        return sealed.getpeercert(binary_form=True) or b""
