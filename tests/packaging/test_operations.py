"""What docs/packaging.md says to do with state, keys and versions, done to real parties whose cores are processes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cores import run
from secea.engines.files import read_identity, read_session, write_session
from secea.engines.site import Site
from secea.errors import FederationError
from secea.params import Params
from sites import Sites
from terminal import environment, shim
from written import BLOCKS

pytestmark = pytest.mark.slow
CALLED = {"north": "site-1", "south": "site-2", "west": "site-3"}


class Parties(Sites):
    """The parties as the page has them: each has all its files in its own folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        session = read_session(self.folder / "federation.json")
        for name in (*self.names, "server"):
            write_session(session, self.folder / name / "federation.toml")
            self.write(name, federation="federation.toml")
        (self.folder / "backup").mkdir()
        self.tools = shim(self.folder / "bin")

    def does(self, title: str, party: str = "") -> str:
        """The commands below this title of the page, in a shell that stops at an error."""
        script = BLOCKS[title].replace("/srv/backup", f"{self.folder}/backup").replace("PARTY", party)
        for theirs, ours in CALLED.items():
            script = script.replace(f"/srv/secea/{theirs}\n", f"/srv/secea/{ours}\n").replace(f"{theirs}=", f"{ours}=")
            script = script.replace(f"{theirs}/", f"{ours}/")
        ran = subprocess.run(  # noqa: S603
            ["/bin/sh", "-ec", script.replace("/srv/secea", str(self.folder))],
            env=environment(self.tools), capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def holds(self, rounds: int) -> None:
        """A run of so many rounds, with everybody."""
        before = len(self.rounds())
        run(self, rounds)
        assert [line["clients"] for line in self.rounds()[before:]] == [[0, 1, 2]] * rounds


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties(tmp_path / "secea", Params(clients=3, dim=2, collusion=1, max_entities=30, max_union=40))


def lose(parties: Parties, name: str) -> None:
    """The disk of a party dies; its function and its data come from elsewhere."""
    folder = parties.folder / name
    shutil.rmtree(folder / "state")
    for path in (*folder.glob("*.toml"), *folder.glob("identity*"), folder / "audit.jsonl"):
        path.unlink()


def test_a_site_whose_disk_died_comes_back_from_the_newest_copy_and_keeps_the_keys_of_its_names(
    parties: Parties,
) -> None:
    parties.holds(2)
    parties.does("back up the keys of north")
    parties.does("back up the state of north")
    assert all(path.stat().st_mode & 0o077 == 0 for path in (parties.folder / "backup").iterdir())
    lose(parties, "site-1")
    parties.does("bring north back")
    parties.forget_the_past()
    parties.holds(2)
    assert not parties.lost()
    assert not parties.log("server", event="accepted", kind="list"), "no name is asked for again"
    parties.check_means()


def test_a_key_that_is_brought_back_is_for_its_owner_alone(parties: Parties) -> None:
    parties.holds(1)
    parties.does("back up the keys of north")
    parties.does("back up the state of north")
    lose(parties, "site-1")
    parties.does("bring north back")
    read_identity(parties.folder / "site-1" / "identity.pem")
    assert Site.read(parties.file("site-1")).store.load("client")


def test_a_site_without_a_copy_of_its_state_is_left_out_until_there_is_a_new_federation_file(parties: Parties) -> None:
    parties.holds(1)
    shutil.rmtree(parties.folder / "site-1" / "state")
    with pytest.raises(FederationError, match="site-1: it has no share of the key of the names"):
        run(parties, 1)  # a round of two is none
    rotate(parties)
    parties.forget_the_past()
    parties.holds(1)
    parties.check_means()


def test_a_server_whose_state_is_lost_begins_with_a_new_union_and_needs_no_copy(parties: Parties) -> None:
    parties.holds(1)
    shutil.rmtree(parties.folder / "server" / "state")
    parties.forget_the_past()
    parties.holds(1)
    assert not parties.log("server", event="accepted", kind="list")
    parties.check_means()


def rotate(parties: Parties) -> None:
    parties.does("at north, a new key")
    parties.does("whoever makes the federation file")
    shown = {parties.does("everybody", name) for name in (*parties.names, "server")}
    assert len(shown) == 1, "all parties see the same fingerprint"
    parties.does("at north, use it")


def test_a_key_is_rotated_in_the_steps_of_the_page(parties: Parties) -> None:
    parties.holds(1)
    before = read_identity(parties.folder / "site-1" / "identity.pem")
    rotate(parties)
    parties.forget_the_past()
    parties.holds(1)
    parties.check_means()
    session = Site.read(parties.file("server")).session
    assert before.public not in session.roster.clients
    parties.does("at north, when the next run has begun")
    parties.holds(1)
    assert not [path for path in (parties.folder / "site-1").rglob("*") if path.name in ("identity.pem", "state")]


def test_a_site_that_still_has_the_old_file_is_refused_by_its_name_and_told_why(parties: Parties) -> None:
    parties.holds(1)
    rotate(parties)
    old = read_session(parties.folder / "federation.json")
    (parties.folder / "site-2" / "federation.toml").unlink()
    write_session(old, parties.folder / "site-2" / "federation.toml")
    with pytest.raises(FederationError, match="site-2"):
        run(parties, 1)
    assert any("hello is for another session" in line["why"] for line in parties.log("site-2", event="left out"))
