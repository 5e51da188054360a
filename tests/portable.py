"""`make portable`: the compiled loops for other processors, systems and compilers than those that `make test` has.

For each target they are compiled and linked, as they are and in plain C. What can run here then runs here, against its
twin in numpy: of another compiler, without some instructions, and watched for undefined behaviour.

It needs gcc with its sanitizers, on Linux on x86-64; and zig, which brings clang and C libraries for other systems:

    python3 -m venv /tmp/zig && /tmp/zig/bin/pip install ziglang
    make portable ZIG="/tmp/zig/bin/python -m ziglang"
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from secea.arithmetic._kernels import build

ROOT: Final = Path(__file__).parent.parent
TARGETS: Final = (
    "x86_64-linux-gnu", "x86_64-linux-musl", "aarch64-linux-gnu", "aarch64-linux-musl", "x86_64-macos", "aarch64-macos",
    "x86_64-windows-gnu", "aarch64-windows-gnu", "arm-linux-musleabihf", "x86-linux-musl", "riscv64-linux-musl",
    "s390x-linux-musl",
)  # fmt: skip
FOR_MICROSOFT: Final = ("x86_64-windows-msvc", "aarch64-windows-msvc")
"""Compiled as clang-cl does it, but not linked: libraries are Microsoft's. These stand in for its headers."""
HEADERS: Final = {
    "math.h": "double fabs(double); double rint(double); double ldexp(double, int);",
    "stdlib.h": "void abort(void);",
    "string.h": "#include <stddef.h>\nvoid *memcpy(void *, const void *, size_t); void *memset(void *, int, size_t);"
    "int memcmp(const void *, const void *, size_t);",
}
STRICT: Final = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")
PLAIN: Final = "-DSECEA_PLAIN"
SPECIAL: Final = "-USECEA_PLAIN"
SANITIZED: Final = "-g -fsanitize=address,undefined -fno-sanitize-recover=undefined"


def compile_for(zig: list[str], target: str, form: str, folder: Path) -> None:
    """Compile without a warning, and link."""
    print(f"compile for {target} {form}", flush=True)
    (source := folder / "all.c").write_text(build.SOURCE, encoding="utf-8")
    flags = ["-target", target, *build.FLAGS, *STRICT, form, f"-I{build.here}"]
    if target in FOR_MICROSOFT:
        (headers := folder / target).mkdir(exist_ok=True)
        for name, text in HEADERS.items():
            (headers / name).write_text(f"{text}\n", encoding="utf-8")
        flags += ["-isystem", str(headers), "-std=c11", "-c"]
    else:
        flags += ["-shared", "-fPIC", "-lm"]
    subprocess.run([*zig, "cc", *flags, "-o", str(folder / "out"), str(source)], check=True)  # noqa: S603 - our own source


def compare(compiler: str, flags: str, *loaded: str) -> None:
    """What this compiler makes of it, and numpy; some libraries have to be loaded first."""
    print(f"run: {compiler} {flags}", flush=True)
    chosen = {"CC": compiler, "CFLAGS": flags, "LD_PRELOAD": " ".join(loaded), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-m", "pytest", "tests/test_kernels.py", "-k", "same_bits"]
    subprocess.run(command, cwd=ROOT, env=os.environ | chosen, check=True)  # noqa: S603 - our own tests


def found(library: str) -> str:
    """Where gcc has it."""
    command = ["gcc", f"-print-file-name={library}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


def main() -> None:
    """All of it; the first thing that is wrong ends it."""
    zig = shlex.split(os.environ.get("ZIG") or "zig")
    if missing := [command for command in (zig[0], "gcc") if shutil.which(command) is None]:
        sys.exit(f"there is no {missing[0]} here. {__doc__}")
    with tempfile.TemporaryDirectory() as folder:
        for target in (*TARGETS, *FOR_MICROSOFT):
            for form in (SPECIAL, PLAIN):
                compile_for(zig, target, form, Path(folder))
    for form in (SPECIAL, PLAIN):
        compare(shlex.join([*zig, "cc"]), form)
        compare("gcc", f"{form} -O0 -mno-avx2")
        compare("gcc", f"{form} {SANITIZED}", found("libasan.so"), found("libubsan.so"))


if __name__ == "__main__":
    main()
