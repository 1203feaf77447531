"""Programs that work beside a mount: they decompress shards, or fetch them from other stores."""
