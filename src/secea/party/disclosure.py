"""What a form says to people who sign a policy: who learns what, under which assumption, and what is not protected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statement:
    """Sentences about one party, or about one option."""

    about: str
    assumed: str
    """Under which assumption they hold; the value, for an option."""
    says: tuple[str, ...]


@dataclass(frozen=True)
class Disclosure:
    """All of it. The sentences are those of docs/threat-model.md, with the numbers of one federation."""

    parties: tuple[Statement, ...]
    options: tuple[Statement, ...]
    """What options change that are in use."""
    limits: tuple[str, ...]
    """What is not hidden, and not prevented."""
    accuracy: tuple[str, ...]
