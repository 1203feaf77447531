"""Forms of the files of tables: rows as JSON, and cells that are not plain ranges."""
