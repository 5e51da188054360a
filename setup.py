"""Only what pyproject.toml cannot say: the compiled kernels."""

from setuptools import setup

setup(
    cffi_modules=["src/secea/arithmetic/_kernels/build.py:ffi"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},  # the kernels use the limited API: one wheel for all versions
)
