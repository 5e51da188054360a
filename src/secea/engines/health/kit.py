"""A startup kit of NVFlare: whose it is, what it may run, where it leads, its certificates, and its server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from secea.engines import kits
from secea.engines.health import reach
from secea.engines.health.finding import Finding, ok, warning, wrong
from secea.errors import MissingExtra

KIT: Final = "kit"
"""A site's kit, beside its file."""
HOSTED: Final = "kits"
"""Where a host keeps those of its server and its administrator."""
EXPIRES: Final = timedelta(days=30)
"""So long before a certificate expires, somebody should know."""
_LINK: Final = "secea.toml"


def kit_of(path: Path, *, server: bool) -> Path | None:
    """The kit of a party, by the place of its file; None where there is none."""
    folder = path.absolute().parent
    if (folder / KIT).is_dir():
        return folder / KIT
    if not server:
        return None
    found = [file.parents[1] for file in (folder.parent / HOSTED).glob("**/startup/fed_server.json")]
    return max(found, key=lambda kit: kit.stat().st_mtime, default=None)


def findings(kit: Path, path: Path, name: str, now: float, *, server: bool) -> Iterator[Finding]:
    """All that is to be said of a kit, for the party `name` whose file is at `path`."""
    startup = kit / "startup"
    config = startup / ("fed_server.json" if server else "fed_client.json")
    if not config.is_file():
        whose = "the server" if server else f"the site {name!r}"
        yield wrong("kit", f"{kit} is no startup kit for {whose}: it has no {config.relative_to(kit)}", "take its kit")
        return
    try:
        given = json.loads(config.read_bytes())
        host, port = _target(given["servers"][0]["service"]["target"])
        called = name if server else given["client"].get("fqsn", name)
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        yield wrong("kit", f"{config} cannot be used: {error}", "provision the kit anew")
        return
    if called != name:
        yield wrong("kit", f"{kit} is the kit of {called!r}, and this site is {name!r}", "take the kit of this site")
    yield from _permitted(kit)
    yield from _link(kit, path)
    own = "server" if server else "client"
    troubles = list(_certificates(startup, own, now))
    yield from troubles
    if any(each.level == "wrong" for each in troubles):
        return
    yield reach.port(startup, port) if server else reach.server(startup, host, port)


def _target(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{text!r} is no host:port")
    return host.strip("[]"), int(port)


def _permitted(kit: Path) -> Iterator[Finding]:
    try:
        lacks = kits.lacking(kit)
    except MissingExtra as error:
        yield wrong("kit", str(error))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        yield wrong("kit", f"a policy in {kit / 'local'} cannot be read: {error}", "take the file from a fresh kit")
    else:
        if lacks:
            yield wrong("kit", f"{kit} is not permitted yet; missing: {'; '.join(lacks)}", f"secea permit {kit}")
        else:
            yield ok("kit", f"{kit} runs secea's jobs, and nothing else is brought or read there")


def _link(kit: Path, path: Path) -> Iterator[Finding]:
    """The kit leads to this very file."""
    link = kit / "local" / _LINK
    if "SECEA_SITES" in os.environ:  # a rehearsal: kits lead nowhere
        return
    if not link.exists():
        leads = "is broken" if link.is_symlink() else "is missing"
        yield wrong("link", f"{link} {leads}: it leads the kit to this site", f"ln -sfn {path.resolve()} {link}")
    elif not link.samefile(path):
        yield wrong(
            "link", f"{link} leads to {link.resolve()}, which is another site", f"ln -sfn {path.resolve()} {link}"
        )
    else:
        yield ok("link", f"{link} leads to this site")


# ------------------------------------------------------------------------------------------------------- certificates


def _certificates(startup: Path, own: str, now: float) -> Iterator[Finding]:
    """The kit's own certificate and the root's: valid now, and for a while."""
    about, at, ends = "certificates", datetime.fromtimestamp(now, UTC), list[datetime]()
    loaded = list[x509.Certificate]()
    for name in (reach.ROOT, f"{own}.crt"):
        try:
            certificate = x509.load_pem_x509_certificate((startup / name).read_bytes())
        except (OSError, ValueError) as error:
            yield wrong(about, f"{startup / name} cannot be read: {error}", "take it from a fresh kit")
            return
        begins, expires = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        loaded.append(certificate)
        ends.append(expires)
        if at < begins:
            yield wrong(
                about, f"{name} is not valid before {begins:%Y-%m-%d %H:%M} UTC", "set the clock of this machine (NTP)"
            )
            return
        if at > expires:
            yield wrong(about, f"{name} expired on {expires:%Y-%m-%d}", "provision the federation's kits anew")
            return
    if not os.access(startup / f"{own}.key", os.R_OK):
        yield wrong(about, f"{startup / own}.key cannot be read", "take it from a fresh kit, or become its owner")
        return
    root, mine = loaded
    try:
        mine.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        yield wrong(
            about, f"{own}.crt was not issued by {reach.ROOT}: they are of two provisionings", "take a fresh kit"
        )
        return
    left = (min(ends) - at).days
    says = f"valid until {min(ends):%Y-%m-%d}, for {left} {'day' if left == 1 else 'days'}"
    if min(ends) - at < EXPIRES:
        yield warning(about, says, "provision the federation's kits anew before that day")
    else:
        yield ok(about, says)
