"""Network faults, status codes and bombs: what the wire can do to a call, and what may be made of it.

``python -m tests.network cuts|codes|bombs [--long] [--seed N]``
"""
