"""Which samples of a dataset are wanted: paths, filter expressions, and the positions that they leave."""
