"""Functions over a whole graph of nodes: its state and description, its shares, and merging the states of ranks."""
