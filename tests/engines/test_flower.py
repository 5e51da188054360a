"""A federation on Flower: real processes on loopback, TLS, authenticated SuperNodes; one deployment for all tests.

Each message starts a process at each client, so a stage takes seconds; a killed node is noticed after about a minute.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from flower_files import NAMES, PARAMS, Files, N
from flower_loopback import Deployment, waited
from secea import Identity
from secea.engines.files import write_identity

pytestmark = [pytest.mark.xdist_group("flower"), pytest.mark.engines]

PATIENCE = 900
"""Seconds for a whole run; a busy machine needs several times what a quiet one does."""


@dataclass(frozen=True)
class Federation:
    """The files of all parties, and the deployment that uses them."""

    files: Files
    deployment: Deployment


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    files = Files(tmp_path_factory.mktemp("flower"))
    with Deployment(files.folder, files.server, [files.site(n) for n in range(N)]) as deployment:
        yield Federation(files, deployment)


@dataclass(frozen=True)
class Story:
    """What happened in a run of four rounds, in which client 4 was killed and came back."""

    files: Files
    status: str


@pytest.fixture(scope="module")
def story(federation: Federation) -> Story:
    """Client 4 is killed as soon as its shares of round 2 are in, and started again once the server has noticed."""
    files, deployment = federation.files, federation.deployment
    held = files.results / "hold-0-3"
    held.touch()
    run = deployment.start(rounds=4)
    kill(federation, 4, after=accepted("share", 4, 2))
    deployment.start_node(4)
    before = len(files.audit(NAMES[4]))
    waited("client 4 that is back", PATIENCE, until=lambda: len(files.audit(NAMES[4])) > before)
    time.sleep(5)  # its hello is on its way, while client 0 holds round 3 up
    held.unlink()
    return Story(files, deployment.finish(run, PATIENCE))


def accepted(kind: str, client: int, round: int) -> dict[str, object]:
    """The server takes what a client has to send in a stage."""
    return {"event": "accepted", "kind": kind, "from": f"client {client}", "round": round}


def kill(federation: Federation, client: int, *, after: dict[str, object]) -> None:
    """SIGKILL of a SuperNode and its ClientApp, after the server has taken something; until it has noticed."""
    files = federation.files
    waited(f"{after}", PATIENCE, until=lambda: files.heard(**after))
    federation.deployment.kill(f"node{client}")
    waited(f"the loss of client {client}", PATIENCE, until=lambda: files.heard(event="lost", client=f"client {client}"))


def test_five_clients_get_the_means_of_numpy(story: Story) -> None:
    assert story.status == "finished:completed"
    story.files.check(range(N), "before-2", range(N), 1)


def test_a_client_that_is_killed_before_it_answers_costs_the_others_nothing(story: Story) -> None:
    story.files.check(range(4), "before-3", range(N), 2)
    story.files.check(range(4), "before-4", range(4), 3)


def test_a_client_that_was_killed_comes_back_with_its_state(story: Story) -> None:
    story.files.check(range(N), "last", range(N), 4, old=[4])  # it has no new means to train on
    greetings = [line for line in story.files.audit(NAMES[4]) if line["event"] == "sent" and line["epoch"] == 0]
    assert len(greetings) >= 2
    assert len({line["sha256"] for line in greetings}) == 1  # the same incarnation


def test_nothing_is_left_when_all_is_over(story: Story) -> None:
    assert not list(story.files.folder.glob("*/state"))


def test_who_has_another_key_or_other_parameters_is_refused_by_name(federation: Federation, story: Story) -> None:
    files = federation.files
    files.agree("strict.json", replace(PARAMS, dropouts=0))
    files.agree("other.json", replace(PARAMS, dropouts=0, precision=20))
    files.describe_server("strict.json")
    write_identity(Identity.generate(), files.folder / NAMES[3] / "another.pem")
    for n in range(N):
        files.describe(n, "other.json" if n == 2 else "strict.json")
    files.describe(3, "strict.json", identity="another.pem")
    run = federation.deployment.start(rounds=1)
    assert federation.deployment.finish(run, PATIENCE) == "finished:failed"
    log = federation.deployment.log(run)
    assert "site-2 (client 2): client 2: hello is for another session" in log
    assert "site-3 (client 3): the identity is not the one that the roster pins for client 3" in log


@pytest.mark.slow_engine
@pytest.mark.parametrize("kind", ["hello", "table", "query", "opening", "reshare", "share", "answer"])
def test_a_client_that_is_killed_in_any_stage_costs_the_others_nothing(federation: Federation, kind: str) -> None:
    files, deployment = federation.files, federation.deployment
    files.begin()
    run = deployment.start(rounds=2)
    try:
        kill(federation, 4, after=accepted(kind, 4, int(kind in ("share", "answer"))))
        assert deployment.finish(run, PATIENCE) == "finished:completed"
    finally:
        deployment.start_node(4)
        shutil.rmtree(files.folder / NAMES[4] / "state", ignore_errors=True)
        waited("client 4 that is back", PATIENCE, until=lambda: deployment.online(4))
    files.check(range(4), "last", range(4), 2)
