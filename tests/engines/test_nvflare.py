"""Federations on NVFlare: in its simulator, and as a deployment with mutual TLS on the loopback interface."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from nvflare.collab import CollabRecipe
from nvflare.recipe import SimEnv

from nvflare_deployment import Deployment
from secea.engines import nvflare
from secea.engines.driver import Patience
from secea.engines.files import read_session, write_identity, write_session
from secea.keys import Identity
from secea.params import Params
from secea.session import Session
from sites import Sites

pytestmark = [
    pytest.mark.engines,
    pytest.mark.filterwarnings("default"),  # NVFlare's and its dependencies' own
]

PARAMS = Params(clients=5, dim=8, dropouts=2, max_entities=30, max_union=40)
PATIENCE = Patience(stage=20.0, training=20.0)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("nvflare")
    with Deployment(folder, [f"site-{n}" for n in range(1, 6)]).running() as running:
        yield running


@pytest.fixture
def submit(deployment: Deployment, tmp_path: Path) -> Callable[[Sites, int], str]:
    """Submit a job for these sites, and wait for its end: its status."""

    def run(sites: Sites, rounds: int) -> str:
        deployment.use(sites.folder)
        job = nvflare.recipe(rounds, clients=5, patience=PATIENCE).execute(deployment.env)
        return deployment.status(job)

    return run


def test_three_rounds_in_the_simulator_give_the_plain_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites(tmp_path / "sites", PARAMS)
    monkeypatch.setenv(nvflare.SITES, str(sites.folder))
    nvflare.permit(tmp_path / "run" / "secea")
    nvflare.recipe(3, clients=5).execute(SimEnv(clients=list(sites.names), workspace_root=str(tmp_path / "run")))
    assert [line["clients"] for line in sites.rounds()] == [[0, 1, 2, 3, 4]] * 3
    assert sites.check_means() == 15
    assert not list((tmp_path / "run").rglob("custom")), "the job carries code"
    assert not list(sites.folder.glob("*/state")), "state is left behind"


def test_three_rounds_over_mutual_tls_give_the_plain_means(
    submit: Callable[[Sites, int], str], tmp_path: Path, deployment: Deployment
) -> None:
    sites = Sites(tmp_path / "sites", PARAMS)
    assert submit(sites, 3) == "FINISHED:COMPLETED"
    assert [line["clients"] for line in sites.rounds()] == [[0, 1, 2, 3, 4]] * 3
    assert sites.check_means() == 15
    assert deployment.listening() == {"127.0.0.1"}


def test_a_job_that_brings_code_is_refused(deployment: Deployment) -> None:
    job = CollabRecipe("code", server=nvflare.Conductor(1), client=nvflare.Member(), min_clients=5)
    assert deployment.status(job.execute(deployment.env)) == "FINISHED:FAILED_TO_RUN"
    assert "BYOC not permitted" in deployment.output("localhost")


def test_a_core_that_is_killed_in_either_stage_is_lost_alone_and_returns(
    submit: Callable[[Sites, int], str], tmp_path: Path
) -> None:
    # The second round loses client 1 as it shares, and is begun again as number 3; that loses client 3 as it answers.
    sites = Sites(
        tmp_path / "sites", PARAMS, deaths={1: [["ROUND", 2, "after"]], 3: [["STEP", 3, "before"]]}, seconds=1
    )
    assert submit(sites, 6) == "FINISHED:COMPLETED"
    rounds = sites.rounds()
    assert [(line["number"], line["clients"]) for line in rounds[:2]] == [(1, [0, 1, 2, 3, 4]), (3, [0, 2, 4])]
    assert rounds[-1]["clients"] == [0, 1, 2, 3, 4]
    assert sites.lost() == dict.fromkeys(("client 1", "client 3"), "its core was ended by SIGKILL")
    assert sites.check_means() == sum(len(line["clients"]) for line in rounds)


def test_strangers_and_parties_with_other_parameters_are_refused_by_name(
    submit: Callable[[Sites, int], str], tmp_path: Path
) -> None:
    sites = Sites(tmp_path / "sites", PARAMS)
    agreed = read_session(sites.folder / "federation.json")
    write_identity(Identity.generate(), sites.folder / "stranger.pem")
    sites.write("site-2", identity="../stranger.pem")
    sites.argue("site-2", claims=agreed.roster.clients[1].hex())
    write_session(Session(replace(PARAMS, precision=20), agreed.roster), sites.folder / "other.json")
    sites.write("site-4", federation="../other.json")
    assert submit(sites, 1) == "FINISHED:COMPLETED"
    assert [line["clients"] for line in sites.rounds()] == [[0, 2, 4]]
    assert sites.check_means() == 3
    assert sites.lost() == {
        "client 1": "client 1: hello is not signed by the identity that the roster pins",
        "client 3": "client 3: hello is for another session: its roster, parameters or version differ from ours",
    }


def test_a_server_that_was_killed_goes_on_when_the_job_is_submitted_again(
    submit: Callable[[Sites, int], str], tmp_path: Path, deployment: Deployment
) -> None:
    sites = Sites(tmp_path / "sites", PARAMS, seconds=1)
    deployment.use(sites.folder)
    job = nvflare.recipe(4, clients=5, patience=PATIENCE).execute(deployment.env)
    deadline = time.monotonic() + 60
    while not (sites.folder / "server" / "audit.jsonl").exists() or len(sites.rounds()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (conductor,) = [
        process for process in psutil.Process(deployment.pid("localhost")).children(recursive=True)
        if job.get_job_id() in " ".join(process.cmdline())
    ]  # fmt: skip
    os.kill(conductor.pid, signal.SIGKILL)
    assert deployment.status(job) != "FINISHED:COMPLETED"
    assert submit(sites, 4) == "FINISHED:COMPLETED"
    numbers = [line["number"] for line in sites.rounds()]
    assert len(numbers) == 4
    assert numbers == sorted(set(numbers))
    assert sites.check_means() == 20
