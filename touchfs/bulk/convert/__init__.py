"""Converting: shards of one format become shards of another."""
