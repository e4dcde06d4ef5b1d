"""A harness that has nothing to do says so, with exit code 2: it must not look like one that found nothing."""

from __future__ import annotations

from importlib import import_module

import pytest

WRONG = (
    "model --only nonsense",
    "model --only nonsense --designs",
    "model --depth 0 --worlds",
    "model --states 0",
    "network codes --only nonsense",
    "network bombs --only nonsense",
    "simulation --seeds -5 --partial",
    "simulation --seeds 0",
    "checker --good 0",
    "fuzz --seconds 0",
    "fuzz --seconds nan",
    "mutation --only nonsense",
    "mutation --every 0",
    "disk power --only nonsense",
    "disk faults --only nonsense",
    "crashes --every 0",
    "crashes --only nonsense",
    "planted --only nonsense",
)


@pytest.mark.parametrize("words", WRONG)
def test_a_harness_that_would_do_nothing_is_no_success(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever mistypes a name reads which there are, and a pipeline turns red."""
    name, *rest = words.split()
    monkeypatch.setattr("sys.argv", [name, *rest])
    try:
        code = import_module(f"tests.{name}.__main__").main()
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr()
    assert code == 2, told
    assert "Traceback" not in told.err
    assert len(told.err) > 20
