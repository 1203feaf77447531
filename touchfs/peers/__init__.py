"""Indexes that other tools make and read: find them, verify them against the data, and write them."""
