"""TIFF files: their frames, and each of them as a file of its own."""

from touchfs.interleaved.tiff.frames import FileSpan, TiffFrame, frames

__all__ = ["FileSpan", "TiffFrame", "frames"]
