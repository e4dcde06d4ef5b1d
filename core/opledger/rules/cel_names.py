"""Which names a CEL expression leaves open, and which functions it may call.

The CEL library compiles any name and any function and complains only when it evaluates; a contract must be refused
when it is loaded.
"""

from __future__ import annotations

import re
from typing import Final

FUNCTIONS: Final = frozenset(
    {
        *("size", "contains", "startsWith", "endsWith", "matches"),
        *("string", "int", "double", "uint", "bytes", "type", "dyn", "timestamp", "duration"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
"""The functions that the CEL library brings by itself. Macros (has, all, exists, exists_one, map, filter) are none."""

TYPES: Final = frozenset({"string", "int", "uint", "double", "bool", "bytes", "list", "map", "null_type", "type"})
"""Names of types, for ``type(body) == list``; the library lists them among the variables."""

_MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_TOKEN: Final = re.compile(
    r"""
      (?P<literal>
          [bB]?[rR][bB]? (?: \"{3}.*?\"{3} | '{3}.*?'{3} | "[^"\n]*" | '[^'\n]*' )
        | [bB]? (?: \"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
        | [0-9][0-9A-Za-z]* (?: \.[0-9][0-9A-Za-z]* )?
      )
    | (?P<comment> //[^\n]* )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<mark> \S )
    """,
    re.VERBOSE | re.DOTALL,
)


def unknown_functions(functions: list[str]) -> list[str]:
    """Return what stands in the library's list of called functions and is neither an operator nor in `FUNCTIONS`."""
    return sorted(name for name in set(functions) - FUNCTIONS if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name))


def free_names(text: str) -> frozenset[str]:
    """Return the names in a CEL expression that no macro around them binds.

    The library lists the ``i`` of ``items.exists(i, i.x)`` among the variables, so the scopes are followed here, over
    the tokens of an expression that is known to parse.
    """
    found = [match for match in _TOKEN.finditer(text) if match.lastgroup != "comment"]
    words = [match.group() for match in found]
    kinds = [match.lastgroup for match in found]
    free: set[str] = set()
    scopes: list[str | None] = []  # one for each open bracket: the name that it binds, if it does
    for at, word in enumerate(words):
        if kinds[at] == "mark" and word in "([{":
            scopes.append(_bound_by(words, kinds, at))
        elif kinds[at] == "mark" and word in ")]}":
            scopes = scopes[:-1]
        elif kinds[at] == "name" and word not in scopes:
            called = words[at + 1 : at + 2] == ["("]
            if not called and not _is_member(words, kinds, at):
                free.add(word)
    return frozenset(free)


def _bound_by(words: list[str], kinds: list[str | None], at: int) -> str | None:
    """Return the name that the bracket at `at` binds: it opens a macro call such as ``.exists(i, …``."""
    opens_macro = at > 1 and words[at] == "(" and words[at - 1] in _MACROS and words[at - 2] == "."
    declares = kinds[at + 1 : at + 2] == ["name"] and words[at + 2 : at + 3] == [","]
    return words[at + 1] if opens_macro and declares else None


def _is_member(words: list[str], kinds: list[str | None], at: int) -> bool:
    """Tell whether the name at `at` is a member of what stands before it (``body.x``), not a name of its own."""
    return at > 1 and words[at - 1] == "." and (kinds[at - 2] != "mark" or words[at - 2] in ")]}")
