"""Leaves: nodes that read data."""
