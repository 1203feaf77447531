"""Caches: a generator of examples becomes Arrow shards or a Lance dataset, and is opened again as a backend."""
