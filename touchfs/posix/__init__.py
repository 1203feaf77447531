"""The operating system: atomic files, mounts, symbolic links, file ownership. Nothing here knows data formats."""
