"""The open files of iterators. An open owns its text, the values written to it, and its release.

The text of an open is the same for every read of it, in any process of a mount. The text of a file that changes nothing
is in memory that these processes share (`touchfs.store.open_table`), so reading it needs no disk space. The text of a
file that steps is in the state store, written in one transaction with the step (`touchfs.store.opens`).

A read takes some ten microseconds; handing it to a thread takes many times that. So a loop calls `read_nowait`, and a
thread calls `read` only if the store is locked or there is more to do.
"""

from __future__ import annotations

from collections.abc import Callable

from touchfs.core.errors import NotFoundError, StateError, TouchfsError, UsageError, WouldWaitError
from touchfs.iterators.iterator_files import ITERATOR_FILES, WRITABLE
from touchfs.iterators.iterators import Iterators
from touchfs.store import writes
from touchfs.store.iterator_store import Connection
from touchfs.store.opens import Opens
from touchfs.store.patience import without_waiting

# Texts longer than `_LONG` (of large batches) are kept in memory while their files are open, up to `_LONG_KEPT` bytes
# in total. The others are read from the store again.
_LONG, _LONG_KEPT = 1 << 14, 1 << 25


class OpenFiles:
    """The open files of iterators in one process."""

    def __init__(self, iterators: Iterators, opens: Opens) -> None:
        self.iterators = iterators
        self.opens = opens
        self._long: dict[int, OpenFile] = {}

    def open(self, iterator: int, file: str) -> OpenFile:
        """Open a file of an iterator. Raises FullError."""
        return OpenFile(self, self.opens.open(), iterator, file)

    def keep_long(self, file: OpenFile) -> None:
        """Record the long text of a file, and drop texts of others while all exceed `_LONG_KEPT`. Thread-safe."""
        self._long[file.id] = file
        others = [each for each in list(self._long.values()) if each is not file]
        total = file.text_size + sum(each.text_size for each in others)
        for other in others:
            if total <= _LONG_KEPT:
                return
            total -= other.text_size
            other.forget()

    def forget_long(self, file: OpenFile) -> None:
        """Remove the record of a file's text."""
        self._long.pop(file.id, None)

    def close(self) -> None:
        """Close the store, before this process exits by itself."""
        self.opens.flush()
        self.opens.store.close()


class OpenFile:
    """One open of a file of an iterator, whether it was opened in this process or in another one."""

    __slots__ = ("_files", "_text", "_wait_for_disk", "file", "id", "is_stored", "iterator")

    def __init__(self, files: OpenFiles, open_id: int, iterator: int, file: str) -> None:
        self._files = files
        self._text: bytes | None = None
        # Waits until the text is durable. Set before the text, because a thread may read the same file.
        self._wait_for_disk: Callable[[], None] | None = None
        self.id = open_id
        self.iterator = iterator
        self.file = file
        # True if making the text changes the state store.
        self.is_stored = ITERATOR_FILES[file].is_stored

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes of the text. May block on the store. On failure the file `error` has the reason."""
        text = self._text
        if text is None:
            text = self._keep(self._make())
        elif (wait_for_disk := self._wait_for_disk) is not None:
            with self._files.iterators.notes.noting(self.iterator, self.file, changes=True):
                wait_for_disk()
            self._wait_for_disk = None
        return text[offset : offset + length]

    def read_nowait(self, offset: int, length: int) -> bytes | None:
        """Read bytes of the text, or return None if that would take more than some microseconds."""
        text = self._text
        if text is None:
            files = self._files
            try:
                if self.is_stored:
                    text = files.iterators.at_once(self.iterator, self._stored_text)
                else:
                    text = files.opens.table.text(
                        self.id, lambda: files.iterators.look_nowait(self.iterator, self.file)
                    )
            except WouldWaitError:
                return None
            if self.is_stored:
                self._wait_for_disk = self._files.opens.store.pending_sync()
            self._keep(text)
        return None if self._wait_for_disk is not None else text[offset : offset + length]

    def write(self, piece: writes.Piece) -> int:
        """Take a piece of a value, and return its length in bytes. Raises UsageError for a wrong one."""
        iterators, opens = self._files.iterators, self._files.opens
        with iterators.notes.noting(self.iterator, self.file, changes=True):
            try:
                problem = iterators.graphs.with_built(lambda: writes.write(opens, self.id, piece, self._apply))
            except (StateError, NotFoundError):
                raise
            except TouchfsError as error:
                writes.refuse(opens, self.id, piece, str(error))
                raise error if isinstance(error, UsageError) else UsageError(str(error)) from error
            if problem:
                raise UsageError(problem)
        return len(piece.data)

    def release(self) -> Callable[[], None] | None:
        """Release the open without waiting. If the store is locked, returns a function that does the rest."""
        opens, text = self._files.opens, self._text
        is_long = text is not None and len(text) > _LONG
        if is_long:
            self._files.forget_long(self)
        self._text = None
        if self.file not in WRITABLE:
            # The row of a text that was not read here, or is long, is deleted at once.
            opens.release(self.id, at_once=is_long or text is None)
        elif opens.table.release(self.id):
            try:
                without_waiting(self._forget_written)
            except WouldWaitError:
                return self._forget_written
            except StateError:
                pass  # the row is deleted when the store is available again
        return None

    def forget(self) -> None:
        """Drop the text from memory. It is read again when needed."""
        self._text = None
        self._files.forget_long(self)

    @property
    def text_size(self) -> int:
        """The bytes of the text that is kept in memory."""
        return len(self._text or b"")

    def _make(self) -> bytes:
        iterators, opens = self._files.iterators, self._files.opens
        if not self.is_stored:
            return opens.table.text(self.id, lambda: iterators.look(self.iterator, self.file))
        with iterators.notes.noting(self.iterator, self.file, changes=True):
            return iterators.graphs.with_built(self._stored_text)

    def _stored_text(self) -> bytes:
        made = False

        def make(connection: Connection) -> bytes:
            nonlocal made
            made = True
            return self._files.iterators.text(connection, self.iterator, self.file)

        text = self._files.opens.text(self.id, make)
        if made and self.file == "next":
            self._files.iterators.stepped(self.iterator)
        return text

    def _keep(self, text: bytes) -> bytes:
        """Keep the text for the following reads, up to the end of file."""
        self._text = text
        if len(text) > _LONG:
            self._files.keep_long(self)
        return text

    def _apply(self, value: object) -> None:
        self._files.iterators.apply(self.iterator, self.file, value)

    def _forget_written(self) -> None:
        """Delete the row of the released open, and record an error if the value written to it was incomplete."""
        error = UsageError("the written JSON value was incomplete: dropped")
        notes = self._files.iterators.notes
        self._files.opens.forget_written(self.id, lambda: notes.note(self.iterator, self.file, error))
