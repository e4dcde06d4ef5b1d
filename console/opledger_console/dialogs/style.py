"""How dialogs look. Only the theme's own colours: the same rules serve dark, light and terminal themes."""

from __future__ import annotations

from typing import Final

CSS: Final = """
Dialog { align: center middle; overflow: hidden; }
Dialog #dialog {
    width: 100%; max-width: 112; height: 100%; max-height: 100%;
    background: $surface; border: round $primary; overflow: hidden;
}
Dialog.-wide #dialog { max-width: 170; }
Dialog.-short #dialog { border: none; }
Dialog #head { height: 1; padding: 0 1; background: $primary-muted; color: $text-primary; text-style: bold; }
Dialog #facts { height: 1; padding: 0 1; background: $primary-muted; color: $text-primary; }
Dialog #content { height: 1fr; min-height: 1; margin: 0 1; scrollbar-gutter: stable; }
Dialog #foot { height: auto; padding: 0 1; background: $panel; border-top: solid $primary; }
Dialog.-short #foot { border-top: none; }
Dialog .field { height: 1; }
Dialog .label { width: 16; height: 1; color: $text-muted; }
Dialog .field Input { width: 1fr; background: $surface; }
Dialog .field Input:focus { background: $primary 25%; }
Dialog #effect { height: auto; max-height: 3; }
Dialog #missing { height: auto; max-height: 2; color: $text-warning; }
Dialog #missing.-moved { color: $text-error; text-style: bold; }
Dialog #buttons { height: 1; }
Dialog #buttons Press { margin: 0 2 0 0; }
Dialog Press:focus { text-style: bold reverse; }
Dialog #countdown, Dialog #take-back { display: none; }
Dialog #countdown { height: 1; color: $text-warning; text-style: bold; }
Dialog #small { display: none; width: 100%; height: auto; background: $surface; color: $text-warning; }
Dialog.-small #dialog { display: none; }
Dialog.-small #small { display: block; }
Dialog.-sending .field, Dialog.-sending Alternatives, Dialog.-sending #buttons, Dialog.-sending #missing {
    display: none;
}
Dialog.-sending #countdown, Dialog.-sending #take-back { display: block; }
"""
