"""Functions over a whole graph of nodes: its state, its shares, merging the states of ranks, steps as a graph."""
