"""Keys by people's choice: which actions have a name, which keys they have, and whether another choice can be had.

The settings say ``[console.keys]`` with the ids that ``opledger keys`` lists, and keys such as ``f5``, ``K`` or
``ctrl+r``; several with commas between them. A choice that cannot be had is told and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys
from textual.screen import ModalScreen, Screen

PACKAGE: Final = "opledger_console"
EVERYWHERE: Final = "everywhere"

DESTRUCTIVE: Final = frozenset({"approve", "reject", "cancel", "reconcile", "resolve", "tasks.answer"})
"""Actions that lead to a decision. A key that is pressed by habit, or instead of another one, must not be theirs."""

_HABITS: Final = frozenset({"enter", "space", "tab", "escape", "backspace", "up", "down", "left", "right"})
_NAMED: Final = frozenset(key.value for key in Keys if not key.value.startswith("<"))
_MODIFIERS: Final = frozenset({"ctrl", "shift", "alt", "super"})


@dataclass(frozen=True, slots=True)
class Known:
    """One action: its id, the keys it has by default, what it does, and the places where it is to be had."""

    action_id: str
    keys: tuple[str, ...]
    does: str
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Bound:
    place: str
    action_id: str  #: empty where the key has no name, so that it stays as it is
    action: str
    keys: tuple[str, ...]
    does: str


def known() -> tuple[Known, ...]:
    """Return the actions with an id of everything that is loaded of the console, in the order of ids."""
    found: dict[str, list[_Bound]] = {}
    for bound in _bindings():
        if bound.action_id:
            found.setdefault(bound.action_id, []).append(bound)
    return tuple(
        Known(
            action_id,
            tuple(dict.fromkeys(key for bound in many for key in bound.keys)),
            many[0].does,
            tuple(dict.fromkeys(bound.place for bound in many)),
        )
        for action_id, many in sorted(found.items())
    )


def check(wanted: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what can be had of a choice (id -> keys), and a sentence for each part that cannot."""
    ids = [one.action_id for one in known()]
    good: dict[str, str] = {}
    problems: list[str] = []
    for action_id, text in wanted.items():
        problem = _unknown(action_id, ids) or next(filter(None, (_unfit(action_id, key) for key in _keys(text))), None)
        if problem is None and not _keys(text):
            problem = f'{action_id} has no key; write one, such as {action_id} = "f5"'
        if problem is None:
            good[action_id] = ",".join(_keys(text))
        else:
            problems.append(problem)
    while clashes := _clashes(good):  # what is given up leaves its key to its old action, which may clash anew
        for action_id, problem in clashes.items():
            del good[action_id]
            problems.append(problem)
    return good, tuple(problems)


def apply(app: App[Any], wanted: Mapping[str, str]) -> tuple[str, ...]:
    """Give the app these keys as far as they can be had; returns a sentence for each that cannot."""
    good, problems = check(wanted)
    app.set_keymap(good)
    return problems


# --- one key ------------------------------------------------------------------------------------------------------


def _unknown(action_id: str, ids: Iterable[str]) -> str | None:
    ids = list(ids)
    if action_id in ids:
        return None
    near = get_close_matches(action_id, ids, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else "opledger keys lists them"
    return f"{action_id[:40]!a} is no action of the console; {hint}"


def _keys(text: str) -> tuple[str, ...]:
    if text.strip() == ",":
        return ("comma",)
    parts = [part.strip() for part in text.split(",")]
    return tuple(_normal(part) for part in parts if part)


def _normal(key: str) -> str:
    (made,) = Binding.make_bindings([Binding(key, "")]) if key else ()
    return made.key


def _unfit(action_id: str, key: str) -> str | None:
    *modifiers, name = key.split("+")
    if set(modifiers) - _MODIFIERS or not _exists(name, key):
        near = get_close_matches(name, _NAMED, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{action_id}: {key[:40]!a} is no key{hint}"
    if action_id in DESTRUCTIVE and (key in _HABITS or "ctrl" in modifiers):
        return (
            f"{action_id} leads to a decision and cannot have the key {key}: such keys are pressed by habit or beside "
            "another one; give it a letter or a function key"
        )
    if key == "ctrl+c" and action_id != "quit.now":
        return f"{action_id}: ctrl+c always ends the console"
    return None


def _exists(name: str, key: str) -> bool:
    return len(name) == 1 or key in _NAMED or name in _NAMED or _normal_character(name)


def _normal_character(name: str) -> bool:
    """Tell whether a name is that of one character, as Textual calls it: ``question_mark``, ``upper_k``."""
    return any(_normal(chr(point)) == name for point in range(33, 127) if chr(point) != ",") or name == "comma"


# --- two actions on one key ---------------------------------------------------------------------------------------


def _clashes(good: Mapping[str, str]) -> dict[str, str]:
    """Return, for each chosen action whose key does something else in the same place, a sentence that says so."""
    found: dict[str, str] = {}
    places: dict[str, list[_Bound]] = {}
    for bound in _bindings():
        keys = tuple(good[bound.action_id].split(",")) if bound.action_id in good else bound.keys
        places.setdefault(bound.place, []).append(_Bound(bound.place, bound.action_id, bound.action, keys, bound.does))
    everywhere = places.pop(EVERYWHERE, [])
    for place, own in (*places.items(), (EVERYWHERE, [])):
        taken: dict[str, _Bound] = {}
        for bound in (*own, *everywhere):
            for key in bound.keys:
                other = taken.setdefault(key, bound)
                if other.action != bound.action and (other.action_id in good or bound.action_id in good):
                    chosen, rival = (other, bound) if other.action_id in good else (bound, other)
                    found.setdefault(chosen.action_id, _both(chosen, rival, key, place))
    return found


def _both(chosen: _Bound, rival: _Bound, key: str, place: str) -> str:
    name = rival.action_id or rival.does or rival.action
    where = "everywhere" if place == EVERYWHERE else f"on the screen {place}"
    return f"{chosen.action_id} and {name} cannot both have the key {key} {where}; give one of them another key"


# --- what there is ------------------------------------------------------------------------------------------------


def _bindings() -> Iterator[_Bound]:
    """Yield the bindings of everything that is loaded. A dialog is a place of its own, lists are on every screen."""
    for cls in _classes(DOMNode):
        if issubclass(cls, ModalScreen):
            continue  # whatever a dialog asks is answered with its own keys, which stay as they are
        if issubclass(cls, Screen):
            place = getattr(cls, "TITLE_WORDS", "") or cls.__name__
            if not getattr(cls, "TITLE_WORDS", ""):
                continue  # a base of other screens: its keys are told there
        elif issubclass(cls, App) or cls.__module__.startswith(f"{PACKAGE}.widgets."):
            place = EVERYWHERE
        else:
            continue
        taken: set[str] = set()
        for base in cls.__mro__:
            if base.__module__.startswith(PACKAGE):
                own = [bound for bound in _own(base, place, taken) if bound.keys]
                taken.update(key for bound in own for key in bound.keys)
                yield from own


def _own(cls: type[Any], place: str, taken: set[str]) -> Iterator[_Bound]:
    """Yield what a class binds itself; a key that a class derived from it has taken is not its own any more."""
    for binding in cls.__dict__.get("BINDINGS", ()):
        made = list(Binding.make_bindings([binding]))
        first = made[0]
        keys = tuple(dict.fromkeys(one.key for one in made if one.key not in taken))
        yield _Bound(place.lower(), first.id or "", first.action, keys, first.description)


def _classes(root: type[Any]) -> Iterator[type[Any]]:
    seen: set[type[Any]] = set()
    waiting = [root]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            if cls not in seen:
                seen.add(cls)
                waiting.append(cls)
    ours = [cls for cls in seen if cls.__module__.startswith(f"{PACKAGE}.")]
    yield from sorted(ours, key=lambda cls: (cls.__module__, cls.__name__))
