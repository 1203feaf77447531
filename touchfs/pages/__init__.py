"""The pages of a dataset: of its whole, and of what is at a path of its tree."""
