"""Judges histories from outside: reads the provider's own log and an exported history, and nothing of opledger.

Two programs that agree are worth more than one, so the state machine and every law here were written from the design's
text (DESIGN.md §5, reliability.md §2), not from the code that they judge. `python -m tests.checker EXPORT LOG`.
"""
