"""Containers of samples, a folder for each family: its layout without IO, its readers and its writers."""
