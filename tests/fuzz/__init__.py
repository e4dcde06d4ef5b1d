"""Fuzzers for everything that reads what others wrote (reliability T14): ``python -m tests.fuzz``.

mutate      how an input becomes another one: bytes, words, lines, JSON, pieces of other inputs
engine      runs a target, sees which lines it reached, keeps what reached new ones, minimises what broke a law
ground      what targets are made of, and the inputs that are kept in ``corpus/``
outside, ours, evidence   the targets: what providers send, what people write, what an auditor reads
"""
