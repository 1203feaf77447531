"""Mounting a source: options, mount points, shard ids."""
