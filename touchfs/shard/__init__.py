"""Shards: one file per container kind, each a sequence of samples over an index and its sources."""
