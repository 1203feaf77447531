"""Selections: the samples of a dataset below a path, and those that a filter expression keeps."""
