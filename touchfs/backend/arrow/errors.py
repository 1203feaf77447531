"""pyarrow's errors become ours, with the name of the file."""

from __future__ import annotations

import pyarrow as pa

from touchfs.errors import FormatError


class map_arrow_errors:
    """Raise FormatError for an error of pyarrow in the block: the file is damaged, or not what it claims to be."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        # pyarrow raises OSError for damaged metadata, and UnicodeDecodeError for names that are no text.
        if isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError):
            reason = " ".join(str(error).split())
            raise FormatError(f"its Arrow data cannot be read: {reason}", path=self._path) from error
