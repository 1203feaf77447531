"""Readers of interleaved samples: tars and Parquet files become batches of items."""
