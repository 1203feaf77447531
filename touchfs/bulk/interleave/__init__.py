"""Interleaving: a job that reads, filters and writes the shards of interleaved samples. It can be resumed."""
