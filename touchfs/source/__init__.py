"""Sources of bytes: stores of data, split and compressed files, lines, and the scratch store."""
