"""Names of functions in pages, as `party.client.Client.receive`: whether they exist."""

from __future__ import annotations

import importlib


def resolves(name: str) -> bool:
    """Whether the package has a module, class, function or field of this name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["secea", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
                return False
            found = getattr(found, part, None)
        return True
    return False
