"""Indexes that other tools make and read: finding, judging and writing them."""
