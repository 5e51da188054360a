"""Ten likely mistakes, made on purpose: what the commands print is what docs/mistakes.md shows.

python tests/cli/mistakes.py        writes the page anew
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from terminal import ROOT, environment, heed_interrupts, shell, shim

PAGE = ROOT / "docs" / "mistakes.md"
INTRODUCTION = """# Mistakes

Ten mistakes that are easily made, with what the commands say, and their [exit codes](cli.md#exit-codes). A test makes
each of them with the real command and compares; `python tests/cli/mistakes.py` writes this page.
"""


@dataclass(frozen=True)
class Mistake:
    """What is typed, and what has to be in the answer."""

    title: str
    commands: tuple[str, ...]
    codes: tuple[int, ...]
    says: tuple[str, ...]
    """What to do about it: each must be part of the output."""
    about: str = ""
    without: tuple[str, ...] = ()
    """Modules that are not installed."""
    around: Callable[[], object] | None = field(default=None)
    """What goes on meanwhile: a context."""


@contextmanager
def port_9400_taken() -> Iterator[None]:
    """By us, unless somebody else has it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 9400))
            taken.listen()
        except OSError:
            pass
        yield


TABLES = "secea aggregate north.csv south.csv"
MISTAKES = (
    Mistake(
        "A wrong file",
        (f"{TABLES} wset.csv --out means", f"{TABLES} picture.csv --out means", f"{TABLES} notes.pdf --out means"),
        (3, 3, 3),
        ("wset.csv cannot be read: no such file", "picture.csv, line 1", "save the file as UTF-8", ".npz, .npy, .csv"),
    ),
    Mistake(
        "T too large",
        ("secea plan --clients 4 --collusion 4 --entities 100 --dim 16",),
        (3,),
        ("collusion must be from 1 to 3 for 4 clients",),
        "T counts who may conspire with the server against a client: at most all others.",
    ),
    Mistake(
        "Two clients of different dimension",
        (f"{TABLES} wide.csv --out means",),
        (3,),
        ("wide.csv has embeddings of length 3, north.csv of length 2; all clients need the same",),
    ),
    Mistake(
        "NaN in a table",
        (f"{TABLES} nan.csv --out means",),
        (3,),
        ("nan.csv, line 3: the embedding of 'codeine' holds nan; every number must be finite",),
    ),
    Mistake(
        "An unknown data set",
        ("secea train kg --data freebase",),
        (3,),
        ("there is no data set and no file 'freebase'", "kinships, nations, umls", "3 columns: head, relation, tail"),
    ),
    Mistake(
        "A missing extra",
        ("secea train kg", "secea aggregate north.csv south.csv west.parquet --out means"),
        (4, 4),
        ("pip install 'torch>=2.4' 'pykeen>=1.11'", "pip install 'pyarrow>=15'"),
        "The core does without PyTorch and pyarrow.",
        ("torch", "pyarrow"),
    ),
    Mistake(
        "A port in use",
        ("sh flower-kg/deploy.sh sites", "sh nvflare-kg/deploy.sh sites 9400"),
        (1, 1),
        (
            "address already in use",
            "stop what uses it, or choose another: sh deploy.sh sites PORT",
            "Port 9400 is in use",
        ),
        "No `secea` command opens a port; the engines do. Flower's is `flower-superlink --port`; NVFlare's is"
        " `fed_learn_port` in\nits `project.yml`. Here are the examples' deployments on both while something else has"
        " port 9400:",
        around=port_9400_taken,
    ),
    Mistake(
        "An unreadable key",
        (
            "secea roster federation.toml --server server.key.pub --client north=notes.pdf",
            "secea roster federation.toml --server server.key.pub --client north=north.key",
            "secea keygen north.key",
        ),
        (3, 3, 3),
        ("`secea keygen` writes one", "the public one is north.key.pub", "is not overwritten: choose another name"),
    ),
    Mistake(
        "A run that is interrupted",
        ("secea train kg --out runs/umls        # and Ctrl-C",),
        (130,),
        ("continue with: secea train --resume runs/umls",),
        "What a run has written is whole, and it goes on where it was. `secea aggregate` and the others leave nothing.",
    ),
    Mistake(
        "A full disk",
        (
            "ulimit -f 1; secea aggregate large-1.csv large-2.csv large-3.csv --out means",
            "ls means",
            "secea audit --list > /dev/full",
        ),
        (4, 2, 4),
        ("means/large-1.csv: file too large; make room, or write to another place", "no space left on device; make"),
        "`ulimit -f 1` lets no file grow beyond a kilobyte or less. Nothing half-written is left.",
    ),
)  # fmt: skip


def prepare(folder: Path) -> None:
    """What the mistakes are made with."""
    texts = {
        "north.csv": "name,x,y\naspirin,0.5,1.0\nibuprofen,2.0,-1.0\n",
        "south.csv": "name,x,y\naspirin,1.5,3.0\ncodeine,0.0,4.0\n",
        "wide.csv": "name,x,y,z\ncodeine,1.0,2.0,3.0\n",
        "nan.csv": "name,x,y\nwarfarin,1.0,2.0\ncodeine,nan,2.0\n",
        "notes.pdf": "%PDF-1.7\n",
        "west.parquet": "PAR1",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "picture.csv").write_bytes(b"\x89PNG\r\n\x1a\n")
    for n in range(3):
        rows = "".join(f"entity {n + i},{i / 8}\n" for i in range(100))
        (folder / f"large-{n + 1}.csv").write_text(rows, encoding="utf-8")
    for example in ("flower-kg", "nvflare-kg"):
        (folder / example).symlink_to(ROOT / "examples" / example)


def blocked(folder: Path, modules: tuple[str, ...]) -> dict[str, str]:
    """An environment in which these modules are not installed."""
    if not modules:
        return {}
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({modules}))\n", encoding="utf-8"
    )
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}


def made(mistake: Mistake, folder: Path) -> tuple[str, tuple[int, ...]]:
    """The transcript, and the exit codes. `folder` is empty."""
    prepare(folder)
    tools = shim(folder.with_name(folder.name + "-bin"))
    more = blocked(folder.with_name(folder.name + "-site"), mistake.without)
    if "key" in mistake.title:
        shell("secea keygen north.key && secea keygen server.key", folder, tools)
    if "port" in mistake.title:
        shell("python flower-kg/prepare.py sites", folder, tools)
    lines, codes = [], []
    with mistake.around() if mistake.around else _nothing():  # type: ignore[attr-defined]
        for command in mistake.commands:
            run = interrupted if "Ctrl-C" in command else shell
            ran = run(command, folder, tools, **more)
            lines += [f"$ {command}", *(ran.stdout + ran.stderr).splitlines()]
            codes.append(ran.returncode)
    return "\n".join(lines).replace(str(folder), "."), tuple(codes)


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def interrupted(command: str, folder: Path, tools: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """SIGINT once the run has saved something."""
    words = command.partition("#")[0].split()
    process = subprocess.Popen(  # noqa: S603 - a command of the page
        words, cwd=folder, env=environment(tools, **more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    saved, patience = folder / words[words.index("--out") + 1] / "checkpoint" / "local.npz", time.monotonic() + 100
    while not saved.exists() and process.poll() is None and time.monotonic() < patience:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def section(mistake: Mistake, transcript: str) -> str:
    """A part of the page."""
    about = f"{mistake.about}\n\n" if mistake.about else ""
    codes = ", ".join(map(str, mistake.codes))
    return f"\n## {mistake.title}\n\n{about}```console\n{transcript}\n```\n\nExit code: {codes}.\n"


def main() -> None:
    """Write the page."""
    parts = [INTRODUCTION]
    for mistake in MISTAKES:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) / "work"
            work.mkdir()
            transcript, codes = made(mistake, work)
        if codes != mistake.codes:
            sys.exit(f"{mistake.title}: exit codes {codes}\n{transcript}")
        parts.append(section(mistake, transcript))
    PAGE.write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
