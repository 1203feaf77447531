"""Shards of a Lhotse Shar: cuts in one file, and a file for each field beside it."""
