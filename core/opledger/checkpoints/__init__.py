"""Signed checkpoints of a ledger, and their anchors outside of it.

maker      `Checkpointer`: what a worker runs beside its work
standing   how database, key and anchors stand to each other; refuses a database that is older than its anchors
givingup   what a person acknowledges after a backup was restored, so that the ledger goes on
report     what people are told of all that
keys       the ledger's name and the key that signs for it
"""
