"""Builds the compiled kernels with cffi; called by setuptools."""

import re
from pathlib import Path

from cffi import FFI

here = Path(__file__).parent
PARTS = ("kernels", "group", "streams")  # each a .h that cffi reads as well, and a .c; all are compiled as one file
headers = "".join((here / f"{part}.h").read_text(encoding="utf-8") for part in PARTS)
ffi = FFI()
ffi.cdef(re.sub(r"/\*.*?\*/", "", headers, flags=re.DOTALL))
ffi.set_source(
    "secea.arithmetic._kernels.native",
    "".join(f'#include "{part}.c"\n' for part in PARTS),
    include_dirs=[str(here)],
    depends=[str(here / f"{part}.{kind}") for part in PARTS for kind in "ch"],
    extra_compile_args=["-O3", "-std=gnu11", "-fno-math-errno", "-ffp-contract=off"],
    py_limited_api=True,
)
