"""A shard of a Lhotse Shar: the cuts in one file, and the files of its fields beside it.

    cuts.000000.jsonl           one cut a line; the path of the shard
    recording.000000.tar        a field, here the audio (`touchfs.containers.shar.fields`)
    lang.000000.jsonl           another field

The names of the files decide which belong together (`touchfs.containers.shar.files`).

A sample is a cut: `<id>.json` is its line, `<id>.wav` (`.flac`, …) its recording, and `<id>.<field>.<extension>` each
other value. Its supervisions are the segments of the recording, and their joined text is `<id>.txt`. Lhotse stores only
the part of a recording that the cut covers, so its start is 0; if it is not, segments are still relative to the cut.

Any of the files may be compressed, as Lhotse's JSONL files are by default. Such a file is read decompressed, from the
scratch store (`touchfs.source.decompressed`). If a plain file exists, its compressed twin is ignored.
"""

from __future__ import annotations

import os

from touchfs.containers.lines.reader import lines, read_line
from touchfs.containers.shar.fields import RECORDING, JsonlValues, TarValues, Values
from touchfs.containers.shar.files import CUTS, field_names, parse_name, plain_name, shar_number
from touchfs.containers.shar.order import CutIds
from touchfs.core.errors import FormatError
from touchfs.core.extent import Extent, drive
from touchfs.core.progress import stage
from touchfs.form.plain import BYTES
from touchfs.format import magic, wav
from touchfs.format.lhotse import parse_cut, parse_recording
from touchfs.format.metainfo import Metainfo
from touchfs.media import duration
from touchfs.media.extensions import can_be_cut
from touchfs.shard import single
from touchfs.shard.options import Options
from touchfs.shard.sample import Field, Recording, StoredRecording, StoredSample, StoredSamples, UnmeasuredRecording
from touchfs.source.decompressed import DecompressedFile
from touchfs.source.fingerprint import Files, Fingerprint
from touchfs.source.store import StoredFile


def compressed_files(path: str, files: Files) -> dict[str, Fingerprint]:
    """Paths and fingerprints of the shard's files that are read decompressed."""
    directory, number = os.path.dirname(path), shar_number(os.path.basename(path))
    return {
        os.path.join(directory, name): fingerprint
        for name, fingerprint in files.items()
        if (parsed := parse_name(name)) is not None
        and parsed.compression
        and parsed.number == number
        and plain_name(name) not in files
    }


def open_source(path: str, name: str, files: Files) -> StoredFile:
    """Open a file of the shard at `path`, in its decompressed form if it is compressed."""
    parsed = parse_name(name)
    if parsed is not None and parsed.compression:
        return DecompressedFile(os.path.join(os.path.dirname(path), name), single.fingerprint_of(path, name, files))
    return single.open_source(path, name, files)


_KEY_SHOWN_MAX = 80


class SharShard(StoredSamples):
    """The cuts in the file at `path`. Keeps the range of each cut's line and of its values."""

    index_size = 0

    def __init__(self, path: str, options: Options, files: Files) -> None:
        self.path = path
        self.files = files
        self._name = os.path.basename(path)
        self._decompressed = [
            single.open_decompressed(*each, options.decompress) for each in compressed_files(path, files).items()
        ]
        self._file = open_source(path, self._name, self.files)
        with stage(self._share(self._name)):
            self._lines = lines(self._file)
        self._limits = options.limits
        self._ids = CutIds(self._file, self._lines, options.limits.json)
        self.problems: list[str] = []
        self.size = self.files[self._name].size
        self._fields: dict[str, Values] = {}
        for name in self.files:
            if name != self._name:
                with stage(self._share(name)):
                    self._add(name)
        for field in sorted(field_names(os.path.dirname(path) or ".") - {CUTS, *self._fields}):
            self.problems.append(f"{field} is missing here: other shards have it")

    def _share(self, name: str) -> float:
        """The fraction of the shard's bytes that are in a file."""
        return self.files[name].size / max(sum(fingerprint.size for fingerprint in self.files.values()), 1)

    @property
    def remarks(self) -> list[str]:
        """The cuts whose ids repeat. Reads all cuts, unless they were read in order before."""
        return [
            f"{self._name}: cut {ordinal} has the id of an earlier one, {key[:_KEY_SHOWN_MAX]!r}: paired by order"
            for ordinal, key in self._ids.repeated()
        ]

    def close(self) -> None:
        """Close all files, and allow the eviction of decompressed ones."""
        self._file.close()
        for values in self._fields.values():
            values.close()
        for each in self._decompressed:
            each.close()

    def __len__(self) -> int:
        return len(self._lines)

    def sample(self, ordinal: int) -> StoredSample:
        """The cut at an ordinal. Reads its line, and the header of its recording."""
        offset, size = self._lines[ordinal].tolist()
        fields = {CUTS: Field(CUTS, self._name, offset, size, BYTES, "json")}
        parsed, problem = read_line(self._file, offset, size, self._limits.json)
        cut = parse_cut(parsed)
        self._ids.see(ordinal, cut.key)
        if cut.key is None:
            problem = problem or "a cut without an id"
            return StoredSample(f"{ordinal:08d}", ordinal, fields, problem=problem, metainfo_field=CUTS, is_keyed=False)
        recording: Recording | None = None
        problems = []
        for name, values in self._fields.items():
            try:
                value = values.value(ordinal, cut.key)
                if value is not None:
                    fields[name] = value
                    if name == RECORDING and isinstance(values, TarValues):
                        recording = self._recording(value, values, ordinal, cut.key)
            except FormatError as error:
                problems.append(str(error))
        metainfo = Metainfo(cut.key, cut.text, None, parsed)
        return StoredSample(cut.key, ordinal, fields, metainfo, "; ".join(problems), CUTS, recording=recording)

    def _recording(self, field: Field, values: TarValues, ordinal: int, key: str) -> Recording:
        """The recording of a cut: PCM as a range of its WAV; any other coding as its manifest describes it, else as its
        header does, else to be measured.
        """
        extent = Extent(values.file, field.offset, field.size)
        extension, sound = magic.extension(extent.read(0, magic.MAGIC_SIZE)), None
        if extension in ("wav", "flac"):
            try:
                sound = drive(duration.scan(field.size, wav.scan), extent)
            except FormatError as error:
                if extension == "wav":
                    raise FormatError(f"{field.source}: {error.message}", offset=field.offset) from error
                extension = ""
            if sound is not None and sound.pcm:
                return StoredRecording.measured(field, sound)
        described = parse_recording(values.manifest(ordinal, key))
        if described is not None:
            sample_format = sound.sample_format if sound is not None else "s16"
            return StoredRecording(field, *described, sample_format)
        if sound is not None:
            return StoredRecording.measured(field, sound)
        if not can_be_cut(extension):
            raise FormatError(f"{field.source} does not contain rate, channels and length of the recording")
        return UnmeasuredRecording(field)

    def _add(self, name: str) -> None:
        parsed = parse_name(name)
        if parsed is None or parsed.number != shar_number(self._name):
            self.problems.append(f"{name} belongs to no cuts here: not shown")
        elif parsed.compression and plain_name(name) in self.files:
            self.problems.append(f"{name} is not needed beside {plain_name(name)}: not shown")
        elif parsed.field == CUTS or parsed.field in self._fields:
            self.problems.append(f"{name} is a second file of {parsed.field!r}: not shown")
        else:
            make = TarValues if parsed.suffix == "tar" else JsonlValues
            try:
                values = make(parsed.field, name, open_source(self.path, name, self.files), self._ids, self._limits)
            except FormatError as error:
                self.problems.append(error.message)
                return
            self.problems += values.problems
            if len(values) > len(self):
                self.problems.append(f"{name} has {len(values)} values for {len(self)} cuts: the others are not shown")
            self._fields[parsed.field] = values
            self.size += self.files[name].size
