"""`make sanitize`: the compiled loops under AddressSanitizer and UBSan, in their own tests and under fuzzing.

A copy of the sources gets loops of its own, which end the process at the first access beside an array and at the first
undefined operation. Before anything else both must be seen to do so, when a loop is told a wrong length or address.
It needs gcc with its sanitizers, on Linux.

    make sanitize
    make sanitize INPUTS=100000     # more of the fuzzer's random inputs
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cffi import FFI

from secea.arithmetic._kernels import build

ROOT: Final = Path(__file__).parent.parent
COPIED: Final = ("src", "tests", "fuzz", "vectors", "pyproject.toml")
FLAGS: Final = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TESTS: Final = (
    "test_kernels.py", "test_kernels_edges.py", "test_streams.py", "test_field.py", "test_grid.py",
    "test_fixedpoint.py", "test_ristretto.py", "test_masks.py", "test_means.py", "test_union.py",
)  # fmt: skip
LEFT_OUT: Final = "without_compiled_loops"
"""Tests that start a process of their own without these loops."""
WRONG: Final = {
    "one element too many": ("lib.add64(61, at(0), at(0), 9)", "heap-buffer-overflow"),
    "one element too early": ("lib.valid64(61, at(-8), 1)", "heap-buffer-overflow"),
    "an address between two elements": ("lib.valid64(61, at(4), 1)", "misaligned address"),
}
"""What is done to a loop that has 8 elements, and what must be reported."""
CALL: Final = """
import numpy as np
from secea.arithmetic._kernels import MISSING, ffi, lib
assert not MISSING
x = np.zeros(8, np.uint64)
at = lambda step: ffi.cast("uint64_t *", x.ctypes.data + step)
{call}
print("went through")
"""


@contextmanager
def watched() -> Iterator[Path]:
    """A copy of the sources whose loops are watched."""
    with tempfile.TemporaryDirectory() as folder:
        for name in COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        kernels = Path(folder, "src", "secea", "arithmetic", "_kernels")
        for compiled in kernels.glob("native*.so"):
            compiled.unlink()
        ffi = FFI()
        ffi.cdef(build.DECLARATIONS)
        ffi.set_source(
            "secea.arithmetic._kernels.native", build.SOURCE, include_dirs=[str(kernels)], py_limited_api=True,
            extra_compile_args=[*build.FLAGS, *FLAGS], extra_link_args=list(FLAGS), libraries=["m"],
        )  # fmt: skip
        ffi.compile(tmpdir=str(Path(folder, "src")))
        yield Path(folder)


def library(name: str) -> str:
    """Where gcc has it."""
    command = ["gcc", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - our own


def run(folder: Path, *arguments: str, shown: bool = True) -> subprocess.CompletedProcess[str]:
    """A program of the copy. What Python allocates is allocated one by one, so that all of it is watched."""
    chosen = {
        "PYTHONPATH": str(folder / "src"), "PYTHONMALLOC": "malloc", "PYTHONDONTWRITEBYTECODE": "1",
        "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1",
        "CC": "gcc", "CFLAGS": " ".join(FLAGS),
    }  # fmt: skip
    command, env = [sys.executable, *arguments], os.environ | chosen
    return subprocess.run(command, cwd=folder, env=env, capture_output=not shown, text=True, check=False)  # noqa: S603


def check_watch(folder: Path) -> None:
    """Whatever is wrong is reported; and what is right goes through."""
    right = {"nothing wrong": ("lib.add64(61, at(0), at(0), 8)", "")}
    for what, (call, report) in (right | WRONG).items():
        ran = run(folder, "-c", CALL.format(call=call), shown=False)
        assert bool(ran.returncode) == bool(report), f"{what}: ended with {ran.returncode}\n{ran.stderr}"
        assert report in ran.stderr, f"{what}: not reported\n{ran.stderr}"
        print(f"{what}: {report or 'goes through'}", flush=True)


def main() -> None:
    """All of it; the first thing that is wrong ends it."""
    inputs = os.environ.get("INPUTS") or "3000"
    with watched() as folder:
        check_watch(folder)
        tests = [f"tests/{name}" for name in TESTS]
        fuzz = "fuzz/fuzz_messages.py"
        for arguments in (
            ("-m", "pytest", "-q", "--capture", "sys", "-p", "no:cacheprovider", "-k", f"not {LEFT_OUT}", *tests),
            (fuzz, "--random", inputs),
            (fuzz, "--chunk-bytes", "100", "--random", inputs),
        ):
            print(" ".join(arguments), flush=True)
            if code := run(folder, *arguments).returncode:
                sys.exit(f"this ended with {code}: {' '.join(arguments)}")
    print("nothing beside an array was touched, and nothing undefined happened")


if __name__ == "__main__":
    main()
