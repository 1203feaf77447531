"""What changes while a dataset is used: the state store."""
