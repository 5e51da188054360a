"""Let one object stand for another in all modules of the package, for a while: how the audit listens, and mutates.

A claim runs the product as it is installed. Where a protection is a function or a constant, and no class can be
replaced, a mutant names what stands in its place.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final


@contextmanager
def standing_in(instead: Mapping[Any, Any], *, but: str = "secea.audit", **constants: Any) -> Iterator[None]:
    """In all modules of the package but these: values for keys, and constants of these names.

    What stands in is found by identity, so that it does not matter under which name a module imported it.
    """
    mine = {id(one): other for one, other in instead.items()}
    done: list[tuple[Any, str, Any]] = []
    try:
        for name, module in list(sys.modules.items()):
            if not name.startswith("secea.") or name.startswith(but):
                continue
            for attribute, value in list(vars(module).items()):
                other = constants.get(attribute, mine.get(id(value), value))
                if other is not value:
                    done.append((module, attribute, value))
                    setattr(module, attribute, other)
        yield
    finally:
        for module, attribute, value in reversed(done):
            setattr(module, attribute, value)


Within = tuple[object, str, Any]
"""A module or a class, the name of something in it, and what stands there instead."""


_NOTHING: Final = object()


def _own(owner: object, name: str) -> Any:
    """What an owner has under this name; of a class what stands in itself, if anything."""
    return vars(owner).get(name, _NOTHING) if isinstance(owner, type) else getattr(owner, name)


@contextmanager
def attributes_stand_in(*within: Within) -> Iterator[None]:
    """Put these in their places, and put back what was there: of a class method itself, and not what it is bound to."""
    before = [(owner, name, _own(owner, name)) for owner, name, _ in within]
    try:
        for owner, name, other in within:
            setattr(owner, name, other)
        yield
    finally:
        for owner, name, was in reversed(before):
            if was is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, was)
