from __future__ import annotations

from pathlib import Path

from opledger.rules.states import mermaid

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_readme_shows_exactly_this_machine() -> None:
    """People read the README and not the table; a diagram drawn by hand is wrong within a month."""
    before, begin, rest = README.read_text(encoding="utf-8").partition("<!-- states:begin -->\n")
    shown, end, after = rest.partition("<!-- states:end -->")
    assert before and begin and end and after
    assert shown == f"```mermaid\n{mermaid()}```\n"
