"""Features: the types of a table's columns as a user declares them, and how their values are encoded for Arrow."""
