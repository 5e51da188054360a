"""The files of `packaging`, as far as they can be checked without a machine that runs containers or services."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from secea.cli import main
from written import BLOCKS, PACKAGING, ROOT, health_check, instructions

UNITS = sorted((PACKAGING / "systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((PACKAGING / "compose.yaml").read_text(encoding="utf-8"))
PARTIES = ("server", "north", "south", "west")


def unit(path: Path) -> configparser.RawConfigParser:
    read = configparser.RawConfigParser(strict=False, delimiters=("=",))
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string(path.read_text(encoding="utf-8"))
    return read


# ------------------------------------------------------------------------------------------------------------ the image


def test_what_the_image_is_made_of_is_there_and_nothing_else_is_seen() -> None:
    copied = [word for first, rest in instructions() if first == "COPY" for word in rest.split()[:-1]]
    copied = [word for word in copied if not word.startswith(("--from", "/"))]
    assert all((ROOT / word).exists() for word in copied)
    ignored = (PACKAGING / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert next(line for line in ignored if not line.startswith("#")) == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)


def test_the_image_runs_as_nobody_in_particular_and_installs_by_hashes_alone() -> None:
    steps = instructions()
    last = max(i for i, (first, _) in enumerate(steps) if first == "FROM")
    assert ("USER", "10001:10001") in steps[last:]
    installs = [part for first, rest in steps if first == "RUN" for part in rest.split("&&") if "pip install" in part]
    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-deps dist/" in each for each in installs)
    assert not [rest for _, rest in steps if "://" in rest], "no index and no registry is named"


@pytest.mark.parametrize(("code", "healthy"), [(0, True), (5, True), (1, False), (3, False), (4, False), (127, False)])
def test_a_party_is_healthy_while_a_run_goes_on_is_completed_or_has_not_begun(
    tmp_path: Path, code: int, healthy: bool
) -> None:
    fake = tmp_path / "secea"
    fake.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit {code}\n')
    fake.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(["sh", "-c", health_check()], env=environment, capture_output=True, check=False)  # noqa: S603, S607
    assert (ran.returncode == 0) is healthy
    assert (tmp_path / "asked").read_text() == "status /party\n"


# ------------------------------------------------------------------------------------------------------------- compose


def test_the_compose_file_has_a_server_and_three_sites_that_differ_in_names_alone() -> None:
    services = COMPOSE["services"]
    assert tuple(services) == PARTIES
    sites = [yaml.safe_dump(services[name]).replace(name, "NAME") for name in PARTIES[1:]]
    assert len(set(sites)) == 1
    assert {*COMPOSE["secrets"]} == {*PARTIES}


@pytest.mark.parametrize("name", PARTIES)
def test_a_service_may_write_its_own_folder_and_nothing_else(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["volumes"] == [f"${{PARTIES:-./parties}}/{name}:/party"]
    assert service["secrets"] == [{"source": name, "target": "identity.pem"}]
    assert not {"privileged", "cap_add", "network_mode", "pid", "environment", "env_file"} & service.keys()


def test_no_port_is_open_but_the_servers_on_loopback_and_sites_reach_nobody_else() -> None:
    services = COMPOSE["services"]
    assert {name: service.get("ports", []) for name, service in services.items()} == {
        "server": ["127.0.0.1:8002:8002"], "north": [], "south": [], "west": [],
    }  # fmt: skip
    for name in PARTIES[1:]:
        assert services[name]["networks"] == [name]
        assert COMPOSE["networks"][name] == {"internal": True}
        assert [other for other in PARTIES if name in services[other]["networks"]] == ["server", name]


# ------------------------------------------------------------------------------------------------------------- systemd


@pytest.mark.parametrize("path", UNITS, ids=lambda path: str(path.stem))
def test_a_unit_runs_as_its_own_user_restarts_and_may_write_its_own_folder(path: Path) -> None:
    service = unit(path)["Service"]
    folder = service["WorkingDirectory"]
    who = folder.removeprefix("/srv/secea/")
    assert service["User"] == f"secea-{who}"
    assert service["Restart"] == "always"
    assert service["ProtectSystem"] == "strict"
    assert service.get("ReadWritePaths", folder) == folder
    assert service["ExecStart"].startswith(
        (f"{folder}/kit/startup/sub_start.sh --once", "/opt/secea/bin/secea metrics")
    )
    for each in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictNamespaces"):
        assert service[each] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["UMask"] == "0077"


def test_metrics_see_no_key_and_connect_to_this_machine_alone() -> None:
    service = unit(PACKAGING / "systemd" / "secea-metrics@.service")["Service"]
    assert {"-/srv/secea/%i/identity.pem", "-/srv/secea/%i/state"} <= set(service["InaccessiblePaths"].split())
    assert (service["IPAddressDeny"], service["IPAddressAllow"]) == ("any", "localhost")
    assert "ReadWritePaths" not in service


def test_commands_in_these_files_are_commands_of_secea() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (*UNITS, PACKAGING / "Containerfile")]
    lines = [line for text in (*texts, *BLOCKS.values()) for line in text.splitlines() if not line.startswith("#")]
    named = {word for line in lines for word in re.findall(r"(?:^|[\s/\"])secea ([a-z]+)", line)}
    assert {"status", "metrics", "keygen", "roster"} <= named
    assert named <= set(main.commands)
