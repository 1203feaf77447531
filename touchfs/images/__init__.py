"""Kernel images: an EROFS file system over the tars and recordings of a dataset, which Linux reads itself."""
