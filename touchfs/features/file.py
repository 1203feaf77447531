"""Files: bytes that are kept as they are, in a column that says which extension they have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from touchfs.core.errors import ArgumentTypeError, map_os_errors
from touchfs.core.extras import load_pyarrow
from touchfs.features.base import FeatureType

if TYPE_CHECKING:
    import pyarrow

# Metadata of a field in an Arrow schema: the extension of the files in the column, without a dot. It is ours.
EXTENSION_KEY = b"touchfs.extension"


class File(FeatureType):
    """The bytes of a file, in large_binary. `extension`, such as `wav`, is that of all files of the column.

    Takes the bytes of a file or its path. The original has no such type: there the column is of binary values.
    """

    __slots__ = ("extension",)

    def __init__(self, extension: str) -> None:
        self.extension = extension

    def to_arrow_type(self) -> pyarrow.DataType:
        return load_pyarrow().large_binary()

    def arrow_metadata(self) -> dict[bytes, bytes]:
        return {EXTENSION_KEY: self.extension.encode()}

    def encode(self, value: Any, *, cache_dir: Path | None = None) -> bytes | None:
        """Return the bytes of the file; None for None. Raises ArgumentTypeError, NotFoundError and SourceError."""
        if value is None:
            return None
        if (data := file_bytes(value)) is not None:
            return data
        raise ArgumentTypeError(f"a file is given as bytes or as a path, not as {type(value).__name__}")

    def to_json(self) -> dict[str, Any]:
        return {"type": "File", "extension": self.extension}

    def __repr__(self) -> str:
        return f"File({self.extension!r})"


def file_bytes(value: Any) -> bytes | None:
    """The bytes of a file that is given as bytes or as a path; None for any other value.

    Raises NotFoundError and SourceError for a path.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | Path):
        with map_os_errors(str(value)):
            return Path(value).read_bytes()
    return None
