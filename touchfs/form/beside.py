"""Forms of files beside the shards. A list names them by paths below the audio root (`Limits.audio_root`).

The root is not in the catalog but named by the user, so a planted catalog cannot name another directory.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from touchfs.core.errors import FormatError
from touchfs.core.extent import Content, Extent
from touchfs.form.base import Form, Timing
from touchfs.form.plain import BYTES
from touchfs.form.recordings import PIECE_SIZE, Decoded, Pcm, parse_piece, piece_detail
from touchfs.form.unmeasured import Unmeasured
from touchfs.form.video.video_span import VideoSpan
from touchfs.limits import Limits
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Fingerprint
from touchfs.source.store import StoredFile

# After the detail of the piece: size and mtime of the file, the offset of its first sample if it is PCM, its path; if
# the file has an etag, a NUL and the etag
_FILE = struct.Struct("<qqq")
_NO_PIECE = bytes(PIECE_SIZE)
# Behind packed times and a path, which have no NUL
_NUL = b"\0"
# Files that are known by their path and fingerprint. Whether one is open, the pool of descriptors decides.
_FILES_KEPT = 4096


class _Place(NamedTuple):
    """A piece of a file: the bytes of the file that it is made from, and their detail in the other form."""

    path: str
    fingerprint: Fingerprint
    offset: int
    length: int
    detail: bytes


@dataclass(frozen=True, slots=True)
class Beside(Form):
    """`beside/FORM`: a file below the audio root, or a piece of it in a form of recordings. `detail` names it."""

    form: Form

    reads_shard: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"beside/{self.form}"

    def size(self, length: int, detail: bytes) -> int | None:
        place = self.place(detail)
        return self.form.size(place.length, place.detail)

    @property
    def is_stored(self) -> bool:
        return self.form.is_stored

    def stored(self, extent: Extent, detail: bytes, limits: Limits) -> Extent:
        return self.form.stored(self.extent(detail, limits), self.place(detail).detail, limits)

    def content(self, extent: Extent, detail: bytes, limits: Limits) -> Content:
        return self.form.content(self.extent(detail, limits), self.place(detail).detail, limits)

    def known_size(self, extent: Extent, detail: bytes, limits: Limits) -> int | None:
        return self.form.known_size(self.extent(detail, limits), self.place(detail).detail, limits)

    def timing(self, length: int, detail: bytes) -> Timing | None:
        place = self.place(detail)
        return self.form.timing(place.length, place.detail)

    def beside(self, detail: bytes, limits: Limits) -> StoredFile:
        if limits.audio_root is None:
            raise FormatError("its audio is not in the shard: --audio-root names the directory below which it lies")
        place = self.place(detail)
        return _file(limits.audio_root, place.path, place.fingerprint)

    def extent(self, detail: bytes, limits: Limits) -> Extent:
        """The bytes from which the content is made. Accesses nothing."""
        place = self.place(detail)
        return Extent(self.beside(detail, limits), place.offset, place.length)

    def place(self, detail: bytes) -> _Place:
        """The place that a detail describes. Raises FormatError if it is damaged."""
        has_times = isinstance(self.form, Unmeasured | VideoSpan)
        end = detail.find(_NUL) if has_times else PIECE_SIZE
        piece, file = detail[:end], detail[end + has_times :]
        if end < 0 or len(file) <= _FILE.size:
            raise _damaged()
        size, mtime_ns, start = _FILE.unpack_from(file)
        name, has_etag, etag = file[_FILE.size :].partition(_NUL)
        path, fingerprint = os.fsdecode(name), Fingerprint(size, mtime_ns, etag=os.fsdecode(etag) if has_etag else None)
        if min(size, start) < 0:
            raise _damaged()
        if self.form is BYTES:
            return _Place(path, fingerprint, 0, size, b"")
        if not isinstance(self.form, Pcm):
            return _Place(path, fingerprint, 0, size, piece)
        first, length = (samples * self.form.frame_size for samples in parse_piece(piece))
        if start + first + length > size:
            raise _damaged()
        return _Place(path, fingerprint, start + first, length, b"")


WHOLE = Beside(BYTES)


def whole_file(path: str, fingerprint: Fingerprint) -> bytes:
    """The detail of a whole file at a path below the root."""
    etag = b"" if fingerprint.etag is None else _NUL + os.fsencode(fingerprint.etag)
    return _NO_PIECE + _FILE.pack(fingerprint.size, fingerprint.mtime_ns, 0) + os.fsencode(path) + etag


def pcm_of(form: Pcm, detail: bytes, start: int) -> tuple[Beside, bytes]:
    """The form and the detail of the PCM in a whole file, which begins at the byte `start`."""
    size, mtime_ns, _ = _FILE.unpack_from(detail, PIECE_SIZE)
    return Beside(form), _NO_PIECE + _FILE.pack(size, mtime_ns, start) + detail[PIECE_SIZE + _FILE.size :]


def piece_of(form: Beside, decoded: Decoded, detail: bytes, first: int, length: int) -> tuple[Beside, bytes]:
    """The form and the detail of `length` samples from sample `first` on: of PCM, or decoded if the file is another."""
    return Beside(decoded) if form is WHOLE else form, piece_detail(first, length) + detail[PIECE_SIZE:]


def span_of(form: Unmeasured | VideoSpan, detail: bytes, times: bytes) -> tuple[Beside, bytes]:
    """The form and the detail of the part of a whole file at packed times."""
    return Beside(form), times + _NUL + detail[PIECE_SIZE:]


@lru_cache(_FILES_KEPT)
def _file(root: str, path: str, fingerprint: Fingerprint) -> StoredFile:
    """The same object for all pieces of a file, so that it is opened and verified once."""
    return DATA.open_beneath(root, path, fingerprint)


def _damaged() -> FormatError:
    return FormatError("the catalog's description of a file beside the shard is damaged: index with --force")
