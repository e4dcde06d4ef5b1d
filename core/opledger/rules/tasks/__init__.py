"""Agent tasks, as far as they can be thought through without touching anything (DESIGN §8).

plan       a plan file as frozen values, every mistake with key and line
templates  ``{step.ID.NAME}``: what an earlier step handed on
records    one line of a progress file: written in one way, read strictly
story      many records as one standing for each step; a progress file beside what the ledger knows
ahead      what is next: one function over plan and story
summary    the report at the end
"""
