"""The pages of one operation: frozen rows, and pure functions that make them. No widget, no ledger, no clock.

Whatever stands in a row is data and is made inert where it is drawn.
"""
