"""The kernel's FUSE messages as values: bytes to requests, answers to bytes. Nothing here reads or writes."""
