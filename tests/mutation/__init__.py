"""Mutation testing: small changes of the product, each of which must turn a test red.

mutmut was tried first. It changes only what stands in functions and methods, and puts its changed functions in at the
call: of the state machine it leaves out the table itself, and the guards, which functions make while the module is
imported, stay as they are. So this is a mutator of our own: `change` makes the changes, `ground` tries them, `modules`
says which tests answer for which module, and `survivors.toml` why a change may stay unnoticed.
"""
