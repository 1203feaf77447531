"""Nodes over other nodes that yield their items, changed or in another order."""
