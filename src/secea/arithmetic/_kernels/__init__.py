"""The inner loops: `lib` has the functions of kernels.h, group.h and streams.h, and `ffi` makes what they take.

They are compiled, and run without the interpreter's lock. Where that was not possible, `lib` is their twin in numpy.
"""

from typing import Any, Final

__all__ = ["MISSING", "ffi", "lib"]

lib: Any
ffi: Any
_missing = ""

try:
    from secea.arithmetic._kernels.native import ffi, lib
except ImportError as error:
    from secea.arithmetic._kernels import twin as lib
    from secea.arithmetic._kernels.build import ffi

    _missing = str(error)

MISSING: Final = _missing
"""Why there are no compiled loops; empty if there are."""
