"""A PostgreSQL for all tests, and one for each that harms it."""

from postgres_server import own_server, postgres_data, server

__all__ = ["own_server", "postgres_data", "server"]
