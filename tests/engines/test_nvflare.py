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
from secea.params import Params
from secea.wire.keys import Identity
from sites import Sites
from trial import KILLED

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("default"),  # NVFlare's and its dependencies' own
]

PARAMS = Params(clients=5, dim=8, dropouts=2, max_entities=30, max_union=40)
STRICT = replace(PARAMS, dropouts=0)
PATIENCE = Patience(stage=10.0, training=10.0)
ROUNDS = 20
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


def test_three_rounds_in_the_simulator_give_the_plain_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = replace(PARAMS, key_bits=256, insecure_small_keys=True)
    sites = Sites(tmp_path / "sites", params, form="paillier")
    monkeypatch.setenv(nvflare.SITES, str(sites.folder))
    nvflare.permit(tmp_path / "run" / "secea")
    nvflare.recipe(3, clients=5).execute(SimEnv(clients=list(sites.names), workspace_root=str(tmp_path / "run")))
    assert [line["clients"] for line in sites.rounds()] == [EVERYONE] * 3
    sites.check_means()
    assert not list((tmp_path / "run").rglob("custom")), "the job carries code"
    assert not list(sites.folder.glob("*/state*")), "state is left behind"


def test_a_job_that_brings_code_is_refused(deployment: Deployment) -> None:
    job = CollabRecipe("code", server=nvflare.Conductor(1), client=nvflare.Member(), min_clients=5)
    assert deployment.status(job.execute(deployment.env)) == "FINISHED:FAILED_TO_RUN"
    assert "BYOC not permitted" in deployment.output("localhost")


# ------------------------------------------------------------------- two drop-outs are allowed: nobody else is harmed

WRONG = [
    [(1, "share", "garbage"), (3, "answer", "unreadable")],
    [(2, "share", "full"), (4, "answer", "full"), (1, "share", "twice"), (3, "answer", "twice")],
    [(2, "answer", "hang"), (4, "answer", "late")],
]

REASONS = [
    *((f"client {client}", "ended by SIGKILL") for scene in KILLED for client, _, _ in scene),
    ("client 1", "a message of wire version 255"),
    ("client 3", "5 bytes are no order and no reply"),
    ("client 2", "state cannot be saved"),
    ("client 4", "state cannot be saved"),
    ("client 2", f"{PATIENCE.stage:.1f}"),  # "did not reply within"; or NVFlare says it first, "timed out after"
    ("client 4", f"{PATIENCE.stage:.1f}"),
]
LATE = ("client 4", "ended by SIGKILL")  # by its holder, if it looks at its clock first when it wakes up


@dataclass(frozen=True)
class Story:
    sites: Sites
    status: str


@pytest.fixture(scope="module")
def story(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """One job in which all of this happens, one scene after the other."""
    scenes = [*KILLED, *WRONG]
    late = PATIENCE.stage + 3  # when the stage is over
    sites = Sites(tmp_path_factory.mktemp("story") / "sites", PARAMS, scenes, late=late)
    return Story(sites, deployment.status(submitted(deployment, sites, ROUNDS), 180))


def test_a_client_that_fails_in_any_way_in_any_stage_is_left_out_alone_and_returns(story: Story) -> None:
    assert story.status == "FINISHED:COMPLETED"
    assert not story.sites.scenes_left()
    rounds = story.sites.rounds()
    assert len(rounds) == ROUNDS
    assert rounds[0]["clients"] == EVERYONE
    assert rounds[1]["clients"] == [0, 2, 4]  # 1 and 3 were killed in it
    assert rounds[-1]["clients"] == EVERYONE
    assert not list(story.sites.folder.glob("*/state*")), "state is left behind"


def test_whoever_is_left_gets_the_plain_means_in_every_round(story: Story) -> None:
    story.sites.check_means()


def test_the_server_knows_why_a_client_was_lost(story: Story) -> None:
    reasons = story.sites.lost()
    for reason in reasons:
        assert any(client == reason[0] and phrase in reason[1] for client, phrase in (*REASONS, LATE)), reason
    for client, phrase in REASONS:
        assert any(client == reason[0] and phrase in reason[1] for reason in reasons), (client, phrase)


# ------------------------------------------------------- no drop-outs are allowed: an error with names, and then on


def test_without_drop_outs_the_error_names_who_failed_and_the_next_job_goes_on(
    deployment: Deployment, tmp_path: Path
) -> None:
    sites = Sites(tmp_path / "sites", STRICT, [[(3, "answer", "before")]])
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
    assert "site-2 (client 1): client 1: hello is not signed by the identity that the roster pins" in failed["why"]
    for who in ("site-4 (client 3): client 3", "site-5 (client 4): client 4"):
        assert f"{who}: hello is for another session: its roster, parameters or version differ" in failed["why"]
    assert failed["why"] in deployment.output("localhost")

    sites.write("site-2", identity="identity.pem")
    sites.argue("site-2", claims="")
    for name in ("site-4", "site-5"):
        sites.write(name, federation="../federation.json")
    assert deployment.status(submitted(deployment, sites, 3)) != "FINISHED:COMPLETED"
    assert "site-4 (client 3): its core was ended by SIGKILL" in sites.log("server", event="failed")[-1]["why"]

    assert deployment.status(submitted(deployment, sites, 3)) == "FINISHED:COMPLETED"
    assert [line["clients"] for line in sites.rounds()] == [EVERYONE] * 3
    sites.check_means()
    assert deployment.listening() == {"127.0.0.1"}


def test_a_site_and_then_the_server_that_are_killed_go_on_when_they_are_started_again(
    deployment: Deployment, tmp_path: Path
) -> None:
    sites = Sites(tmp_path / "sites", PARAMS, seconds=0.5)
    job = submitted(deployment, sites, 6, clients=3, patience=Patience(stage=6, training=2))
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
    sites.check_means()
