"""Measurements, side by side in one run: ``make bench``. Not tests: nothing here passes or fails by time."""
