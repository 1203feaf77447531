"""Decoding of media: recordings to plain PCM, their duration, and lilcom matrices."""
