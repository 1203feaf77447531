"""Storage backends: random access to the rows of Arrow shards, Lance datasets and Lance video frames."""
