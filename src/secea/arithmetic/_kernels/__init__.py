"""The compiled inner loops: `native.lib` holds the functions of kernels.h. They run without the interpreter's lock."""

from secea.arithmetic._kernels import native

__all__ = ["native"]
