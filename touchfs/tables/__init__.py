"""Arrow files, Parquet files and Lance datasets: a room for each, then rows of any kind, then readers of shards."""
