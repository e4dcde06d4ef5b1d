"""An explicit-state model of the whole protocol over the real rules: every order of events in a small world.

scenarios   which world: the contract, the provider's manners, and how much may go wrong
book        the real rules, remembered: records and evidence as small numbers
world       what can happen next: workers, network, provider, people, time
laws        what must hold in every state, told from the provider's side
search      breadth first, shortest trace, and whether everything comes to rest once faults stop
designs     broken designs, each of which must be caught
"""
