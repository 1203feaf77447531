"""Directories of shards: the lists that other tools keep of their data, and which files are left out, and why."""
