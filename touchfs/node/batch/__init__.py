"""Nodes that yield batches."""
