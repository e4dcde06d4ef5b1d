"""Finds the modules of the tree and reads them as syntax, so that new ones come under the rules by themselves."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = (ROOT / "core", ROOT / "console")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """One file of the two import packages: `path` as people write it, `name` as Python imports it."""

    path: str
    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return _parsed(self.path, self.text)

    @property
    def functions(self) -> Iterator[tuple[str, Function]]:
        """Every function and method with its dotted name, nested ones included."""
        yield from _functions(self.tree, "")


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every module of `core/` and `console/`, in order of path."""
    found = []
    for root in SOURCE_ROOTS:
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append(Module(path.relative_to(ROOT).as_posix(), name, path.read_text(encoding="utf-8")))
    return tuple(found)


def run_python(code: str) -> str:
    """Run code in a fresh interpreter that finds this tree's packages, and return what it printed."""
    done = run([sys.executable, "-c", code], env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in the tree (or where `how` says) and catch what it prints."""
    return subprocess.run(command, check=False, capture_output=True, text=True, **{"cwd": ROOT, **how})


def tool(name: str) -> str:
    """The path of a command that is installed beside this interpreter."""
    return str(Path(sys.executable).with_name(name))


def environment(*roots: Path) -> dict[str, str]:
    """The environment of a child that imports from `roots` (this tree's by default) before anything installed."""
    path = os.pathsep.join(str(root) for root in roots or SOURCE_ROOTS)
    return {**os.environ, "PYTHONPATH": path}


@functools.cache
def _parsed(path: str, text: str) -> ast.Module:
    return ast.parse(text, path)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        inner = prefix
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{prefix}{child.name}."
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        yield from _functions(child, inner)
