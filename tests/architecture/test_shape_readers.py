"""The readers of syntax behind test_shapes: each sees what it is there to see."""

from __future__ import annotations

import ast
import textwrap

import pytest

from tests.architecture.source import Module
from tests.architecture.test_shapes import (
    catches_everything,
    does_nothing,
    handlers,
    length,
    suppresses_everything,
    undocumented,
)


def module(text: str) -> Module:
    """A module made of the given text."""
    return Module("core/made_up.py", "made_up", textwrap.dedent(text))


def handler(text: str) -> ast.ExceptHandler:
    """The one `except` clause of a function that tries something."""
    source = "def f():\n    try:\n        g()\n" + textwrap.indent(textwrap.dedent(text), "    ")
    ((_, found),) = handlers(module(source))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("except:\n    log()", True),
        ("except Exception:\n    log()", True),
        ("except (ValueError, BaseException) as error:\n    log(error)", True),
        ("except Exception:\n    def later():\n        raise ValueError\n", True),
        ("except Exception:\n    log()\n    raise", False),
        ("except Exception as error:\n    raise Refused from error", False),
        ("except ValueError:\n    log()", False),
    ],
)
def test_a_clause_that_catches_everything_is_seen(text: str, expected: bool) -> None:
    """Bare, named, hidden in a tuple, or with a `raise` that does not belong to it."""
    assert catches_everything(handler(text)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("except ValueError:\n    pass", True),
        ("except ValueError:\n    ...", True),
        ("except ValueError:\n    'never mind'", True),
        ("except ValueError:\n    return None", False),
    ],
)
def test_an_empty_clause_is_seen(text: str, expected: bool) -> None:
    """In each of the ways that one can do nothing."""
    assert does_nothing(handler(text)) is expected


def test_a_broad_suppress_is_seen() -> None:
    """With the module's name before it or without."""
    text = "with contextlib.suppress(Exception): f()\nwith suppress(BaseException): f()\nwith suppress(KeyError): f()\n"
    assert list(suppresses_everything(module(text))) == ["core/made_up.py:1", "core/made_up.py:2"]


def test_missing_docstrings_are_seen() -> None:
    """In modules, functions, classes and methods, but not in what is private or nested."""
    text = """
        def open_(): ...
        def _private(): ...
        class Thing:
            '''Said.'''
            def act(self):
                def inner(): ...
            @property
            def size(self):
                '''Said.'''
            @size.setter
            def size(self, value): ...
        class _Hidden:
            def act(self): ...
    """
    assert list(undocumented(module(text))) == [
        "core/made_up.py",
        "core/made_up.py:open_",
        "core/made_up.py:Thing.act",
    ]


def test_a_docstring_does_not_make_a_function_long() -> None:
    """Or people would write shorter docstrings."""
    text = 'def f():\n    """One.\n\n    Two.\n    """\n    a = 1\n    return a\n'
    ((_, function),) = module(text).functions
    assert length(function) == 3
