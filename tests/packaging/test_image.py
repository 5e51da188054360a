"""The Containerfile's own steps in an empty environment, and an upgrade to what comes out of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from cores import run
from secea.params import Params
from sites import Sites
from written import ROOT, health_check, instructions

ENGINES: Final = Path(__file__).parents[1] / "engines"
pytestmark = pytest.mark.slow
NEXT: Final = "0.1.1"
"""The version that is built: another one than that of this checkout."""
UNPRIVILEGED: Final = () if os.getuid() else ("unshare", "--map-user=65534")
"""Where root runs the tests, a command has another user's number and no capability."""
GO_ON: Final = """
import logging, sys
import secea
from cores import cores, PATIENCE
from secea.engines.run import serve
from secea.engines.site import Site
class There:
    names = sys.argv[2:]
    def file(self, name):
        return f"{sys.argv[1]}/{name}/site.toml"
with cores(There()) as port:
    print(secea.__version__, serve(Site.read(There().file("server")), port, 2, PATIENCE, logging.getLogger()).text())
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that the first stage makes: its RUN lines as they are, but for the folders and the compiler."""
    top = tmp_path_factory.mktemp("image")
    top.chmod(0o755)
    build, made = top / "build", top / "opt" / "secea"
    build.mkdir()
    arguments = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for first, rest in instructions():
        if first == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value.strip('"')
        elif first == "COPY" and not rest.startswith("--from"):
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, build / (source if target == "src" else Path(source).name))
        elif first == "RUN" and not rest.startswith(("apt-get", "groupadd")):
            step = rest.replace("/opt/secea", str(made))
            ran = subprocess.run(  # noqa: S603
                ["/bin/sh", "-ec", step],
                cwd=build,
                env=arguments,
                capture_output=True,
                text=True,
                timeout=500,
                check=False,
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
    return made


def copy(source: Path, target: Path) -> None:
    """As COPY does, with the next version's number."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.o", "*.egg-info"))
        entry = target / "secea" / "__init__.py"
        entry.write_text(entry.read_text().replace('__version__ = "0.1.0"', f'__version__ = "{NEXT}"'))
        return
    shutil.copy(source, target)
    if source.name == "pyproject.toml":
        target.write_text(re.sub(r'^version = ".*"$', f'version = "{NEXT}"', target.read_text(), flags=re.MULTILINE))


def test_what_is_installed_answers_as_a_user_without_rights_and_has_its_compiled_loops(
    image: Path, tmp_path: Path
) -> None:
    code = "import os, secea.arithmetic.field as field, nvflare, opentelemetry.sdk;"
    code += "from secea.arithmetic._kernels import native; print('compiled' if os.getuid() else 'as root')"
    for command, expected in (
        ([*UNPRIVILEGED, f"{image}/bin/secea", "--version"], f"secea, version {NEXT}\n"),
        ([*UNPRIVILEGED, f"{image}/bin/python", "-I", "-c", code], "compiled\n"),
    ):
        ran = subprocess.run(  # noqa: S603
            command, cwd="/", env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (0, expected), ran.stderr


def test_the_health_check_asks_the_command_that_is_installed(image: Path) -> None:
    script = health_check().replace("/party", "/nowhere")
    ran = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", script],
        env={"PATH": f"{image}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, "there is no party"
    assert "secea: not found" not in ran.stderr


def test_what_was_saved_before_an_upgrade_goes_on_after_it(image: Path, tmp_path: Path) -> None:
    """Steps 1, 3 and 4 of the page, and back to the old version, with the state as it is then."""
    sites = Sites(tmp_path / "sites", Params(clients=3, dim=2, collusion=1, max_entities=30, max_union=40))
    run(sites, 2)
    sites.forget_the_past()
    command = [f"{image}/bin/python", "-c", GO_ON, str(sites.folder), *sites.names]
    path = os.pathsep.join([str(ENGINES), str(ENGINES.parent)])
    ran = subprocess.run(  # noqa: S603
        command, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{NEXT} completed: 2 of 2 rounds; every client took part in each of them.\n"
    for name in (*sites.names, "server"):
        assert {line["secea"] for line in sites.log(name, event="start")} == {NEXT}
    run(sites, 1)
    assert not sites.lost()
    assert not sites.log("server", event="accepted", kind="list"), "no name was asked for again"
    sites.check_means()
