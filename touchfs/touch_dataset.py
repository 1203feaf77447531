"""`TouchDataset`: the samples of TouchNet or Megatron-LM shards as NumPy arrays, by position.

Opening reads only the 34-byte header of each index, which has the number of samples. The positions of samples are read
from an index in blocks of entries, at the first access to a block; a block costs 13 bytes a sample, and only the blocks
used last are kept. So neither thousands of shards nor a huge shard costs memory, and a miss costs two small reads. Data
is read with pread, straight into the returned array.

It is safe in threads and after a fork because it has no lock: threads share the blocks only through single dictionary
operations, and two threads that load the same block get the same result.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from operator import index as integer
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from touchfs.containers.touchnet import megatron
from touchfs.containers.touchnet.layout import mmidx
from touchfs.containers.touchnet.layout.mmidx_entries import Entries, damage_text
from touchfs.containers.touchnet.reader import fingerprints
from touchfs.core.errors import FormatError, NotFoundError, UsageError
from touchfs.core.extent import drive
from touchfs.core.location import Location
from touchfs.dataset import Dataset, counted
from touchfs.format.idx import DATA_SUFFIX, INDEX_SUFFIX, METAINFO_NAMES
from touchfs.format.metainfo import parse_object
from touchfs.indexing import open_dataset
from touchfs.limits import LIMITS, Limits, too_long
from touchfs.posix.bounded_cache import BoundedCache
from touchfs.registry.find import find
from touchfs.shard.options import Options
from touchfs.source.concat import SplitFile
from touchfs.source.data import DATA, find_type
from touchfs.source.store import FileType, StoredFile

# Large enough that sequential reading seldom waits for entries, small enough that a miss of a random read is cheap.
BLOCK_SAMPLES = 1024
# 65 MiB of entries: 5.2 million samples of one modality. A block with its Python objects takes about 14 KiB.
BLOCKS_MAX = 5120


class TouchDataset:
    """The samples of one or more shards, in dataset order.

        with TouchDataset("/data/train", "audio+metainfo") as dataset:
            waveform = dataset.get(7, "audio", offset=16000, length=8000)
            text = dataset.metainfo(7)["txt"]
            i = dataset.find("BAC009S0764W0121")

    `path` is a shard directory, a directory of shards, or a `data.list` (its datatypes are only a hint). `datatypes`
    names the modalities to read, joined with `+`; None means all modalities of the first shard. Shards may be empty.
    `path` may also be the `PREFIX.idx` of Megatron-LM or fairseq, or a directory of such files: the samples are then
    its sequences, and the only modality is "tokens". The dataset can be pickled (unpickling reopens `path`), forked,
    and shared by threads. `limits.json` is the maximum size in bytes of a sample's metainfo that is parsed.

    Raises NotFoundError if there is nothing at `path` or a shard lacks a modality; UsageError for datatypes that the
    first shard does not have; FormatError for a damaged index, or modalities with unequal numbers of samples;
    SourceError for unreadable files. Reading also raises ChangedError if a file was replaced since it was first opened,
    which is detected within a second.
    """

    def __init__(self, path: str | os.PathLike[str], datatypes: str | None = None, *, limits: Limits = LIMITS) -> None:
        self._parts: dict[str, list[_Modality]] = {}
        self._blocks: BoundedCache[tuple[_Modality, int], Entries] = BoundedCache(BLOCKS_MAX)
        self._keys: Dataset | None = None
        location = Location.parse(path).absolute
        self.path = location.path
        self._options = datatypes
        self._limits = limits
        shards = [shard.location.absolute.path for shard in find(location).shards]
        for shard in shards:
            if find_type(shard) not in (None, FileType.DIRECTORY) and not megatron.is_prefix(shard):
                raise UsageError("is neither TouchNet's nor Megatron-LM's: see touchfs.SampleSet", path=shard)
        self.datatypes = _datatypes(shards[0], datatypes)
        self._metainfo = next((name for name in self.datatypes if name in METAINFO_NAMES), "metainfo")
        parts = {name: [_Modality(shard, name) for shard in shards] for name in self.datatypes}
        counts = [[part.header.count for part in column] for column in parts.values()]
        for shard, among in zip(shards, zip(*counts, strict=True), strict=True):
            if len(set(among)) > 1:
                unequal = ", ".join(f"{name} has {count}" for name, count in zip(parts, among, strict=True))
                raise FormatError(f"the modalities have unequal numbers of samples: {unequal}", path=shard)
        self._starts = list(accumulate(counts[0], initial=0))  # first position of each shard, then the total count
        self._parts = parts

    def __len__(self) -> int:
        return self._starts[-1]

    def get(self, i: int, datatype: str, offset: int = 0, length: int | None = None) -> NDArray[Any]:
        """Return the elements `[offset, offset + length)` of a modality of sample `i`, a new array of shape `(n,)`.

        The dtype is the stored one (audio: int16 PCM; metainfo: uint8, the bytes of JSON; token ids: uint16 or int32).
        `offset` and `length` count elements and are clipped at the sample's end as in a NumPy slice, so `n` may be less
        than `length`; the default reads to the end. A negative `i` counts from the last sample.

        Raises IndexError for `i`; UsageError for an unknown datatype, a negative offset or length, or a closed
        dataset; FormatError when this sample is damaged; ChangedError; SourceError.
        """
        part, ordinal = self._find(i, datatype)
        start, count = self._entry(part, ordinal)
        if offset < 0 or (length is not None and length < 0):
            raise UsageError(f"offset {offset} and length {length} of a sample cannot be negative")
        first = min(integer(offset), count)
        count -= first
        if length is not None:
            count = min(integer(length), count)
        array = np.empty(count, part.header.dtype)
        if count:
            part.data.read_into(start + first * array.itemsize, array.view(np.uint8).data)
        return array

    def metainfo(self, i: int) -> dict[str, Any]:
        """Return the JSON object of sample `i`.

        Raises as `get`, and FormatError if it is not a JSON object or is longer than `limits.json`.
        """
        part, ordinal = self._find(i, self._metainfo)
        start, count = self._entry(part, ordinal)
        try:
            size = count * part.header.dtype.itemsize
            if size > self._limits.json:
                raise FormatError(too_long("its metainfo", self._limits.json))
            return parse_object(part.data.read(start, size))
        except FormatError as error:
            raise FormatError(f"sample {ordinal}: {error.message}", path=part.data.path, offset=start) from error

    def find(self, key: str, nth: int = 0) -> int:
        """Return the position of the sample with this key; of several, the `nth` (from 0) in dataset order.

        The first call opens the index of keys, which `touchfs index` makes; if it is missing or out of date, this call
        makes it, which reads all metainfo. Raises NotFoundError if there is no such sample; UsageError for a negative
        `nth` or a closed dataset; ChangedError; SourceError.
        """
        if nth < 0 or not self._parts:
            raise UsageError("nth is negative" if nth < 0 else "the dataset is closed", path=self.path)
        if self._keys is None:
            self._keys = open_dataset(self.path, options=Options(limits=self._limits))
        holders = self._keys.find(key)
        if nth >= len(holders):
            raise NotFoundError(f"{counted(len(holders), 'sample')} with this key", path=self.path, key=key)
        return self._starts[holders[nth].position] + holders[nth].ordinal

    def get_idx(self, i: int, datatype: str) -> tuple[int, int]:
        """Return the extent of sample `i` in its shard's .bin of a `datatype`: `(offset in bytes, length in elements)`.

        Raises as `get`.
        """
        return self._entry(*self._find(i, datatype))

    def _find(self, i: int, datatype: str) -> tuple[_Modality, int]:
        """Return the modality of the shard that has sample `i`, and the sample's ordinal there."""
        i, starts = integer(i), self._starts
        position = i if i >= 0 else i + starts[-1]
        if not 0 <= position < starts[-1]:
            raise IndexError(f"sample {i} of {starts[-1]}")
        shard = bisect_right(starts, position) - 1
        try:
            return self._parts[datatype][shard], position - starts[shard]
        except KeyError:
            if not self._parts:
                raise UsageError("the dataset is closed", path=self.path) from None
            raise _unknown(datatype, self.datatypes, self.path) from None

    def _entry(self, part: _Modality, ordinal: int) -> tuple[int, int]:
        """Return `(offset in bytes, length in elements)` of a sample. Raises FormatError if it is damaged."""
        number, row = divmod(ordinal, BLOCK_SAMPLES)
        block = self._blocks.get((part, number), lambda: part.load(number))
        if damage := block.damage.item(row):
            stem = os.path.basename(part.index.path).removesuffix(INDEX_SUFFIX)
            raise FormatError(f"sample {ordinal} is damaged: {damage_text(damage, stem)}", path=part.index.path)
        return block.offsets.item(row), block.lengths.item(row)

    def close(self) -> None:
        """Close files and free memory. Reading afterwards raises UsageError; closing again does nothing."""
        parts, self._parts = self._parts, {}
        self._blocks.forget()
        for part in (part for column in parts.values() for part in column):
            part.index.close()
            part.data.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()  # otherwise the process's pool of descriptors would keep the files open

    def __reduce__(self) -> tuple[Callable[..., TouchDataset], tuple[str, str | None]]:
        return partial(TouchDataset, limits=self._limits), (self.path, self._options)

    def __repr__(self) -> str:
        return f"TouchDataset({self.path!r}, {'+'.join(self.datatypes)!r})"


class _Modality:
    """One modality of one shard. Its .bin is opened when entries are first loaded, which also sets `data_size`."""

    __slots__ = ("_is_scanned", "data", "data_size", "header", "index")

    def __init__(self, shard: str, modality: str) -> None:
        self.index, self.data = _open_pair(shard, modality)
        self.data_size = 0
        self._is_scanned = False
        try:
            size = self.index.size
            self.header = mmidx.parse_header(self.index.read(0, min(size, mmidx.HEADER_SIZE)), size)
        except FormatError as error:
            error.at(self.index.path)
            raise
        finally:
            self.index.close()

    def load(self, number: int) -> Entries:
        """Read a block of entries."""
        first = number * BLOCK_SAMPLES
        count = min(BLOCK_SAMPLES, self.header.count - first)
        self.data_size = self.data.size
        try:
            if not self._is_scanned:
                self._scan()
            return drive(mmidx.scan_entries(self.header, first, count, self.data_size), self.index)
        except FormatError as error:
            error.at(self.index.path)
            raise
        finally:
            if count == self.header.count:
                self.index.close()  # fully read: leave the descriptor to another shard

    def _scan(self) -> None:
        """Complete the header, which is ambiguous until the size of the data is known."""
        header = drive(mmidx.scan_header(self.header, self.data_size), self.index)
        if isinstance(self.data, SplitFile):
            first = max(header.count - 2, 0)
            last = drive(mmidx.scan_entries(header, first, header.count - first, self.data_size), self.index)
            megatron.check_pieces_size(self.data, last, header.dtype.itemsize)
        self.header = header
        self._is_scanned = True


def _open_pair(shard: str, modality: str) -> tuple[StoredFile, StoredFile]:
    if not megatron.is_prefix(shard):
        stem = os.path.join(shard, modality)
        return DATA.open(stem + INDEX_SUFFIX), DATA.open(stem + DATA_SUFFIX)
    if modality != megatron.TOKENS:
        raise _unknown(modality, [megatron.TOKENS], shard)
    files = megatron.fingerprints(shard)
    index = DATA.open(shard, files[os.path.basename(shard)])
    return index, megatron.open_source(shard, megatron.data_name(shard), files)


def _datatypes(shard: str, joined: str | None) -> tuple[str, ...]:
    if megatron.is_prefix(shard):
        available = [megatron.TOKENS]
    else:
        available = [name.removesuffix(INDEX_SUFFIX) for name in fingerprints(shard) if name.endswith(INDEX_SUFFIX)]
    if not available:
        raise FormatError("no .idx here: not a TouchNet shard", path=shard)
    selected = available if joined is None else list(dict.fromkeys(joined.split("+")))
    for name in selected:
        if name not in available:
            raise _unknown(name, available, shard)
    return tuple(selected)


def _unknown(datatype: str, available: list[str] | tuple[str, ...], path: str) -> UsageError:
    return UsageError(f"no datatype {datatype!r}: there are {', '.join(available)}", path=path)
