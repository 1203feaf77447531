"""The tables of a shard that are being made: its samples are added in order, one by one or in consecutive parts."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from math import fsum

from touchfs.catalog.catalog import KINDS_MAX, FileKind
from touchfs.catalog.columns import TableColumns
from touchfs.catalog.key_endings import Endings, endings_of
from touchfs.catalog.table import NO_SAMPLE
from touchfs.catalog.table_builder import TableBuilder, encode_key
from touchfs.core import names, progress
from touchfs.core.errors import FormatError
from touchfs.core.names import REPORT, REPORT_EXTENSION, REPORT_STEM
from touchfs.form.base import Form
from touchfs.form.beside import WHOLE
from touchfs.form.plain import BYTES, INLINE
from touchfs.indexing.report import SampleLines, report_text
from touchfs.indexing.tables.paths import JoinedNames, beside, within
from touchfs.registry.segments import FoundSegments
from touchfs.shard.options import LINE_RULE
from touchfs.shard.sample import (
    Field,
    Recording,
    SampleRun,
    SampleSegments,
    StoredRecording,
    StoredSample,
    recording_in,
)
from touchfs.view import raw, segments
from touchfs.view.file import ViewFile

VIEWS = ("shards", "segments")
# Forms of recordings as they are stored, whose rate and length are in the catalog.
_WHOLE = (BYTES, WHOLE)
# With more files in its segments, a sample keeps their names in one string.
_NAMES_MAX = 1000
# What a kind of files has in common: field, source, form, note, rate, channels.
_Kind = tuple[str, str, Form, str, int, int]


class SampleTables:
    """Builds the tables of one shard, or of consecutive samples of it."""

    def __init__(self, *, keys_are_paths: bool = False) -> None:
        self.timed = 0
        self.segments = 0
        self.unmeasured = 0
        self.measured = 0
        self.labels = None
        self.classes: dict[str, tuple[str, ...]] = {}
        self.remarks_on_segments: Sequence[str] = ()  # of no sample
        self.has_contents = True  # or something was left to be read
        self._seconds = array("d")
        self._kinds: dict[_Kind, int] = {}
        self._shown_key: Callable[[str], str] = _archive_key if keys_are_paths else str
        self._keys: list[str] = []  # as shown
        self._others: list[tuple[str, Field]] = []  # paths as shown, and files of no sample
        self._problems, self._remarks, self._of_segments = SampleLines(), SampleLines(), SampleLines()
        tables = TableBuilder(keys_are_paths=keys_are_paths), TableBuilder(keys_are_paths=keys_are_paths)
        self._views = _View(tables[0], names.suffix_size), _SegmentView(tables[1], _within_size)

    @property
    def samples(self) -> int:
        return len(self._keys)

    @property
    def seconds(self) -> float:
        """The length of all recordings, which does not depend on the order of adding."""
        return fsum(self._seconds)

    @property
    def damaged(self) -> int:
        return self._problems.count

    @property
    def kinds(self) -> list[FileKind]:
        return [
            FileKind(field, source, str(form), note, rate, channels)
            for field, source, form, note, rate, channels in self._kinds
        ]

    @property
    def endings(self) -> Endings:
        """See `Facts.endings`."""
        shards, _ = self._views
        return endings_of((key.removesuffix("/") for key in self._keys), chain.from_iterable(set(shards.extensions)))

    def add(self, sample: StoredSample, found: FoundSegments, cut: StoredSample, problem: str) -> None:
        """Add a sample, whose segments are cut out of the recording of `cut`. `problem` is that of the recording, "" if
        it has none.
        """
        self._keys.append(self._shown_key(sample.key))
        key = encode_key(sample.key) if sample.is_keyed else b""
        recording = recording_in(sample)
        segmented = segments.files(cut, found.segments) if found.segments is not None else ()
        for view, files in zip(self._views, (raw.files(sample), segmented), strict=True):
            extensions = []
            for file in files:
                self._add(view, file, sample.ordinal, key, recording)
                extensions.append(file.ending)
            view.add_extensions(tuple(extensions))
        if sample.problem:
            self._problems.add(sample.ordinal, sample.key, sample.problem)
        if found.segments is not None:
            self.segments += len(found.segments.segments)
        for line in found.problems:
            self._of_segments.add(sample.ordinal, sample.key, line)
        if problem:
            self._remarks.add(sample.ordinal, sample.key, problem)
        if isinstance(recording, StoredRecording):
            self.timed += 1
            self._seconds.append(_length(recording, sample.listed) / recording.rate)
        elif recording_in(cut) is not None:
            self.unmeasured += 1

    def add_other(self, path: str, field: Field) -> None:
        """Add a file of no sample. Its path has the form of a key."""
        self._others.append((self._shown_key(path), field))

    def add_run(self, run: SampleRun) -> None:
        """Add these samples, as `add` does each of them."""
        ordinals = range(run.first, run.first + len(run.keys))
        shown = [key or f"{ordinal:08d}" for key, ordinal in zip(run.keys, ordinals, strict=True)]
        self._keys += map(self._shown_key, shown)
        kinds = [self._kind((field.name, field.source, field.form, field.note, 0, 0)) for field in run.fields]
        endings = tuple(field.extension if field.written is None else field.written for field in run.fields)
        shards, segmented = self._views
        keys = [encode_key(key or "") for key in run.keys]
        shards.table.add_alike(kinds, ordinals, run.spans, [*map(shards.suffix_size, endings)], keys)
        shards.add_extensions(endings, len(keys))
        segmented.add_extensions((), len(keys))

    def extend(self, part: SampleTables) -> None:
        """Add the samples of a part, which follow those added before."""
        kinds = [0, *map(self._kind, part._kinds)]
        for view, other in zip(self._views, part._views, strict=True):
            view.extend(other, kinds)
        self._keys += part._keys
        self._problems.extend(part._problems)
        self._remarks.extend(part._remarks)
        self._of_segments.extend(part._of_segments)
        self._seconds += part._seconds
        self.timed += part.timed
        self.segments += part.segments
        self.unmeasured += part.unmeasured
        self.measured += part.measured
        self.has_contents &= part.has_contents

    def reports(self, path: str, problems: Sequence[str], remarks: Sequence[str]) -> dict[str, str]:
        """The texts of ERROR.txt by view, from the problems and remarks of the shard; "" if nothing is wrong."""
        report = report_text(path, self.samples, problems, remarks, self._problems, self._remarks)
        of_segments = report_text(path, self.samples, (), self.remarks_on_segments, SampleLines(), self._of_segments)
        return dict(zip(VIEWS, (report, of_segments), strict=True))

    def columns(self, reports: Mapping[str, str], stem: str = REPORT_STEM) -> dict[str, TableColumns]:
        """The tables. A report that is not empty becomes the file `stem`.txt of its view."""
        shards, segmented = self._views
        keys: list[str] = self._keys
        extensions: list[tuple[str | None, ...]] = shards.extensions
        if self._others:
            for _, field in self._others:
                self._add(shards, ViewFile(None, field), NO_SAMPLE, b"")
            keys = [*keys, *(path for path, _ in self._others)]
            extensions = [*extensions, *[(None,)] * len(self._others)]
        report, of_segments = (reports.get(view, "") for view in VIEWS)
        if report:
            # Named like a first sample, so that no sample takes its name; but last in the table.
            keys, extensions = [stem, *keys], [(REPORT_EXTENSION,), *extensions]
        assigned = names.assign(keys, extensions)
        of_shard = [next(assigned)] if self._add_report(shards, report) else []
        # Names are assigned over all samples, also those without segments: a repeated key gets the same ~n as in
        # shards/.
        has_report = self._add_report(segmented, of_segments)
        named = [REPORT, *self._keys] if has_report else self._keys
        directories = names.assign(named, [(None,)] * len(named)) if len(segmented.table) else iter(())
        of_parts = [next(directories)] if has_report else []
        tables = (
            shards.table.columns(beside(chain(progress.each(assigned), of_shard))),
            segmented.table.columns(chain(within(directories, segmented.names), beside(of_parts))),
        )
        return dict(zip(VIEWS, tables, strict=True))

    def _add_report(self, view: _View, report: str) -> bool:
        """Add a report, unless it is empty. It is last in a table."""
        if report:
            text = Field("error", "", 0, 0, INLINE, REPORT_EXTENSION, detail=report.encode("utf-8", "replace"))
            self._add(view, ViewFile(REPORT_EXTENSION, text), NO_SAMPLE, b"")
        return bool(report)

    def _add(self, view: _View, file: ViewFile, ordinal: int, key: bytes, recording: Recording | None = None) -> None:
        field, rate, channels, frames = file.field, 0, 0, 0
        if isinstance(recording, StoredRecording) and recording.field.name == field.name and field.form in _WHOLE:
            rate, channels, frames = recording.rate, recording.channels, recording.length
        kind = self._kind((field.name, field.source, field.form, field.note, rate, channels))
        suffix = view.suffix_size(file.ending)
        view.table.add(kind, ordinal, file.part, field.offset, field.size, file.size, suffix, key, field.detail, frames)

    def _kind(self, kind: _Kind) -> int:
        number = self._kinds.setdefault(kind, len(self._kinds) + 1)
        if number > KINDS_MAX:
            raise FormatError(f"over {KINDS_MAX} kinds of files in one shard: are its sample rates right?")
        return number


def _archive_key(key: str) -> str:
    """A key in an archive as it is shown in names of files: `a/`, that of `a/.b`, keeps its slash."""
    shown = names.plain_path(key)
    return f"{shown}/" if key.endswith("/") and shown != "." else shown


def _length(recording: StoredRecording, listed: SampleSegments | None) -> int:
    """The samples of a recording that its sample is about: lines of a list may share a file."""
    if listed is None or listed.rule != LINE_RULE:
        return recording.length
    return sum(segment.span(recording.rate, recording.length)[1] for segment in listed.segments)


class _View:
    """One view of a shard: its table, and the extensions of each sample's files.

    `suffix_size` returns how many bytes an extension adds to the path of its sample.
    """

    def __init__(self, table: TableBuilder, suffix_size: Callable[[str | None], int]) -> None:
        self.table = table
        self.suffix_size = suffix_size
        self.extensions: list[tuple[str | None, ...]] = []
        self._known: dict[tuple[str | None, ...], tuple[str | None, ...]] = {}

    def add_extensions(self, extensions: tuple[str | None, ...], samples: int = 1) -> None:
        """Add the extensions of the files of a sample, or of each of several."""
        known = self._known.setdefault(extensions, extensions)  # nearly all samples have the same
        self.extensions.extend(repeat(known, samples))

    def extend(self, part: _View, kinds: Sequence[int]) -> None:
        """Add the files of a part, whose kinds have other numbers here."""
        self.table.extend(part.table, kinds)
        self.extensions += part.extensions


class _SegmentView(_View):
    """The view of segments, of which a sample may have very many."""

    def __init__(self, table: TableBuilder, suffix_size: Callable[[str | None], int]) -> None:
        super().__init__(table, suffix_size)
        self.names: list[Iterable[str | None]] = []

    def add_extensions(self, extensions: tuple[str | None, ...], samples: int = 1) -> None:
        is_long = len(extensions) > _NAMES_MAX
        names = JoinedNames(extensions) if is_long else self._known.setdefault(extensions, extensions)
        self.names.extend(repeat(names, samples))

    def extend(self, part: _View, kinds: Sequence[int]) -> None:
        super().extend(part, kinds)
        if isinstance(part, _SegmentView):
            self.names += part.names


def _within_size(extension: str | None) -> int:
    return 1 + len((extension or "").encode())
