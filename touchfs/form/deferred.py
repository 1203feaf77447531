"""Content whose size is not known before it is made."""

from __future__ import annotations

from collections.abc import Callable

from touchfs.core.extent import Buffer, Content


class DeferredContent:
    """The content that `make` returns, made when its size or its bytes are needed. `size` and `read` may block."""

    __slots__ = ("_content", "_make")

    def __init__(self, make: Callable[[], Content]) -> None:
        self._make = make
        self._content: Content | None = None

    @property
    def size(self) -> int:
        """The size in bytes. Raises what `make` raises."""
        return self._made().size

    def read(self, offset: int, length: int) -> Buffer:
        """See `Content.read`. Raises what `make` raises."""
        return self._made().read(offset, length)

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        return None if self._content is None else self._content.read_nowait(offset, length)

    def _made(self) -> Content:
        if self._content is None:
            self._content = self._make()
        return self._content
