"""Videos: a file beside the table, bytes in the table, or frames in a Lance dataset of their own layout."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.core.errors import ArgumentTypeError, ArgumentValueError, MissingFileError, map_os_errors
from touchfs.core.extras import load_pyarrow
from touchfs.features.base import FeatureType
from touchfs.posix.link_or_copy import link_or_copy

if TYPE_CHECKING:
    import pyarrow

# Directory of staged videos in a cache. A cell names a file in it.
ASSETS = ("_assets", "video")
DEFAULT_EXTENSIONS = (".mp4", ".avi", ".mov", ".webm", ".mkv")
STORAGE_KEY = b"stable_datasets.video.storage"
_STORAGES = ("path", "bytes", "frames")


class Video(FeatureType):
    """A struct of mode, path, bytes, extension, media_type, size in bytes, and checksum (SHA-256).

    `storage="path"` puts the file into the cache, as a hard link where that is possible, and its name into the table.
    `"bytes"` puts its bytes into the table. `"frames"` is for `write_lance_video_frames_cache` only.
    """

    __slots__ = ("allowed_extensions", "storage")

    def __init__(self, storage: str = "path", allowed_extensions: Sequence[str] = DEFAULT_EXTENSIONS) -> None:
        if storage not in _STORAGES:
            raise ArgumentValueError("Video.storage must be one of 'path', 'bytes', or 'frames'.")
        self.storage = storage
        self.allowed_extensions = tuple(map(with_dot, allowed_extensions))

    def to_arrow_type(self) -> pyarrow.DataType:
        pa = load_pyarrow()
        return pa.struct(
            {
                "mode": pa.string(),
                "path": pa.string(),
                "bytes": pa.large_binary(),
                "extension": pa.string(),
                "media_type": pa.string(),
                "size": pa.int64(),
                "checksum": pa.string(),
            }
        )

    def arrow_metadata(self) -> dict[bytes, bytes]:
        """See `FeatureType.arrow_metadata`. It also has the storage."""
        return super().arrow_metadata() | {STORAGE_KEY: self.storage.encode()}

    def encode(self, value: Any, *, cache_dir: Path | None = None) -> dict[str, Any] | None:
        """Return the struct of a video: a path, or a mapping with `path` or `bytes`, `checksum` and `extension`.

        Raises NotImplementedError for frames, MissingFileError, ArgumentTypeError and ArgumentValueError.
        """
        if value is None:
            return None
        if self.storage == "frames":
            raise NotImplementedError("Video(storage='frames') uses the specialized Lance video-frames layout.")
        return self._encode_path(value, cache_dir) if self.storage == "path" else self._encode_bytes(value)

    def check_extension(self, extension: str) -> str:
        """Return an extension in lower case with its dot. Raises ArgumentValueError if it is not allowed."""
        extension = with_dot(extension)
        if extension not in self.allowed_extensions:
            allowed = list(self.allowed_extensions)
            raise ArgumentValueError(f"Unsupported video extension {extension!r}. Allowed: {allowed}")
        return extension

    def check_path(self, value: str | Path) -> Path:
        """Return the path of a video. Raises MissingFileError if it is not a file, and as `check_extension`."""
        path = Path(value)
        if not path.is_file():
            raise MissingFileError(f"Video path does not exist or is not a file: {path}")
        self.check_extension(path.suffix)
        return path

    def _encode_path(self, value: Any, cache_dir: Path | None) -> dict[str, Any]:
        checksum = None
        if isinstance(value, Mapping):
            value, checksum = value.get("path"), value.get("checksum")
        if not isinstance(value, str | Path):
            raise ArgumentTypeError(
                "Video(storage='path') values must be str, pathlib.Path, or {'path': ..., 'checksum': ...} mappings."
            )
        path = self.check_path(value)
        if cache_dir is None:
            raise ArgumentValueError("Video(storage='path') requires a cache_dir for asset staging.")
        extension = with_dot(path.suffix)
        with map_os_errors(str(path)):
            digest = _sha256(path)
            staged = _stage(path, Path(cache_dir, *ASSETS), f"{digest}{extension}")
        return _cell("path", staged.name, None, extension, staged.stat().st_size, checksum or digest)

    def _encode_bytes(self, value: Any) -> dict[str, Any]:
        checksum = extension = None
        if isinstance(value, Mapping):
            checksum, extension = value.get("checksum"), value.get("extension")
            value = value.get("path") if value.get("bytes") is None else value["bytes"]
            if value is None:
                raise ArgumentTypeError("Video bytes mapping must contain 'bytes' or 'path'.")
        if isinstance(value, str | Path):
            path = self.check_path(value)
            extension = self.check_extension(extension or path.suffix)
            with map_os_errors(str(path)):
                data = path.read_bytes()
        elif isinstance(value, bytes | bytearray | memoryview):
            extension = self.check_extension(extension or self.allowed_extensions[0])
            data = bytes(value)
        else:
            raise ArgumentTypeError("Video(storage='bytes') values must be path-like or bytes-like.")
        return _cell("bytes", None, data, extension, len(data), checksum or hashlib.sha256(data).hexdigest())

    def to_json(self) -> dict[str, Any]:
        return {"type": "Video", "storage": self.storage, "allowed_extensions": list(self.allowed_extensions)}

    def __repr__(self) -> str:
        if self.storage == "path" and self.allowed_extensions == DEFAULT_EXTENSIONS:
            return "Video(storage='path')"
        return f"Video(storage={self.storage!r}, allowed_extensions={self.allowed_extensions!r})"


def with_dot(extension: str) -> str:
    """Return an extension in lower case, with its dot."""
    return "." + extension.lower().removeprefix(".")


def _cell(mode: str, path: str | None, data: bytes | None, extension: str, size: int, checksum: str) -> dict[str, Any]:
    return {
        "mode": mode,
        "path": path,
        "bytes": data,
        "extension": extension,
        "media_type": mimetypes.guess_type(f"file{extension}")[0] or "application/octet-stream",
        "size": size,
        "checksum": checksum,
    }


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stage(source: Path, directory: Path, name: str) -> Path:
    """Link or copy a file into a directory under a name. Threads may stage the same file at once."""
    directory.mkdir(parents=True, exist_ok=True)
    staged = directory / name
    if not staged.exists():
        link_or_copy(source.resolve(), staged)  # a link would be linked itself, and lead out of the cache
    return staged
