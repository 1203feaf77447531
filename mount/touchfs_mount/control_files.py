"""The files of the control directory that are open.

Each open is a row of the state store (`touchfs.state.opens`), so that its text is the same for every read of it, in
whatever worker. A handle is a tag bit, which file it is, and the id of its open; a data file's handle is its inode,
which never has the bit.

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

from touchfs.errors import FullError, StateError, UsageError
from touchfs.state.database import WouldWaitError
from touchfs.state.iterators import WRITABLE, Iterators
from touchfs.state.opens import Opened, Opens
from touchfs.state.writes import Piece
from touchfs.tree.inode import FIXED_VIEW, pack, unpack
from touchfs_mount.iterator_files import FILES, FIRST_ROW, file_of

INFO = pack(FIXED_VIEW, 0, 3)
ITERATORS_README = pack(FIXED_VIEW, 0, 5)
FIXED_FILES = {INFO: "info", ITERATORS_README: "README"}

HANDLE_TAG = 1 << 63
# Behind the tag: the iterator, the row of its file, and the id of the open. 39 bits are enough for 250 days of steps,
# at 25,000 a second.
_FILE_BITS, _OPEN_BITS = 4, 39
_OPEN_MASK = (1 << _OPEN_BITS) - 1
_FILE_MASK = (1 << 63 - _OPEN_BITS) - 1

# Of texts longer than that, which are those of large batches, so many bytes are kept while their files are open. The
# others are read from the store again.
_LONG, _LONG_KEPT = 1 << 14, 1 << 25


class ControlFiles:
    """Those of one worker. `fixed_text` makes the text of a file that is of no iterator."""

    def __init__(self, opens: Opens, iterators: Iterators, fixed_text: Callable[[str], bytes]) -> None:
        self.opens = opens
        self.iterators = iterators
        self._fixed_text = fixed_text
        self.long: dict[int, ControlFile] = {}
        self._awaited: ControlFile | None = None
        self._stepping = 0

    def open(self, inode: int, wait: bool = True) -> ControlFile:
        """What is not waited for raises WouldWaitError, here and below."""
        _, iterator, row = unpack(inode)
        file = file_of(inode) if iterator else FIXED_FILES.get(inode, "")
        if not file:
            raise UsageError("is a directory")
        open_id = self.opens.open(wait=wait)
        if open_id > _OPEN_MASK:
            raise FullError(
                "too many files were opened: unmount, and delete the state store", path=self.opens.store.path
            )
        handle = HANDLE_TAG | (iterator << _FILE_BITS | row) << _OPEN_BITS | open_id
        return ControlFile(self, handle, Opened(open_id, iterator, file))

    def opened(self, handle: int) -> ControlFile:
        """What was opened here, or in another worker."""
        iterator, row = divmod(handle >> _OPEN_BITS & _FILE_MASK, 1 << _FILE_BITS)
        file = FILES[row - FIRST_ROW] if iterator else FIXED_FILES[pack(FIXED_VIEW, 0, row)]
        return ControlFile(self, handle, Opened(handle & _OPEN_MASK, iterator, file))

    def text(self, opened: Opened, wait: bool = True) -> bytes:
        if opened.iterator:
            return self.iterators.read_open(self.opens, opened, wait=wait)
        return self.opens.text(opened.id, lambda _: self._fixed_text(opened.file), wait=wait)

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
        if awaited is not None:
            _, iterator, file = awaited.opened
            if iterator:
                self.iterators.make_ahead(self.opens, awaited.opened)
                self._stepping = iterator if file == "next" else 0
        elif self._stepping:
            self.iterators.work_out(self._stepping)
            self._stepping = 0
            self.opens.tidy()

    def undo(self) -> None:
        """What was made ahead and not asked for: others wait for the store."""
        self.opens.store.undo()

    def close(self) -> None:
        """Before this worker ends, if it ends by itself."""
        with suppress(StateError, WouldWaitError):
            self.opens.close()


class ControlFile:
    """One open. It is read as contents are, but nobody knows its size before."""

    __slots__ = ("_files", "_text", "handle", "opened")

    def __init__(self, files: ControlFiles, handle: int, opened: Opened) -> None:
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
            text = self._files.opens.made_ahead(self.opened.id)
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
    def held(self) -> int:
        return len(self._text or b"")

    def forget(self) -> None:
        """The text. It is read again if need be."""
        self._text = None
        self._files.long.pop(self.handle, None)

    def write(self, piece: Piece) -> int:
        self._files.iterators.write_open(self.opened, piece)
        return len(piece.data)

    def release(self, wait: bool = True) -> None:
        text = self._text
        self.forget()
        if self.opened.file in WRITABLE:
            self._files.iterators.release(self._files.opens, self.opened, wait=wait)
        else:
            # Of what was not read here, or is long, the row is not to stay.
            self._files.opens.release(self.opened.id, at_once=text is None or len(text) > _LONG, wait=wait)
