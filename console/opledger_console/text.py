"""The only way text from outside reaches a widget.

Textual runs actions it finds in strings, passes escape bytes on to the terminal, and ends the app over a stray
bracket (all measured). So nothing here is ever parsed as markup, and nothing leaves without being made inert.
"""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.content import Content

from opledger.rules.plain import clean


def line(text: object, limit: int | None = None, style: str = "") -> Text:
    """Return outside text as one literal line for a table cell or a strip."""
    return Text(clean(str(text), limit=limit), style=style, no_wrap=True, end="")


def block(text: object) -> Content:
    """Return outside text as a literal block; line feeds stay."""
    return Content(clean(str(text), newlines=True))


def fitted(text: object, width: int) -> str:
    """Return outside text in exactly `width` terminal cells: cut with an ellipsis, or padded."""
    shown = clean(str(text), limit=max(width * 2, 8))
    if cell_len(shown) > width:
        return set_cell_size(shown, max(width - 1, 0)) + "…"
    return set_cell_size(shown, width)
