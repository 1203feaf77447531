"""Directories whose names are plans: segments that are merged, and windows of tokens."""
