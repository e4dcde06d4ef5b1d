"""Crash-point enumeration: a real SIGKILL at every point of forty stories, and at every point of the recovery from it.

A *point* is a place where a process touches something that outlives it: a transaction, a request, a step on a file, a
lease, a checkpoint. One process has loaded everything and forks; each child tells one story from its beginning, with
the real worker, receiver, commands and checkpoint maker, and kills itself at one point. Another child then tells the
same story again, as people and workers would who come back and look at what is there, and at the end everything that
is left is judged: the provider's own log, the journal, the files. The provider is a process of its own and survives.

Time is virtual and shared by all of them, so that leases and deadlines cost nothing.
"""
