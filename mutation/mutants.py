"""The mutants of a source file: each is the syntax tree with one node changed.

A mutant lies in a function or in the value of a constant of the module. What only a reader sees is left as it is:
docstrings, annotations, texts of errors, `repr`, and assertions, which state what cannot happen.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Statement: TypeAlias = ast.stmt | ast.match_case
Found: TypeAlias = Iterator[tuple[str, ast.AST | None]]
"""What a node may become, each with the name of the operator. None takes a node out of its list or leaves it off."""

BOUNDS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
OPPOSITES: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.Pow: ast.Mult,
}
SEQUENCES: Final = ("sorted", "set", "reversed", "abs")
TWINS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
CONSTANTS: Final = {"int": "0", "bytes": "b''", "str": "''", "list": "[]", "dict": "{}", "tuple": "()", "set": "set()"}
"""What a function may return instead, by the type that it declares."""
LEFT_OUT: Final = {
    "annotation", "returns", "decorator_list", "exc", "cause", "pattern", "type_comment", "ctx", "keywords"
}  # fmt: skip
"""Fields of nodes that are not looked at, or not in this way."""
NOT_MUTATED: Final = {"__repr__", "__str__"}
ERRORS: Final = ("Error", "Peer", "Relay", "Lost", "Answer")
"""How the names of exceptions end."""


@dataclass(frozen=True)
class Place:
    """A node of a tree: a field of its parent, and the number in it where the field is a list."""

    parent: ast.AST
    name: str
    index: int | None = None

    def put(self, node: ast.AST | None) -> None:
        """Another node in this place."""
        if self.index is None:
            setattr(self.parent, self.name, node)
        elif node is None:
            del getattr(self.parent, self.name)[self.index]
        else:
            getattr(self.parent, self.name)[self.index] = node


@dataclass(frozen=True)
class Mutant:
    """One change. File, function, `before`, `after` and `nth` identify it, whatever line it stands in."""

    file: str
    function: str
    """Its qualified name; the name of the constant outside of functions."""
    lines: tuple[int, int]
    """The first and the last line of the statement, without what is nested in it."""
    operator: str
    before: str
    """The statement as it is, without what is nested in it."""
    after: str
    constant: bool = False
    """Whether it is outside of functions."""
    nth: int = 0
    """Which of the equal changes in this function it is."""
    place: Place | None = field(default=None, repr=False, compare=False)
    node: ast.AST | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What names the mutant."""
        return self.file, self.function, self.before, self.after, self.nth

    def __str__(self) -> str:
        return f"{self.file}:{self.lines[0]} {self.function}: {self.before}  ->  {self.after}"


@dataclass
class Module:
    """The tree of a file and its mutants."""

    file: str
    tree: ast.Module
    mutants: list[Mutant]

    def changed(self, mutant: Mutant) -> ast.Module:
        """The tree with the mutant in it. The tree is changed for good: one process is for one mutant."""
        assert mutant.place is not None
        mutant.place.put(mutant.node)
        return ast.fix_missing_locations(self.tree)


def module(text: str, file: str, variadic: Collection[str] = (), *, prose: bool = False) -> Module:
    """All mutants of a source file. `variadic` are the functions that take any number of arguments.

    `prose`: the file says something to people, and its sentences are left as they are.
    """
    tree = ast.parse(text)
    mutants: list[Mutant] = []
    for name, top in _tops(tree):
        seen: dict[tuple[str, str], int] = {}
        constant = not isinstance(top, Function)
        for change in _Search(frozenset(variadic), prose).changes(top):
            before = _text(change.statement)
            with _changed(change.place, change.node):
                after = _text(change.node if isinstance(change.node, Statement) else change.statement)
            if after == before:
                continue
            nth = seen[before, after] = seen.get((before, after), -1) + 1
            lines = _lines(change.statement)
            mutants.append(
                Mutant(file, name, lines, change.operator, before, after, constant, nth, change.place, change.node)
            )
    return Module(file, tree, mutants)


# ------------------------------------------------------------------------------------------------- what is looked at


def _tops(tree: ast.Module) -> Iterator[tuple[str, Function | ast.Assign | ast.AnnAssign]]:
    """Functions, methods, and constants of the module, with their names."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node
            case ast.ClassDef():
                yield from _methods(node, node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                if "TypeAlias" not in ast.unparse(node) and name != "__all__":
                    yield name, node


def _methods(owner: ast.ClassDef, name: str) -> Iterator[tuple[str, Function]]:
    for node in owner.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if node.name not in NOT_MUTATED:
                    yield f"{name}.{node.name}", node
            case ast.ClassDef():
                yield from _methods(node, f"{name}.{node.name}")


@dataclass(frozen=True)
class _Change:
    operator: str
    statement: Statement
    place: Place
    node: ast.AST | None


@dataclass(frozen=True)
class _Search:
    variadic: Collection[str]
    prose: bool

    def changes(self, top: Function | ast.Assign | ast.AnnAssign) -> Iterator[_Change]:
        """All changes inside a function, or inside the value of a constant."""
        if isinstance(top, Function):
            for index, statement in enumerate(top.body):
                yield from self._statement(statement, Place(top, "body", index), top)
        else:
            yield from self._inside(top, Place(top, "value"), top.value)

    def _statement(self, node: Statement, place: Place, owner: Function) -> Iterator[_Change]:
        """Changes of a statement and of everything in it."""
        if isinstance(node, ast.Assert) or _is_prose(node):
            return
        if isinstance(node, Function):
            owner = node
        if _may_go(node, place):
            yield _Change("statement", node, place, ast.Pass())
        yield from (_Change(operator, node, place, other) for operator, other in mutated(node))
        if isinstance(node, ast.Return) and node.value is not None:
            yield from (_Change("return", node, Place(node, "value"), value) for value in _constants(owner.returns))
        for name, child in ast.iter_fields(node):
            if name in LEFT_OUT or isinstance(child, ast.arguments):
                continue
            for where, each in _children(node, name, child):
                if isinstance(each, Statement):
                    yield from self._statement(each, where, owner)
                elif isinstance(each, ast.ExceptHandler):
                    for index, inner in enumerate(each.body):
                        yield from self._statement(inner, Place(each, "body", index), owner)
                else:
                    yield from self._inside(node, where, each)

    def _inside(
        self, statement: Statement, place: Place, node: ast.AST | None, decided: bool = False
    ) -> Iterator[_Change]:
        """Changes of an expression and of everything in it."""
        if node is None or _is_error(node) or _is_whatever_fits(place.parent, node):
            return
        if self.prose and _is_sentence(node):
            return
        # Where a condition or a part of it is true in one mutant and false in another, its opposite adds nothing.
        decided = decided or (place.name == "test" and isinstance(place.parent, ast.If | ast.IfExp))
        for operator, other in mutated(node):
            if not (decided and operator in ("opposite", "junction")):
                yield _Change(operator, statement, place, other)
        if isinstance(node, ast.JoinedStr) or _is_format(node):
            return
        for name, child in ast.iter_fields(node):
            if name not in LEFT_OUT and not isinstance(child, ast.arguments):
                for where, each in _children(node, name, child):
                    yield from self._inside(statement, where, each, decided and isinstance(node, ast.BoolOp))
        if isinstance(node, ast.Call):
            yield from self._arguments(statement, node)

    def _arguments(self, statement: Statement, call: ast.Call) -> Iterator[_Change]:
        """A call with one argument less, or with the next argument twice."""
        less = len(call.args) > 1 and ast.unparse(call.func).rpartition(".")[2] in self.variadic
        for index, argument in enumerate(call.args):
            if less or isinstance(argument, ast.Starred):
                yield _Change("argument", statement, Place(call, "args", index), None)
            other = call.args[(index + 1) % len(call.args)]
            if other is not argument and type(other) is type(argument) and isinstance(other, ast.Name | ast.Attribute):
                yield _Change("argument", statement, Place(call, "args", index), other)
        for index, keyword in enumerate(call.keywords):
            if keyword.arg not in ("strict", "tick"):
                yield _Change("argument", statement, Place(call, "keywords", index), None)
                yield from self._inside(statement, Place(keyword, "value"), keyword.value)


def _children(node: ast.AST, name: str, child: object) -> Iterator[tuple[Place, ast.AST]]:
    if isinstance(child, ast.AST):
        yield Place(node, name), child
    elif isinstance(child, list):
        yield from ((Place(node, name, i), each) for i, each in enumerate(child) if isinstance(each, ast.AST))


def _is_prose(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_sentence(node: ast.AST) -> bool:
    """Whether a text, or one with values in it, has more than one word."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value for each in parts)


def _is_format(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant)


def _is_whatever_fits(parent: ast.AST, node: ast.AST) -> bool:
    """The -1 of `reshape(-1, 32)`: any negative number would do."""
    called = isinstance(parent, ast.Call) and ast.unparse(parent.func).endswith("reshape")
    return called and isinstance(node, ast.UnaryOp)


def _is_error(node: ast.AST) -> bool:
    """Whether an exception is made here: its text is for people."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith(ERRORS)


def _may_go(node: Statement, place: Place) -> bool:
    """Statements that can be left out without leaving a name undefined."""
    match node:
        case ast.Raise():
            parent = place.parent
            alone = isinstance(parent, ast.If) and place.name == "body" and len(parent.body) == 1
            return not alone and not isinstance(parent, ast.ExceptHandler)  # else: the condition that never holds
        case ast.Assign(targets=targets):
            return all(isinstance(each, ast.Attribute | ast.Subscript) for each in targets)
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            return True
        case ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
            return True
        case _:
            return False


def _constants(returns: ast.expr | None) -> Iterator[ast.expr]:
    """Constants of a function's type."""
    if returns is None:
        return
    kind = ast.unparse(returns).partition("[")[0]
    if kind == "bool":
        yield from (ast.Constant(True), ast.Constant(False))
    elif "None" in ast.unparse(returns) and "|" in ast.unparse(returns):
        yield ast.Constant(None)
    elif kind in CONSTANTS:
        yield ast.parse(CONSTANTS[kind], mode="eval").body


def _text(node: Statement) -> str:
    """A statement's own text, without the statements in it."""
    bare = copy.copy(node)
    for name in ("body", "orelse", "finalbody", "handlers", "cases", "decorator_list"):
        if isinstance(getattr(bare, name, None), list):
            setattr(bare, name, [])
    if isinstance(bare, ast.match_case):
        guard = f" if {ast.unparse(bare.guard)}" if bare.guard else ""
        return f"case {ast.unparse(bare.pattern)}{guard}:"
    if isinstance(bare, ast.Match):
        return f"match {ast.unparse(bare.subject)}:"
    return " ".join(ast.unparse(bare).split())


def _lines(node: Statement) -> tuple[int, int]:
    """The first and the last line of a statement's own text."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, node.pattern.lineno
    inner = getattr(node, "body", None) or getattr(node, "cases", None)
    if not inner:
        return node.lineno, node.end_lineno or node.lineno
    return node.lineno, max(node.lineno, _lines(inner[0])[0] - 1)


@contextmanager
def _changed(place: Place, node: ast.AST | None) -> Iterator[None]:
    """The tree with another node, for as long as its text is read."""
    before = getattr(place.parent, place.name)
    kept = list(before) if isinstance(before, list) else before
    place.put(node)
    try:
        yield
    finally:
        if isinstance(before, list):
            before[:] = kept
        else:
            setattr(place.parent, place.name, kept)


# ----------------------------------------------------------------------------------------------------- the operators


@singledispatch
def mutated(node: ast.AST) -> Found:
    """What a node may become."""
    yield from ()


@mutated.register
def _(node: ast.Compare) -> Found:
    for index, op in enumerate(node.ops):
        for name, others in (("bound", BOUNDS), ("opposite", OPPOSITES)):
            if type(op) in others:
                ops = [*node.ops[:index], others[type(op)](), *node.ops[index + 1 :]]
                yield name, ast.Compare(node.left, ops, node.comparators)


@mutated.register
def _(node: ast.BinOp) -> Found:
    constants = [each.value for each in (node.left, node.right) if isinstance(each, ast.Constant)]
    if isinstance(node.op, ast.Add) and not constants:  # of numbers, or of byte strings
        yield from (("arithmetic", each) for each in (node.left, node.right))
    elif isinstance(node.op, ast.Mod):
        if not _is_format(node):
            yield "arithmetic", node.left
    elif all(isinstance(each, int | float) for each in constants) and type(node.op) in ARITHMETIC:
        yield "arithmetic", ast.BinOp(node.left, ARITHMETIC[type(node.op)](), node.right)
        if isinstance(node.op, ast.Sub | ast.BitAnd) and not constants:
            yield "arithmetic", node.left


@mutated.register
def _(node: ast.UnaryOp) -> Found:
    if not isinstance(node.op, ast.UAdd):
        yield "opposite" if isinstance(node.op, ast.Not) else "arithmetic", node.operand


@mutated.register
def _(node: ast.BoolOp) -> Found:
    yield "junction", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    for index in range(len(node.values)):
        rest = [*node.values[:index], *node.values[index + 1 :]]
        yield "boolean", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


@mutated.register
def _(node: ast.If) -> Found:
    if ast.unparse(node.test) != "TYPE_CHECKING":
        for value in (False, True):
            yield "condition", ast.If(ast.Constant(value), node.body, node.orelse)


@mutated.register
def _(node: ast.While) -> Found:
    yield "condition", ast.While(ast.Constant(False), node.body, node.orelse)


@mutated.register
def _(node: ast.IfExp) -> Found:
    yield "condition", node.body
    yield "condition", node.orelse


@mutated.register
def _(node: ast.For) -> Found:
    yield "loop", ast.copy_location(ast.For(node.target, ast.Tuple([], ast.Load()), node.body, node.orelse), node)


@mutated.register
def _(node: ast.match_case) -> Found:
    if not isinstance(node.pattern, ast.MatchAs) or node.guard:
        yield "condition", ast.match_case(node.pattern, ast.Constant(False), node.body)


@mutated.register
def _(node: ast.comprehension) -> Found:
    for index in range(len(node.ifs)):
        rest = [*node.ifs[:index], *node.ifs[index + 1 :]]
        yield "condition", ast.comprehension(node.target, node.iter, rest, node.is_async)


@mutated.register
def _(node: ast.Constant) -> Found:
    match node.value:
        case bool():
            yield "constant", ast.Constant(not node.value)
        case int():
            yield "constant", ast.Constant(node.value + 1)
            if node.value == 1:
                yield "constant", ast.Constant(0)
        case float():
            yield "constant", ast.Constant(node.value * 2)
        case bytes():
            yield "label", ast.Constant(b"" if node.value else b"?")
        case "little" | "big":
            yield "constant", ast.Constant("big" if node.value == "little" else "little")
        case str():
            yield "label", ast.Constant("" if node.value else "?")


@mutated.register
def _(node: ast.JoinedStr) -> Found:
    yield "label", ast.Constant("")
    fixed = [each for each in node.values if isinstance(each, ast.FormattedValue)]
    if len(fixed) < len(node.values):
        yield "label", ast.JoinedStr(list(fixed))


@mutated.register
def _(node: ast.Slice) -> Found:
    if node.lower is not None:
        yield "slice", ast.Slice(None, node.upper, node.step)
    if node.upper is not None:
        yield "slice", ast.Slice(node.lower, None, node.step)
    if node.step is not None:
        yield "slice", ast.Slice(node.lower, node.upper, None)


@mutated.register
def _(node: ast.Call) -> Found:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[argument, *_]) if name in SEQUENCES:
            yield "call", argument
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in TWINS:
            yield "call", ast.Call(ast.Name(TWINS[name], ast.Load()), args, keywords)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=args, keywords=keywords) if attr in TWINS:
            yield "call", ast.Call(ast.Attribute(inner, TWINS[attr], ast.Load()), args, keywords)
        case ast.Call(func=ast.Attribute(value=inner, attr="copy"), args=[]):
            yield "call", inner


def places(text: str) -> dict[str, tuple[int, int]]:
    """The first and the last line of each function and constant."""
    return {name: (node.lineno, node.end_lineno or node.lineno) for name, node in _tops(ast.parse(text))}


def variadic(texts: Iterable[str]) -> frozenset[str]:
    """The names of functions in these sources that take any number of arguments."""
    functions = (node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, Function))
    return frozenset(each.name for each in functions if each.args.vararg)
