"""The terminal console over the ledger. The rooms, top down:

app        modes, global bindings, theme: nothing else
palette    what ctrl+p offers
screens/   one screen a file; they ask the desk and show what it answers
desk/      the only door to the core: what screens read, what people decide, the worker beside the console
dialogs/   one dialog a file; they are given frozen values and hand back a verdict, and do nothing themselves
widgets/   one widget a file; they get frozen values and know neither desk nor ledger
topics/    what the help says
pages/     the words of a screen: frozen values in, rows and lines out
commands, tailfilter, keymap, themes, terminal   what is typed, which keys, how it looks, how it ends
messages   what threads tell the screens
views, verdicts   frozen values
text       the only way outside text reaches a widget
"""

import os

# Before Textual is loaded, which reads both once. A person who set them knows better.
os.environ.setdefault("ESCDELAY", "40")  # ms until an escape is a key of its own; Textual's 100 make "back" feel slow
os.environ.setdefault("TEXTUAL_FPS", "120")  # how often it may draw: at 60 a key waits up to 16 ms for its picture
