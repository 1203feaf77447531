"""Places that data names: which of them may be opened, and reading those that are not files of this machine."""
