"""A state store of each test's own."""

from state_store import path, store

__all__ = ["path", "store"]
