"""Builds the compiled kernels with cffi; called by setuptools."""

import re
from pathlib import Path

from cffi import FFI

here = Path(__file__).parent
ffi = FFI()
ffi.cdef(re.sub(r"/\*.*?\*/", "", (here / "kernels.h").read_text(encoding="utf-8"), flags=re.DOTALL))
ffi.set_source(
    "secea.arithmetic._kernels.native",
    (here / "kernels.c").read_text(encoding="utf-8"),
    include_dirs=[str(here)],
    depends=[str(here / "kernels.h"), str(here / "kernels.c")],
    extra_compile_args=["-O3", "-std=gnu11", "-fno-math-errno", "-ffp-contract=off"],
    py_limited_api=True,
)
