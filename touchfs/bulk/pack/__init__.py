"""Packing: a JSONL and files become shards."""
