"""Every small change of a module, one at a time.

Changed are comparisons, `and`/`or` and each of their parts, `not`, conditions, numbers, flags, words, arithmetic,
members of enums, elements of literals, arguments (for None; named ones are left out), the links of a chain of calls,
returned and assigned values (for None), and statements that are there for their effect (left out). Not changed: texts
for people (they hold a blank), messages of what is raised, annotations, decorators, asserts and imports.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

COMPARE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
SKIPPED: Final = (ast.Import, ast.ImportFrom, ast.Assert, ast.Global, ast.Nonlocal)
UNTYPED: Final = {"cast", "TypeVar", "NewType", "ParamSpec"}
"""Calls that speak to type checkers only."""

Slot = tuple[ast.AST, str, int | None]
"""Where a node hangs: its parent, the field, and the place in it."""


@dataclass(frozen=True)
class Mutant:
    """One change: where, what, and how to make it."""

    number: int
    function: str  #: dotted name of the innermost function or class; "" for the module itself
    kind: str
    words: str  #: what stood there and what stands there now
    lines: range  #: of the statement that was changed
    at_import: bool  #: it is run when the module is imported
    in_class: bool  #: it stands in a class
    slot: Slot = field(repr=False)
    new: ast.AST | None = field(repr=False)  #: None: left out


class Source:
    """A module's source and all its mutants."""

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.tree = ast.parse(text, path)
        self.code = self._compiled()
        self._members = _members(self.tree)
        self.mutants: list[Mutant] = []
        self._scope: list[str] = []
        self._deep = 0
        self._classes = 0
        self._stmt: ast.stmt | None = None
        self._body(self.tree)

    def changed(self, mutant: Mutant) -> CodeType | None:
        """The module's code with the change; None where that makes no difference, or no Python."""
        parent, name, at = mutant.slot
        old = getattr(parent, name)
        pairs = parent if isinstance(parent, ast.Dict) else None
        keys = [] if pairs is None else pairs.keys
        if at is None:
            setattr(parent, name, mutant.new)
        else:
            new = [*old]
            if mutant.new is None:
                del new[at]
            else:
                new[at] = mutant.new
            setattr(parent, name, new)
        if pairs is not None and mutant.new is None:
            pairs.keys = [key for index, key in enumerate(keys) if index != at]
        try:
            code = self._compiled()
            return None if code == self.code else code
        except (SyntaxError, ValueError, TypeError):
            return None
        finally:
            setattr(parent, name, old)
            if pairs is not None:
                pairs.keys = keys

    def _compiled(self) -> CodeType:
        code: CodeType = compile(self.tree, self.path, "exec", dont_inherit=True)
        return code

    # --- walking -------------------------------------------------------------------------------------------------

    def _body(self, node: ast.AST) -> None:
        """What stands in a node, field by field."""
        for name, value in ast.iter_fields(node):
            if name == "slice" and not self._deep:  # the parts of a type
                continue
            if name in (
                "annotation",
                "returns",
                "decorator_list",
                "type_comment",
                "type_params",
                "type_ignores",
                "ctx",
            ):
                continue
            if isinstance(value, list):
                for index, one in enumerate(value):
                    if isinstance(one, ast.AST):
                        self._node(one, (node, name, index))
            elif isinstance(value, ast.AST):
                self._node(value, (node, name, None))

    def _node(self, node: ast.AST, slot: Slot) -> None:
        if isinstance(node, SKIPPED) or _is_docstring(node, slot) or _for_types(node) or _is_all(node):
            return
        before = self._stmt
        if isinstance(node, ast.stmt):
            self._stmt = node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._function(node)
        elif isinstance(node, ast.ClassDef):
            for index, base in enumerate(node.bases):
                self._node(base, (node, "bases", index))
            self._scope.append(node.name)
            self._classes += 1
            for index, one in enumerate(node.body):
                self._node(one, (node, "body", index))
            self._classes -= 1
            self._scope.pop()
        else:
            for kind, new in self._changes(node, slot):
                self._add(kind, node, slot, new)
            if not isinstance(node, ast.Raise):  # its message is text; that it is raised was changed above
                self._body(node)
        self._stmt = before

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for name in ("defaults", "kw_defaults"):
            for index, one in enumerate(getattr(node.args, name)):
                if one is not None:
                    self._node(one, (node.args, name, index))
        self._scope.append("<lambda>" if isinstance(node, ast.Lambda) else node.name)
        self._deep += 1
        if isinstance(node, ast.Lambda):
            self._node(node.body, (node, "body", None))
        else:
            for index, one in enumerate(node.body):
                self._node(one, (node, "body", index))
        self._deep -= 1
        self._scope.pop()

    def _add(self, kind: str, node: ast.AST, slot: Slot, new: ast.AST | None) -> None:
        statement = self._stmt
        assert statement is not None
        if new is not None:
            for one in ast.walk(new):
                if not hasattr(one, "lineno"):
                    ast.copy_location(one, node)
        last = statement.end_lineno or statement.lineno
        inner = getattr(statement, "body", None)
        if isinstance(inner, list) and inner:  # only the head of an if, a for, a with
            last = max(statement.lineno, min(last, inner[0].lineno - 1))
        old = ast.unparse(node)
        words = f"{_short(old)} -> {_short(ast.unparse(new)) if new is not None else '(left out)'}"
        lines = range(statement.lineno, last + 1)
        function, number = ".".join(self._scope), len(self.mutants)
        mutant = Mutant(number, function, kind, words, lines, not self._deep, bool(self._classes), slot, new)
        self.mutants.append(mutant)

    # --- what can be changed about a node ------------------------------------------------------------------------

    def _changes(self, node: ast.AST, slot: Slot) -> Iterator[tuple[str, ast.AST | None]]:
        for make in _MAKERS.get(type(node), ()):
            yield from make(node, slot)
        if isinstance(node, ast.Attribute):
            yield from self._member(node)
        parent, name, _ = slot
        if name == "test" or (name == "ifs" and isinstance(parent, ast.comprehension)):
            if not isinstance(node, ast.Compare | ast.BoolOp) and not _is_not(node):
                yield "condition", ast.UnaryOp(ast.Not(), _copy(node))
            if name == "ifs":
                yield "filter", None
        literal = isinstance(parent, ast.Tuple | ast.List | ast.Set | ast.Dict)
        if literal and name in ("elts", "values") and isinstance(getattr(parent, "ctx", ast.Load()), ast.Load):
            yield "element", None
        call = isinstance(parent, ast.Call) and name == "args" and not isinstance(node, ast.Starred)
        if call and not _is_none(node):
            yield "argument", ast.Constant(None)

    def _member(self, node: ast.Attribute) -> Iterator[tuple[str, ast.AST | None]]:
        known = self._members.get(node.value.id, []) if isinstance(node.value, ast.Name) else []
        if node.attr in known and len(known) > 1:
            new = _copy(node)
            new.attr = known[(known.index(node.attr) + 1) % len(known)]
            yield "member", new


def _members(tree: ast.AST) -> dict[str, list[str]]:
    """For each name the upper case attributes that are read of it."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        base = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(node, ast.Attribute) and isinstance(base, ast.Name) and node.attr.isupper():
            found.setdefault(base.id, set()).add(node.attr)
    return {name: sorted(attributes) for name, attributes in found.items()}


def _copy(node: Any) -> Any:
    return copy.deepcopy(node)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 100 else f"{text[:60]} … {text[-37:]}"


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_docstring(node: ast.AST, slot: Slot) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and slot[1] == "body"


def _is_all(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def _for_types(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in UNTYPED


Changes = Iterator[tuple[str, ast.AST | None]]


def _compare(node: ast.Compare, _: Slot) -> Changes:
    for index, op in enumerate(node.ops):
        new = _copy(node)
        new.ops[index] = COMPARE[type(op)]()
        yield "comparison", new


def _boolean(node: ast.BoolOp, _: Slot) -> Changes:
    new = _copy(node)
    new.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    yield "boolean", new
    for index in range(len(node.values)):
        rest = [_copy(one) for at, one in enumerate(node.values) if at != index]
        yield "part", rest[0] if len(rest) == 1 else ast.BoolOp(type(node.op)(), rest)


def _unary(node: ast.UnaryOp, _: Slot) -> Changes:
    yield "not" if isinstance(node.op, ast.Not) else "sign", _copy(node.operand)


def _constant(node: ast.Constant, slot: Slot) -> Changes:
    value: Any = node.value
    if isinstance(value, bool):
        yield "flag", ast.Constant(not value)
    elif isinstance(value, int | float):
        yield "number", ast.Constant(value + 1)
    elif isinstance(value, str | bytes) and not _is_text(value):
        yield "word", ast.Constant("XX" + value if isinstance(value, str) else b"XX" + value)


def _is_text(value: str | bytes) -> bool:
    return any(one.isspace() for one in value) if isinstance(value, str) else b" " in value


def _binary(node: ast.BinOp | ast.AugAssign, _: Slot) -> Changes:
    if (other := ARITHMETIC.get(type(node.op))) is not None:
        new = _copy(node)
        new.op = other()
        yield "arithmetic", new


def _call(node: ast.Call, _: Slot) -> Changes:
    for index, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            new = _copy(node)
            del new.keywords[index]
            yield "named argument", new
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        yield "link", _copy(node.func.value)


def _return(node: ast.Return, _: Slot) -> Changes:
    if node.value is not None and not _is_none(node.value):
        yield "return", ast.Return(ast.Constant(None))


def _assign(node: ast.Assign | ast.AnnAssign, slot: Slot) -> Changes:
    if node.value is None or _is_none(node.value) or isinstance(slot[0], ast.Module | ast.ClassDef):
        return
    new = _copy(node)
    new.value = ast.Constant(None)
    yield "assignment", new


def _left_out(node: ast.stmt, _: Slot) -> Changes:
    yield "statement", ast.Pass()


def _jump(node: ast.Break | ast.Continue, _: Slot) -> Changes:
    yield "jump", ast.Continue() if isinstance(node, ast.Break) else ast.Break()


_MAKERS: Final[dict[type[ast.AST], tuple[Callable[[Any, Slot], Changes], ...]]] = {
    ast.Compare: (_compare,),
    ast.BoolOp: (_boolean,),
    ast.UnaryOp: (_unary,),
    ast.Constant: (_constant,),
    ast.BinOp: (_binary,),
    ast.AugAssign: (_binary, _left_out),
    ast.Call: (_call,),
    ast.Return: (_return,),
    ast.Assign: (_assign,),
    ast.AnnAssign: (_assign,),
    ast.Expr: (_left_out,),
    ast.Raise: (_left_out,),
    ast.Delete: (_left_out,),
    ast.Break: (_jump,),
    ast.Continue: (_jump,),
}
