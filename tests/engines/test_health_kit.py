"""A startup kit as `secea check` sees it: whose it is, its rights, its link, its certificates, and who answers."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from made_kit import NOW, Provisioning, answering, free_port
from secea.engines import kits
from secea.engines.health import Finding, Level, kit, reach
from secea.extras import installing

AT = NOW.timestamp()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "north").mkdir()
    (tmp_path / "north" / "site.toml").write_text("")
    return tmp_path / "north" / "site.toml"


@pytest.fixture
def made(tmp_path: Path) -> Provisioning:
    return Provisioning(tmp_path / "kits", free_port())


def found(startup: Path, site: Path, *, server: bool = False, now: float = AT) -> dict[str, list[Finding]]:
    listed: dict[str, list[Finding]] = {}
    for each in kit.findings(startup, site, "" if server else "north", now, server=server):
        listed.setdefault(each.about, []).append(each)
    return listed


def troubles(startup: Path, site: Path, *, server: bool = False, now: float = AT) -> dict[str, str]:
    return {
        about: f"{each.level}: {each.says} -> {each.do}"
        for about, several in found(startup, site, server=server, now=now).items()
        for each in several
        if each.level is not Level.OK
    }


def test_nothing_is_wrong_with_the_kits_of_a_site_and_of_its_server(made: Provisioning, site: Path) -> None:
    north, server = made.kit("north", site=site), made.kit("server", site=site)
    assert troubles(server, site, server=True) == {}
    assert [each.says for each in found(server, site, server=True)["port"]] == [f"{made.port} is free"]
    with answering(made.port, server):
        assert troubles(north, site) == troubles(server, site, server=True) == {}
        assert found(north, site)["server"][0].says.startswith(f"localhost:{made.port} answers")
        assert found(server, site, server=True)["port"][0].says == f"this server answers at {made.port} already"


def not_permitted(north: Path, site: Path) -> None:
    (north / "local" / "authorization.json").unlink()


def no_classes(north: Path, site: Path) -> None:
    path = north / "local" / "resources.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"class_allow_list": []}))


def unreadable(north: Path, site: Path) -> None:
    (north / "local" / "resources.json").write_text("{")


def of_another(north: Path, site: Path) -> None:
    path = north / "startup" / "fed_client.json"
    path.write_text(path.read_text().replace("north", "south"))


def no_link(north: Path, site: Path) -> None:
    (north / "local" / "secea.toml").unlink()


def broken_link(north: Path, site: Path) -> None:
    no_link(north, site)
    (north / "local" / "secea.toml").symlink_to(site.with_name("none.toml"))


def wrong_link(north: Path, site: Path) -> None:
    no_link(north, site)
    site.with_name("other.toml").write_text("")
    (north / "local" / "secea.toml").symlink_to(site.with_name("other.toml"))


def no_key(north: Path, site: Path) -> None:
    (north / "startup" / "client.key").unlink()


def other_root(north: Path, site: Path) -> None:
    again = Provisioning(north.parent / "again", 1)
    (north / "startup" / "rootCA.pem").write_bytes((again.kit("x") / "startup" / "rootCA.pem").read_bytes())


def no_certificate(north: Path, site: Path) -> None:
    (north / "startup" / "client.crt").write_text("x")


BROKEN: list[tuple[Callable[[Path, Path], object], str, str]] = [
    (not_permitted, "kit", "wrong: .* is not permitted yet; missing: no role may bring code .*-> secea permit "),
    (no_classes, "kit", "wrong: .* is not permitted yet; missing: jobs may use secea's classes"),
    (unreadable, "kit", "wrong: a policy in .* cannot be read"),
    (of_another, "kit", "wrong: .* is the kit of 'south', and this site is 'north'"),
    (no_link, "link", "wrong: .*secea.toml is missing.* -> ln -sfn .*site.toml"),
    (broken_link, "link", "wrong: .*secea.toml is broken"),
    (wrong_link, "link", "wrong: .* leads to .*other.toml, which is another site"),
    (no_key, "certificates", "wrong: .*client.key cannot be read"),
    (no_certificate, "certificates", "wrong: .*client.crt cannot be read"),
    (other_root, "certificates", "wrong: client.crt was not issued by rootCA.pem: they are of two provisionings"),
]


@pytest.mark.parametrize(("break_it", "about", "says"), BROKEN, ids=[each[0].__name__ for each in BROKEN])
def test_what_is_broken_is_found_and_nothing_else(
    made: Provisioning, site: Path, break_it: Callable[[Path, Path], object], about: str, says: str
) -> None:
    north, server = made.kit("north", site=site), made.kit("server", site=site)
    break_it(north, site)
    with answering(made.port, server):
        seen = troubles(north, site)
    assert list(seen) == [about]
    assert re.match(says, seen[about]), seen


def test_what_is_no_kit_of_this_party_says_so(made: Provisioning, site: Path, tmp_path: Path) -> None:
    assert "is no startup kit for the site 'north'" in troubles(tmp_path, site)["kit"]
    assert "is no startup kit for the server" in troubles(made.kit("north", site=site), site, server=True)["kit"]


@pytest.mark.parametrize("text", ["{", "{}", '{"servers": []}', '{"servers": [{"service": {"target": "x"}}]}', "[]"])
def test_a_kit_whose_configuration_cannot_be_used_says_so(made: Provisioning, site: Path, text: str) -> None:
    north = made.kit("north", site=site)
    (north / "startup" / "fed_client.json").write_text(text)
    assert "fed_client.json cannot be used" in troubles(north, site)["kit"]


def test_certificates_are_valid_now_and_warn_thirty_days_before_their_end(made: Provisioning, site: Path) -> None:
    north, server = made.kit("north", site=site), made.kit("server", site=site)

    def said(days: float) -> str:
        return troubles(north, site, now=(NOW + timedelta(days=days)).timestamp()).get("certificates", "fine")

    with answering(made.port, server):
        assert said(0) == said(328.9) == "fine"
        assert re.match(r"warning: valid until .*, for 29 days -> provision", said(329.1))
        assert re.match(r"wrong: rootCA\.pem expired on .* -> provision", said(359.1))
        assert re.match(r"wrong: rootCA\.pem is not valid before .* -> set the clock", said(-1.1))


def test_a_kit_needs_nvflare(made: Provisioning, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from secea.errors import MissingExtra

    def missing(_: object) -> tuple[str, ...]:
        raise MissingExtra(f"NVFlare is not installed: {installing('nvflare')}")

    monkeypatch.setattr(kits, "lacking", missing)
    assert "NVFlare is not installed: pip install" in troubles(made.kit("north", site=site), site)["kit"]


def test_in_a_rehearsal_kits_lead_nowhere(made: Provisioning, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECEA_SITES", "x")
    assert "link" not in found(made.kit("north"), site)


# ------------------------------------------------------------------------------------------------------- who answers


def test_a_server_that_was_not_started_does_not_answer(made: Provisioning, site: Path) -> None:
    seen = troubles(made.kit("north", site=site), site)
    assert list(seen) == ["server"]
    assert seen["server"].startswith(f"wrong: nobody answers at localhost:{made.port} -> is the server started?")


def test_who_has_the_certificate_of_another_federation_is_not_the_server(
    made: Provisioning, site: Path, tmp_path: Path
) -> None:
    north, server = made.kit("north", site=site), made.kit("server", site=site)
    other = Provisioning(tmp_path / "others", made.port).kit("server")
    with answering(made.port, other):
        assert "is not the server of this kit" in troubles(north, site)["server"]
        assert f"another program uses the port {made.port}" in troubles(server, site, server=True)["port"]


def test_another_server_of_the_same_federation_has_the_port(made: Provisioning, site: Path) -> None:
    server, other = made.kit("server", site=site), Provisioning(made.folder / "x", made.port, key=made.key)
    with answering(made.port, other.kit("server")):
        assert "another server of this federation" in troubles(server, site, server=True)["port"]


def test_who_speaks_no_tls_is_not_the_server(made: Provisioning, site: Path) -> None:
    north, server = made.kit("north", site=site), made.kit("server", site=site)
    with answering(made.port, None):
        assert "does not speak TLS with this kit" in troubles(north, site)["server"]
        assert "does not speak as this server does" in troubles(server, site, server=True)["port"]


def test_who_takes_connections_and_says_nothing_is_waited_for_some_seconds(
    made: Provisioning, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "REACH_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", made.port)):
        assert f"localhost:{made.port} did not answer within" in troubles(made.kit("north", site=site), site)["server"]


def test_a_name_that_nobody_knows_is_said_to_be_unknown(
    made: Provisioning, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    assert "the name localhost is not known here" in troubles(made.kit("north", site=site), site)["server"]


# ------------------------------------------------------------------------------------------------------- where it is


def test_a_kit_lies_beside_a_sites_file_or_where_a_host_keeps_it(tmp_path: Path) -> None:
    north, server = tmp_path / "north" / "site.toml", tmp_path / "fed" / "server" / "site.toml"
    assert kit.kit_of(north, server=False) is kit.kit_of(server, server=True) is None
    (tmp_path / "north" / "kit").mkdir(parents=True)
    assert kit.kit_of(north, server=False) == tmp_path / "north" / "kit"
    hosted = tmp_path / "fed" / "kits" / "trial" / "prod_00" / "localhost"
    (hosted / "startup").mkdir(parents=True)
    (hosted / "startup" / "fed_server.json").write_text("{}")
    assert kit.kit_of(server, server=True) == hosted
    assert kit.kit_of(tmp_path / "fed" / "south" / "site.toml", server=False) is None


def test_what_a_kit_lacks_is_what_permitting_it_changes(made: Provisioning) -> None:
    north = made.kit("north", permitted=False)
    before = {path: path.read_bytes() for path in north.rglob("*") if path.is_file()}
    lacks = kits.lacking(north)
    assert {path: path.read_bytes() for path in north.rglob("*") if path.is_file()} == before
    assert kits.permit(north) == lacks != ()
    assert kits.lacking(north) == ()
