"""Shards that are tables: a row is a sample, and cells are its files. A reader for each kind."""
