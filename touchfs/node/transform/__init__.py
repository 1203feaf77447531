"""Nodes that change, select, combine or reorder the items of other nodes."""
