"""Readers of shards: one file per container format. A shard is a sequence of samples over an index and its files."""
