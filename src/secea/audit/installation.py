"""What is installed here: the files of the package with their hashes, and what it runs on.

Two installations of one version have the same digest, on every system: compiled modules are listed beside it.
"""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

import secea
from secea.arithmetic import _kernels

COMPILED: Final = (".so", ".pyd", ".o")
LIBRARIES: Final = ("numpy", "cryptography", "cffi", "gmpy2", "rbcl")
"""What the package computes with."""


@dataclass(frozen=True)
class Installation:
    """The code that an audit looked at."""

    version: str
    digest: str
    """SHA-256 over the hashes of all files but the compiled ones, in the order of their names."""
    files: Mapping[str, str] = field(repr=False)
    """The SHA-256 of each file, by its place in the package."""
    compiled: Mapping[str, str] = field(repr=False)
    """The same for compiled modules: they differ from system to system."""
    origin: str
    """How it was installed, and whether its files are those that were."""
    system: str
    libraries: Mapping[str, str]


def installation() -> Installation:
    """Look at the files that are imported here."""
    folder = Path(secea.__file__).parent
    found = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    compiled = {name: digest for name, digest in found.items() if name.endswith(COMPILED)}
    files = {name: digest for name, digest in sorted(found.items()) if name not in compiled}
    return Installation(
        version=secea.__version__,
        digest=digest_of(files),
        files=files,
        compiled=compiled,
        origin=_origin(found),
        system=f"Python {platform.python_version()}, {platform.system()} on {platform.machine()};"
        f" inner loops {'in numpy' if _kernels.MISSING else 'compiled'}",
        libraries={name: _version(name) for name in LIBRARIES} | {"OpenSSL": _openssl()},
    )


def digest_of(files: Mapping[str, str]) -> str:
    """What `sha256sum` gives for a list of lines "hash  name", in the order of the names."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _origin(found: Mapping[str, str]) -> str:
    """Compare files with the record that the installer left."""
    try:
        recorded = metadata.distribution("secea").files or []
    except metadata.PackageNotFoundError:
        return "not installed: the package runs from its folder, and there is no record to compare it with"
    record = {str(each).removeprefix("secea/"): each.hash for each in recorded if str(each).startswith("secea/")}
    if "__init__.py" not in record:
        return "installed in place, from a checkout: there is no record to compare its files with"
    changed = sorted(
        name
        for name, digest in found.items()
        if (was := record.get(name)) is None
        or base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode() != was.value
    )
    changed += sorted(name for name, was in record.items() if was is not None and name not in found)
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"NOT AS INSTALLED: {changed[0]}{more} changed since the package was installed"
    return f"installed from a wheel; all {len(found)} files are those of its record"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _openssl() -> str:
    from cryptography.hazmat.backends.openssl import backend

    return backend.openssl_version_text().removeprefix("OpenSSL ")
