"""The database: tables, engine, the only state writes, and reads for people. Decides nothing."""
