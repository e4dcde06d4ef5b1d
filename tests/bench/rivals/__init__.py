"""The poll workload as others' documentation says to write it. Each file runs in an environment of its own."""
