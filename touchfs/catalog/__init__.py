"""Catalogs: every file of a shard as tables that are mapped and never loaded, and the index of keys."""
