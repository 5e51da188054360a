"""`packaging/compose.yaml`, with the folders that docs/packaging.md asks for: brought up where containers can run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from secea.engines import kits, provisioning
from secea.engines.files import make_session, write_identity, write_session
from secea.engines.provisioning import Project
from secea.engines.site import Site
from secea.wire.keys import Identity
from written import PACKAGING, ROOT

PARTIES = ("server", "north", "south", "west")
USER = 10001
SECONDS = 1800.0
"""The image is built once, which takes minutes."""

pytestmark = [pytest.mark.engines, pytest.mark.deployment]


def compose() -> list[str]:
    """The command that brings containers up here; nothing where none can run."""
    for command in (["docker", "compose"], ["podman", "compose"]):
        if shutil.which(command[0]) and all(quiet([*words]) for words in ([*command, "version"], [command[0], "info"])):
            return command
    return []


def quiet(words: Sequence[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False, timeout=60).returncode == 0  # noqa: S603


def prepared(folder: Path) -> Path:
    """The folder PARTIES, as the page says."""
    (folder / "keys").mkdir(parents=True)
    for name in PARTIES:
        (folder / name).mkdir()
        write_identity(Identity.generate(), folder / "keys" / f"{name}.pem")
    clients = [f"{name}={folder}/keys/{name}.pem.pub" for name in PARTIES[1:]]
    policy = ("dim=2", "max_entities=10", "max_union=20")
    session = make_session(f"{folder}/keys/server.pem.pub", clients, policy, "keyed")
    made = provisioning.provision(Project("rehearsal", "server", 8002, PARTIES[1:]), folder / "provisioned")
    for name in PARTIES:
        party = folder / name
        (made / name).rename(party / "kit")
        (party / "kit" / "local" / "secea.toml").symlink_to("../../site.toml")
        kits.permit(party / "kit")
        write_session(session, party / "federation.toml")
        lines = ['federation = "federation.toml"', 'identity = "/run/secrets/identity.pem"', 'state = "state"']
        lines += ['log = "audit.jsonl"']
        if name != "server":
            shutil.copy(ROOT / "tests" / "engines" / "mine.py", party)
            lines += [f'name = "{name}"', 'participant = "mine:participant"']
        (party / "site.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_a_rehearsal_in_containers_comes_up_healthy_or_its_folders_are_as_the_page_says(tmp_path: Path) -> None:
    parties = prepared(tmp_path / "parties")
    for name in PARTIES:
        site = Site.read(parties / name / "kit" / "local" / "secea.toml")
        assert (site.name or "server") == name
        assert not kits.lacking(parties / name / "kit")
        assert (parties / name / "kit" / "startup" / "sub_start.sh").stat().st_mode & 0o111
    if command := compose():
        for path in [parties, *parties.rglob("*")]:
            os.chown(path, USER, USER, follow_symlinks=False)
            path.chmod(path.stat().st_mode & 0o700)
        up_and_down([*command, "--file", str(PACKAGING / "compose.yaml")], parties)
    else:
        print("no container engine runs here", file=sys.stderr)


def up_and_down(command: Sequence[str], parties: Path) -> None:
    """Build the image, start all four, wait until each is healthy, and ask one of them."""
    environment = os.environ | {"PARTIES": str(parties)}

    def ran(*words: str, seconds: float = 120.0) -> str:
        done = subprocess.run(  # noqa: S603
            [*command, *words], env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
        assert done.returncode in (0, 5), done.stderr  # 5: no run has begun
        return done.stdout

    try:
        ran("up", "--build", "--detach", seconds=SECONDS)
        end = time.monotonic() + SECONDS
        while health := {name for name, state in states(ran("ps", "--format", "json")).items() if state != "healthy"}:
            assert time.monotonic() < end, health
            time.sleep(2)
        assert (
            json.loads(ran("exec", "--no-TTY", "north", "secea", "status", "/party", "--json"))["verdict"] == "nothing"
        )
    finally:
        ran("down", "--volumes")


def states(listed: str) -> dict[str, str]:
    """The health of each service; docker prints a list, or an object in each line."""
    found = (
        json.loads(listed) if listed.lstrip().startswith("[") else [json.loads(line) for line in listed.splitlines()]
    )
    health = {each["Service"]: str(each.get("Health", "")) for each in found}
    return {name: health.get(name, "missing") for name in PARTIES}
