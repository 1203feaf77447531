"""Nodes that mix audio."""
