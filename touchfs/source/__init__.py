"""Sources of bytes: local files, split and compressed files, lines, and the scratch store."""
