"""Mounting a source: options, mount points, shard ids, and decompression in the background."""
