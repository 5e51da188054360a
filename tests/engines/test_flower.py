"""A federation on Flower: real processes on loopback, TLS, authenticated SuperNodes; one deployment for all tests.

Each message starts a process at each client, so a stage takes seconds; whoever is killed is noticed after a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from flower_loopback import Deployment, waited
from secea.engines.files import write_identity
from secea.params import Params
from secea.wire.keys import Identity
from sites import Sites
from trial import KILLED, Fault

pytestmark = pytest.mark.engines

PARAMS = Params(5, dim=4, dropouts=2, max_entities=20, max_union=30)
EVERYONE = [0, 1, 2, 3, 4]
PATIENCE = 900
"""Seconds for a whole run; a busy machine needs several times what a quiet one does."""


@dataclass(frozen=True)
class Federation:
    """The files of all parties, and the deployment that uses them."""

    sites: Sites
    deployment: Deployment

    def begin(self, params: Params = PARAMS, scenes: Sequence[Sequence[Fault]] = (), *, first: int = 2) -> Sites:
        """As before the first run, with these parameters, and with these faults to come, from round `first` on."""
        self.sites.forget_the_past()
        self.sites.agree("federation.json", params)
        self.sites.play(scenes)
        for name in self.sites.names:
            self.sites.argue(name, first=first)
        return self.sites


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("flower")
    sites = Sites(folder / "sites", PARAMS)
    with Deployment(folder, sites.file("server"), [sites.file(name) for name in sites.names]) as deployment:
        yield Federation(sites, deployment)


@dataclass(frozen=True)
class Story:
    """What came of a run, and of another that was started meanwhile."""

    sites: Sites
    status: str
    other: str
    other_log: str


@pytest.fixture(scope="module")
def story(federation: Federation) -> Story:
    """Client 4's process is killed in the first of three rounds; while Flower takes its time, someone starts a run."""
    sites, deployment = federation.begin(scenes=[[(4, "answer", "before")]], first=1), federation.deployment
    run = deployment.start(rounds=3)
    waited("an answer", PATIENCE, until=lambda: bool(sites.log("server", event="accepted", kind="answer", round=1)))
    other = deployment.start(rounds=1)
    status = deployment.finish(other, PATIENCE)
    return Story(sites, deployment.finish(run, PATIENCE), status, deployment.log(other))


def test_five_clients_get_the_means_of_numpy_in_every_round(story: Story) -> None:
    assert story.status == "finished:completed"
    assert story.sites.rounds()[-1]["clients"] == EVERYONE
    assert len(story.sites.rounds()) == 3
    story.sites.check_means()


def test_a_client_that_is_killed_costs_the_others_nothing_and_comes_back_with_its_state(story: Story) -> None:
    assert [line["clients"] for line in story.sites.rounds()] == [[0, 1, 2, 3], [0, 1, 2, 3], EVERYONE]
    assert {client for client, _ in story.sites.lost()} == {"client 4"}
    assert not story.sites.scenes_left()
    hellos = story.sites.log("site-5", event="sent", kind="hello", epoch=0)
    assert len(hellos) >= 2
    assert len({line["sha256"] for line in hellos}) == 1  # the same incarnation


def test_a_second_run_at_the_same_time_is_refused(story: Story) -> None:
    assert story.other == "finished:failed"
    assert "server/state: one run at a time" in story.other_log


def test_nothing_is_left_when_all_is_over(story: Story) -> None:
    assert not list(story.sites.folder.glob("*/state*"))


def test_who_has_another_key_roster_or_parameters_is_refused_by_name(federation: Federation, story: Story) -> None:
    strict, stranger = replace(PARAMS, dropouts=0), Identity.generate()
    sites = federation.begin(strict)
    write_identity(stranger, sites.folder / "stranger.pem")
    sites.agree("precise.json", replace(strict, precision=20))
    sites.agree("roster.json", strict, site_1=stranger.public)
    sites.write("site-3", federation="../precise.json")
    sites.write("site-4", identity="../stranger.pem")
    sites.write("site-5", federation="../roster.json")
    run = federation.deployment.start(rounds=1)
    assert federation.deployment.finish(run, PATIENCE) == "finished:failed"
    log = federation.deployment.log(run)
    assert "site-3 (client 2): client 2: hello is for another session" in log
    assert "site-4 (client 3): the identity is not the one that the roster pins for client 3" in log
    assert "site-5 (client 4): client 4: hello is for another session" in log


# ---------------------------------------------------------------------------------------------------- minutes for each


@pytest.mark.slow_engine
def test_a_client_that_is_killed_in_any_stage_costs_the_others_nothing_and_returns(federation: Federation) -> None:
    sites = federation.begin(scenes=KILLED)
    run = federation.deployment.start(rounds=12)
    assert federation.deployment.finish(run, 4 * PATIENCE) == "finished:completed"
    assert not sites.scenes_left()
    assert sites.rounds()[1]["clients"] == [0, 2, 4]
    sites.check_means()


@pytest.mark.slow_engine
def test_a_site_that_is_killed_and_started_again_comes_back(federation: Federation) -> None:
    sites, deployment = federation.begin(), federation.deployment
    run = deployment.start(rounds=6)
    waited("the first round", PATIENCE, until=lambda: len(sites.rounds()) == 1)
    deployment.kill("node4")
    waited("its loss", PATIENCE, until=lambda: bool(sites.log("server", event="lost", client="client 4")))
    deployment.start_node(4)
    assert deployment.finish(run, PATIENCE) == "finished:completed"
    assert sites.rounds()[-1]["clients"] == EVERYONE
    sites.check_means()


@pytest.mark.slow_engine
def test_a_server_that_is_killed_goes_on_with_the_next_run(federation: Federation) -> None:
    sites, deployment = federation.begin(), federation.deployment
    run = deployment.start(rounds=3)
    waited("a share", PATIENCE, until=lambda: bool(sites.log("server", event="accepted", kind="share", round=2)))
    deployment.kill_app("flwr-serverapp")
    assert deployment.finish(run, PATIENCE) != "finished:completed"
    assert deployment.finish(deployment.start(rounds=3), PATIENCE) == "finished:completed"
    assert [line["clients"] for line in sites.rounds()] == [EVERYONE] * 3
    sites.check_means()
