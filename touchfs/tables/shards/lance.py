"""A Lance dataset: a directory with a manifest for each version. It is read in the latest one.

Its rows are the samples, and `touchfs.tables.rows.columns` says which columns have files. In a cache of video frames
(`_metadata.json` has that layout) the videos are the samples.
"""

from __future__ import annotations

from contextlib import closing

from touchfs.core.errors import FormatError
from touchfs.format.cache_metadata import METADATA_FILE
from touchfs.format.cache_metadata.layouts import LanceMetadata, VideoFramesMetadata
from touchfs.format.cache_metadata.parse import parse_lance
from touchfs.limits import Limits, too_long
from touchfs.shard.options import Options
from touchfs.source.fingerprint import Files
from touchfs.tables.shards.lance_files import open_source
from touchfs.tables.shards.lance_rows import LanceRowsShard
from touchfs.tables.shards.lance_videos import LanceVideosShard


def open_lance_shard(path: str, options: Options, files: Files) -> LanceRowsShard | LanceVideosShard:
    """Open the dataset at `path`. Raises FormatError, ChangedError, SourceError or MissingExtraError."""
    metadata = read_metadata(path, options.limits, files)
    if isinstance(metadata, VideoFramesMetadata):
        return LanceVideosShard(path, options, files, metadata)
    return LanceRowsShard(path, options, files, metadata)


def read_metadata(path: str, limits: Limits, files: Files) -> LanceMetadata | VideoFramesMetadata | None:
    """The metadata of the cache that a dataset is; None if it is not one. Raises FormatError if they are damaged."""
    if METADATA_FILE not in files:
        return None
    size = files[METADATA_FILE].size
    if size > limits.json:
        raise FormatError(too_long(METADATA_FILE, limits.json), path=path)
    with closing(open_source(path, METADATA_FILE, files)) as source:
        return parse_lance(source.read(0, size), path)
