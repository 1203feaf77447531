"""Writers of the shards touchfs reads: each makes one under a temporary name and puts it in place when it is whole."""
