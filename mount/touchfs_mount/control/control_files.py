"""The files of the control directory that are open.

Each open has a text that is the same for every read of it, in whatever worker. What changes nothing has it in memory
that the workers share (`touchfs.store.open_table`), so that a look takes no room on a disk and waits for nobody; what
steps has it in the state store, in one transaction with the step (`touchfs.store.opens`). A handle is a tag bit, which
file it is, and the id of its open; a data file's handle is its inode, which never has the bit.

What is asked of them takes some ten microseconds, and to hand it to a thread many times that. So it is done on the
worker's loop, without waiting (`wait=False`), and in a thread only if somebody else is at the store, or there is more
to do.

Who opens a file to read it comes back with a read, a round trip later. Until then the text is made ahead, in a
transaction that the read commits. And after a step the next one is worked out, as far as that takes no transaction.
Together they hide more than half of what a step takes here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from touchfs.errors import NotFoundError, StateError, UsageError
from touchfs.iterators.iterators import WRITABLE, Iterators
from touchfs.store.database import WouldWaitError
from touchfs.store.open_table import ID_BITS, OpenTable
from touchfs.store.opens import OpenFile, Opens
from touchfs.store.writes import Piece
from touchfs.tree.inode import FIXED_VIEW, pack, unpack
from touchfs_mount.control.iterator_files import FILES, FIRST_ROW, file_of

INFO = pack(FIXED_VIEW, 0, 3)
ITERATORS_README = pack(FIXED_VIEW, 0, 5)
ERRORS = pack(FIXED_VIEW, 0, 6)
FIXED_FILES = {INFO: "info", ITERATORS_README: "README", ERRORS: "errors"}

# Those whose texts are in the state store.
STORED = ("next", "token", "spec")

HANDLE_TAG = 1 << 63
# Behind the tag: the iterator, the row of its file, and the id of the open.
_FILE_BITS = 4
_OPEN_MASK = (1 << ID_BITS) - 1
_FILE_MASK = (1 << 63 - ID_BITS) - 1

# Of texts longer than that, which are those of large batches, so many bytes are kept while their files are open. The
# others are read from the store again.
_LONG, _LONG_KEPT = 1 << 14, 1 << 25


class Iterated:
    """What of it needs the state store: the iterators, and the opens of their files in this worker."""

    __slots__ = ("iterators", "opens")

    def __init__(self, iterators: Iterators, opens: Opens) -> None:
        self.iterators = iterators
        self.opens = opens


class ControlFiles:
    """Those of one worker. `fixed_text` makes the text of a file that is of no iterator; `iterated` is None where there
    are no iterators.
    """

    def __init__(self, table: OpenTable, iterated: Iterated | None, fixed_text: Callable[[str], bytes]) -> None:
        self._table = table
        self._iterated = iterated
        self._fixed_text = fixed_text
        self.long: dict[int, ControlFile] = {}
        self._awaited: ControlFile | None = None
        self._stepping = 0

    @property
    def iterated(self) -> Iterated:
        if self._iterated is None:
            raise NotFoundError("a read-only mount has no iterators")
        return self._iterated

    def open(self, inode: int) -> ControlFile:
        """Open a file. No store is needed, and nothing waited for."""
        _, iterator, row = unpack(inode)
        file = file_of(inode) if iterator else FIXED_FILES.get(inode, "")
        if not file:
            raise UsageError("is a directory")
        open_id = self._table.open()
        handle = HANDLE_TAG | (iterator << _FILE_BITS | row) << ID_BITS | open_id
        return ControlFile(self, handle, OpenFile(open_id, iterator, file))

    def opened(self, handle: int) -> ControlFile:
        """What was opened here, or in another worker."""
        iterator, row = divmod(handle >> ID_BITS & _FILE_MASK, 1 << _FILE_BITS)
        file = FILES[row - FIRST_ROW] if iterator else FIXED_FILES[pack(FIXED_VIEW, 0, row)]
        return ControlFile(self, handle, OpenFile(handle & _OPEN_MASK, iterator, file))

    def text(self, opened: OpenFile, wait: bool = True) -> bytes:
        """The text of an open. What is not waited for raises WouldWaitError, here and below."""
        open_id, iterator, file = opened
        if not iterator:
            return self._table.text(open_id, lambda: self._fixed_text(file))
        iterators, opens = self.iterated.iterators, self.iterated.opens
        if file in STORED:
            return iterators.read_open(opens, opened, wait=wait)
        return self._table.text(open_id, lambda: iterators.look(iterator, file, wait=wait))

    def made_ahead(self, opened: OpenFile) -> bytes | None:
        return self._iterated.opens.precomputed(opened.id) if self._iterated is not None else None

    def write(self, opened: OpenFile, piece: Piece) -> None:
        self.iterated.iterators.write_open(self.iterated.opens, opened, piece)

    def release(self, opened: OpenFile, is_short: bool) -> Callable[[], None] | None:
        """Release an open. Returns what is left to do where others are at the store: it may wait."""
        if not opened.iterator or self._iterated is None:
            self._table.release(opened.id)
            return None
        iterators, opens = self._iterated.iterators, self._iterated.opens
        is_written = opened.file in WRITABLE
        try:
            if not is_written:
                # Of what was not read here, or is long, the row is not to stay.
                opens.release(opened.id, at_once=not is_short, wait=False)
            elif opens.close(opened.id):
                iterators.forget(opens, opened, wait=False)
        except WouldWaitError:
            return partial(iterators.forget, opens, opened) if is_written else None
        except StateError:
            pass  # the row is deleted when the store is there again
        return None

    def limit(self, file: ControlFile) -> None:
        """It has a long text: forget others, if they are too much together. Several threads do so."""
        self.long[file.handle] = file
        others = [each for each in list(self.long.values()) if each is not file]
        held = file.held + sum(each.held for each in others)
        for other in others:
            if held <= _LONG_KEPT:
                return
            held -= other.held
            other.forget()

    def expect(self, file: ControlFile) -> None:
        """It was opened just now, to be read."""
        self._awaited = file

    def spare(self) -> None:
        """Nothing else is to do: make what is likely to be asked for next."""
        awaited, self._awaited = self._awaited, None
        if self._iterated is None:
            return
        iterators, opens = self._iterated.iterators, self._iterated.opens
        if awaited is not None:
            _, iterator, file = awaited.opened
            if file in STORED:
                iterators.precompute(opens, awaited.opened)
            self._stepping = iterator if file == "next" else 0
        elif self._stepping:
            iterators.precompute_step(self._stepping)
            self._stepping = 0
            opens.delete_released()

    def undo(self) -> None:
        """What was made ahead and not asked for: others wait for the store."""
        if self._iterated is not None:
            self._iterated.opens.store.rollback()

    def close(self) -> None:
        """Before this worker ends, if it ends by itself."""
        if self._iterated is None:
            return
        with suppress(StateError, WouldWaitError):
            self._iterated.opens.flush()
        self._iterated.opens.store.close()


class ControlFile:
    """One open. It is read as contents are, but nobody knows its size before."""

    __slots__ = ("_files", "_text", "handle", "opened")

    def __init__(self, files: ControlFiles, handle: int, opened: OpenFile) -> None:
        self._files = files
        self._text: bytes | None = None
        self.handle = handle
        self.opened = opened

    def read(self, offset: int, length: int) -> bytes:
        text = self._text
        if text is None:
            text = self._files.text(self.opened)
            self._keep(text)
        return text[offset : offset + length]

    def read_nowait(self, offset: int, length: int) -> bytes | None:
        text = self._text
        if text is None:
            text = self._files.made_ahead(self.opened)
            if text is None:
                try:
                    text = self._files.text(self.opened, wait=False)
                except WouldWaitError:
                    return None
            self._keep(text)
        return text[offset : offset + length]

    def _keep(self, text: bytes) -> None:
        """For the reads up to the end of file."""
        self._text = text
        if len(text) > _LONG:
            self._files.limit(self)

    @property
    def is_stored(self) -> bool:
        """Whether to make its text changes the state store."""
        return self.opened.file in STORED

    @property
    def held(self) -> int:
        return len(self._text or b"")

    def forget(self) -> None:
        """The text. It is read again if need be."""
        self._text = None
        self._files.long.pop(self.handle, None)

    def write(self, piece: Piece) -> int:
        self._files.write(self.opened, piece)
        return len(piece.data)

    def release(self) -> Callable[[], None] | None:
        """As `ControlFiles.release`."""
        text = self._text
        self.forget()
        return self._files.release(self.opened, text is not None and len(text) <= _LONG)
