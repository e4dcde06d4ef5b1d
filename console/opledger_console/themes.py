"""How the console is dressed: dark, light, high contrast, or in the terminal's own colours.

The colours that mean something follow Okabe and Ito's palette ("Color Universal Design", 2008), which people with any
form of colour blindness can tell apart; and no colour is ever the only carrier, each state has a glyph and a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from textual.app import App
from textual.theme import Theme

DARK: Final = Theme(
    name="opledger-dark",
    primary="#56b4e9",
    secondary="#cc79a7",
    accent="#56b4e9",
    warning="#e69f00",
    error="#f2805a",
    success="#2fbf8f",
    foreground="#d6d9de",
    background="#111417",
    surface="#171b20",
    panel="#232a31",
    dark=True,
)
LIGHT: Final = Theme(
    name="opledger-light",
    primary="#0060a0",
    secondary="#8c3a6c",
    accent="#0060a0",
    warning="#8a5200",
    error="#a83200",
    success="#00694c",
    foreground="#1b1f23",
    background="#fbfbf8",
    surface="#f1f1ec",
    panel="#dfe3e6",
    dark=False,
)
CONTRAST: Final = Theme(
    name="opledger-contrast",
    primary="#ffffff",
    secondary="#ffff00",
    accent="#ffff00",
    warning="#ffd000",
    error="#ff9070",
    success="#60ffb0",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#303030",
    dark=True,
)
OURS: Final = (DARK, LIGHT, CONTRAST)
SHORT: Final[Mapping[str, str]] = {
    "dark": DARK.name,
    "light": LIGHT.name,
    "contrast": CONTRAST.name,
    "ansi": "ansi-dark",
}


def apply(app: App[int], wanted: str | None, environment: Mapping[str, str]) -> str | None:
    """Dress the app: as the settings say, by a short name or any of Textual's; dark where they say nothing.

    Returns what is to be said where there is no theme of that name. Where ``TEXTUAL_ANIMATIONS`` says nothing either,
    nothing moves: over SSH a scroll that glides is a scroll that lags.
    """
    for theme in OURS:
        app.register_theme(theme)
    if "TEXTUAL_ANIMATIONS" not in environment:
        app.animation_level = "none"
    return dress(app, wanted or "dark")


def dress(app: App[int], wanted: str) -> str | None:
    """Dress the app anew. Returns what is to be said where there is no theme of that name."""
    name = SHORT.get(wanted, wanted)
    if name not in app.available_themes:
        if app.theme not in {theme.name for theme in OURS}:
            app.theme = DARK.name
        return f"there is no theme {wanted!r}; try one of: {', '.join(SHORT)}"
    app.theme = name
    return None
