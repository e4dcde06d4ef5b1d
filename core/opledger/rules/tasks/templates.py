"""``{step.ID.NAME}`` in the texts of a plan: what an earlier step handed on.

Every other brace is an ordinary character: commands and bodies are full of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from opledger.rules.jsontext import dumps_text

_PLACE: Final = re.compile(r"\{step\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})\.([A-Za-z_][A-Za-z0-9_-]{0,63})\}")
_LIKE: Final = re.compile(r"\{step\.[^{}]*\}?")

Outputs = Mapping[str, Mapping[str, Any]]
"""What each step handed on, by its id."""


class NothingThere(ValueError):
    """A place has nothing to be filled with: the step did not hand that on."""


def places(value: Any) -> Iterator[tuple[str, str]]:
    """Yield (step, name) of every place in the texts of a JSON value.

    Raises ValueError for a text that begins like a place and is none.
    """
    if isinstance(value, str):
        for like in _LIKE.finditer(value):
            found = _PLACE.fullmatch(like.group())
            if found is None:
                raise ValueError(f"{like.group()[:80]!r} is no {{step.ID.NAME}}")
            yield found[1], found[2]
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from places(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from places(inner)


def fill_text(text: str, outputs: Outputs, *, each: Callable[[str], str] = str) -> str:
    """Return a text with its places filled; what is no text is written as JSON. `each` encodes one value.

    Raises NothingThere where a step did not hand on what is asked for.
    """
    return _PLACE.sub(lambda found: each(_written(_value(found[1], found[2], outputs))), text)


def fill(value: Any, outputs: Outputs) -> Any:
    """Return a JSON value with every place in its texts filled.

    A text that is one place and nothing else becomes the value itself, a number for one. Raises NothingThere.
    """
    if isinstance(value, str):
        whole = _PLACE.fullmatch(value)
        return _value(whole[1], whole[2], outputs) if whole else fill_text(value, outputs)
    if isinstance(value, Mapping):
        return {key: fill(inner, outputs) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [fill(inner, outputs) for inner in value]
    return value


def _value(step: str, name: str, outputs: Outputs) -> Any:
    given = outputs.get(step, {})
    if name not in given:
        has = ", ".join(sorted(given)) or "nothing"
        raise NothingThere(
            f"step {step} handed on no {name!r} (it handed on: {has}; what has a secret in it is handed on to nobody)"
        )
    return given[name]


def _written(value: Any) -> str:
    return value if isinstance(value, str) else dumps_text(value)
