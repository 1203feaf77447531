"""A PostgreSQL as the store of iterators, which the mounts of many machines share."""
