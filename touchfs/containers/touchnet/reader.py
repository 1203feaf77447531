"""A TouchNet shard: a directory with `MODALITY.bin` and `MODALITY.idx` for each modality.

Samples at the same position of each index belong together. The name and dtype of a modality decide how it is shown:

    audio           int16: PCM at the rate in its metainfo, else at the given one, else `.pcm` with the reason
    metainfo        uint8: one JSON object a sample
    others, uint8   opaque bytes, with the extension of their magic bytes
    others          one-dimensional arrays (token ids): `MODALITY.npy`

A shard with an invalid index, or whose modalities have unequal numbers of samples, cannot be opened. If only some
entries contradict the rest of the index or the .bin, it can: these samples have a `problem`, the others are served.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from touchfs.containers.touchnet.layout.mmidx_entries import damage_text
from touchfs.containers.touchnet.pair import lonely_data, read_index
from touchfs.core.errors import FormatError, NotFoundError
from touchfs.form.arrays import Npy
from touchfs.form.base import Form
from touchfs.form.plain import BYTES
from touchfs.form.recordings import Pcm
from touchfs.format import magic
from touchfs.format.idx import AUDIO_NAMES, DATA_SUFFIX, INDEX_SUFFIX, METAINFO_NAMES
from touchfs.format.metainfo import parse_metainfo
from touchfs.limits import too_long
from touchfs.shard.options import Options
from touchfs.shard.sample import NO_METAINFO, Field, StoredSample, StoredSamples, UnmeasuredRecording
from touchfs.shard.single import fingerprint_of
from touchfs.source.data import DATA
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import Store, StoredEntry, StoredFile

# Any of these marks a directory as a TouchNet shard; other modalities may be beside them.
MODALITIES = AUDIO_NAMES | METAINFO_NAMES | {"audiotoken", "texttoken", "video"}
# A modality's name becomes part of file names, of at most 255 bytes, in which each of its bytes may take three.
MODALITY_MAX = 64


def is_touchnet_shard(entries: Iterable[StoredEntry]) -> bool:
    """True if a directory with these entries has a modality of TouchNet's. Only the names of its files are looked at.

    Megatron-LM's pairs of .bin and .idx have the same format, but arbitrary names, and a directory of them is many
    shards. A shard left by a crashed job may have only a .bin.
    """
    return any(os.path.splitext(entry.name)[0] in MODALITIES and _is_part(entry) for entry in entries)


def _is_part(entry: StoredEntry) -> bool:
    # Only files: reading a pipe would wait for ever. No hidden ones: `._audio.bin` has the attributes of a Mac.
    return entry.name.endswith((INDEX_SUFFIX, DATA_SUFFIX)) and not entry.name.startswith(".") and entry.is_file()


def fingerprints(path: str, store: Store = DATA) -> dict[str, Fingerprint]:
    """Fingerprints of a shard's files by name, sorted: one listing and one stat a file, no read.

    Raises NotFoundError or SourceError.
    """
    files = {}
    for name in sorted(entry.name for entry in store.list(path) if _is_part(entry)):
        with suppress(NotFoundError):  # removed since it was listed
            files[name] = store.stat(os.path.join(path, name)).fingerprint
    return files


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """Open a file of the shard at `path`. Raises FormatError if it is not a file of the shard."""
    return DATA.open(os.path.join(path, name), fingerprint_of(path, name, files))


class TouchNetShard(StoredSamples):
    """The samples of the shard directory at `path`."""

    def __init__(self, path: str, options: Options, files: Files) -> None:
        self.path = path
        self.files = files
        self._limit = options.limits.json
        self.modalities = sorted(name.removesuffix(INDEX_SUFFIX) for name in self.files if name.endswith(INDEX_SUFFIX))
        for name in self.files:
            if name.endswith(DATA_SUFFIX) and name.removesuffix(DATA_SUFFIX) not in self.modalities:
                raise FormatError(f"{name} has no index: the job that wrote this shard did not end", path=path)
        if MODALITIES.isdisjoint(self.modalities) and not any(name.endswith(DATA_SUFFIX) for name in self.files):
            # Indexes alone may be Lhotse's.
            advice = "if shards of another kind are in it, name each of them"
            raise FormatError(f"not a TouchNet shard: this directory has no .bin and .idx of one; {advice}", path=path)
        self._columns = [_Column(path, modality, self.files, options.sample_rate) for modality in self.modalities]
        if len({len(column) for column in self._columns}) > 1:
            unequal = ", ".join(f"{column.modality} has {len(column)}" for column in self._columns)
            raise FormatError(f"the modalities have unequal numbers of samples: {unequal}", path=path)
        self.problems = [problem for column in self._columns if (problem := column.problem)]
        self._has_pcm = any(column.is_audio for column in self._columns)
        self._metainfo = next((column for column in self._columns if column.is_metainfo), None)

    @property
    def size(self) -> int:
        """Bytes of data, without indexes."""
        return sum(fingerprint.size for name, fingerprint in self.files.items() if name.endswith(DATA_SUFFIX))

    @property
    def index_size(self) -> int:
        """Bytes of all .idx files."""
        return sum(fingerprint.size for name, fingerprint in self.files.items() if name.endswith(INDEX_SUFFIX))

    def close(self) -> None:
        """Close the files. Reading another sample opens them again."""
        for column in self._columns:
            column.data.close()

    def __len__(self) -> int:
        return len(self._columns[0])

    def sample(self, ordinal: int) -> StoredSample:
        """The sample at an ordinal. Reads and parses its metainfo."""
        metainfo, problems, fields = NO_METAINFO, [], {}
        source = self._metainfo
        if source is not None and not source.damage[ordinal]:
            size = source.sizes[ordinal]
            try:
                if size > self._limit:
                    raise FormatError(too_long("its metainfo", self._limit))
                metainfo = parse_metainfo(source.data.read(source.offsets[ordinal], size))
            except FormatError as error:
                problems.append(str(error))  # the bytes are shown as they are
        for column in self._columns:
            if damage := column.damage[ordinal]:
                problems.append(damage_text(damage, column.modality))
            else:
                fields[column.modality] = column.field(ordinal, metainfo.rate)
        return StoredSample(
            metainfo.key or f"{ordinal:08d}",
            ordinal,
            fields,
            metainfo,
            "; ".join(problems),
            source.modality if source is not None else "",
            is_keyed=metainfo.key is not None,
            recording=None if self._has_pcm else UnmeasuredRecording.first(fields.values()),
        )


class _Column:
    """One modality of all samples. Its numbers are memoryviews, which return ints in a quarter of NumPy's time."""

    def __init__(self, path: str, modality: str, files: Files, sample_rate: int | None) -> None:
        self.modality = modality
        self.source = modality + DATA_SUFFIX
        if len(os.fsencode(modality)) > MODALITY_MAX:
            raise FormatError(f"a modality's name has at most {MODALITY_MAX} bytes: {modality!r}", path=path)
        if self.source not in files:
            raise FormatError(f"{modality}{INDEX_SUFFIX} has no {self.source} beside it", path=path)
        data_size = files[self.source].size
        index = read_index(os.path.join(path, modality + INDEX_SUFFIX), files[modality + INDEX_SUFFIX], data_size)
        self.data = DATA.open(os.path.join(path, self.source), files[self.source])
        self.offsets = index.entries.offsets.data
        self.sizes = index.sizes.data
        self.damage = index.entries.damage.data
        self.problem = lonely_data(self.source, data_size) if data_size and not len(index) else ""
        self.is_metainfo = modality in METAINFO_NAMES and index.dtype.str == "|u1"
        self.is_audio = modality in AUDIO_NAMES and index.dtype.str == "<i2"
        self._dtype = index.dtype.str
        self._sample_rate = sample_rate

    def __len__(self) -> int:
        return len(self.offsets)

    def field(self, ordinal: int, rate: int | None) -> Field:
        form: Form
        offset, size, note = self.offsets[ordinal], self.sizes[ordinal], ""
        if self.is_audio:
            rate = rate or self._sample_rate
            if rate is not None:
                form, extension = Pcm(rate), "wav"
            else:
                form, extension = BYTES, "pcm"
                note = "no sample rate in the metainfo: name one with --sample-rate to see .wav"
        elif self.is_metainfo:
            form, extension = BYTES, "json"
        elif self._dtype == "|u1":
            form, extension = BYTES, magic.extension(self.data.read(offset, min(size, magic.MAGIC_SIZE)))
        else:
            form, extension = Npy(self._dtype), f"{self.modality}.npy"
        return Field(self.modality, self.source, offset, size, form, extension, note)
