"""A PyTorch model takes part in both engines, and keeps what it does not share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from nvflare.recipe import SimEnv

import torch_site
from flower_loopback import Deployment
from secea.engines import nvflare
from secea.params import Params
from sites import Sites

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]  # the engines' own


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    made = Sites(tmp_path / "sites", Params(clients=3, dim=8, max_entities=30, max_union=40))
    for name in made.names:
        shutil.copy(torch_site.__file__, made.folder / name)
        made.write(name, participant="torch_site:participant")
    return made


def check(sites: Sites, rounds: int) -> None:
    assert [line["clients"] for line in sites.rounds()] == [[0, 1, 2]] * rounds
    sites.check_means()
    kept = [torch.load(sites.folder / name / "model.pt", weights_only=True)["model"] for name in sites.names]
    assert [int(model["trainings"]) for model in kept] == [rounds] * 3


def test_a_torch_model_gets_the_means_on_nvflare(sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvflare.SITES, str(sites.folder))
    nvflare.permit(tmp_path / "run" / "secea")
    nvflare.recipe(3, clients=3).execute(SimEnv(clients=list(sites.names), workspace_root=str(tmp_path / "run")))
    check(sites, 3)


@pytest.mark.deployment
def test_a_torch_model_gets_the_means_on_flower_and_outlives_its_processes(sites: Sites, tmp_path: Path) -> None:
    with Deployment(tmp_path, sites.file("server"), [sites.file(name) for name in sites.names]) as deployment:
        assert deployment.finish(deployment.start(rounds=2), 900) == "finished:completed"
    check(sites, 2)
