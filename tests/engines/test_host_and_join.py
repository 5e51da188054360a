"""What `secea host` and `secea join` make, leave as it is, and refuse, before anything runs."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from secea.cli import main
from secea.commands import shell
from secea.commands.host import sentence
from secea.engines.files import read_identity, read_session, write_identity, write_session
from secea.engines.hosting import Hosting
from secea.engines.invitation import read
from secea.engines.joining import Bring, Joining
from secea.engines.roll import Draft, offered
from secea.engines.site import Site
from secea.errors import ParamsError
from secea.wire.keys import Identity

POLICY = ("dim=2", "max_entities=10", "max_union=20")
DRAFT = Draft(("north", "south"), POLICY, "keyed")
BRING = Bring("mine:participant", {})


def hosting(folder: Path, draft: Draft | None = DRAFT, **other: Any) -> Hosting:
    settings: dict[str, Any] = {"server": "localhost", "port": 18002, "rounds": 1}
    return Hosting(folder / "federation.toml", draft, **settings | other)


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hosted") / "kg"
    made = list(hosting(folder).prepare())
    names = [path.relative_to(folder).as_posix() for path, _ in made]
    assert names == [
        "server/identity.pem", "server/identity.pem.pub", "server/site.toml", "kits",
        "invitations/north.invitation", "invitations/south.invitation",
    ]  # fmt: skip
    return folder


def test_what_is_there_stays_as_it_is(hosted: Path) -> None:
    before = {path: path.read_bytes() for path in hosted.rglob("*") if path.is_file()}
    assert list(hosting(hosted).prepare()) == []
    assert {path: path.read_bytes() for path in hosted.rglob("*") if path.is_file()} == before


def test_secrets_of_the_host_are_private(hosted: Path) -> None:
    for path in (hosted / "server" / "identity.pem", *hosted.glob("invitations/*"), *hosted.rglob("*.key")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_the_server_keeps_its_jobs_in_its_own_folder_and_listens_on_loopback(hosted: Path) -> None:
    kit = hosted / "kits" / "federation" / "prod_00" / "localhost"
    assert json.loads((kit / "local" / "resources.json").read_text())["class_allow_list"] == [
        "nvflare.collab.runtime.controller.CollabController", "secea.engines.nvflare.Conductor",
    ]  # fmt: skip
    assert "/tmp/nvflare" not in (kit / "local" / "resources.json").read_text()  # noqa: S108
    assert (kit / "local" / "secea.toml").resolve() == (hosted / "server" / "site.toml").resolve()


def test_another_address_or_other_sites_need_new_kits(hosted: Path) -> None:
    for other in (hosting(hosted, port=18003), hosting(hosted, Draft(("north", "east"), POLICY, "keyed"))):
        with pytest.raises(ParamsError, match=r"is for localhost:18002, with north, south\. Give that address"):
            list(other.prepare())


def host(*words: str) -> Result:
    return CliRunner().invoke(main, ["host", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "does not exist: say who takes part"),
        (("--site", "north", "--site", "south"), "the parameter dim is missing: --param dim=..."),
        (("--site", "north", *(f"--param={each}" for each in POLICY)), "clients must be"),
        (("--site", "a", "--site", "b;c", *(f"--param={each}" for each in POLICY)), "a client is called 'b;c'"),
        (
            ("--site", "a", "--site", "localhost", *(f"--param={each}" for each in POLICY)),
            "a client is called 'localhost', like the server's address",
        ),
        (("--site", "a", "--site", "a", *(f"--param={each}" for each in POLICY)), "two sites are called 'a'"),
        (("--site", "a", "--address", "here:port"), "--address here:port: expected HOST or HOST:PORT"),
        (
            ("--site", "a", "--site", "b", *(f"--param={each}" for each in POLICY), "--address", "a b"),
            "'a b' is neither a host's name nor its IPv4 address",
        ),
    ],
)
def test_what_cannot_be_hosted_is_said_before_anything_is_written(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    ran = host(str(tmp_path / "kg" / "federation.toml"), *words)
    assert ran.exit_code == 3, ran.output
    assert said in ran.output
    assert not (tmp_path / "kg").exists()


# --------------------------------------------------------------------------------------------------------------- join


def joining(hosted: Path, folder: Path, name: str = "north") -> Joining:
    return Joining(read(hosted / "invitations" / f"{name}.invitation"), folder)


def test_a_site_makes_its_own_key_and_kit_once(hosted: Path, tmp_path: Path) -> None:
    site = joining(hosted, tmp_path / "north")
    names = [path.name for path, _ in site.prepare(BRING, None)]
    assert names == ["identity.pem", "identity.pem.pub", "site.toml", "kit"]
    assert list(joining(hosted, tmp_path / "north").prepare(None, None)) == []
    found = Site.read(tmp_path / "north" / "site.toml")
    assert (found.name, found.participant) == ("north", "mine:participant")
    assert (tmp_path / "north" / "kit" / "local" / "secea.toml").resolve() == tmp_path / "north" / "site.toml"
    for secret in ("identity.pem", "invitation", "kit/startup/client.key"):
        assert not stat.S_IMODE((tmp_path / "north" / secret).stat().st_mode) & 0o077, secret


def test_what_a_site_brings_is_said_once_and_then_in_its_file(hosted: Path, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match="what does this site bring"):
        list(joining(hosted, tmp_path / "north").prepare(None, None))
    assert not (tmp_path / "north").exists()
    list(joining(hosted, tmp_path / "north").prepare(BRING, None))
    with pytest.raises(ParamsError, match="says what this site brings: change it there"):
        list(joining(hosted, tmp_path / "north").prepare(BRING, None))


def test_a_folder_of_another_site_or_invitation_is_not_touched(hosted: Path, tmp_path: Path) -> None:
    list(joining(hosted, tmp_path / "north").prepare(BRING, None))
    with pytest.raises(ParamsError, match="belongs to north: choose another --folder"):
        list(joining(hosted, tmp_path / "north", "south").prepare(None, None))
    list(hosting(tmp_path / "other", Draft(("north", "west"), POLICY, "keyed")).prepare())
    with pytest.raises(ParamsError, match="was made of another invitation: move it away"):
        list(joining(tmp_path / "other", tmp_path / "north").prepare(None, None))


def agreed(folder: Path) -> dict[str, Identity]:
    """A federation file as `secea roster` makes it, and the keys of all."""
    keys = {name: Identity.generate() for name in ("server", "north", "south")}
    (folder / "server").mkdir(parents=True)
    for name, identity in keys.items():
        write_identity(identity, folder / (f"{name}.pem" if name != "server" else "server/identity.pem"))
    clients = [f"{name}={folder / name}.pem.pub" for name in ("north", "south")]
    from secea.engines.files import make_session

    session = make_session(str(folder / "server" / "identity.pem.pub"), clients, POLICY, "keyed")
    write_session(session, folder / "federation.toml")
    return keys


def test_a_federation_file_that_is_there_travels_in_the_invitation(tmp_path: Path) -> None:
    folder = tmp_path / "kg"
    keys = agreed(folder)
    list(hosting(folder, None).prepare())
    site = joining(folder, tmp_path / "north")
    made = [path.name for path, _ in site.prepare(BRING, folder / "north.pem")]
    assert made == ["site.toml", "federation.toml.offered", "kit"]
    assert not (tmp_path / "north" / "federation.toml").exists(), "nobody has compared it"
    assert read_session(offered(site.site.federation)).hash == read_session(folder / "federation.toml").hash
    assert read_identity(site.site.identity).public == keys["north"].public


def test_a_new_key_does_not_fit_a_federation_file_that_has_another_one(tmp_path: Path) -> None:
    agreed(tmp_path / "kg")
    list(hosting(tmp_path / "kg", None).prepare())
    for key in (None, tmp_path / "kg" / "south.pem"):
        with pytest.raises(ParamsError, match="has a key for north: give --identity with the file of that key"):
            list(joining(tmp_path / "kg", tmp_path / "north").prepare(BRING, key))
        assert not (tmp_path / "north").exists()


def test_the_host_needs_the_key_that_the_federation_file_has(tmp_path: Path) -> None:
    folder = tmp_path / "kg"
    agreed(folder)
    (folder / "server" / "identity.pem").unlink()
    (folder / "server" / "identity.pem.pub").unlink()
    write_identity(Identity.generate(), folder / "server" / "identity.pem")
    with pytest.raises(ParamsError, match="has another key for the server than"):
        list(hosting(folder, None).prepare())
    assert not (folder / "kits").exists()


def test_an_invitation_for_another_federation_file_is_refused_where_one_was_agreed_on(
    hosted: Path, tmp_path: Path
) -> None:
    site = joining(hosted, tmp_path / "north")
    list(site.prepare(BRING, None))
    agreed(tmp_path / "kg")
    (tmp_path / "north" / "federation.toml").write_bytes((tmp_path / "kg" / "federation.toml").read_bytes())
    other = tmp_path / "other"
    agreed(other)
    list(hosting(other, None).prepare())
    with pytest.raises(ParamsError, match="for another federation file than"):
        list(joining(other, tmp_path / "north").prepare(None, None))


def join(*words: str) -> Result:
    return CliRunner().invoke(main, ["join", *words])


def test_the_command_says_what_is_wrong_before_it_makes_anything(hosted: Path, tmp_path: Path) -> None:
    invited = str(hosted / "invitations" / "north.invitation")
    (tmp_path / "wrong.csv").write_text("name,x,y\na,1\n")
    for words, code, said in (
        ((str(tmp_path / "no"),), 3, "cannot be read"),
        ((invited, "--folder", str(tmp_path / "n")), 3, "what does this site bring"),
        ((invited, "--folder", str(tmp_path / "n"), "--table", str(tmp_path / "wrong.csv")), 3, "wrong.csv"),
        ((invited, "--table", str(tmp_path / "wrong.csv"), "--participant", "a:b"), 2, "give one of them"),
    ):
        ran = join(*words)
        assert ran.exit_code == code, ran.output
        assert said in ran.output
    assert not (tmp_path / "n").exists()


def test_what_others_send_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    line = {"event": "lost", "client": "west", "cause": "failed", "why": "\x1b[2Jfingerprint\r\nall agree\u202e"}
    shell.happened(line, sentence(line))
    assert capsys.readouterr().out.partition("  ")[2] == "west is lost (failed): ?[2Jfingerprint??all agree?\n"


def test_every_line_of_a_log_that_a_host_is_told_of_has_its_words() -> None:
    for line in (
        {"event": "connected", "clients": [], "missing": ["north"]},
        {"event": "stage", "training": True, "round": 1, "clients": ["north"]},
        {"event": "round", "number": 1, "clients": ["north"]},
        {"event": "back", "clients": ["north"]},
        {"event": "declines", "client": "north"},
    ):
        assert "north" in sentence(line)
    assert sentence({"event": "sent"}) == sentence({"event": "stage", "training": False}) == ""
