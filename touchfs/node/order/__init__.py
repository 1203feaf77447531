"""Orders: permutations, partitions among ranks, and what is left of an epoch."""
