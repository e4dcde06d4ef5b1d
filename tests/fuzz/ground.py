"""What a target is, and where its inputs are kept."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

CORPUS: Final = Path(__file__).parent / "corpus"

_CONSTANTS: Final = 400
"""Most words that are taken out of a target's own source."""


class Broken(AssertionError):
    """A law does not hold for an input."""


def law(holds: object, words: str) -> None:
    """Raise Broken where a law does not hold."""
    if not holds:
        raise Broken(words)


@dataclass(frozen=True, slots=True)
class Target:
    """One parser and its laws.

    `run` returns True where the input was accepted, raises Broken where a law is broken; every other exception is one
    that the parser may not raise. `modules` are watched. `known` are words of its language.
    """

    name: str
    run: Callable[[bytes], bool]
    modules: Sequence[ModuleType]
    shapes: Sequence[str] = ("words",)
    starts: Sequence[bytes] = ()
    known: Sequence[bytes] = ()
    caches: Sequence[Any] = field(default=())  #: dictionaries that remember between inputs

    def seeds(self) -> list[bytes]:
        """Return the inputs that a run begins with: those of the source, and the corpus."""
        kept = corpus(self.name)
        return list(dict.fromkeys([*self.starts, *kept["kept"], *kept["found"]]))

    def paths(self) -> list[str]:
        """Return the files that are watched."""
        return [str(module.__file__) for module in self.modules]

    def words(self) -> list[bytes]:
        """Return the words of its language: what its authors gave, and the texts in its source."""
        found: dict[bytes, None] = dict.fromkeys(self.known)
        for module in self.modules:
            for text in _texts(module):
                found.setdefault(text)
        return list(found)[:_CONSTANTS]

    def fresh(self) -> None:
        """Forget what the modules remember, so that a run does not depend on those before it."""
        for module in self.modules:
            for value in vars(module).values():
                clear = getattr(value, "cache_clear", None)
                if callable(clear):
                    clear()
        for cache in self.caches:
            cache.clear()


def _texts(module: ModuleType) -> Iterable[bytes]:
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and 0 < len(node.value) <= 24:
            yield node.value if isinstance(node.value, bytes) else node.value.encode("utf-8", "surrogatepass")


def corpus(name: str) -> dict[str, list[bytes]]:
    """Return the kept inputs of a target: `kept` reach what others do not, `found` have broken a law once."""
    path = CORPUS / f"{name}.json"
    if not path.exists():
        return {"kept": [], "found": []}
    read = json.loads(path.read_text("ascii"))
    return {key: [text.encode("latin-1") for text in read.get(key, [])] for key in ("kept", "found")}


def keep(name: str, kept: Sequence[bytes], found: Sequence[bytes]) -> None:
    """Write the inputs of a target: text in which every byte is one character."""
    CORPUS.mkdir(exist_ok=True)
    document = {"kept": [one.decode("latin-1") for one in kept], "found": [one.decode("latin-1") for one in found]}
    (CORPUS / f"{name}.json").write_text(json.dumps(document, indent=0, ensure_ascii=True) + "\n", "ascii")


def text_of(data: bytes) -> str:
    """Return an input as text in which anything can stand, half surrogates too."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape")
