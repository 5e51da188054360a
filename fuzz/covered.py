"""Which lines of the receiving code inputs reach: without a package for it, by the interpreter's own tracing."""

from __future__ import annotations

import ast
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import secea

SOURCE: Final = Path(secea.__file__).parent
FOLDERS: Final = ("forms/keyed", "forms/paillier", "party", "steps", "wire")


def _lines(code: CodeType) -> Iterator[int]:
    """The lines of all functions in it; what runs at import is not counted."""
    for inner in (each for each in code.co_consts if isinstance(each, CodeType)):
        if inner.co_flags & 0x2:  # a function, not a class
            yield from (line for _, _, line in inner.co_lines() if line and line != inner.co_firstlineno)
        yield from _lines(inner)


class Covered:
    """Lines that were reached, by file."""

    def __init__(self) -> None:
        self.reached: defaultdict[str, set[int]] = defaultdict(set)
        self._files = {str(path): folder for folder in FOLDERS for path in (SOURCE / folder).glob("*.py")}

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._files:
            return None
        if event == "line":
            self.reached[name].add(frame.f_lineno)
        return self._trace

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Everything that runs meanwhile counts."""
        before = sys.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
            threading.settrace(None)

    def report(self) -> Iterator[str]:
        """A line for each folder; then the refusals that nothing reached."""
        missed: list[str] = []
        for folder in FOLDERS:
            seen = total = refusals = made = 0
            for name in sorted(each for each, where in self._files.items() if where == folder):
                text = Path(name).read_text(encoding="utf-8")
                lines = set(_lines(compile(text, name, "exec")))
                raising = {
                    node.lineno: ast.unparse(node)
                    for node in ast.walk(ast.parse(text))
                    if isinstance(node, ast.Raise) and node.lineno in lines and _refuses(node)
                }
                reached = self.reached[name] & lines
                seen, total = seen + len(reached), total + len(lines)
                refusals, made = refusals + len(raising), made + len(raising.keys() & reached)
                short = f"{folder}/{Path(name).name}"
                missed += [f"  {short}:{at}: {raising[at][:110]}" for at in sorted(raising.keys() - reached)]
            yield f"{folder}: {seen} of {total} lines of functions, {made} of {refusals} refusals"
        yield "refusals that nothing reached:"
        yield from missed or ["  none"]


REFUSALS: Final = ("FaultyPeer", "FaultyPeerOrRelay", "ProtocolError", "Stale", "unauthentic", "_stale", "ValueError")


def _refuses(node: ast.Raise) -> bool:
    """Whether it refuses what a peer said: with one of these, by name or from a method."""
    call = node.exc.func if isinstance(node.exc, ast.Call) else None
    name = call.id if isinstance(call, ast.Name) else call.attr if isinstance(call, ast.Attribute) else ""
    return name in REFUSALS
