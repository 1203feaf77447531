"""Open files of the control directory.

Each open has a text, which is the same for every read of it, in any worker. The text of a file that changes nothing is
in memory that the workers share (`touchfs.store.open_table`), so reading it needs no disk space and blocks on nothing.
The text of a file that steps is in the state store, written in one transaction with the step (`touchfs.store.opens`).
A handle consists of a tag bit, the file, and the id of the open. The handle of a data file is its inode number, which
never has the tag bit.

A request for a control file takes some ten microseconds; handing it to a thread takes many times that. So it runs on
the worker's loop without waiting (`wait=False`), and in a thread only if the store is locked or there is more to do.

A program that opens a file for reading sends a read one round trip later. Meanwhile the text is precomputed, in a
transaction that the read commits. After a step the next step is precomputed, as far as that needs no transaction.
Together these hide more than half of the time that a step takes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from touchfs.errors import NotFoundError, StateError, UsageError, WouldWaitError
from touchfs.iterators.iterators import WRITABLE, Iterators
from touchfs.store.open_table import ID_BITS, OpenTable
from touchfs.store.opens import OpenFile, Opens
from touchfs.store.writes import Piece
from touchfs.tree.inode import FIXED_VIEW, pack, unpack
from touchfs_mount.control.inodes import FILES, FIRST_ROW, FIXED_FILES, file_of

# The files whose texts are in the state store.
STORED = ("next", "token", "spec")

HANDLE_TAG = 1 << 63
# The bits after the tag: the iterator, the row of its file, and the id of the open.
_FILE_BITS = 4
_OPEN_MASK = (1 << ID_BITS) - 1
_FILE_MASK = (1 << 63 - ID_BITS) - 1

# Texts longer than `_LONG` (of large batches) are kept in memory while their files are open, up to `_LONG_KEPT` bytes
# in total. The others are read from the store again.
_LONG, _LONG_KEPT = 1 << 14, 1 << 25
# The open files that a worker remembers. Any other one is found by its handle.
_FILES_KEPT = 4096


class IteratorBackend:
    """The parts that need the state store: the iterators, and the opens of their files in this worker."""

    __slots__ = ("iterators", "opens")

    def __init__(self, iterators: Iterators, opens: Opens) -> None:
        self.iterators = iterators
        self.opens = opens


class ControlFiles:
    """The control files of one worker. `fixed_text` makes the text of a file that belongs to no iterator. `backend` is
    None if there are no iterators.
    """

    def __init__(self, table: OpenTable, backend: IteratorBackend | None, fixed_text: Callable[[str], bytes]) -> None:
        self._table = table
        self._backend = backend
        self._fixed_text = fixed_text
        self._files: dict[int, ControlFile] = {}
        self.long: dict[int, ControlFile] = {}
        self._expected: ControlFile | None = None
        self._stepping = 0

    @property
    def backend(self) -> IteratorBackend:
        """The iterators and their opens. Raises NotFoundError if there are none."""
        if self._backend is None:
            raise NotFoundError("a read-only mount has no iterators")
        return self._backend

    def open(self, inode: int) -> ControlFile:
        """Open a file. Needs no store and never blocks. Raises UsageError for a directory."""
        _, iterator, row = unpack(inode)
        file = file_of(inode) if iterator else FIXED_FILES.get(inode, "")
        if not file:
            raise UsageError("is a directory")
        open_id = self._table.open()
        handle = HANDLE_TAG | (iterator << _FILE_BITS | row) << ID_BITS | open_id
        return self._keep(ControlFile(self, handle, OpenFile(open_id, iterator, file)))

    def opened(self, handle: int) -> ControlFile:
        """The open file of a handle, whether it was opened here or in another worker."""
        file = self._files.get(handle)
        if file is not None:
            return file
        iterator, row = divmod(handle >> ID_BITS & _FILE_MASK, 1 << _FILE_BITS)
        name = FILES[row - FIRST_ROW] if iterator else FIXED_FILES[pack(FIXED_VIEW, 0, row)]
        return self._keep(ControlFile(self, handle, OpenFile(handle & _OPEN_MASK, iterator, name)))

    def _keep(self, file: ControlFile) -> ControlFile:
        self._files[file.handle] = file
        if len(self._files) > _FILES_KEPT:
            del self._files[next(iter(self._files))]
        return file

    def release(self, handle: int) -> Callable[[], None] | None:
        """Release an open file. If the store is locked, returns a function that does the rest and may block."""
        remaining = self.opened(handle).release()
        self._files.pop(handle, None)
        return remaining

    def text(self, opened: OpenFile, wait: bool = True) -> bytes:
        """The text of an open. Without `wait`, raises WouldWaitError if the store is locked."""
        open_id, iterator, file = opened
        if not iterator:
            return self._table.text(open_id, lambda: self._fixed_text(file))
        iterators, opens = self.backend.iterators, self.backend.opens
        if file in STORED:
            return iterators.read_open(opens, opened, wait=wait)
        return self._table.text(open_id, lambda: iterators.look(iterator, file, wait=wait))

    def precomputed(self, opened: OpenFile) -> bytes | None:
        """The precomputed text of an open, committed now; None if there is none."""
        return self._backend.opens.precomputed(opened.id) if self._backend is not None else None

    def write(self, opened: OpenFile, piece: Piece) -> None:
        """Write a piece to an open file of an iterator."""
        self.backend.iterators.write_open(self.backend.opens, opened, piece)

    def release_open(self, opened: OpenFile, is_short: bool) -> Callable[[], None] | None:
        """Release an open. If the store is locked, returns a function that does the rest and may block."""
        if not opened.iterator or self._backend is None:
            self._table.release(opened.id)
            return None
        iterators, opens = self._backend.iterators, self._backend.opens
        is_written = opened.file in WRITABLE
        try:
            if not is_written:
                # The row of a text that was not read here, or is long, is deleted at once.
                opens.release(opened.id, at_once=not is_short, wait=False)
            elif opens.close(opened.id):
                iterators.forget(opens, opened, wait=False)
        except WouldWaitError:
            return partial(iterators.forget, opens, opened) if is_written else None
        except StateError:
            pass  # the row is deleted when the store is available again
        return None

    def evict(self, file: ControlFile) -> None:
        """Record the long text of a file, and drop texts of others while all exceed `_LONG_KEPT`. Thread-safe."""
        self.long[file.handle] = file
        others = [each for each in list(self.long.values()) if each is not file]
        total = file.text_size + sum(each.text_size for each in others)
        for other in others:
            if total <= _LONG_KEPT:
                return
            total -= other.text_size
            other.forget()

    def expect_read(self, file: ControlFile) -> None:
        """Note that a file was just opened for reading: `precompute` makes its text."""
        self._expected = file

    def precompute(self) -> None:
        """While the worker is idle, compute the text that the next request is likely to read."""
        expected, self._expected = self._expected, None
        if self._backend is None:
            return
        iterators, opens = self._backend.iterators, self._backend.opens
        if expected is not None:
            _, iterator, file = expected.opened
            if file in STORED:
                iterators.precompute(opens, expected.opened)
            self._stepping = iterator if file == "next" else 0
        elif self._stepping:
            iterators.precompute_step(self._stepping)
            self._stepping = 0
            opens.delete_released()

    def rollback(self) -> None:
        """Roll back a precomputed step that was not read, as its transaction locks the store for others."""
        if self._backend is not None:
            self._backend.opens.store.rollback()

    def close(self) -> None:
        """Close the store, before this worker exits by itself."""
        if self._backend is None:
            return
        with suppress(StateError, WouldWaitError):
            self._backend.opens.flush()
        self._backend.opens.store.close()


class ControlFile:
    """One open file. It is read like a content, but its size is not known before."""

    __slots__ = ("_files", "_text", "handle", "opened")

    def __init__(self, files: ControlFiles, handle: int, opened: OpenFile) -> None:
        self._files = files
        self._text: bytes | None = None
        self.handle = handle
        self.opened = opened

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes of the text. May block on the store."""
        text = self._text
        if text is None:
            text = self._files.text(self.opened)
            self._keep(text)
        return text[offset : offset + length]

    def read_nowait(self, offset: int, length: int) -> bytes | None:
        """Read bytes of the text, or return None if that would block."""
        text = self._text
        if text is None:
            text = self._files.precomputed(self.opened)
            if text is None:
                try:
                    text = self._files.text(self.opened, wait=False)
                except WouldWaitError:
                    return None
            self._keep(text)
        return text[offset : offset + length]

    def _keep(self, text: bytes) -> None:
        """Keep the text for the following reads, up to the end of file."""
        self._text = text
        if len(text) > _LONG:
            self._files.evict(self)

    @property
    def is_stored(self) -> bool:
        """True if making the text changes the state store."""
        return self.opened.file in STORED

    @property
    def text_size(self) -> int:
        """The bytes of the text that is kept in memory."""
        return len(self._text or b"")

    def forget(self) -> None:
        """Drop the text from memory. It is read again when needed."""
        self._text = None
        self._files.long.pop(self.handle, None)

    def write(self, piece: Piece) -> int:
        """Write a piece, and return its length in bytes."""
        self._files.write(self.opened, piece)
        return len(piece.data)

    def release(self) -> Callable[[], None] | None:
        """Release the open, as `ControlFiles.release_open`."""
        text = self._text
        self.forget()
        return self._files.release_open(self.opened, text is not None and len(text) <= _LONG)
