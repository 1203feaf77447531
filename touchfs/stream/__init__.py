"""Streams: the samples of shards in order, read from the shards themselves without an index, from a cursor on.

They equal the samples of an index, except that their files have no paths in the tree.
"""
