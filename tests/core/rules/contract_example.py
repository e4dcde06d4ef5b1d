"""The contract of the format's documentation, which uses nearly every key there is."""

from __future__ import annotations

import re
from pathlib import Path

EXAMPLE = (Path(__file__).parent / "contract_example.toml").read_text(encoding="utf-8")


def driven(example: str = EXAMPLE) -> str:
    """The example without what this version cannot drive, and without the file that lies beside it."""
    text = re.sub(r"\[resume\].*?(?=\[result\])", "", example, flags=re.DOTALL)
    return re.sub(r"(?m)^schema = .*\n", "", text)
