"""The scratch store: files and small values that can be made again, shared by all processes of a user."""
