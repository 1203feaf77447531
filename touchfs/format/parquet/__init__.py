"""Parquet files without pyarrow: the footer, pages, and where values are in them."""

# The end of the names of Parquet files, which says that they are.
PARQUET_SUFFIX = ".parquet"
