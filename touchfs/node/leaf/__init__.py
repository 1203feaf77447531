"""Leaves: nodes over data."""
