"""The full stack in one process: real worker, store, HTTP edge and receiver; virtual time, and the seed for all luck.

loop        an event loop whose time jumps and whose order is drawn; processes that die or stand still as a whole
ports       luck, time, ids and threads, taken away from the product for the length of a run
shell       the product's commits without a thread, its HTTP edge without sockets
provider    twelve personalities, one truth, one log
faults      what may go wrong: each seed switches a part of it on
people      agents, approvers, deciders, webhooks; and what happens to processes and clocks
world       one seed, built; the network between worker and provider
run         faults, then peace, then judgement
judge       the invariants I1 … I25, on the provider's log and the journal
counts      what must have been reached
longform    a million operations in as many parts as they need, counted per revision
planted     bugs planted in the product, which must be found
"""
