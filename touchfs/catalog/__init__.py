"""Catalogs: tables of all files of a shard, mapped and never loaded, and the index of keys."""
