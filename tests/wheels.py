"""`make wheels`: a source archive and a wheel into dist/, tried on every Python from 3.11 on that is at hand.

The archive is built from the checkout and the wheel from the archive, with the setuptools and cffi of this
environment. The wheel is installed into an empty environment of each Python, with what it depends on, and runs a small
federation there.

    make wheels
    make wheels PYTHONS="python3.12 /opt/python3.14/bin/python3"
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
DIST: Final = ROOT / "dist"
KERNELS: Final = "secea/arithmetic/_kernels"
SUPPORTED: Final = ("3.11", "3.12", "3.13", "3.14")
VERSION: Final = "import sys; print('%d.%d' % sys.version_info[:2])"


def run(*command: str | Path) -> None:
    """A program that must not fail."""
    subprocess.run([str(word) for word in command], check=True, cwd=ROOT)  # noqa: S603 - our own commands


def built() -> Path:
    """The wheel, after a look at what is in both files."""
    for old in DIST.glob("secea-*"):
        old.unlink()
    run(
        sys.executable,
        "-m",
        "uv",
        "build",
        "--quiet",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        DIST,
    )
    (archive,), (wheel,) = DIST.glob("secea-*.tar.gz"), DIST.glob("secea-*.whl")
    with tarfile.open(archive) as files:
        source = {name.partition("/")[2] for name in files.getnames()}
    sources = {each.name for kind in ("c", "h", "py") for each in (ROOT / "src" / KERNELS).glob(f"*.{kind}")}
    assert {f"src/{KERNELS}/{name}" for name in sources} | {"setup.py", "pyproject.toml", "LICENSE"} <= source
    assert "-cp311-abi3-" in wheel.name, f"{wheel.name} is not for all versions of Python"
    with zipfile.ZipFile(wheel) as content:
        compiled = [name for name in content.namelist() if name.startswith(f"{KERNELS}/native.")]
    assert any("abi3" in name or name.endswith(".pyd") for name in compiled), "the loops could not be compiled"
    return wheel


def pythons() -> Iterator[tuple[str, str]]:
    """Which version, and how to call it; those that are not at hand are named."""
    given = os.environ.get("PYTHONS", "").split()
    for command in given or [f"python{version}" for version in SUPPORTED]:
        try:
            ran = subprocess.run([command, "-c", VERSION], capture_output=True, text=True, check=True)  # noqa: S603
        except (OSError, subprocess.CalledProcessError):
            if given:
                raise
            print(f"{command} is not at hand")
        else:
            yield ran.stdout.strip(), command


def main() -> None:
    """All of it; the first thing that is wrong ends it."""
    wheel, tried = built(), set[str]()
    for version, command in pythons():
        with tempfile.TemporaryDirectory() as folder:
            run(command, "-m", "venv", folder)
            python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
            run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
            run(python, "-I", "tests/installed.py")
        tried.add(version)
    assert tried, "no Python from 3.11 on is at hand"
    print(f"{wheel.name} works on Python {', '.join(sorted(tried))}")


if __name__ == "__main__":
    main()
