"""What parts of this package need beyond its core, and the command that installs it.

A hint names libraries, and no extra of this package: that works wherever the package came from, on an index or not.
"""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

EXTRAS: Final = {
    "learn": ("torch>=2.4", "pykeen>=1.11", "dp-accounting>=0.4.4", "pyarrow>=15"),
    "gensim": ("gensim>=4.3",),
    "nvflare": ("nvflare==2.9.0",),
    "flower": ("flwr==1.41.0",),
    "metrics": (
        "opentelemetry-sdk>=1.45",
        "opentelemetry-exporter-otlp-proto-http>=1.45",
        "opentelemetry-exporter-prometheus>=0.66b1",
    ),
}
"""The libraries of the extras in pyproject.toml."""
SOURCE: Final = Path(__file__).parents[2]
"""The checkout, if the package runs from one."""


def installing(*wanted: str) -> str:
    """The command that installs these libraries, or those of extras.

    >>> installing("pyarrow")
    "pip install 'pyarrow>=15'"
    """
    known = {re.split("[=<>]", each)[0]: (each,) for libraries in EXTRAS.values() for each in libraries}
    return " ".join(["pip install", *(f"'{each}'" for name in wanted for each in (EXTRAS | known)[name])])


def again() -> str:
    """The command that builds and installs this package again, and nothing else."""
    if (SOURCE / "pyproject.toml").exists():
        return f"pip install --no-deps --editable {shlex.quote(str(SOURCE))}"
    return f"pip install --force-reinstall --no-deps --no-cache-dir {_origin()}"


def _origin() -> str:
    """Where pip took the package from; a dot where its source is not known."""
    try:
        record = distribution("secea").read_text("direct_url.json")
    except PackageNotFoundError:
        return "."
    if record is None:
        return "secea"  # from an index
    place = Path(unquote(urlsplit(json.loads(record)["url"]).path))
    compiles = place.suffix != ".whl" and place.exists()
    return shlex.quote(str(place)) if compiles else "."
