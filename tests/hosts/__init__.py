"""Hosts in network namespaces: a database, a provider and workers, each behind a cable that can be cut."""
