"""Which cases of a test run every time, and which only with `make slow`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow(case: Any) -> Any:
    """A case for `make slow`."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)


def always(some: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """All cases; those that are not among `some` are slow ones."""
    known = list(cases)
    assert some, "a test without a case runs never"
    assert all(case in known for case in some), "a case that there is not would run never"
    return [case if case in some else slow(case) for case in known]
