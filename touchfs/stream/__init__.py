"""The samples of shards in order, without an index: read from the shards themselves, from a place on.

They are those that an index would tell, but that no name in the tree was given to their files.
"""
