"""Logs of a mount: what its processes write, to a file, to stderr or to the journal."""
