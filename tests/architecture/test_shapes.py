"""Sizes, docstrings and `except` clauses, read from the syntax of every module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.source import Function, Module, modules

VERIFIER = "core/opledger/verifier.py"

MODULE_STOP, MODULE_SMELL = 500, 400
FUNCTION_STOP, FUNCTION_SMELL = 80, 60

#: Modules beyond the smell limit, and why each is better whole.
LONG_MODULES = {
    "core/opledger/rules/evidence.py": "one class for each kind of evidence: the list is the point",
    "console/opledger_console/dialogs/base.py": "one dialog: its countdown, foot and focus depend on each other",
    "core/opledger/rules/states.py": "the one table of states and arrows, and the only reader of it",
}

#: Functions beyond the smell limit ("path:name"), and why each is better whole.
LONG_FUNCTIONS: dict[str, str] = {}

#: Places that may catch everything ("path:function"), and why.
BROAD_EXCEPTS = {
    "core/opledger/cli/program.py:run": "the boundary: whatever it is becomes a sentence and an exit code",
    "core/opledger/worker/commits.py:Commits._commit": "the waiting callers are told that the store broke",
    "core/opledger/worker/commits.py:Commits._settle": "the error goes to the caller that waits for it",
}


def length(function: Function) -> int:
    """Lines from `def` to the end, without the docstring: a good docstring is no smell."""
    first, last = function.body[0], function.end_lineno or function.lineno
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return last - function.lineno + 1 - docstring


def long_functions(limit: int) -> Iterator[tuple[str, int]]:
    """Functions with more lines than `limit`; migrations are frozen history and are left out."""
    for module in modules():
        if "/migrations/" not in module.path:
            for name, function in module.functions:
                if length(function) > limit:
                    yield f"{module.path}:{name}", length(function)


def line_count(module: Module) -> int:
    """All lines, comments and blank ones too."""
    return module.text.count("\n")


def test_no_module_passes_the_hard_stop() -> None:
    """A module of more than 500 lines holds more than one thing."""
    assert [(m.path, line_count(m)) for m in modules() if line_count(m) > MODULE_STOP] == []


def test_long_modules_have_a_reason() -> None:
    """Beyond 400 lines somebody must have thought about it, and a reason that is no longer needed goes."""
    assert {m.path for m in modules() if line_count(m) > MODULE_SMELL} == set(LONG_MODULES)


def test_no_function_passes_the_hard_stop() -> None:
    """A function of more than 80 lines cannot be held in the head."""
    assert list(long_functions(FUNCTION_STOP)) == []


def test_long_functions_have_a_reason() -> None:
    """Beyond 60 lines somebody must have thought about it, and a reason that is no longer needed goes."""
    assert {name for name, _ in long_functions(FUNCTION_SMELL)} == set(LONG_FUNCTIONS)


def undocumented(module: Module) -> Iterator[str]:
    """Public modules, classes, functions and methods without a docstring."""
    if ast.get_docstring(module.tree) is None:
        yield module.path
    yield from _undocumented(module.tree, f"{module.path}:")


def _undocumented(parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    for node in parent.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            derived = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if ast.get_docstring(node) is None and not derived & {"overload", "override", "setter"}:
                yield f"{prefix}{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from _undocumented(node, f"{prefix}{node.name}.")


def test_everything_public_has_a_docstring() -> None:
    """A name that others use says what it means; nobody uses those of a script that must fit 200 lines."""
    told = [module for module in modules() if "/versions/" not in module.path and module.path != VERIFIER]
    assert [name for module in told for name in undocumented(module)] == []


def test_the_verifier_can_be_read_in_one_sitting() -> None:
    """An auditor is to read it whole: 200 lines, none longer than the others."""
    (verifier,) = (module for module in modules() if module.path == VERIFIER)
    assert line_count(verifier) <= 200
    assert max(map(len, verifier.text.splitlines())) <= 120


def handlers(module: Module) -> Iterator[tuple[str, ast.ExceptHandler]]:
    """Every `except` clause with the place it stands in."""
    for name, function in module.functions:
        for node in _own(function):
            if isinstance(node, ast.ExceptHandler):
                yield f"{module.path}:{name}", node
    for node in _own(module.tree):
        if isinstance(node, ast.ExceptHandler):
            yield module.path, node


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, without those of nested functions."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own(child)


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Whether a clause catches every exception and lets none through."""
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else set()
    broad = handler.type is None or bool(names & {"Exception", "BaseException"})
    return broad and not any(isinstance(node, ast.Raise) for node in _own(handler))


def does_nothing(handler: ast.ExceptHandler) -> bool:
    """Whether a clause throws the exception away: only `pass`, `...` or a string."""
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in handler.body
    )


def suppresses_everything(module: Module) -> Iterator[str]:
    """`contextlib.suppress(Exception)`: the same thing in another coat."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("suppress", "contextlib.suppress"):
            broad = {ast.unparse(argument) for argument in node.args} & {"Exception", "BaseException"}
            yield from [f"{module.path}:{node.lineno}"] if broad else []


def test_nothing_catches_everything_without_a_reason() -> None:
    """A clause that catches everything reads a bug as an answer; the few boundaries that must are listed."""
    broad = {place for module in modules() for place, handler in handlers(module) if catches_everything(handler)}
    assert broad == set(BROAD_EXCEPTS)
    assert [place for module in modules() for place in suppresses_everything(module)] == []


def test_no_handler_is_empty() -> None:
    """An empty handler forgets what happened; suppressing a narrow error by name at least says that it means to."""
    assert [place for module in modules() for place, handler in handlers(module) if does_nothing(handler)] == []


def test_the_rules_open_and_print_nothing() -> None:
    """`open`, `print` and `input` need no import, so the import rules cannot see them."""
    calls = [
        f"{module.path}:{node.lineno}"
        for module in modules()
        if module.name.startswith("opledger.rules")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id in {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}
    ]
    assert calls == []


VALUES = {"TailEvent", "Mark", "Found", "Provider", "Holding", "WorkerLife", "Aside", "ALIVE", "Progress", "Verified"}
"""Frozen values of store and ledger that the console's words are made from; none of them can do anything."""


def test_only_the_desk_opens_the_core() -> None:
    """Every other module of the console works on frozen values, so that a widget can never act on the ledger."""
    free = ("opledger.config", "opledger.errors", "opledger.rules")
    strays = [
        f"{module.path}: {name}"
        for module in modules()
        if module.name.startswith("opledger_console") and not f"{module.name}.".startswith("opledger_console.desk.")
        for node in ast.walk(module.tree)
        for name in imported(node)
        if name.partition(".")[0] == "opledger"
        and not name.startswith(free)
        and not (isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} <= VALUES)
    ]
    assert strays == []


def imported(node: ast.AST) -> list[str]:
    """The modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
