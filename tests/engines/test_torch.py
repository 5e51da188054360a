"""A PyTorch model takes part in both engines, and keeps what it does not share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from nvflare.recipe import SimEnv

import torch_site
from flower_files import NAMES, Files, N
from flower_loopback import Deployment
from secea.engines import nvflare
from secea.params import Params
from sites import Sites

pytestmark = [pytest.mark.engines, pytest.mark.filterwarnings("default")]  # the engines' own


def trainings(path: Path) -> int:
    return int(torch.load(path, weights_only=True)["model"]["trainings"])


def test_a_torch_model_gets_the_means_on_nvflare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sites = Sites(tmp_path / "sites", Params(clients=3, dim=8, max_entities=30, max_union=40))
    for name in sites.names:
        shutil.copy(torch_site.__file__, sites.folder / name)
        sites.write(name, participant="torch_site:nvflare")
    monkeypatch.setenv(nvflare.SITES, str(sites.folder))
    nvflare.permit(tmp_path / "run" / "secea")
    nvflare.recipe(3, clients=3).execute(SimEnv(clients=list(sites.names), workspace_root=str(tmp_path / "run")))
    assert [line["clients"] for line in sites.rounds()] == [[0, 1, 2]] * 3
    assert sites.check_means() == 9
    assert [trainings(sites.folder / name / "model.pt") for name in sites.names] == [3, 3, 3]


@pytest.mark.xdist_group("flower")
def test_a_torch_model_gets_the_means_on_flower_whose_processes_live_for_a_message(tmp_path: Path) -> None:
    files = Files(tmp_path)
    for n, name in enumerate(NAMES):
        shutil.copy(torch_site.__file__, files.folder / name)
        files.describe(n, participant="torch_site:flower")
    with Deployment(files.folder, files.server, [files.site(n) for n in range(N)]) as deployment:
        assert deployment.finish(deployment.start(rounds=2), 900) == "finished:completed"
    files.check(range(N), "before-2", range(N), 1)
    files.check(range(N), "last", range(N), 2)
    assert [trainings(files.results / f"model-{n}.pt") for n in range(N)] == [2] * N
