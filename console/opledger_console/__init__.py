"""The terminal console over the ledger. The rooms:

app        modes, global bindings, theme: nothing else
screens/   one screen a file; they ask the desk and show what it answers
widgets/   one widget a file; they get frozen views and know neither desk nor ledger
desk       the only door to the core; starts a worker where none is alive
messages   what threads tell the screens
views      frozen snapshots and pure formatting
text       the only way outside text reaches a widget
"""
