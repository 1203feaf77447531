"""Kernel images: the files of a dataset as an EROFS file system over its tars, which Linux reads itself."""
