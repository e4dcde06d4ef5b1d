"""Golden histories (reliability T21): what a release has written must be read by every release after it.

    python -m tests.golden make NAME     writes tests/golden/NAME.xz; a file that is there is never written anew
    python -m tests.golden check [NAME]  reads one, or all, with the present code

walk     histories by luck that reach every state, every kind of evidence and every arrow
making   a ledger of such histories, its checkpoints and its archive, as one small file
kept     such a file read again: rows made from the bytes of the events, and a database with them in it
"""
