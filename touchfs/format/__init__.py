"""Codecs of the file formats touchfs reads and writes: bytes in, values out, and back. None of them opens anything; one
that must jump about in a file is a generator of `(offset, length)` requests that is sent the bytes (`extent.Reads`).
"""
