"""Orders: permutations, partitions among ranks, and the remainder of an epoch."""
