"""The writer of Lhotse Shar: cuts, their fields and their audio."""
