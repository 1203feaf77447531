"""All kinds of shards and forms: tables that name them, finding and opening shards, paths that do not answer."""
