"""Codecs of the file formats that touchfs reads and writes, without IO: they convert between bytes and values.

A codec that needs random access to a file is a generator: it yields `(offset, length)` and is sent those bytes
(`extent.Reads`).
"""
