"""Real processes that are killed, stopped and cut off from their database, while jobs run at a bad provider.

The end is judged from outside: by the checker over the provider's log and the exported history, and by what a person
would run next, ``opledger audit verify``. `python -m tests.chaos [--seconds 60] [--database sqlite|postgresql]`.
"""
