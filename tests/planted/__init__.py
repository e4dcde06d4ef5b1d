"""Bugs planted in the product's own functions, in memory, and the harness that finds each (T5 of reliability.md).

So the generators are measured, and not only the code.

bug         what a planted bug is, and what came of looking for it
looks       the harnesses, each as something to call: seeds, searches, tables, inputs, tampers, deaths, power cuts
tampers     a ledger that is changed behind the verifier's back, in a dozen ways
sending     bugs on the way of a call: permits, leases, tokens, transports
reading     bugs in what answers, lists and results are taken for
telling     webhooks, people and policies
keeping     the journal, its chain, checkpoints and files
bugs        all of them
"""
