"""The operating system: files that appear whole, mounts, links, whose a file is. Nothing of data."""
