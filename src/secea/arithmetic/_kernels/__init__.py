"""The inner loops. `lib` has the functions of kernels.h, group.h and streams.h; `ffi` makes their arguments.

They are compiled, and run without the interpreter's lock. If they could not be compiled, `lib` is `twin`, their numpy
version.
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
"""Why the compiled loops are missing. Empty if they are there."""
