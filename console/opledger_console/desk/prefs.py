"""What the console remembers between two starts: saved views, the last view, how times are written.

It is a convenience and no record: a file that cannot be read is put aside and said so, and one that cannot be written
costs nothing but the memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from opledger.edges.files import atomic_write
from opledger.edges.private import make_folder
from opledger.errors import OpledgerError
from opledger.rules.jsontext import JsonError, loads
from opledger_console.views import Look, TimeStyle


@dataclass(frozen=True, slots=True)
class Prefs:
    """What is remembered."""

    views: Mapping[str, Look] = field(default_factory=dict)
    last: Look = field(default_factory=Look)
    time: TimeStyle = TimeStyle.RELATIVE
    wide: bool = False


class Memory:
    """The file in which it is remembered. Used from one thread, the one that draws: it is a few hundred bytes."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or user_state_path("opledger", appauthor=False) / "console.json"
        self.prefs, self.trouble = self._read()

    def _read(self) -> tuple[Prefs, str | None]:
        try:
            data = loads(self.path.read_bytes())
        except FileNotFoundError:
            return Prefs(), None
        except (OSError, JsonError) as error:
            return Prefs(), f"{self.path} cannot be read ({type(error).__name__}); saved views are not there"
        return (_prefs(data), None) if isinstance(data, dict) else (Prefs(), f"{self.path} is not ours; left alone")

    def remember(self, **changes: Any) -> str | None:
        """Change what is remembered; why it could not be written, or None."""
        self.prefs = replace(self.prefs, **changes)
        if self.trouble is not None:
            return self.trouble  # what cannot be read is not written over
        prefs = self.prefs
        data = {
            "views": {name: _data(look) for name, look in prefs.views.items()},
            "last": _data(prefs.last),
            "time": prefs.time.value,
            "wide": prefs.wide,
        }
        try:
            make_folder(self.path.parent)
            atomic_write(self.path, json.dumps(data, indent=1).encode() + b"\n")
        except (OSError, OpledgerError) as error:
            return f"{self.path} cannot be written ({type(error).__name__}); this is forgotten when the console ends"
        return None


def _data(look: Look) -> dict[str, str]:
    return {"filter": look.text, "sort": look.sort}


def _look(data: Any) -> Look:
    if not isinstance(data, dict):
        return Look()
    text, sort = data.get("filter"), data.get("sort")
    return Look(text if isinstance(text, str) else "", sort if isinstance(sort, str) else Look().sort)


def _prefs(data: dict[str, Any]) -> Prefs:
    views, time = data.get("views"), data.get("time")
    return Prefs(
        views={name: _look(look) for name, look in views.items()} if isinstance(views, dict) else {},
        last=_look(data.get("last")),
        time=TimeStyle(time) if time in list(TimeStyle) else TimeStyle.RELATIVE,
        wide=data.get("wide") is True,
    )
