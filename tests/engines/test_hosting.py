"""`secea host`, `secea join` and `secea stop` with real processes on loopback: as one command each."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from hosted import RESULT, Town, waited

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("default"),  # NVFlare's and its dependencies' own
]

TABLES = {
    "north": {"aspirin": (1.0, 2.0), "ibuprofen": (0.5, 0.25)},
    "south": {"aspirin": (3.0, 4.0), "codeine": (-1.0, 1.0)},
}
POLICY = ("--param", "dim=2", "--param", "max_entities=10", "--param", "max_union=20")
MINE = Path(__file__).with_name("mine.py")


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as here:
        yield here


def private(path: Path) -> bool:
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


@pytest.mark.smoke
def test_one_command_to_host_and_one_to_join_give_everybody_means(town: Town) -> None:
    for name, table in TABLES.items():
        rows = "".join(f"{entity},{x},{y}\n" for entity, (x, y) in table.items())
        (town.folder / f"{name}.csv").write_text(f"name,x,y\n{rows}")
    host = town.host(*POLICY, *(word for name in TABLES for word in ("--site", name)))
    host.says("listening at localhost")
    for name in TABLES:
        town.join(name, "--table", f"{name}.csv")
    town.all_agree(host)
    assert host.code() == 0, host.text
    assert "completed: 1 of 1 rounds; every client took part in it." in host.text
    for name, site in town.sites.items():
        assert site.code() == 0, site.text
        lines = (town.folder / name / "means.csv").read_text().splitlines()
        means = {line.split(",")[0]: np.array(line.split(",")[1:], float) for line in lines[1:]}
        assert lines[0] == "name,x,y"
        assert list(means) == list(TABLES[name])
        for entity, mean in means.items():
            owners = [table[entity] for table in TABLES.values() if entity in table]
            assert np.abs(mean - np.mean(owners, axis=0)).max() < 2**-18
    for folder in ("kg/server", *TABLES):  # every file that it wrote was named, and secrets are private
        assert private(town.folder / folder / "identity.pem")
        assert private(town.folder / folder / "audit.jsonl")
    said = host.text + "".join(site.text for site in town.sites.values())
    for path in ("kg/server/identity.pem", "kg/server/site.toml", "kg/kits", "kg/invitations/north.invitation",
                 "north/identity.pem", "north/site.toml", "north/kit", "south/means.csv"):  # fmt: skip
        assert path in said, path


@pytest.mark.slow
def test_a_site_that_is_killed_returns_and_the_host_can_be_stopped_and_goes_on(town: Town) -> None:
    """Five processes: a host and four sites, which train for a second."""
    names = ("north", "east", "south", "west")
    host = town.host(
        *POLICY, "--param", "dropouts=1", "--rounds", "500", *(word for name in names for word in ("--site", name))
    )
    host.says("listening at localhost")
    for name in names:
        (town.folder / name).mkdir()
        (town.folder / name / "mine.py").write_bytes(MINE.read_bytes())
        town.join(name, "--participant", "mine:participant")
    town.all_agree(host)
    waited(lambda: len(town.rounds()) >= 2 and town.rounds()[-1] == list(names), "two rounds of all")

    town.sites["west"].kill()
    host.says("west is lost .unreachable.")
    gone = len(town.rounds())
    waited(lambda: ["north", "east", "south"] in town.rounds()[gone:], "a round of those who are left")
    assert town.state()["clients"]["west"]["doing"] == "lost"

    returned = town.join("west")
    host.says("west: back")
    assert "wrote" not in returned.text
    waited(lambda: town.rounds()[gone:][-1] == list(names), "a round of all after the return")

    stopped = town.run("stop", "kg")
    assert (stopped.code(), stopped.text) == (0, "kg: ended\n")
    assert host.code() == 0, host.text
    done = len(town.rounds())
    assert f"paused: {done} of 500 rounds" in host.text
    assert host.text.count("NVFlare starts a process") == 2, "a return costs one more job"
    assert town.state(RESULT)["outcome"] == "paused"
    assert all(site.code() == 1 for site in town.sites.values())
    assert nobody_is_left(town)
    trained = {name: (town.folder / name / "trained").read_text().split() for name in names}

    refused = town.host("--rounds", "1")
    assert (refused.code(), f"{done} rounds are done" in refused.text) == (3, True)
    again = town.host("--rounds", str(done + 2))
    for name in names:
        town.join(name)
    assert again.code() == 0, again.text
    assert f"completed: {done + 2} of {done + 2} rounds" in again.text
    once_more = town.host()
    assert (once_more.code(), f"all {done + 2} rounds are done" in once_more.text) == (3, True)
    for name, site in town.sites.items():
        assert site.code() == 0, site.text
        now = (town.folder / name / "trained").read_text().split()
        assert now[: len(trained[name])] == trained[name]
        assert len(now) >= len(trained[name]) + 2


@pytest.mark.slow
def test_who_does_not_agree_ends_the_roll_call_and_gives_nothing(town: Town) -> None:
    host = town.host(*POLICY, "--site", "north", "--site", "south")
    host.says("listening at localhost")
    for name, table in TABLES.items():
        (town.folder / f"{name}.csv").write_text("".join(f"{e},{x},{y}\n" for e, (x, y) in table.items()))
        town.join(name, "--table", f"{name}.csv")
    north, south = town.sites["north"], town.sites["south"]
    assert north.fingerprint() == south.fingerprint() == host.fingerprint()
    north.answer("yes")
    south.answer("n")  # no word
    south.answer("no")
    assert south.code() == 1
    assert "you did not agree" in south.text
    assert host.code() == 1
    assert "south did not agree" in host.text
    assert not (town.folder / "kg" / "federation.toml").exists()
    assert not (town.folder / "south" / "federation.toml").exists()
    assert not list(town.folder.glob("*/state/client.*"))
    assert north.code() == 1
    assert nobody_is_left(town)


def nobody_is_left(town: Town) -> bool:
    """No process of NVFlare or of a core works in these folders any more."""
    found = [words for folder in town.folder.iterdir() for words in working(town, folder.name)]
    assert not found, found
    return True


@pytest.mark.slow
def test_a_host_that_is_killed_comes_back_to_its_sites_and_a_party_ends_with_its_operators_terminal(town: Town) -> None:
    """Nobody takes part without an operator: what NVFlare runs ends with the command, however that ends."""
    names = ("north", "south")
    host = town.host(*POLICY, "--rounds", "500", *(word for name in names for word in ("--site", name)))
    host.says("listening at localhost")
    for name in names:
        (town.folder / name).mkdir()
        (town.folder / name / "mine.py").write_bytes(MINE.read_bytes())
        town.join(name, "--participant", "mine:participant")
    town.all_agree(host)
    waited(lambda: len(town.rounds()) >= 1, "a round")
    os.kill(host.process.pid, signal.SIGKILL)  # it alone: what it started is to end by itself
    waited(lambda: not working(town, "kg"), "the end of the killed host's processes")
    assert town.run("stop", "kg").code() == 3
    done = len(town.rounds())

    again = town.host()
    again.says("connected: north, south")
    waited(lambda: len(town.rounds()) > done, "a round after the host's return")
    os.kill(town.sites["south"].process.pid, signal.SIGHUP)
    assert town.sites["south"].code() == 0
    assert "left; to come back" in town.sites["south"].text
    waited(lambda: not working(town, "south"), "the end of the processes of who left")
    stopped = town.run("stop", "kg", "--now")
    assert (stopped.code(), again.code()) == (0, 0), again.text
    assert "ended; to go on: secea host kg/federation.toml" in again.text
    assert town.sites["north"].code() == 1
    assert nobody_is_left(town)


def working(town: Town, folder: str) -> list[str]:
    """Processes of NVFlare and of cores that work in a folder; not the commands that people typed."""
    found = list[str]()
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if str(town.folder / folder) in words:
            found.append(words)
    return found
