"""Schema changes, oldest first; shipped with the package and run by `schema.migrate`."""
