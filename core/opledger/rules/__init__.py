"""Rules decide and touch nothing: no clock, no file, no socket, no database, no randomness."""
