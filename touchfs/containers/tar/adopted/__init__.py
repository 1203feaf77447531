"""Indexes of other tools beside a tar: its members are taken from one that fits, and their headers are not read."""
