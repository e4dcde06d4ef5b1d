"""Edges touch the world (clock, HTTP, secrets, files) and decide nothing."""
