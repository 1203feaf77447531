"""The state store: a SQLite file for each dataset, and the opens of control files in it."""
