"""The tables of a catalog for a shard whose samples are rows: made from arrays, without an object for each file."""
