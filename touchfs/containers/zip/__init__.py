"""Shards that are ZIP archives: members, grouped into samples as those of a tar."""
