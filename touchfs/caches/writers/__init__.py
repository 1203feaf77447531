"""Writers of caches: Arrow shards, Lance rows and Lance video frames. A cache appears as a whole, or not at all."""
