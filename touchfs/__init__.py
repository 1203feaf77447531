"""touchfs: dataset shards as a directory of ordinary files."""
