"""What the console remembers goes into a folder of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """Parse a style sheet once for all apps: each app reads the same text twice, a third of the time that it starts."""
    parsed: dict[Any, Any] = {}
    parse = Stylesheet._parse_rules

    def remembered(sheet: Stylesheet, *text: Any, **more: Any) -> Any:
        key = (text, tuple(more.items()), tuple(sheet._variables.items()))
        if key not in parsed:
            parsed[key] = parse(sheet, *text, **more)
        return parsed[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", remembered)
        yield


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that nobody else has."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder
