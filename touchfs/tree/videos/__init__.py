"""Frames of videos in the tree: those of segments, of Lance datasets, and windows of these."""
