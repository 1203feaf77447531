"""The open files of the control directory, by their handles.

A handle consists of a tag bit, the file, and the id of the open, so any worker finds the file. The handle of a data
file is its inode number, which never has the tag bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from touchfs.errors import NotFoundError, UsageError
from touchfs.iterators.open_files import OpenFile, OpenFiles
from touchfs.store.open_table import ID_BITS, OpenTable
from touchfs.store.writes import Piece
from touchfs.tree.inode import FIXED_VIEW, pack, unpack
from touchfs_mount.control.fixed_texts import FixedTexts
from touchfs_mount.control.inodes import FILES, FIRST_ROW, FIXED_FILES, file_of

HANDLE_TAG = 1 << 63
# The bits after the tag: the iterator, the row of its file, and the id of the open.
_FILE_BITS = 4
_OPEN_MASK = (1 << ID_BITS) - 1
_FILE_MASK = (1 << 63 - ID_BITS) - 1
# The open files that a worker remembers. Any other one is made again from its handle.
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
        """Release the open."""
        self._table.release(self._id)


ControlFile = FixedFile | OpenFile


class ControlFiles:
    """The open files of one worker. `fixed` has the texts of files that belong to no iterator. `iterators` is None if
    there are no iterators.
    """

    def __init__(self, table: OpenTable, iterators: OpenFiles | None, fixed: FixedTexts) -> None:
        self._table = table
        self._iterators = iterators
        self._fixed = fixed
        self._files: dict[int, ControlFile] = {}

    def open(self, inode: int) -> tuple[int, ControlFile]:
        """Open a file, and return its handle and itself. Never blocks. Raises UsageError for a directory."""
        _, iterator, row = unpack(inode)
        if not (file_of(inode) if iterator else FIXED_FILES.get(inode)):
            raise UsageError("is a directory")
        open_id = self._table.open()
        handle = HANDLE_TAG | (iterator << _FILE_BITS | row) << ID_BITS | open_id
        return handle, self._add(handle, iterator, row, open_id)

    def file(self, handle: int) -> ControlFile:
        """The open file of a handle, whether it was opened here or in another worker."""
        file = self._files.get(handle)
        if file is None:
            iterator, row = divmod(handle >> ID_BITS & _FILE_MASK, 1 << _FILE_BITS)
            file = self._add(handle, iterator, row, handle & _OPEN_MASK)
        return file

    def release(self, handle: int) -> Callable[[], None] | None:
        """Release an open file without waiting. If the store is locked, returns a function that does the rest."""
        file = self.file(handle)
        del self._files[handle]
        return file.release()

    def _add(self, handle: int, iterator: int, row: int, open_id: int) -> ControlFile:
        file: ControlFile
        if not iterator:
            name = FIXED_FILES[pack(FIXED_VIEW, 0, row)]
            make, take = partial(self._fixed.text, name), partial(self._fixed.write, name)
            file = FixedFile(self._table, open_id, f".touchfs/{name}", make, take)
        elif self._iterators is not None:
            file = OpenFile(self._iterators, open_id, iterator, FILES[row - FIRST_ROW])
        else:
            raise NotFoundError("a read-only mount has no iterators")
        self._files[handle] = file
        if len(self._files) > _FILES_KEPT:
            del self._files[next(iter(self._files))]
        return file
