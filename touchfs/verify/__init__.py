"""Verifying: everything of a dataset is read once and compared with its index and its checksums."""
