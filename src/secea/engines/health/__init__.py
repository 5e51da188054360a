"""Whether a party is ready for its first run: everything that a run needs, looked at before it.

Nothing is locked, nothing is left on the disk, and what runs already does not notice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

from secea.engines.files import key_fingerprint
from secea.engines.health import data, kit, machine, place
from secea.engines.health.finding import Finding, Level, ok, wrong
from secea.engines.health.machine import Machine
from secea.engines.site import Site, site_at
from secea.engines.store import in_use
from secea.errors import ParamsError
from secea.party.session import Session

__all__ = ["Finding", "Level", "Machine", "examine"]


def examine(where: Path | str, startup: Path | None = None, this: Machine | None = None) -> Iterator[Finding]:
    """All findings about a party. `startup` is its kit of NVFlare, where that is not in its usual place."""
    path, this = site_at(where), this or Machine()
    try:
        site = Site.read(path)
    except ParamsError as error:
        yield wrong("site file", str(error))
        return
    server = not site.participant
    yield ok("site file", f"{path}: {f'the site {site.name!r}' if site.name and not server else 'the server'}")
    found = startup or kit.kit_of(path, server=server)
    yield from _party(site, this, server=server)
    yield from machine.findings(this, "nvflare" if found else "")
    yield from place.clock(site, this)
    if found:
        yield from kit.findings(found, path, site.name, this.now, server=server)


def _party(site: Site, this: Machine, *, server: bool) -> Iterator[Finding]:
    """What depends on the federation file."""
    yield from place.folder(site)
    yield from place.log(site)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about few clients: `secea roster` and `secea plan` say it
            session = site.session
    except ParamsError as error:
        yield wrong("federation", str(error))
        return
    yield ok(
        "federation",
        f"{site.federation.resolve()} has the fingerprint {session.fingerprint}: compare it with the others",
    )
    if server and site.name in session.roster.names:
        yield wrong(
            "participant", f"{site.name!r} is a client, and its site file names no function",
            'participant = "module:function"',
        )  # fmt: skip
        return
    yield from place.room(site, session, this, server=server)
    fits = list(_key(site, session, server=server))
    yield from fits
    if all(each.level is Level.OK for each in fits):
        yield from place.saved(site, server=server)
    if server:
        return
    if in_use(site.state):
        yield ok("participant", "a run uses this site now, so that its function is not called a second time")
    else:
        yield from data.participant(site, session.params)


def _key(site: Site, session: Session, *, server: bool) -> Iterator[Finding]:
    """The key is private, and the one that the federation file pins for this party."""
    roster = session.roster
    if not server and site.name not in roster.names:
        yield wrong(
            "name",
            f"{site.name!r} is not in {site.federation}, which names {', '.join(map(repr, roster.names))}",
            "write the name that the federation file has into site.toml",
        )
        return
    try:
        public = site.key.public
    except ParamsError as error:
        yield wrong("key", str(error))
        return
    pinned = roster.server if server else roster.clients[roster.names.index(site.name)]
    whose = "the server" if server else repr(site.name)
    if public != pinned:
        yield wrong(
            "key",
            f"{site.identity} has the fingerprint {key_fingerprint(public)}; the federation file pins"
            f" {key_fingerprint(pinned)} for {whose}",
            "point `identity` to the key whose .pub was handed in, or let all agree on a new federation file",
        )
    else:
        yield ok("key", f"{site.identity} is private, and the one that the federation file pins for {whose}")
