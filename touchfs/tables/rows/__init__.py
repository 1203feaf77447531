"""Rows of tables of any kind: opening one by its name, forms of rows and columns, and which cells are files."""
