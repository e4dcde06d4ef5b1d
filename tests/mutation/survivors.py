"""The changes that may stay unnoticed, each with its reason: `survivors.toml`."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Final

from tests.mutation.change import Mutant

FILE: Final = Path(__file__).with_name("survivors.toml")
Key = tuple[str, str]
"""A function and what was changed in it. Numbers and lines move with every edit."""


def known(module: str) -> dict[Key, int]:
    """How often each change of a module may stay unnoticed."""
    found: dict[Key, int] = {}
    for entry in tomllib.loads(FILE.read_text("utf-8")).get(module, []):
        assert entry["reason"], entry
        for change in entry["changes"]:
            found[entry["function"], change] = found.get((entry["function"], change), 0) + 1
    return found


def compare(module: str, alive: list[Mutant]) -> tuple[list[Mutant], list[str]]:
    """Those that are not named, and those that are named in vain."""
    left = Counter(known(module))
    unknown = []
    for mutant in alive:
        key = mutant.function, mutant.words
        if left[key]:
            left[key] -= 1
        else:
            unknown.append(mutant)
    return unknown, [f"{function}: {words}" for (function, words), count in left.items() for _ in range(count)]
