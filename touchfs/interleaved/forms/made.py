"""Content that is made as a whole from stored bytes: its size is known when it is made, unless the catalog has it.

What is made is kept in the scratch store, and for a while in memory, among the windows of `touchfs.form.computed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer, Extent
from touchfs.form.computed import WINDOWS
from touchfs.form.kept import find_version, identity_of, kept_or_made


class MadeContent(NamedTuple):
    """The bytes that `make` makes of an extent. `name` says what is made, and `expected` is its size or None.

    `size` and reads block until it is made.
    """

    extent: Extent
    name: str
    make: Callable[[], Buffer]
    expected: int | None = None

    def find(self) -> Buffer | None:
        """The bytes if this process has them. Never waits."""
        identity = identity_of(self.extent)
        return None if identity is None else WINDOWS.find(((self.name, identity), 0))

    def data(self) -> Buffer:
        """The bytes. Raises what `make` raises, and FormatError if they have not the size that is expected."""
        data = self.find()
        if data is None:
            find_version(self.extent)
            data = kept_or_made(self.extent, self.name, self.make)
            if self.expected is not None and len(data) != self.expected:
                raise FormatError(f"{len(data)} bytes where {self.expected} were expected: index with --force")
            if (identity := identity_of(self.extent)) is not None:
                WINDOWS.keep(((self.name, identity), 0), data)
        return data

    @property
    def size(self) -> int:
        return len(self.data()) if self.expected is None else self.expected

    def read(self, offset: int, length: int) -> Buffer:
        return self.data()[offset : offset + length]

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        data = self.find()
        return None if data is None else data[offset : offset + length]
