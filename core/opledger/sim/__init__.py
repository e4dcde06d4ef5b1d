"""The misbehaving provider and the demonstration that runs against it."""
