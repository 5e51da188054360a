"""`packaging/compose.yaml`, with the folders that docs/packaging.md asks for: brought up where containers can run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
NOTHING_YET = 5
"""What `secea status` exits with before the first run."""
SUBMIT = """
import time
from nvflare.recipe import ProdEnv
from secea.engines import nvflare
from secea.engines.provisioning import ADMINISTRATOR
env = ProdEnv("/party/administrator", login_timeout=60.0, username=ADMINISTRATOR)
run = nvflare.recipe(rounds=2, clients=3).execute(env)
while not str(run.get_status()).startswith("FINISHED"):
    time.sleep(1)
print(run.get_status())
"""

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
        if name != "server":  # whose kit says where it keeps jobs, and so is permitted where it will lie
            kits.permit(party / "kit")
        write_session(session, party / "federation.toml")
        lines = ['federation = "federation.toml"', 'identity = "/run/secrets/identity.pem"', 'state = "state"']
        lines += ['log = "audit.jsonl"']
        if name != "server":
            shutil.copy(ROOT / "tests" / "engines" / "mine.py", party)
            lines += [f'name = "{name}"', 'participant = "mine:participant"']
        (party / "site.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (made / provisioning.ADMINISTRATOR).rename(folder / "server" / "administrator")
    return folder


def test_a_rehearsal_in_containers_comes_up_healthy_or_its_folders_are_as_the_page_says(tmp_path: Path) -> None:
    parties = prepared(tmp_path / "parties")
    command = compose()
    if not command:
        print("no container engine runs here", file=sys.stderr)
        kits.permit(parties / "server" / "kit")
    for name in PARTIES:
        site = Site.read(parties / name / "kit" / "local" / "secea.toml")
        assert (site.name or "server") == name
        assert bool(kits.lacking(parties / name / "kit")) is bool(command and name == "server")
        assert (parties / name / "kit" / "startup" / "sub_start.sh").stat().st_mode & 0o111
    if command:
        for path in [parties, *parties.rglob("*")]:
            os.chown(path, USER, USER, follow_symlinks=False)
            path.chmod(path.stat().st_mode & 0o700)
        up_and_down([*command, "--file", str(PACKAGING / "compose.yaml")], parties)


def up_and_down(command: Sequence[str], parties: Path) -> None:
    """Build the image, start all four, wait until each is healthy, run two rounds, and look at what came of them."""
    environment = os.environ | {"PARTIES": str(parties)}

    def ran(*words: str, seconds: float = 120.0, codes: Sequence[int] = (0,)) -> str:
        done = subprocess.run(  # noqa: S603
            words, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )
        assert done.returncode in codes, done.stdout + done.stderr
        return done.stdout

    def health(name: str) -> str:
        container = ran(*command, "ps", "--quiet", name).strip()
        return ran(command[0], "inspect", "--format", "{{.State.Health.Status}}", container).strip()

    def inside(name: str, *words: str, seconds: float = 120.0, codes: Sequence[int] = (0,)) -> str:
        return ran(*command, "exec", "-T", name, *words, seconds=seconds, codes=codes)

    def status(name: str, code: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(inside(name, "secea", "status", "/party", "--json", codes=(code,)))
        return found

    try:
        ran(*command, "build", seconds=SECONDS)
        assert "/party/kit/storage" in ran(*command, "run", "--rm", "--no-deps", "server", "secea", "permit", "kit")
        start = time.monotonic()
        ran(*command, "up", "--detach")
        while sick := {name: found for name in PARTIES if (found := health(name)) != "healthy"}:
            assert time.monotonic() < start + SECONDS, sick
            time.sleep(2)
        print(f"all are healthy after {time.monotonic() - start:.0f} s", file=sys.stderr)
        assert status("north", NOTHING_YET)["verdict"] == "nothing"
        for name in PARTIES:
            alone(name, inside)
        start = time.monotonic()
        ended = inside("server", "python", "-c", SUBMIT, seconds=300.0)
        assert "FINISHED:COMPLETED" in ended, said(parties)
        print(f"two rounds took {time.monotonic() - start:.0f} s", file=sys.stderr)
        for name in PARTIES:
            assert status(name, 0)["verdict"] == "completed"
            assert health(name) == "healthy"
        for name in PARTIES[1:]:
            assert (parties / name / "trained").read_text() == "1\n2\n"
        assert any((parties / "server" / "kit" / "storage" / "jobs-storage").iterdir())
    finally:
        ran(*command, "down", "--volumes")


def said(parties: Path) -> str:
    """The last line of each party's log."""
    logs = [parties / name / "audit.jsonl" for name in PARTIES]
    return "\n".join([log.read_text(encoding="utf-8").splitlines()[-1] for log in logs if log.exists()])


def alone(name: str, inside: Callable[..., str]) -> None:
    """A party has no rights, writes its own folder, and reaches nobody but the server."""
    assert inside(name, "id", "--user").strip() == str(USER)
    assert inside(name, "grep", "CapEff", "/proc/self/status").split()[1].strip("0") == ""
    inside(name, "sh", "-c", "! touch /opt/secea/more 2>/dev/null && touch /party/more && rm /party/more")
    for other in set(PARTIES) - {name}:
        code = f"import socket; socket.create_connection(({other!r}, 8002), 3)"
        inside(name, "python", "-c", code, codes=(0,) if other == "server" else (1,))
    if name != "server":
        code = "import socket; socket.create_connection(('1.1.1.1', 53), 3)"  # there is no way out
        inside(name, "python", "-c", code, codes=(1,))
