"""Shards that are tars, such as WebDataset's: members, grouped into samples."""
