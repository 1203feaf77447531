"""Packing: a JSONL and the files that it lists become shards."""
