"""A reference to a video in a table: its bytes, or a file in the cache."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from touchfs.core.errors import CacheFormatError, map_os_errors
from touchfs.features.video import ASSETS
from touchfs.posix.beneath import open_beneath


class VideoRef:
    """The video of a cell, which is the struct of a `Video` column. `cache_dir` is needed for videos in files."""

    __slots__ = ("__weakref__", "_cache_dir", "_cell", "_temporary")

    def __init__(self, cell: Mapping[str, Any], cache_dir: str | os.PathLike[str] | None = None) -> None:
        self._cell = cell
        self._cache_dir = cache_dir
        self._temporary: Path | None = None

    @property
    def mode(self) -> str:
        """ "path" or "bytes"."""
        return str(self._cell["mode"])

    @property
    def extension(self) -> str:
        """The extension in lower case, with its dot."""
        return str(self._cell["extension"])

    @property
    def media_type(self) -> str:
        """The media type, as `video/mp4`."""
        return str(self._cell["media_type"])

    @property
    def size(self) -> int:
        """Size in bytes."""
        return int(self._cell["size"])

    @property
    def checksum(self) -> str | None:
        """The SHA-256 in hexadecimal digits, or what the writer of the cache gave instead."""
        return self._cell.get("checksum")

    @property
    def path(self) -> Path:
        """The path of a file with the video. That of a video in the table is removed with the reference.

        Raises CacheFormatError if the name in the table is not one of a file in the cache, and SourceError.
        """
        if self.mode != "bytes":
            directory, name = self._place()
            os.close(self._open(directory, name))
            return Path(directory, name)
        if self._temporary is None:
            with map_os_errors(tempfile.gettempdir()):
                descriptor, path = tempfile.mkstemp(prefix="touchfs-video-", suffix=self.extension)
                weakref.finalize(self, Path(path).unlink, missing_ok=True)
                with open(descriptor, "wb") as file:
                    file.write(self.bytes)
            self._temporary = Path(path)
        return self._temporary

    @property
    def bytes(self) -> bytes:
        """The bytes of the video's file. Raises as `path`."""
        data = self._cell.get("bytes")
        if data is not None:
            return bytes(data)
        directory, name = self._place()
        with map_os_errors(os.path.join(directory, name)), open(self._open(directory, name), "rb") as file:
            return file.read()

    def _place(self) -> tuple[str, str]:
        name = self._cell.get("path")
        if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\0" in name:
            raise CacheFormatError(f"the video {name!r} is not the name of a file in the cache: rebuild the cache")
        if self._cache_dir is None:
            raise CacheFormatError(f"the video {name!r} is a file in a cache: give its cache_dir")
        return os.path.join(self._cache_dir, *ASSETS), name

    @staticmethod
    def _open(directory: str, name: str) -> int:
        with map_os_errors(os.path.join(directory, name)):
            return open_beneath(directory, name, os.O_RDONLY | os.O_CLOEXEC)

    def __repr__(self) -> str:
        return f"VideoRef({self.mode}, {self.media_type}, {self.size} bytes)"
