"""Who may have what run at a site: rights as NVFlare's policies write them down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

OWN_CODE: Final = "byoc"
"""The right to bring code in a job. Such code could read the identity key."""


def without_code(roles: Mapping[str, Any], rights: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The same permissions, but no role may bring code. A role has a word for all `rights`, or one for each."""
    each = {role: dict.fromkeys(rights, given) if isinstance(given, str) else given for role, given in roles.items()}
    return {role: {**given, OWN_CODE: "none"} for role, given in each.items()}
