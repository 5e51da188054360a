"""Only what pyproject.toml cannot say: the compiled kernels."""

from setuptools import setup

setup(cffi_modules=["src/secea/_kernels/build.py:ffi"])
