"""Builds the compiled kernels with cffi; called by setuptools. Where there is no compiler, the package goes without."""

import re
import sysconfig
from pathlib import Path
from typing import Final

from cffi import FFI

here: Final = Path(__file__).parent
PARTS: Final = ("kernels", "group", "streams")  # each a .h that cffi reads, and a .c; compiled as one file
SOURCE: Final = "".join(f'#include "{part}.c"\n' for part in PARTS)
DECLARATIONS: Final = re.sub(
    r"/\*.*?\*/", "", "".join((here / f"{part}.h").read_text(encoding="utf-8") for part in PARTS), flags=re.DOTALL
)
WINDOWS: Final = sysconfig.get_platform().startswith("win")  # where setuptools uses Microsoft's compiler
FLAGS: Final = ("/O2", "/std:c11") if WINDOWS else ("-O3", "-std=gnu11", "-fno-math-errno", "-ffp-contract=off")

ffi: Final = FFI()
ffi.cdef(DECLARATIONS)
ffi.set_source(
    "secea.arithmetic._kernels.native",
    SOURCE,
    include_dirs=[str(here)],
    depends=[str(here / "platform.h"), *(str(here / f"{part}.{kind}") for part in PARTS for kind in "ch")],
    extra_compile_args=list(FLAGS),
    libraries=[] if WINDOWS else ["m"],
    py_limited_api=True,
    optional=True,  # if it cannot be compiled, setuptools continues, and `twin` takes its place
)
