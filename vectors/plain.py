"""How values stand in the files of vectors."""

from __future__ import annotations

from typing import Any


def plain(x: Any) -> Any:
    """Bytes as hex, floats exactly, everything else as JSON has it."""
    match x:
        case bytes():
            return x.hex()
        case float():
            return x.hex()
        case dict():
            return {key: plain(value) for key, value in x.items()}
        case list() | tuple():
            return [plain(value) for value in x]
        case _:
            return x
