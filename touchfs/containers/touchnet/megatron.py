"""A shard of Megatron-LM or fairseq: `PREFIX.idx`, which names the shard, over `PREFIX.bin`.

A sample is a *sequence* of the index. Its key contains the number of its document:

    00000007          the only sequence of document 7
    00000008/0000     the first of several sequences of document 8

Documents without sequences are not shown; the others keep their numbers. If an index has no documents (fairseq's has
none), each sequence is one.

A sequence is a one-dimensional array, `.npy`; sequences of uint8 are opaque bytes, with the extension of their magic
bytes. In an index with modes, an int32 sequence of mode 1 is an image file, packed as in Megatron-LM's
preprocess_mmdata.py: the number of padding bytes, then the file padded to a multiple of 4. It is shown as that file if
its magic is known, else as the array with a note, because nothing else confirms that it is an image.

A sequence whose entry contradicts the rest of the index or the .bin has a `problem`; the others are served.

The .bin may be split into `PREFIX-00000-of-00021.bin` and so on, as public copies of large corpora are. The last number
is the number of pieces (Hugging Face) or that of the last piece (Pythia). Together the pieces must be at least as long
as the index requires: if they are shorter, it is unknown which piece is short, and every sequence behind it would have
wrong bytes. (If they are longer, only the last sequence is damaged, as in a single .bin.)
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Collection, Sequence
from contextlib import closing, suppress

from touchfs.containers.touchnet.layout import mmidx
from touchfs.containers.touchnet.layout.mmidx_entries import Entries, damage_text
from touchfs.containers.touchnet.pair import lonely_data, read_index
from touchfs.core.errors import FormatError, NotFoundError, TouchfsError
from touchfs.form.arrays import Npy
from touchfs.form.plain import BYTES
from touchfs.format import magic
from touchfs.format.idx import DATA_SUFFIX, INDEX_SUFFIX, MAGIC
from touchfs.shard.options import Options
from touchfs.shard.sample import Field, StoredSample, StoredSamples, UnmeasuredRecording
from touchfs.source.concat import SplitFile
from touchfs.source.data import DATA, find_type
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import FileType, Store, StoredFile

TOKENS, IMAGE = "tokens", "image"
_IMAGE_MODE = 1
_PAD_SIZE = 4
_PAD_MAX = 3
_WRAP = 2**32
_DOCUMENTS_DAMAGED = "{}: where its documents begin is damaged, so sequences may have other names than they should"
_NO_IMAGE = "its mode says that this is an image, but nothing in it does"

_PIECE = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.bin", re.DOTALL)


def is_prefix(path: str) -> bool:
    """True if the path of a shard is an index file, not a directory."""
    return path.endswith(INDEX_SUFFIX) and find_type(path) is not FileType.DIRECTORY


def data_stem(name: str) -> str | None:
    """The name of the prefix that a .bin, or a piece of one, is of; None for another name."""
    if (piece := _PIECE.fullmatch(name)) is not None:
        return piece[1]
    return name.removesuffix(DATA_SUFFIX) if name.endswith(DATA_SUFFIX) else None


def find_prefixes(directory: str, files: Collection[str]) -> list[str]:
    """The paths of all `PREFIX.idx` among the files with these names in a directory, in name order.

    Other formats have `.idx` files too, so an index without a .bin beside it counts only if it has the right magic.
    """
    names = {name for name in files if name.endswith((INDEX_SUFFIX, DATA_SUFFIX))}
    split = {piece[1] for name in names if (piece := _PIECE.fullmatch(name))}
    prefixes = []
    for name in sorted(names):
        stem, path = name.removesuffix(INDEX_SUFFIX), os.path.join(directory, name)
        if stem != name and (stem + DATA_SUFFIX in names or stem in split or _has_magic(path)):
            prefixes.append(path)
    return prefixes


def _has_magic(path: str) -> bool:
    try:
        with closing(DATA.open(path)) as file:
            return file.read(0, min(file.size, len(MAGIC))) == MAGIC
    except TouchfsError:
        return False


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """Fingerprints of the shard's files by name: the index, and its .bin or the pieces of it.

    Raises NotFoundError or SourceError.
    """
    directory, name = os.path.split(path)
    stem = name.removesuffix(INDEX_SUFFIX)
    files: dict[str, Fingerprint] = {}
    for each in (stem + DATA_SUFFIX, name):
        _add(files, os.path.join(directory, each), store)
    if name not in files:
        raise NotFoundError("no such shard", path=path)
    if len(files) == 1:
        for each in sorted(entry.name for entry in store.list(directory or ".")):
            if (piece := _PIECE.fullmatch(each)) and piece[1] == stem:
                _add(files, os.path.join(directory, each), store)
    return files


def _add(files: dict[str, Fingerprint], path: str, store: Store) -> None:
    with suppress(NotFoundError):
        found = store.stat(path)
        if found.type is FileType.FILE:
            files[os.path.basename(path)] = found.fingerprint


def data_name(path: str) -> str:
    """The name of the shard's .bin. The pieces of a split .bin together have it too."""
    return os.path.basename(path).removesuffix(INDEX_SUFFIX) + DATA_SUFFIX


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """Open a file of the shard at `path`. Raises FormatError for a split .bin that lacks a piece."""
    directory, index = os.path.split(path)
    if name in files:
        return DATA.open(os.path.join(directory, name), files[name])
    pieces = {os.path.join(directory, each): fingerprint for each, fingerprint in files.items() if each != index}
    _check_pieces(list(pieces), path)
    return SplitFile(pieces)


def _check_pieces(names: Sequence[str], path: str) -> None:
    """Raise FormatError unless the sorted pieces are complete, numbered from 0."""
    found = [match for name in names if (match := _PIECE.fullmatch(os.path.basename(name)))]
    if not found:
        raise FormatError(f"has no {data_name(path)} beside it", path=path)
    if len({match[3] for match in found}) > 1:
        raise FormatError(f"beside it are pieces of two splits: {found[0][0]} and {found[-1][0]}", path=path)
    count, there = int(found[0][3]), {int(match[2]) for match in found}
    # Pythia's have one more. Whether it is required follows from their sizes.
    missing = next((number for number in range(max(count, max(there) + 1)) if number not in there), None)
    if missing is not None:
        raise FormatError(f"has no {found[0][1]}-{missing:05d}-of-{count:05d}.bin beside it", path=path)


def check_pieces_size(pieces: SplitFile, last: Entries, width: int) -> None:
    """Raise FormatError if the pieces are shorter than the index requires.

    `last` has the entries of the last two sequences (or the only one), with elements of `width` bytes. The end of the
    last one follows from its offset, or if only the offset is damaged, from the lengths.
    """
    if not len(last) or not last.damage[-1]:
        return
    *_, size = sizes = [length % _WRAP * width for length in last.lengths.tolist()]
    ends = [last.offsets[-1].item() + size, last.offsets[0].item() + sum(sizes)]
    if pieces.size < max(ends) and pieces.size not in ends:
        needed = f"the index needs {max(ends)}: one is missing or cut off"
        raise FormatError(f"all pieces together have {pieces.size} bytes, {needed}", path=pieces.path)


class MegatronShard(StoredSamples):
    """The sequences of the index at `path`."""

    def __init__(self, path: str, options: Options, files: Files) -> None:
        self.path = path
        self.files = files
        self.data_name = data_name(path)
        self.data = open_source(path, self.data_name, self.files)
        self.index_size = self.files[os.path.basename(path)].size
        self.size = sum(fingerprint.size for fingerprint in self.files.values()) - self.index_size
        index = read_index(path, self.files[os.path.basename(path)], self.size)
        if isinstance(self.data, SplitFile):
            check_pieces_size(self.data, index.entries[-2:], index.dtype.itemsize)
        self.problems = [] if mmidx.has_sound_documents(index) else [_DOCUMENTS_DAMAGED.format(os.path.basename(path))]
        if self.size and not len(index):
            self.problems.append(lonely_data(self.data_name, self.size))
        starts = mmidx.document_starts(index)
        # As memoryviews, which give ints at a quarter of NumPy's time.
        self._starts = None if starts is None else starts.data
        self._modes = None if index.modes is None or index.dtype.str != "<i4" else index.modes.data
        self._offsets = index.entries.offsets.data
        self._sizes = index.sizes.data
        self._damage = index.entries.damage.data
        self._dtype = index.dtype.str

    def close(self) -> None:
        """Close the files. Reading another sample opens them again."""
        self.data.close()

    def __len__(self) -> int:
        return len(self._offsets)

    def sample(self, ordinal: int) -> StoredSample:
        """The sequence at an ordinal. It has a `problem` and no fields if its entry is damaged."""
        if damage := self._damage[ordinal]:
            problem = damage_text(damage, self.data_name.removesuffix(DATA_SUFFIX))
            return StoredSample(self._key(ordinal), ordinal, {}, problem=problem, is_keyed=False)
        field = self._field(ordinal)
        recording = UnmeasuredRecording.first([field])
        return StoredSample(self._key(ordinal), ordinal, {field.name: field}, is_keyed=False, recording=recording)

    def _key(self, ordinal: int) -> str:
        starts = self._starts
        if starts is None:
            return f"{ordinal:08d}"
        document = bisect_right(starts, ordinal) - 1
        first = starts[document]
        return f"{document:08d}/{ordinal - first:04d}" if starts[document + 1] - first > 1 else f"{document:08d}"

    def _field(self, ordinal: int) -> Field:
        offset, size, note = self._offsets[ordinal], self._sizes[ordinal], ""
        if self._modes is not None and self._modes[ordinal] == _IMAGE_MODE:
            image = self._image(offset, size)
            if image is not None:
                return image
            note = _NO_IMAGE
        if self._dtype == "|u1":
            extension = magic.extension(self.data.read(offset, min(size, magic.MAGIC_SIZE)))
            return Field(TOKENS, self.data_name, offset, size, BYTES, extension)
        return Field(TOKENS, self.data_name, offset, size, Npy(self._dtype), "npy", note)

    def _image(self, offset: int, size: int) -> Field | None:
        head = self.data.read(offset, min(size, _PAD_SIZE + magic.MAGIC_SIZE))
        pad, extension = int.from_bytes(head[:_PAD_SIZE], "little"), magic.extension(head[_PAD_SIZE:])
        length = size - _PAD_SIZE - pad
        if pad > _PAD_MAX or length <= 0 or extension == "bin":
            return None
        return Field(IMAGE, self.data_name, offset + _PAD_SIZE, length, BYTES, extension)
