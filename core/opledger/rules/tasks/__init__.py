"""Agent tasks, as far as they can be thought through without touching anything (DESIGN §8).

plan       a plan file as frozen values, every mistake with key and line
proofs     the completion checks of a step
views      a task as people see it; deciding: what people and agents may say about a step
templates  ``{step.ID.NAME}``: what an earlier step handed on
records    one line of a progress file: written in one way, read strictly
story      many records as one standing for each step; a progress file beside what the ledger knows
ahead      what is next: one function over plan and story
summary    the report at the end
"""
