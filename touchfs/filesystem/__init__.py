"""The tree of a dataset as a filesystem of fsspec: `touchfs://shards/train/a.wav::s3://bucket/train`, without FUSE."""

from touchfs.filesystem.filesystem import TouchFileSystem

__all__ = ["TouchFileSystem"]
