"""Packing into tables: samples, lines of JSON or the files of a folder become the rows of an Arrow or Lance cache."""
