"""The open files of the control directory, by their handles.

A handle consists of the file and the id of the open, so a process that was started later finds the file, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from touchfs.core.errors import NotFoundError, UsageError
from touchfs.iterators.open_files import OpenFile, OpenFiles
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.store.open_table import ID_BITS, OpenTable
from touchfs.store.writes import Piece
from touchfs.tree.inode import FIXED_VIEW, pack, unpack
from touchfs_mount.control.fixed_texts import FixedTexts
from touchfs_mount.control.inodes import FILES, FIRST_ROW, FIXED_FILES, file_of

# The bits of a handle: the iterator, the row of its file, and the id of the open.
_FILE_BITS = 4
_OPEN_MASK = (1 << ID_BITS) - 1
_FILE_MASK = (1 << 63 - ID_BITS) - 1
# The open files that a process remembers. Any other one is made again from its handle.
_FILES_KEPT = 4096


class FixedFile:
    """An open file that belongs to no iterator. All its reads get the text that `make` returns at the first one.
    `take` gets a value that is written, and raises UsageError if it refuses it. Errors name the file `name`.
    """

    __slots__ = ("_id", "_make", "_name", "_table", "_take")

    is_stored = False

    def __init__(
        self,
        table: OpenTable,
        open_id: int,
        name: str,
        make: Callable[[], bytes],
        take: Callable[[bytes], None],
    ) -> None:
        self._table = table
        self._name = name
        self._id = open_id
        self._make = make
        self._take = take

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes of the text. Never blocks."""
        return self._table.text(self._id, self._make)[offset : offset + length]

    read_nowait = read

    def write(self, piece: Piece) -> int:
        """Take a value, which must be in one piece. Returns its length in bytes. If this open was read before, the
        piece begins where the reads ended.
        """
        try:
            if piece.offset > len(self._table.proposed(self._id) or b""):
                raise UsageError("this file takes a value in one write")
            self._take(piece.data)
        except UsageError as error:
            raise error.at(self._name) from None
        return len(piece.data)

    def release(self) -> None:
        self._table.release(self._id)


ControlFile = FixedFile | OpenFile


class ControlFiles:
    """The open files of one process. `fixed` has the texts of files that belong to no iterator. `iterators` is None if
    there are no iterators.
    """

    def __init__(self, table: OpenTable, iterators: OpenFiles | None, fixed: FixedTexts) -> None:
        self._table = table
        self._iterators = iterators
        self._fixed = fixed
        self._files: BoundedCache[int, ControlFile] = BoundedCache(_FILES_KEPT)

    def open(self, inode: int) -> tuple[int, ControlFile]:
        """Open a file, and return its handle and itself. Never blocks. Raises UsageError for a directory."""
        _, iterator, row = unpack(inode)
        if not (file_of(inode) if iterator else FIXED_FILES.get(inode)):
            raise UsageError("is a directory")
        open_id = self._table.open()
        handle = (iterator << _FILE_BITS | row) << ID_BITS | open_id
        file = self._make(iterator, row, open_id)
        self._files.keep(handle, file)
        return handle, file

    def file(self, handle: int) -> ControlFile:
        """The open file of a handle, whether it was opened here or in another worker."""
        file = self._files.find(handle)
        if file is None:
            iterator, row = divmod(handle >> ID_BITS & _FILE_MASK, 1 << _FILE_BITS)
            file = self._make(iterator, row, handle & _OPEN_MASK)
            self._files.keep(handle, file)
        return file

    def release(self, handle: int) -> Callable[[], None] | None:
        """Release an open file without waiting. If the store is locked, returns a function that does the rest."""
        file = self.file(handle)
        self._files.pop(handle)
        return file.release()

    def _make(self, iterator: int, row: int, open_id: int) -> ControlFile:
        if not iterator:
            name = FIXED_FILES[pack(FIXED_VIEW, 0, row)]
            make, take = partial(self._fixed.text, name), partial(self._fixed.write, name)
            return FixedFile(self._table, open_id, f".touchfs/{name}", make, take)
        if self._iterators is None:
            raise NotFoundError("a read-only mount has no iterators")
        return OpenFile(self._iterators, open_id, iterator, FILES[row - FIRST_ROW])
