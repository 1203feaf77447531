"""Open Parquet files: rows, columns and cells, of which only the pages that are needed are read, and forms of cells."""
