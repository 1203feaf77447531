"""Symbolic links to files of samples: by their keys, and by their class labels."""
