"""Invitations: what is in them, what is refused, and what a kit takes from them."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secea.engines import provisioning
from secea.engines.invitation import Invitation, parse, read
from secea.engines.provisioning import Project
from secea.errors import ParamsError

PROJECT = Project("kg", "localhost", 18002, ("north", "south"))


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioning.provision(PROJECT, tmp_path_factory.mktemp("host") / "kits")


@pytest.fixture(scope="module")
def invited(kits: Path) -> Invitation:
    return provisioning.invitation(PROJECT, kits, "north", "agreed = 1")


def test_an_invitation_is_read_as_it_was_written(invited: Invitation) -> None:
    once = parse(invited.text().encode(), "north.invitation")
    for name in ("root", "certificate", "key", "agreed"):  # texts end with one line break
        assert getattr(once, name) == getattr(invited, name).rstrip() + "\n"
    assert (once.federation, once.site, once.server, once.port) == ("kg", "north", "localhost", 18002)
    assert parse(once.text().encode(), "north.invitation") == once


def test_its_repr_shows_no_key(invited: Invitation) -> None:
    assert "BEGIN" not in repr(invited)
    assert "BEGIN" in invited.text()


FAULTS: dict[str, tuple[Callable[[str], str], str]] = {
    "not TOML": (lambda text: text.replace("invitation = 1", "invitation 1"), "not TOML"),
    "another version": (lambda text: text.replace("invitation = 1", "invitation = 2"), "no line invitation = 1"),
    "something more": (lambda text: text + "run = 'rm'\n", "it has 'run', for which there is no use"),
    "no port": (lambda text: text.replace("port = 18002\n", ""), "it has no port"),
    "a port in words": (lambda text: text.replace("port = 18002", 'port = "18002"'), "its port is of the wrong type"),
    "a port that is true": (lambda text: text.replace("port = 18002", "port = true"), "its port is of the wrong type"),
    "no such port": (lambda text: text.replace("port = 18002", "port = 65536"), "65536 is no port"),
    "a name for a shell": (lambda text: text.replace('site = "north"', 'site = "north;reboot"'), "letters, digits"),
    "a name with a path": (lambda text: text.replace('site = "north"', 'site = "../north"'), "letters, digits"),
    "another name": (lambda text: text.replace('site = "north"', 'site = "south"'), "its certificate is not for south"),
    "a federation with a path": (lambda text: text.replace('"kg"', '"../kg"'), "letters, digits"),
    "a server for a shell": (lambda text: text.replace('"localhost"', '"$(id)"'), "neither a host's name nor"),
    "no PEM": (lambda text: text.replace("BEGIN CERTIFICATE", "BEGIN CERTIFICAT"), "no PEM"),
    "no key": (lambda text: text.replace("PRIVATE KEY", "PUBLIC KEY"), "no PEM"),
    "nested": (lambda text: text + f"run = {'[' * 5000}{']' * 5000}\n", "not TOML"),
    "too large": (lambda text: text + "#" * (1 << 20), "too large"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_invitation_is_refused_with_its_fault(invited: Invitation, fault: str) -> None:
    spoil, said = FAULTS[fault]
    assert spoil(invited.text()) != invited.text()
    with pytest.raises(ParamsError, match=r"north\.invitation is no invitation") as refused:
        parse(spoil(invited.text()).encode(), "north.invitation")
    assert said in str(refused.value)


def test_certificates_that_do_not_belong_together_are_refused(invited: Invitation, kits: Path, tmp_path: Path) -> None:
    south = provisioning.invitation(PROJECT, kits, "south")
    elsewhere = provisioning.invitation(PROJECT, provisioning.provision(PROJECT, tmp_path / "kits"), "north")
    with pytest.raises(ParamsError, match="its key belongs to another certificate"):
        replace(invited, key=south.key).checked()
    with pytest.raises(ParamsError, match="its certificate is not for north"):
        replace(invited, key=south.key, certificate=south.certificate).checked()
    with pytest.raises(ParamsError, match="was not made by the authority"):
        replace(invited, root=elsewhere.root).checked()


@given(data=st.binary(max_size=300))
def test_whatever_bytes_come_they_are_an_invitation_or_one_error(data: bytes) -> None:
    with pytest.raises(ParamsError, match="x is no invitation"):
        parse(data, "x")


def test_an_invitation_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"missing\.invitation cannot be read"):
        read(tmp_path / "missing.invitation")


def test_every_field_of_an_invitation_is_in_its_text(invited: Invitation) -> None:
    lines = invited.text().splitlines()
    for each in fields(Invitation):
        assert any(line.startswith(f"{each.name} = ") for line in lines), each.name


def test_a_kit_takes_nothing_from_an_invitation_but_its_certificates(invited: Invitation, tmp_path: Path) -> None:
    """Its scripts and settings are those that the provisioning of this machine makes, with secea's changes."""
    (tmp_path / "site.toml").write_text("")
    changes = provisioning.kit_of(invited, tmp_path / "kit", tmp_path / "site.toml")
    assert changes[-1] == "no role may bring code in a job, or read files by shell commands"
    own = provisioning.provision(replace(PROJECT, sites=("north",)), tmp_path / "own") / "north"
    made = {path.relative_to(tmp_path / "kit"): path for path in (tmp_path / "kit").rglob("*") if path.is_file()}
    for path, file in made.items():
        if path.name in ("rootCA.pem", "client.crt", "client.key"):
            source = {"rootCA.pem": invited.root, "client.crt": invited.certificate, "client.key": invited.key}
            assert file.read_text() == source[path.name]
            assert not stat.S_IMODE(file.stat().st_mode) & 0o077
        elif path.name not in ("resources.json", "authorization.json", "secea.toml"):
            assert file.read_bytes() == (own / path).read_bytes(), path
    assert (tmp_path / "kit" / "local" / "secea.toml").resolve() == tmp_path / "site.toml"
    rights = json.loads((tmp_path / "kit" / "local" / "authorization.json").read_text())["permissions"]
    allowed = json.loads((tmp_path / "kit" / "local" / "resources.json").read_text())["class_allow_list"]
    assert allowed == [
        "nvflare.collab.runtime.executor.CollabExecutor", "secea.engines.nvflare.Member",
    ]  # fmt: skip
    assert all(given["byoc"] == "none" for given in rights.values() if "byoc" in given)
    assert not list(tmp_path.glob("kit-*")), "what was made aside is left"
