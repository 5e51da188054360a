"""A mutant in a running process: the functions of a module with other code, or a constant with another value."""

from __future__ import annotations

import ast
import functools
import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mutation.mutants import Module, Mutant


class NotApplicable(Exception):
    """Nothing that runs comes from this source."""


@dataclass(frozen=True)
class Running:
    """What was loaded from the files that are mutated: functions wherever they are held, and caches."""

    functions: Sequence[FunctionType]
    caches: Sequence[Any]

    @classmethod
    def now(cls, files: Sequence[Path]) -> Running:
        """Found through the garbage collector: a function may be a property's, or wrapped, or in a table."""
        names = {str(file) for file in files}
        held = gc.get_objects()
        functions = [each for each in held if type(each) is FunctionType and each.__code__.co_filename in names]
        return cls(functions, [each for each in held if type(each) is functools._lru_cache_wrapper])

    def put(self, module: Module, mutant: Mutant, file: Path) -> None:
        """The mutant instead of the original, in this process, for good."""
        tree = module.changed(mutant)
        for cache in self.caches:
            cache.cache_clear()
        if mutant.constant:
            _assign(mutant.function, next(node for node in tree.body if _assigns(node, mutant.function)), file)
            return
        codes = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, str(file), "exec"))}
        done = 0
        for function in self.functions:
            old = function.__code__
            if old.co_filename == str(file) and old.co_qualname == mutant.function:
                new = codes.get((old.co_qualname, old.co_firstlineno))
                if new is not None and new != old and len(new.co_freevars) == len(old.co_freevars):
                    function.__code__ = new
                    done += 1
        if not done:
            raise NotApplicable


def _codes(code: CodeType) -> Iterator[CodeType]:
    """All code objects in one."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _assigns(node: ast.stmt, name: str) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target)):
            return target == name
        case _:
            return False


def _assign(name: str, statement: ast.stmt, file: Path) -> None:
    """The constant's new value, in its module, in those that imported it, and in classes that hold it."""
    home = next(each for each in _modules() if getattr(each, "__file__", None) == str(file))
    scope, old = dict(vars(home)), vars(home)[name]
    exec(compile(ast.Module([statement], []), str(file), "exec"), scope)  # noqa: S102 - our own source, mutated
    for each in _modules():
        if vars(each).get(name) is old:
            setattr(each, name, scope[name])
    for owner in (each for each in vars(home).values() if isinstance(each, type)):
        held = [key for key, value in vars(owner).items() if value is old]
        for key in held if isinstance(old, tuple | Mapping) else ():
            setattr(owner, key, scope[name])


def _modules() -> list[ModuleType]:
    return [each for each in list(sys.modules.values()) if isinstance(each, ModuleType)]
