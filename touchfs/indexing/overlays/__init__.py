"""Overlays: tables whose columns are files and fields of the samples with their keys, as captions beside the shards.

rows.py      the rows of a .parquet or .jsonl, batch by batch, as texts and JSON
overlay.py   an overlay in the scratch store, and which of its rows have some keys
named.py     the overlays that somebody names, with the hashes of their contents
join.py      the catalog of a shard, with the files of its samples' rows
sides.py     how many keys of an overlay are those of samples
indexer.py   the indexer of a dataset whose shards are joined when they are indexed
"""
