"""The recordings and videos of the samples of a shard: which file is one, its name, its coding, its samples."""
