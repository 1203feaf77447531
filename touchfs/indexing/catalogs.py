"""Make the catalog of a shard: run every view over every sample, name the files, and write the tables.

A shard that cannot be opened gets a catalog too, with one file, `ERROR.txt`. So does a shard with damaged samples,
beside the files of the others. Neither keeps the rest of a dataset from being served.

Each sample is visited once, in order. Its key, its rows and its names are kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from itertools import chain

from touchfs import names, progress
from touchfs.catalog.catalog import KINDS_MAX, Facts, FileKind, TableBuilder, encode_key, write_catalog
from touchfs.catalog.columns import TableColumns
from touchfs.catalog.ends import digest_ends
from touchfs.catalog.key_endings import Endings, endings_of
from touchfs.catalog.table import NO_SAMPLE
from touchfs.control_characters import one_line
from touchfs.errors import FormatError, MissingExtraError, SourceError, TouchfsError
from touchfs.form.base import Form
from touchfs.form.beside import WHOLE
from touchfs.form.plain import BYTES, INLINE
from touchfs.indexing.measured import measure, without_silent_videos
from touchfs.indexing.paths import JoinedNames, beside, within
from touchfs.indexing.report import THEN, SampleLines, report_text
from touchfs.indexing.row_tables import RowTables
from touchfs.sample import Field, Recording, SampleSegments, StoredRecording, StoredSample, recording_in
from touchfs.shard.contents import FieldContents
from touchfs.shard.open import ShardReader, file_paths, fingerprints_with_lists, keys_are_paths, open_shard
from touchfs.shard.options import DEFAULT, LINE_RULE, Options
from touchfs.shard.segments import FoundSegments, SegmentFinder
from touchfs.shard.tables.rows import TableRows
from touchfs.source.data import Look
from touchfs.source.fingerprint import Files
from touchfs.view import raw, segments
from touchfs.view.file import ViewFile

VIEWS = ("shards", "segments")
REPORT_STEM, REPORT_EXTENSION = "ERROR", "txt"
# Shares of the time to index a shard; the rest is for writing the tables.
_OPENING, _SAMPLES, _NAMES = 0.25, 0.4, 0.25
# Forms of recordings as they are stored, whose rate and length are in the catalog.
_WHOLE = (BYTES, WHOLE)
# With more files in its segments, a sample keeps their names in one string.
_NAMES_MAX = 1000


def make_catalog(shard_path: str, catalog_path: str, options: Options = DEFAULT, *, full: bool = False) -> Facts:
    """Index one shard; with `full`, also the lengths of recordings that no header has.

    A damaged shard raises no error: its catalog reports the damage.
    """
    files: Files = {}
    try:
        files = fingerprints_with_lists(shard_path, Look())
        with progress.stage(_OPENING):
            opened = open_shard(shard_path, options, files)
        with closing(opened) as shard:
            size, index_size = shard.size, shard.index_size
            with progress.stage(_SAMPLES, of=len(shard)):
                made, remarks = _visit(shard, shard_path, files, options, full=full)
            report = made.report(shard_path, shard.problems, [*shard.remarks, *remarks])
        digest = ""
        with suppress(TouchfsError):  # a file that no sample needs may be unreadable
            digest = digest_ends(file_paths(shard_path, files))
        with progress.stage(_NAMES, of=made.samples):
            tables = made.columns(report)
    except TouchfsError as error:
        return make_broken(catalog_path, error, files)
    facts = Facts(
        files=files,
        samples=made.samples,
        seconds=made.seconds,
        size=size,
        index_size=index_size,
        damaged=made.damaged,
        report=report,
        keys_are_paths=keys_are_paths(shard_path, files),
        timed=made.timed,
        digest=digest,
        endings=made.endings,
        segments=made.segments,
        unmeasured=made.unmeasured,
        labels=made.labels,
    )
    write_catalog(catalog_path, tables, made.kinds, facts)
    return facts


def _visit(
    shard: ShardReader, path: str, files: Files, options: Options, *, full: bool
) -> tuple[_Tables | RowTables, Sequence[str]]:
    """Visit all samples of a shard. Returns the tables, and remarks about segments."""
    if isinstance(shard, TableRows):
        return RowTables(shard, full=full), ()
    made = _Tables(keys_are_paths=keys_are_paths(path, files))
    with closing(FieldContents(path, files, options.limits)) as contents:
        finder = SegmentFinder(contents, options)
        for sample in progress.each(shard):
            found = finder.find(sample)
            if full or found.segments is not None:
                sample = without_silent_videos(sample, contents)
            sample, problem = measure(sample, contents) if full else (sample, "")
            made.add(sample, found, problem)
    return made, finder.remarks


def make_broken(catalog_path: str, error: TouchfsError, files: Files) -> Facts:
    """Write the catalog of a shard that cannot be served."""
    remedy = "Repair it or make it again"
    if isinstance(error, SourceError | MissingExtraError):
        files = {}  # matches no shard, so that the next opening tries again
        remedy = "See to that"
    report = f"This shard cannot be served.\n\n{one_line(str(error))}\n\n{remedy}, {THEN}\n"
    return make_notice(catalog_path, report, files)


def make_notice(catalog_path: str, text: str, files: Files, stem: str = REPORT_STEM) -> Facts:
    """Write a catalog that shows only a text, as `stem`.txt."""
    made = _Tables()
    facts = Facts(files, 0, 0.0, 0, 0, 0, text if stem == REPORT_STEM else "")
    write_catalog(catalog_path, made.columns(text, stem), made.kinds, facts)
    return facts


class _Tables:
    """Builds the tables of one shard."""

    def __init__(self, *, keys_are_paths: bool = False) -> None:
        self.seconds = 0.0
        self.timed = 0
        self.segments = 0
        self.unmeasured = 0
        self.labels = None
        self._kinds: dict[tuple[str, str, Form, str, int, int], int] = {}
        self._shown_key: Callable[[str], str] = names.plain_path if keys_are_paths else str
        self._keys: list[str] = []  # as shown
        self._problems, self._remarks = SampleLines(), SampleLines()
        tables = TableBuilder(keys_are_paths=keys_are_paths), TableBuilder(keys_are_paths=keys_are_paths)
        self._views = _View(tables[0], names.suffix_size), _SegmentView(tables[1], _within_size)

    @property
    def samples(self) -> int:
        return len(self._keys)

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
        shards, _ = self._views
        return endings_of(self._keys, chain.from_iterable(set(shards.extensions)))

    def add(self, sample: StoredSample, found: FoundSegments, problem: str) -> None:
        """Add a sample. `problem` is that of its recording, "" if it has none."""
        self._keys.append(self._shown_key(sample.key))
        key = encode_key(sample.key) if sample.is_keyed else b""
        recording = recording_in(sample)
        for view, files in zip(self._views, (raw.files(sample), segments.files(sample, found.segments)), strict=True):
            extensions = []
            for file in files:
                self._add(view, file, sample.ordinal, key, recording)
                extensions.append(file.extension)
            view.add_extensions(tuple(extensions))
        if sample.problem:
            self._problems.add(sample.ordinal, sample.key, sample.problem)
        if found.segments is not None:
            self.segments += len(found.segments.segments)
        for line in (*found.problems, *([problem] if problem else ())):
            self._remarks.add(sample.ordinal, sample.key, line)
        if isinstance(recording, StoredRecording):
            self.timed += 1
            self.seconds += _length(recording, sample.listed) / recording.rate
        elif recording is not None:
            self.unmeasured += 1

    def report(self, path: str, problems: Sequence[str], remarks: Sequence[str]) -> str:
        """The text of ERROR.txt from the problems and remarks of the shard; "" if nothing is wrong."""
        return report_text(path, self.samples, problems, remarks, self._problems, self._remarks)

    def columns(self, report: str, stem: str = REPORT_STEM) -> dict[str, TableColumns]:
        """The tables. A `report` that is not empty becomes the file `stem`.txt."""
        shards, segmented = self._views
        keys: list[str] = self._keys
        extensions: list[tuple[str | None, ...]] = shards.extensions
        if report:
            # Named like a first sample, so that no sample takes its name; but last in the table.
            keys, extensions = [stem, *keys], [(REPORT_EXTENSION,), *extensions]
        assigned = names.assign(keys, extensions)
        reports = []
        if report:
            text = Field("error", "", 0, 0, INLINE, REPORT_EXTENSION, detail=report.encode("utf-8", "replace"))
            self._add(shards, ViewFile(REPORT_EXTENSION, text), NO_SAMPLE, b"")
            reports.append(next(assigned))
        # Names are assigned over all samples, also those without segments: a repeated key gets the same ~n as in
        # shards/.
        directories = names.assign(self._keys, [(None,)] * self.samples) if len(segmented.table) else iter(())
        tables = (
            shards.table.columns(beside(chain(progress.each(assigned), reports))),
            segmented.table.columns(within(directories, segmented.names)),
        )
        return dict(zip(VIEWS, tables, strict=True))

    def _add(self, view: _View, file: ViewFile, ordinal: int, key: bytes, recording: Recording | None = None) -> None:
        field, rate, channels, frames = file.field, 0, 0, 0
        if isinstance(recording, StoredRecording) and recording.field.name == field.name and field.form in _WHOLE:
            rate, channels, frames = recording.rate, recording.channels, recording.length
        kind_key = (field.name, field.source, field.form, field.note, rate, channels)
        kind = self._kinds.get(kind_key)
        if kind is None:
            kind = self._kinds[kind_key] = len(self._kinds) + 1
            if kind > KINDS_MAX:
                raise FormatError(f"over {KINDS_MAX} kinds of files in one shard: are its sample rates right?")
        suffix = view.suffix_size(file.extension)
        view.table.add(kind, ordinal, file.part, field.offset, field.size, file.size, suffix, key, field.detail, frames)


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

    def add_extensions(self, extensions: tuple[str | None, ...]) -> None:
        """Add the extensions of a sample's files."""
        self.extensions.append(self._known.setdefault(extensions, extensions))  # nearly all samples have the same


class _SegmentView(_View):
    """The view of segments, of which a sample may have very many."""

    def __init__(self, table: TableBuilder, suffix_size: Callable[[str | None], int]) -> None:
        super().__init__(table, suffix_size)
        self.names: list[Iterable[str | None]] = []

    def add_extensions(self, extensions: tuple[str | None, ...]) -> None:
        if len(extensions) > _NAMES_MAX:
            self.names.append(JoinedNames(extensions))
        else:
            super().add_extensions(extensions)
            self.names.append(self.extensions.pop())


def _within_size(extension: str | None) -> int:
    return 1 + len((extension or "").encode())
