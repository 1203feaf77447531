"""The tree: paths, inodes and contents of a mounted dataset, with no FUSE in it."""
