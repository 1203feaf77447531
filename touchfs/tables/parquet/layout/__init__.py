"""Parquet files without pyarrow: the footer, pages, and where values are in them."""

# The ends of the names of Parquet files, in small letters.
PARQUET_SUFFIXES = (".parquet", ".pq", ".parq")


def is_parquet(name: str) -> bool:
    """True if a file of this name is a Parquet file."""
    return name.lower().endswith(PARQUET_SUFFIXES)
