"""Shards that are lines: JSON lines, Kaldi's data directories, and lists that name audio beside them."""
