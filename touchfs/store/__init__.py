"""The state store: a SQLite file for each dataset, and the open control files in it."""
