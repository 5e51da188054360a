"""Startup kits after `secea permit`: what they may run, and what nobody may read or bring there any more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from flwr.cli.build import build_fab_from_disk

from secea.cli import main
from secea.engines import kits, nvflare
from secea.engines.log import ERRORS, WARNINGS

ROLES = {
    "project_admin": "any",
    "lead": {"submit_job": "any", "byoc": "any", "shell_commands": "o:site"},
    "member": {"view": "any"},
}


def kit(folder: Path, *, server: bool = False) -> Path:
    """A kit as NVFlare's provisioning makes it, in short."""
    for name in ("startup", "local"):
        (folder / name).mkdir(parents=True)
    resources: dict[str, Any] = {"class_allow_list": ["a.B"], "allow_log_streaming": True}
    if server:
        (folder / "startup" / "fed_server.json").write_text("{}")
        store = {"args": {"root_dir": "/tmp/nvflare/snapshot-storage"}}  # noqa: S108 - NVFlare's default
        jobs = {"args": {"uri_root": "/tmp/nvflare/jobs-storage"}}  # noqa: S108
        resources |= {"snapshot_persistor": store, "components": [jobs], "servers": [{"heart_beat_timeout": 600}]}
    (folder / "local" / "resources.json.default").write_text(json.dumps(resources))
    (folder / "local" / "authorization.json.default").write_text(json.dumps({"permissions": ROLES}))
    return folder


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / "local" / f"{name}.json").read_text())


def test_a_site_runs_seceas_classes_and_keeps_its_logs(tmp_path: Path) -> None:
    nvflare.permit(site := kit(tmp_path / "north"))
    resources = read(site, "resources")
    assert resources["class_allow_list"] == ["a.B", *kits.CLASSES]
    assert resources["allow_log_streaming"] is False


def test_no_role_brings_code_or_reads_files(tmp_path: Path) -> None:
    nvflare.permit(site := kit(tmp_path / "north"))
    roles = read(site, "authorization")["permissions"]
    assert set(roles) == set(ROLES)
    assert all(role["byoc"] == role["shell_commands"] == "none" for role in roles.values())
    assert roles["project_admin"]["submit_job"] == roles["lead"]["submit_job"] == roles["member"]["view"] == "any"


def test_a_server_keeps_its_jobs_to_itself(tmp_path: Path) -> None:
    servers = [kit(tmp_path / name / "server", server=True) for name in ("one", "other")]
    for server in servers:
        nvflare.permit(server)
        resources = read(server, "resources")
        assert "/tmp/nvflare" not in json.dumps(resources)  # noqa: S108
        assert resources["components"][0]["args"]["uri_root"] == f"{server}/storage/jobs-storage"
        assert resources["snapshot_persistor"]["args"]["root_dir"] == f"{server}/storage/snapshot-storage"
        assert resources["servers"] == [{"heart_beat_timeout": kits.SILENT_SECONDS}]


def test_permitting_twice_changes_nothing(tmp_path: Path) -> None:
    site = kit(tmp_path / "server", server=True)
    assert nvflare.permit(site)
    before = {path: path.read_text() for path in (site / "local").iterdir()}
    assert not nvflare.permit(site)
    assert {path: path.read_text() for path in (site / "local").iterdir()} == before


def test_a_simulators_folder_needs_no_kit(tmp_path: Path) -> None:
    nvflare.permit(tmp_path / "run" / "secea")
    assert set(kits.CLASSES) <= set(read(tmp_path / "run" / "secea", "resources")["class_allow_list"])


def test_the_command_says_what_it_changed_and_that_there_was_nothing_left_to_do(tmp_path: Path) -> None:
    names = [str(kit(tmp_path / "north")), str(kit(tmp_path / "server", server=True))]
    said = CliRunner().invoke(main, ["permit", *names])
    assert said.exit_code == 0
    assert f"jobs are kept in {tmp_path / 'server' / 'storage'}" in said.output
    assert "logs stay at the site" in said.output
    again = CliRunner().invoke(main, ["permit", *names])
    assert again.output.count("is as it should be") == 2
    as_json = CliRunner().invoke(main, ["permit", "--json", *names])
    assert json.loads(as_json.output) == {name: [] for name in names}


def test_what_is_no_kit_is_left_alone(tmp_path: Path) -> None:
    site = kit(tmp_path / "north")
    (tmp_path / "other").mkdir()
    said = CliRunner().invoke(main, ["permit", str(site), str(tmp_path / "other")])
    assert said.exit_code == 3
    assert "other is no startup kit of NVFlare" in said.output
    assert not (site / "local" / "resources.json").exists()
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize("level", [WARNINGS, ERRORS], ids=["warnings", "errors"])
def test_every_event_of_a_level_stands_in_the_documentation(level: frozenset[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    for event in level:
        assert f"| `{event}` |" in page, event


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # flwr's own
def test_the_documented_flower_app_works_when_its_folder_is_copied(tmp_path: Path) -> None:
    """Flower refuses a pattern in it that matches nothing."""
    shutil.copytree(Path(__file__).parents[2] / "examples" / "flower-kg" / "app", tmp_path / "app")
    assert build_fab_from_disk(tmp_path / "app")
