"""Named iterators: their specs, graphs, positions and output."""
