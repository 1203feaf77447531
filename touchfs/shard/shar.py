"""A shard of a Lhotse Shar: the cuts in one file, and the files of its fields beside it.

    cuts.000000.jsonl           a cut a line; the path of the shard
    recording.000000.tar        a field, here the audio (`touchfs.shard.shar_fields`)
    lang.000000.jsonl           another one

Files with the same text between the field and the suffix belong together, even if it is none (`cuts.jsonl`). So a field
may lack in some shards. Lhotse pairs the n-th files of all fields instead, whatever they are called.

A sample is a cut: `<id>.json` is its line, `<id>.wav` (`.flac`, …) its recording, and `<id>.<field>.<extension>` each
other value. Its supervisions are the segments of the recording, and all that is said in them is `<id>.txt`. Lhotse
stores only the part of a recording that the cut covers, so its start is 0; if it is not, segments still lie in the cut.

Any of the files may be compressed, as Lhotse's lines are by default: they are read decompressed, from the scratch store
(`touchfs.source.compressed`). Beside a file that is not, its compressed twin is of no use.

Every file of the directory is shown or told of: one that belongs to no shard by the first shard. Only files that are
hidden, indexes, or lists of what was skipped when the shards were written are neither. A field that other shards have,
and this one has not, is told, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from time import time_ns
from typing import NamedTuple, TypeGuard

from touchfs.errors import FormatError, NotFoundError, SourceError
from touchfs.extent import Extent
from touchfs.format import magic, wav
from touchfs.format.lhotse import parse_cut, parse_recording
from touchfs.format.metainfo import Metainfo
from touchfs.sample import Field, Recording, Sample, Samples
from touchfs.shard import single
from touchfs.shard.compressed import held
from touchfs.shard.jsonl import lines, read_line
from touchfs.shard.options import DEFAULT, Options
from touchfs.shard.shar_fields import RECORDING, JsonlValues, TarValues, Values
from touchfs.source.compressed import DecompressedFile
from touchfs.source.drive import drive
from touchfs.source.local import FileIdentity, LocalFile

CUTS = "cuts"
_INDEX_SUFFIXES = (".idx", ".idxpack")
_SKIPPED_NAME = "skipped.jsonl"  # of our writers, which leave out what is bad
_NAME = re.compile(r"([^.]+)(\..+)??\.(jsonl|tar)(\.(?:gz|bz2|xz|zst))?", re.DOTALL)
# A directory that changed later than this may change again without another mtime.
_SETTLED_NS = 2 * 10**9
_LISTINGS_KEPT = 64


class _Name(NamedTuple):
    field: str
    number: str  # with the dot before it
    suffix: str
    compression: str


def is_shard(path: str) -> bool:
    """Whether the path of a shard is that of cuts, told by the name alone."""
    return _is_cuts(_parse(os.path.basename(path)))


def find_cuts(names: Iterable[str]) -> list[str]:
    """Those of the names of a directory's files that are cuts. Compressed ones only without their like."""
    cuts = {name: parsed for name in names if _is_cuts(parsed := _parse(name))}
    return [name for name, parsed in cuts.items() if not parsed.compression or _plain(name) not in cuts]


def fingerprint(path: str) -> dict[str, FileIdentity]:
    """The identity of each file that a shard shows or tells of, by name. Raises NotFoundError or SourceError."""
    directory, name = os.path.split(path)
    files = {}
    try:
        for each in _files(directory or ".", name):
            with suppress(FileNotFoundError):  # removed since it was listed
                files[each] = FileIdentity.of(os.stat(os.path.join(directory, each)))
    except FileNotFoundError:
        files = {}
    except OSError as error:
        raise SourceError(error.strerror or str(error), path=path) from error
    if name not in files:
        raise NotFoundError("no such shard", path=path)
    return files


def compressed_files(path: str) -> dict[str, FileIdentity]:
    """The paths of the shard's files that are read decompressed, and what they are. Raises as `fingerprint`."""
    files, number = fingerprint(path), _number(os.path.basename(path))
    directory = os.path.dirname(path)
    return {
        os.path.join(directory, name): identity
        for name, identity in files.items()
        if (parsed := _parse(name)) is not None
        and parsed.compression
        and parsed.number == number
        and _plain(name) not in files
    }


def open_source(path: str, name: str, files: Mapping[str, FileIdentity]) -> LocalFile:
    """A file of the shard `path`, decompressed if it is compressed."""
    parsed = _parse(name)
    if parsed is not None and parsed.compression:
        return DecompressedFile(os.path.join(os.path.dirname(path), name), files[name])
    return single.open_source(path, name, files)


class SharShard(Samples):
    """The cuts in the file at a path. What is kept of a cut is where its line is, and its values are."""

    index_size = 0

    def __init__(self, path: str, options: Options = DEFAULT) -> None:
        self.path = path
        self.files: Mapping[str, FileIdentity] = fingerprint(path)
        self._name = os.path.basename(path)
        self._held = [held(*each, options.decompress) for each in compressed_files(path).items()]
        self._file = open_source(path, self._name, self.files)
        self._lines = lines(self._file)
        self._limits = options.limits
        self.problems: list[str] = []
        self.size = self.files[self._name].size
        self._fields: dict[str, Values] = {}
        for name in self.files:
            if name != self._name:
                self._add(name)
        for field in sorted(_fields(os.path.dirname(path) or ".") - {CUTS, *self._fields}):
            self.problems.append(f"{field} is missing here: other shards have it")

    def close(self) -> None:
        """Give the descriptors up."""
        self._file.close()
        for values in self._fields.values():
            values.close()
        for each in self._held:
            each.close()

    def __len__(self) -> int:
        return len(self._lines)

    def sample(self, ordinal: int) -> Sample:
        offset, size = self._lines[ordinal].tolist()
        fields = {CUTS: Field(CUTS, self._name, offset, size, "bytes", "json")}
        parsed, problem = read_line(self._file, offset, size, self._limits.json)
        cut = parse_cut(parsed)
        if cut.key is None:
            problem = problem or "a cut without an id"
            return Sample(f"{ordinal:08d}", ordinal, fields, problem=problem, metainfo_field=CUTS, is_keyed=False)
        recording, problems = None, []
        for name, values in self._fields.items():
            try:
                value = values.value(ordinal, cut.key)
                if value is not None:
                    fields[name] = value
                    if name == RECORDING and isinstance(values, TarValues):
                        recording = self._recording(value, values, ordinal, cut.key)
            except FormatError as error:
                problems.append(str(error))
        metainfo = Metainfo(cut.key, cut.text, None, cut.supervisions)
        return Sample(cut.key, ordinal, fields, metainfo, "; ".join(problems), CUTS, recording=recording)

    def _recording(self, field: Field, values: TarValues, ordinal: int, key: str) -> Recording:
        """PCM of 16 bits as it lies in its WAV; of any other coding, what its manifest tells."""
        extent = Extent(values.file, field.offset, field.size)
        if magic.extension(extent.read(0, magic.MAGIC_SIZE)) == "wav":
            try:
                found = drive(wav.scan(field.size), extent)
            except FormatError as error:
                raise FormatError(f"{field.source}: {error.message}", offset=field.offset) from error
            width = found.channels * found.bits // 8
            if found.codec == wav.PCM and found.bits == 16 and width:
                length = found.data_size // width
                form = f"wav/{found.rate}" + (f"/{found.channels}" if found.channels > 1 else "")
                pcm = Field(field.name, field.source, field.offset + found.data_offset, length * width, form, "wav")
                return Recording(pcm, found.rate, found.channels, length)
        told = parse_recording(values.manifest(ordinal, key))
        if told is None:
            raise FormatError(f"{field.source} does not tell rate, channels and length of the recording")
        return Recording(field, *told)

    def _add(self, name: str) -> None:
        """One more file: a field, or a problem."""
        parsed = _parse(name)
        if parsed is None or parsed.number != _number(self._name):
            self.problems.append(f"{name} belongs to no cuts here: not shown")
        elif parsed.compression and _plain(name) in self.files:
            self.problems.append(f"{name} is not needed beside {_plain(name)}: not shown")
        elif parsed.field == CUTS or parsed.field in self._fields:
            self.problems.append(f"{name} is a second file of {parsed.field!r}: not shown")
        else:
            make = TarValues if parsed.suffix == "tar" else JsonlValues
            try:
                values = make(parsed.field, name, open_source(self.path, name, self.files), self._limits)
            except FormatError as error:
                self.problems.append(error.message)
                return
            self.problems += values.problems
            if len(values) > len(self):
                self.problems.append(f"{name} has {len(values)} values for {len(self)} cuts: the others are not shown")
            self._fields[parsed.field] = values
            self.size += self.files[name].size


def _parse(name: str) -> _Name | None:
    match = _NAME.fullmatch(name)
    return None if match is None else _Name(match[1], match[2] or "", match[3], match[4] or "")


def _is_cuts(parsed: _Name | None) -> TypeGuard[_Name]:
    return parsed is not None and (parsed.field, parsed.suffix) == (CUTS, "jsonl")


def _number(name: str) -> str | None:
    parsed = _parse(name)
    return None if parsed is None else parsed.number


def _plain(name: str) -> str:
    """The name of a compressed file without its compression."""
    return os.path.splitext(name)[0]


class _Listing(NamedTuple):
    """The files of a directory by the number of their shard, and those of none."""

    shards: dict[str | None, list[str]]
    strays: list[str]


def _files(directory: str, name: str) -> list[str]:
    """The names of the files of the shard that is called so."""
    mtime_ns = os.stat(directory).st_mtime_ns
    listing = _known(directory, mtime_ns) if time_ns() - mtime_ns > _SETTLED_NS else _list(directory)
    number = _number(name)
    is_first = number == next(iter(listing.shards), None)
    return [*listing.shards.get(number, ()), *(listing.strays if is_first else ())]


def _fields(directory: str) -> set[str]:
    """Those of all shards of a directory."""
    return {parsed.field for names in _list(directory).shards.values() for name in names if (parsed := _parse(name))}


@lru_cache(_LISTINGS_KEPT)
def _known(directory: str, mtime_ns: int) -> _Listing:
    """Of a thousand shards in a directory, each needs it."""
    return _list(directory)


def _list(directory: str) -> _Listing:
    with os.scandir(directory) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if entry.name[0] != "."
            and entry.name != _SKIPPED_NAME
            and not entry.name.endswith(_INDEX_SUFFIXES)
            and entry.is_file()
        )
    shards: dict[str | None, list[str]] = {_number(name): [] for name in find_cuts(names)}
    strays: list[str] = []
    for name in names:
        shards.get(_number(name), strays).append(name)
    return _Listing(shards, strays)
