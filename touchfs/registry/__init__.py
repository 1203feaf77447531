"""All kinds of shards and forms: the tables that name them, finding and opening shards. It lies above its members."""
