"""A federation on Flower: real processes on loopback, TLS, authenticated SuperNodes; one deployment for all tests.

Each message starts a process at each client, so a stage takes seconds; what a client remembers is in its core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from flower_loopback import Deployment, waited
from secea.engines.files import write_identity
from secea.params import Params
from secea.wire.keys import Identity
from sites import Sites, lasting
from trial import Fault, killed

pytestmark = pytest.mark.engines

PARAMS = Params(4, dim=4, dropouts=1, max_entities=20, max_union=30)
EVERYONE = [0, 1, 2, 3]
STRICT = replace(PARAMS, dropouts=0)
PATIENCE = 900
"""Seconds for a whole run; a busy machine needs several times what a quiet one does."""


@dataclass(frozen=True)
class Federation:
    """The files of all parties, and the deployment that uses them."""

    sites: Sites
    deployment: Deployment

    def begin(
        self,
        params: Params = PARAMS,
        scenes: Sequence[Sequence[Fault]] = (),
        *,
        first: int = 2,
    ) -> Sites:
        """As before the first run, with these parameters, and with these faults to come, from round `first` on."""
        self.sites.forget_the_past()
        self.sites.params = params
        self.sites.agree("federation.json", params)
        self.sites.play(scenes)
        for name in self.sites.names:
            self.sites.argue(name, first=first, dim=params.dim)
        return self.sites


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("flower")
    sites = Sites(folder / "sites", PARAMS)
    with Deployment(folder, sites.file("server"), [sites.file(name) for name in sites.names]) as deployment:
        yield Federation(sites, deployment)


@pytest.mark.smoke
def test_two_clients_get_the_means_of_numpy(tmp_path: Path) -> None:
    sites = Sites(tmp_path / "sites", Params(2, dim=4, max_entities=20, max_union=30))
    with Deployment(tmp_path, sites.file("server"), [sites.file(name) for name in sites.names]) as deployment:
        assert deployment.finish(deployment.start(rounds=1), PATIENCE) == "finished:completed"
    assert [line["clients"] for line in sites.rounds()] == [[0, 1]]
    sites.check_means()
    assert sites.kept() == lasting(sites)


@dataclass(frozen=True)
class Story:
    """What came of a run, and of another that was started meanwhile."""

    sites: Sites
    status: str
    other: str
    other_log: str


@pytest.fixture(scope="module")
def story(federation: Federation) -> Story:
    """Client 3's core is killed in the first of three rounds; meanwhile someone starts another run."""
    sites, deployment = federation.begin(scenes=[[(3, "upload", "before")]], first=1), federation.deployment
    run = deployment.start(rounds=3)
    waited("an upload", PATIENCE, until=lambda: bool(sites.log("server", event="accepted", kind="upload", round=1)))
    other = deployment.start(rounds=1)
    status = deployment.finish(other, PATIENCE)
    return Story(sites, deployment.finish(run, PATIENCE), status, deployment.log(other))


def test_four_clients_get_the_means_of_numpy_in_every_round(story: Story) -> None:
    assert story.status == "finished:completed"
    assert story.sites.rounds()[-1]["clients"] == EVERYONE
    assert len(story.sites.rounds()) == 3
    story.sites.check_means()


def test_a_client_that_is_killed_costs_the_others_nothing_and_comes_back_with_its_keys(story: Story) -> None:
    assert [line["clients"] for line in story.sites.rounds()] == [[0, 1, 2], [0, 1, 2], EVERYONE]
    assert story.sites.lost() == [("client 3", "its core ended before it could reply")]
    assert not story.sites.scenes_left()
    assert len(story.sites.log("site-4", event="sent", kind="commitment")) == 1


def test_a_second_run_at_the_same_time_is_refused(story: Story) -> None:
    assert story.other == "finished:failed"
    assert "server/state: one run at a time" in story.other_log


def test_the_keys_of_names_are_all_that_is_kept_when_it_is_over(story: Story) -> None:
    assert story.sites.kept() == lasting(story.sites)


def test_who_has_another_key_roster_or_parameters_is_refused_by_name(federation: Federation, story: Story) -> None:
    stranger = Identity.generate()
    sites = federation.begin(STRICT)
    write_identity(stranger, sites.folder / "stranger.pem")
    sites.agree("precise.json", replace(STRICT, precision=20))
    sites.agree("roster.json", STRICT, site_1=stranger.public)
    sites.write("site-2", federation="../precise.json")
    sites.write("site-3", identity="../stranger.pem")
    sites.write("site-4", federation="../roster.json")
    run = federation.deployment.start(rounds=1)
    assert federation.deployment.finish(run, PATIENCE) == "finished:failed"
    log = federation.deployment.log(run)
    assert "site-2: hello is for another session" in log
    assert "site-3: the identity is not the one that the roster pins for site-3" in log
    assert "site-4: hello is for another session" in log


@pytest.mark.deployment
def test_mask_keys_outlive_the_processes_that_flower_starts_and_means_go_to_the_superlink_once(
    federation: Federation,
) -> None:
    sites = federation.begin(replace(STRICT, dim=1000))
    before = len(federation.deployment.pushed())
    run = federation.deployment.start(rounds=2)
    assert federation.deployment.finish(run, PATIENCE) == "finished:completed"
    assert [line["clients"] for line in sites.rounds()] == [EVERYONE] * 2
    sites.check_means()
    uploads = sites.log("site-1", event="sent", kind="upload")
    assert len({line["round"] for line in uploads}) == 2
    assert len({line["epoch"] for line in uploads}) == 1, "a union was lost"
    means = sum(line["bytes"] for line in sites.log("site-1", event="accepted", kind="means"))
    pushed = sum(size for _, size in federation.deployment.pushed()[before:])
    assert means < pushed < 2 * means  # all that the server gave to four clients


# ---------------------------------------------------------------------------------------------------- minutes for each


@pytest.mark.deployment
def test_a_client_that_is_killed_in_any_stage_costs_the_others_nothing_and_returns(federation: Federation) -> None:
    before, after = killed("before"), killed("after")
    end = [(0, "end", "before"), (3, "end", "after")]
    sites = federation.begin(scenes=[before[0], after[1], [*before[2], *end]])
    run = federation.deployment.start(rounds=5)
    assert federation.deployment.finish(run, PATIENCE) == "finished:completed"
    assert len(sites.log("server", event="accepted", kind="commitment")) == len(EVERYONE)
    run = federation.deployment.start(rounds=1)  # on what they kept: whoever was killed at the end is back
    assert federation.deployment.finish(run, PATIENCE) == "finished:completed"
    assert not sites.scenes_left()
    rounds = [line["clients"] for line in sites.rounds()]
    assert len(rounds) == 6
    assert rounds[:2] == [EVERYONE, [1, 2, 3]]
    assert rounds[-1] == EVERYONE
    assert all(len(clients) >= 3 for clients in rounds)
    assert not sites.log("server", event="round lost")
    assert len(sites.log("server", event="accepted", kind="commitment")) == len(EVERYONE), "a new key of the names"
    assert sites.kept() == lasting(sites)
    sites.check_means()


@pytest.mark.deployment
def test_a_site_that_is_killed_and_started_again_comes_back(federation: Federation) -> None:
    sites, deployment = federation.begin(STRICT), federation.deployment
    run = deployment.start(rounds=5)
    waited("the first round", PATIENCE, until=lambda: len(sites.rounds()) == 1)
    deployment.kill("node3")
    waited("its loss", PATIENCE, until=lambda: bool(sites.log("server", event="lost", client="client 3")))
    deployment.start_node(3)
    assert deployment.finish(run, PATIENCE) == "finished:completed"
    rounds = [line["clients"] for line in sites.rounds()]
    assert rounds[0] == rounds[-1] == EVERYONE
    assert all({0, 1, 2} <= set(clients) for clients in rounds)
    sites.check_means()


@pytest.mark.deployment
def test_a_server_that_is_killed_goes_on_with_the_next_run(federation: Federation) -> None:
    own = replace(STRICT, rounds=999)  # a session of its own: nobody has names' keys yet, and rounds begin at 1
    sites, deployment = federation.begin(own), federation.deployment
    run = deployment.start(rounds=3)
    waited("an upload", PATIENCE, until=lambda: bool(sites.log("server", event="accepted", kind="upload", round=2)))
    deployment.kill_app("flwr-serverapp")
    assert deployment.finish(run, PATIENCE) != "finished:completed"
    assert deployment.finish(deployment.start(rounds=3), PATIENCE) == "finished:completed"
    assert [line["clients"] for line in sites.rounds()] == [EVERYONE] * 3
    assert len(sites.log("server", event="accepted", kind="commitment")) == len(EVERYONE), "a new key of the names"
    sites.check_means()
