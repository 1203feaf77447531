"""A TouchNet shard: a directory with `MODALITY.bin` and `MODALITY.idx` for each modality.

Samples at the same position of each index belong together. What a modality means is told by its name and dtype:

    audio           int16: PCM at the rate its metainfo names, else at the one given, else `.pcm` with the reason
    metainfo        uint8: one JSON object a sample
    others, uint8   opaque bytes, with the extension that their magic tells
    others          one-dimensional arrays (token ids): `MODALITY.npy`

A shard that contradicts itself (a damaged index, modalities of unequal length) cannot be opened. A .bin shorter than
its index says can: what fits is served, and `Sample.problem` says what is wrong with the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload

from touchfs.errors import FormatError, NotFoundError, SourceError
from touchfs.format import magic, mmidx
from touchfs.format.metainfo import parse_metainfo
from touchfs.sample import NO_METAINFO, Field, Sample
from touchfs.source.local import FileIdentity, LocalFile

# The second names are those of TouchNet before March 2025: the same bytes.
AUDIO_NAMES = frozenset({"audio", "pair_audio"})
METAINFO_NAMES = frozenset({"metainfo", "pair_text"})
INDEX_SUFFIX, DATA_SUFFIX = ".idx", ".bin"
MODALITY_IN_NAME_MAX = 64


def is_touch_shard(path: str) -> bool:
    """Whether a directory has the files of a TouchNet shard. One left by a crashed job may have a .bin only."""
    try:
        return any(name.endswith((INDEX_SUFFIX, DATA_SUFFIX)) for name in os.listdir(path))
    except OSError:
        return False


def fingerprint(path: str) -> dict[str, FileIdentity]:
    """The identity of each file of a shard, by name, sorted. One listing and one stat a file, no read."""
    try:
        with os.scandir(path) as entries:
            files = {e.name: FileIdentity.of(e.stat()) for e in entries if e.name.endswith((INDEX_SUFFIX, DATA_SUFFIX))}
    except FileNotFoundError:
        raise NotFoundError("no such shard", path=path) from None
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=path) from error
    return dict(sorted(files.items()))


class TouchShard(Sequence[Sample]):
    """The samples of one shard directory. `sample_rate` is for audio whose metainfo does not name a rate, in Hz."""

    def __init__(self, path: str, sample_rate: int | None = None) -> None:
        self.path = path
        self._sample_rate = sample_rate
        self.files = fingerprint(path)
        self.modalities = sorted(name[: -len(INDEX_SUFFIX)] for name in self.files if name.endswith(INDEX_SUFFIX))
        without_index = sorted(
            name
            for name in self.files
            if name.endswith(DATA_SUFFIX) and name[: -len(DATA_SUFFIX)] not in self.modalities
        )
        if without_index:
            raise FormatError(f"{without_index[0]} has no index: the job that wrote this shard did not end", path=path)
        if not self.modalities:
            raise FormatError("no .idx here: not a TouchNet shard", path=path)
        self.sources = {name: LocalFile(os.path.join(path, name), identity) for name, identity in self.files.items()}
        self.indexes = {modality: self._index(modality) for modality in self.modalities}
        counts = {modality: len(index) for modality, index in self.indexes.items()}
        if len(set(counts.values())) > 1:
            unequal = ", ".join(f"{modality} has {count}" for modality, count in counts.items())
            raise FormatError(f"the modalities have unequal numbers of samples: {unequal}", path=path)
        self._count = next(iter(counts.values()))
        self._complete = {
            modality: mmidx.complete(index, self.files[modality + DATA_SUFFIX].size)
            for modality, index in self.indexes.items()
        }

    def _index(self, modality: str) -> mmidx.Index:
        if modality + DATA_SUFFIX not in self.files:
            raise FormatError(f"{modality}{INDEX_SUFFIX} has no {modality}{DATA_SUFFIX} beside it", path=self.path)
        name = modality + INDEX_SUFFIX
        source = self.sources[name]
        try:
            return mmidx.parse_index(source.read(0, self.files[name].size))
        except FormatError as error:
            raise error.at(source.path) from error
        finally:
            source.close()

    @property
    def size(self) -> int:
        """Bytes of data, without indexes."""
        return sum(identity.size for name, identity in self.files.items() if name.endswith(DATA_SUFFIX))

    @property
    def index_size(self) -> int:
        return sum(identity.size for name, identity in self.files.items() if name.endswith(INDEX_SUFFIX))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, ordinal: int) -> Sample: ...

    @overload
    def __getitem__(self, ordinal: slice) -> list[Sample]: ...

    def __getitem__(self, ordinal: int | slice) -> Sample | list[Sample]:
        if isinstance(ordinal, slice):
            return [self._sample(i) for i in range(*ordinal.indices(self._count))]
        if not -self._count <= ordinal < self._count:
            raise IndexError(f"sample {ordinal} of {self._count}")
        return self._sample(ordinal % self._count)

    def __iter__(self) -> Iterator[Sample]:
        return map(self._sample, range(self._count))

    @cached_property
    def _metainfo(self) -> str | None:
        return next((modality for modality in self.modalities if modality in METAINFO_NAMES), None)

    def _stored(self, modality: str, ordinal: int) -> bytes:
        index = self.indexes[modality]
        offset, size = index.offsets.item(ordinal), index.lengths.item(ordinal) * index.dtype.itemsize
        return self.sources[modality + DATA_SUFFIX].read(offset, size)

    def _sample(self, ordinal: int) -> Sample:
        metainfo = NO_METAINFO
        problems = [
            f"{modality}{DATA_SUFFIX} ends before this sample does"
            for modality, complete in self._complete.items()
            if not complete[ordinal]
        ]
        if self._metainfo is not None and self._complete[self._metainfo][ordinal]:
            try:
                metainfo = parse_metainfo(self._stored(self._metainfo, ordinal))
            except FormatError as error:
                problems.append(str(error))  # the bytes are shown as they are
        fields = {
            modality: self._field(modality, ordinal, metainfo.rate)
            for modality, complete in self._complete.items()
            if complete[ordinal]
        }
        return Sample(metainfo.key or f"{ordinal:08d}", ordinal, fields, metainfo, "; ".join(problems))

    def _field(self, modality: str, ordinal: int, rate: int | None) -> Field:
        index = self.indexes[modality]
        dtype = index.dtype
        offset, size = index.offsets.item(ordinal), index.lengths.item(ordinal) * dtype.itemsize
        source, note = modality + DATA_SUFFIX, ""
        if modality in AUDIO_NAMES and dtype.str == "<i2":
            rate = rate or self._sample_rate
            if rate is not None:
                form, extension = f"wav/{rate}", "wav"
            else:
                form, extension = "bytes", "pcm"
                note = "no sample rate in the metainfo: name one with --sample-rate to see .wav"
        elif modality in METAINFO_NAMES and dtype.str == "|u1":
            form, extension = "bytes", "json"
        elif dtype.str == "|u1":
            head = self.sources[source].read(offset, min(size, magic.MAGIC_SIZE))
            form, extension = "bytes", magic.extension(head)
        else:
            form, extension = f"npy/{dtype.str}", f"{modality[:MODALITY_IN_NAME_MAX]}.npy"
        return Field(modality, source, offset, size, form, extension, note)
