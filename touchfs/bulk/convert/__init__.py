"""Converting: shards of one kind become shards of another."""
