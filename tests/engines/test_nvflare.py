"""Federations on NVFlare: in its simulator, and as a deployment with mutual TLS on the loopback interface.

A job takes 15 s to start, so one of them tells several stories, round after round (`trial.Script`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from nvflare.collab import CollabRecipe
from nvflare.recipe import SimEnv

from nvflare_deployment import Deployment
from secea.engines import nvflare
from secea.engines.driver import Patience
from secea.engines.files import write_identity
from secea.engines.health import Level, examine
from secea.engines.sight import Sight, Verdict
from secea.params import Params
from secea.wire.keys import Identity
from sites import Sites, lasting
from trial import killed

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("default"),  # NVFlare's and its dependencies' own
]

PARAMS = Params(clients=5, dim=8, dropouts=1, max_entities=30, max_union=40)
STRICT = replace(PARAMS, dropouts=0)
PATIENCE = Patience(stage=10.0, training=10.0)
ROUNDS = 26
EVERYONE = [0, 1, 2, 3, 4]


def waited(until: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("nvflare")
    with Deployment(folder, [f"site-{n}" for n in range(1, 6)]).running() as running:
        yield running


def submitted(
    deployment: Deployment, sites: Sites, rounds: int, *, clients: int = 5, patience: Patience = PATIENCE
) -> Any:
    """A job for these sites, which starts with at least so many of them."""
    deployment.use(sites.folder)
    return nvflare.recipe(rounds, clients=clients, patience=patience).execute(deployment.env)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        pytest.param("keyed", {}, marks=pytest.mark.smoke),
        ("keyed", {"max_weight": 9, "min_owners": 2}),
        ("paillier", {"key_bits": 256, "insecure_small_keys": True}),
    ],
)
def test_three_rounds_in_the_simulator_give_the_means_of_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, options: dict[str, Any]
) -> None:
    params = replace(STRICT, clients=3, **options)
    sites = Sites(tmp_path / "sites", params, form=form)
    monkeypatch.setenv(nvflare.SITES, str(sites.folder))
    nvflare.permit(tmp_path / "run" / "secea")
    nvflare.recipe(3, clients=3).execute(SimEnv(clients=list(sites.names), workspace_root=str(tmp_path / "run")))
    assert [line["clients"] for line in sites.rounds()] == [[0, 1, 2]] * 3
    sites.check_means()
    assert not list((tmp_path / "run").rglob("custom")), "the job carries code"
    assert sites.kept() == lasting(sites)
    for name in (*sites.names, "server"):
        sight = Sight(sites.file(name))
        sight.events()
        assert sight.look().verdict is Verdict.COMPLETED
        assert all(each.level is not Level.WRONG for each in examine(sites.file(name)))


def test_a_job_that_brings_code_is_refused(deployment: Deployment) -> None:
    job = CollabRecipe("code", server=nvflare.Conductor(1), client=nvflare.Member(), min_clients=5)
    assert deployment.status(job.execute(deployment.env)) == "FINISHED:FAILED_TO_RUN"
    assert "BYOC not permitted" in deployment.output("localhost")


# -------------------------------------------------------------------- one drop-out is allowed: nobody else is harmed

SET_UP = [
    (0, "commit", "before"),
    (1, "deal", "after"),
    (2, "list", "before"),
    (3, "confirm", "after"),
    (4, "evaluate", "before"),
]
"""A key of the names needs everybody: it is begun anew each time."""

TWO_AT_ONCE = [(0, "upload", "before"), (3, "upload", "after")]
"""More than may be lost."""

WRONG = [
    [(1, "upload", "garbage"), (3, "secret", "unreadable")],
    [(2, "upload", "full"), (4, "secret", "full")],
    [(1, "upload", "twice"), (3, "ready", "twice")],
    [(2, "upload", "hang"), (4, "table", "late")],
]

END = [(1, "end", "before"), (2, "end", "after")]

KILLED = [SET_UP, *killed("before"), *killed("after"), TWO_AT_ONCE]

REASONS = [
    *((f"client {client}", "ended by SIGKILL") for scene in (*KILLED, END) for client, _, _ in scene),
    ("client 1", "a message of wire version 255"),
    ("client 3", "5 bytes are neither an order nor a reply"),
    ("client 2", "state cannot be saved"),
    ("client 4", "state cannot be saved"),
    ("client 2", f"{PATIENCE.stage:.1f}"),  # "did not reply within"; or NVFlare says it first, "timed out after"
    ("client 4", f"{PATIENCE.stage:.1f}"),
]
BUSY = ("client 4", "it is still busy with an earlier")  # it is late, and called again meanwhile


@dataclass(frozen=True)
class Story:
    """What came of a job, and of a second one on what the parties kept."""

    sites: Sites
    status: str
    first: int
    """Lines in the server's log of the first job."""
    kept: dict[str, set[str]]
    """After the first job."""
    second: str


@pytest.fixture(scope="module")
def story(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """One job in which all of this happens, one scene after the other; and whoever was lost at its end is back."""
    late = PATIENCE.stage + 3  # when the stage is over
    sites = Sites(tmp_path_factory.mktemp("story") / "sites", PARAMS, [*KILLED, *WRONG, END], late=late)
    for name in sites.names:
        sites.argue(name, first=1)
    status = deployment.status(submitted(deployment, sites, ROUNDS), 240)
    first, kept = len(sites.log("server")), sites.kept()
    return Story(sites, status, first, kept, deployment.status(submitted(deployment, sites, 1)))


def test_a_client_that_fails_in_any_way_in_any_stage_is_left_out_alone_and_returns(story: Story) -> None:
    assert story.status == story.second == "FINISHED:COMPLETED"
    assert not story.sites.scenes_left()
    rounds = story.sites.rounds()
    assert len(rounds) == ROUNDS + 1
    assert rounds[0]["clients"] == [0, 1, 2, 3]  # 4 was killed when the others had got what the set-up gives
    assert rounds[-1]["clients"] == EVERYONE
    assert all(len(line["clients"]) >= 4 for line in rounds)


def test_whoever_is_left_gets_the_plain_means_in_every_round(story: Story) -> None:
    story.sites.check_means()


def test_a_round_in_which_too_many_vanish_is_lost_and_the_next_one_works(story: Story) -> None:
    whys = [line["why"] for line in story.sites.log("server", event="round lost")]
    (lost,) = [why for why in whys if "site-1, site-4 vanished in the middle of it" in why]
    number = int(lost.split()[1])
    numbers = [line["number"] for line in story.sites.rounds()]
    assert number not in numbers
    assert number + 1 in numbers


def test_the_server_knows_why_a_client_was_lost(story: Story) -> None:
    reasons = story.sites.lost()
    for reason in reasons:
        assert any(client == reason[0] and phrase in reason[1] for client, phrase in (*REASONS, BUSY)), reason
    for client, phrase in REASONS:
        assert any(client == reason[0] and phrase in reason[1] for reason in reasons), (client, phrase)


def test_a_second_job_needs_no_new_keys_of_names_and_nothing_else_is_kept(story: Story) -> None:
    sites = story.sites
    again = {line["kind"] for line in sites.log("server")[story.first :] if line["event"] == "accepted"}
    assert {"hello", "upload"} <= again
    assert not again & {"commitment", "dealing", "list"}
    assert story.kept == lasting(sites) | {"site-2": {"client", "table"}}  # it did not hear that the first was over
    assert sites.kept() == lasting(sites)


# -------------------------------------------- no drop-outs are allowed: a round is lost, or an error names who failed


@pytest.mark.deployment
def test_without_drop_outs_the_error_names_who_failed_and_a_client_that_is_killed_costs_one_round(
    deployment: Deployment, tmp_path: Path
) -> None:
    sites = Sites(tmp_path / "sites", STRICT, [[(3, "upload", "before")]])
    stranger = Identity.generate()
    write_identity(stranger, sites.folder / "stranger.pem")
    sites.agree("precise.json", replace(STRICT, precision=20))
    sites.agree("roster.json", STRICT, site_1=stranger.public)
    sites.write("site-2", identity="../stranger.pem")
    sites.argue("site-2", claims=sites.identities["site-2"].public.hex())
    sites.write("site-4", federation="../precise.json")
    sites.write("site-5", federation="../roster.json")
    assert deployment.status(submitted(deployment, sites, 3)) != "FINISHED:COMPLETED"
    (failed,) = sites.log("server", event="failed")
    assert "site-2: hello is not signed by the identity that the roster pins" in failed["why"]
    for who in ("site-4", "site-5"):
        assert f"{who}: hello is for another session: its roster, parameters or version differ" in failed["why"]
    assert failed["why"] in deployment.output("localhost")

    sites.write("site-2", identity="identity.pem")
    sites.argue("site-2", claims="")
    for name in ("site-4", "site-5"):
        sites.write(name, federation="../federation.json")
    sites.forget_the_past()
    assert deployment.status(submitted(deployment, sites, 4)) == "FINISHED:COMPLETED"
    (lost,) = sites.log("server", event="round lost")
    assert "round 2 is lost: site-4 vanished in the middle of it" in lost["why"]
    assert sites.lost() == [("client 3", "its core was ended by SIGKILL")]
    rounds = [line["clients"] for line in sites.rounds()]
    assert rounds[0] == rounds[-1] == EVERYONE
    assert all({0, 1, 2, 4} <= set(clients) for clients in rounds)
    assert not sites.scenes_left()
    sites.check_means()
    assert deployment.listening() == {"127.0.0.1"}


@pytest.mark.deployment
def test_a_site_and_then_the_server_that_are_killed_go_on_when_they_are_started_again(
    deployment: Deployment, tmp_path: Path
) -> None:
    sites = Sites(tmp_path / "sites", PARAMS, seconds=0.5)
    job = submitted(deployment, sites, 6, clients=4, patience=Patience(stage=6, training=2))
    waited(lambda: len(sites.rounds()) == 1)
    deployment.kill("site-2")  # whatever it was doing
    waited(lambda: sites.rounds()[-1]["clients"] == [0, 2, 3, 4])
    deployment.job_process("localhost", job).kill()
    deployment.start("site-2")
    assert deployment.status(job) != "FINISHED:COMPLETED"
    assert deployment.status(submitted(deployment, sites, 6)) == "FINISHED:COMPLETED"
    rounds = sites.rounds()
    assert len(rounds) == 6
    assert rounds[-1]["clients"] == EVERYONE
    assert len(sites.log("server", event="accepted", kind="commitment")) == len(EVERYONE)  # once
    sites.check_means()
