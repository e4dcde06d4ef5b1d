"""Where settings come from, for somebody whose setting seems to have no effect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opledger.cli.program import run


def test_the_files_are_listed_the_one_that_counts_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one in the working directory stands first, and each says whether it was read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "opledger.toml").write_text("[console]\ntheme = 'light'\n", encoding="utf-8")
    assert run(["config", "path", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first == {"path": str(tmp_path / "opledger.toml"), "read": True}
    assert (second["path"], second["read"]) == (str(tmp_path / "config" / "opledger" / "opledger.toml"), False)
    assert run(["config", "path"]) == 0
    assert "not there" in capsys.readouterr().out
