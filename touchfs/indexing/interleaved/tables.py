"""The table of a catalog of interleaved samples: a directory for each sample, and its files in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from touchfs.catalog.catalog import KINDS_MAX, FileKind
from touchfs.catalog.columns import TableColumns
from touchfs.catalog.table import NO_SAMPLE
from touchfs.catalog.table_builder import TableBuilder, encode_key
from touchfs.core.errors import FormatError
from touchfs.core.names import REPORT, shorten
from touchfs.form.base import Form
from touchfs.form.plain import INLINE
from touchfs.indexing.report import SampleLines, report_text
from touchfs.interleaved.layout.quoting import quote_id
from touchfs.shard.options import DROP_ROW, DROP_SAMPLE, ERROR
from touchfs.shard.sample import Field
from touchfs.view.file import ViewFile
from touchfs.view.interleaved import InterleavedSample

VIEW = "interleaved"
# Each file of a sample repeats its id, so longer ones are only in metadata.json.
_ID_MAX = 1024


class ItemTables:
    """Builds the table of one shard. `on_error` is the policy for items without bytes."""

    def __init__(self, on_error: str) -> None:
        self._on_error = on_error
        self._kinds: dict[tuple[str, str, Form], int] = {}
        self._table = TableBuilder()
        self._directories: list[bytes] = []  # before repeated ones are numbered
        self._names: list[list[bytes]] = []
        self._problems, self._remarks = SampleLines(), SampleLines()
        self._dropped = 0

    @property
    def samples(self) -> int:
        """The number of samples that are shown."""
        return len(self._names)

    @property
    def damaged(self) -> int:
        """The number of samples whose items are not known, or that have an item that cannot be read."""
        return self._problems.count

    @property
    def kinds(self) -> list[FileKind]:
        return [FileKind(name, source, str(form)) for name, source, form in self._kinds]

    def add(self, sample: InterleavedSample) -> None:
        """Add a sample, in the order of its shard."""
        files, failures = sample.files(self._on_error), sample.failures
        if files is None:
            self._dropped += 1
            return
        ordinal, key = self.samples, encode_key(sample.sample_id)
        for file in files:
            self._add(file, ordinal, key if len(key) <= _ID_MAX else b"")
        self._directories.append(shorten(quote_id(sample.sample_id).encode() or b"%", b""))
        self._names.append([(file.extension or "").encode() for file in files])
        if sample.problem:
            self._problems.add(ordinal, sample.sample_id, sample.problem)
        elif failures and self._on_error == DROP_ROW:
            self._dropped += len(failures)
        elif failures:
            is_error = self._on_error == ERROR
            (self._problems if is_error else self._remarks).add(ordinal, sample.sample_id, _joined(failures))

    def _add(self, file: ViewFile, ordinal: int, key: bytes) -> None:
        field = file.field
        kind = self._kinds.setdefault((field.name, field.source, field.form), len(self._kinds) + 1)
        if kind > KINDS_MAX:
            raise FormatError(f"over {KINDS_MAX} kinds of files in one shard")
        suffix = 1 + len((file.extension or "").encode())
        self._table.add(kind, ordinal, 0, field.offset, field.size, file.size, suffix, key, field.detail)

    def report(self, path: str, problems: Sequence[str]) -> str:
        """The text of ERROR.txt, with `problems` of what is in no sample; "" if nothing is wrong."""
        dropped = []
        if self._dropped:
            what = "samples with items" if self._on_error == DROP_SAMPLE else "items"
            dropped.append(f"{self._dropped} {what} without bytes are left out (--on-error {self._on_error})")
        return report_text(path, self.samples, problems, dropped, self._problems, self._remarks)

    def columns(self, report: str) -> TableColumns:
        """The table. A `report` that is not empty becomes `ERROR.txt`."""
        if report:
            data = report.encode("utf-8", "replace")
            text = Field("error", "", 0, 0, INLINE, "txt", detail=data)
            self._add(ViewFile("txt", text), NO_SAMPLE, b"")
        return self._table.columns(self._paths(is_reported=bool(report)))

    def _paths(self, *, is_reported: bool) -> Iterator[tuple[bytes, bytes]]:
        for directory, names in zip(_numbered(self._directories), self._names, strict=True):
            for name in names:
                yield directory, name
        if is_reported:
            yield b"", REPORT.encode()  # no directory has this name: dots of ids are quoted


def _joined(lines: list[str], most: int = 10) -> str:
    more = [f"and {len(lines) - most:,} more"] if len(lines) > most else []
    return "; ".join(lines[:most] + more)


def _numbered(names: list[bytes]) -> Iterator[bytes]:
    """The names, of which the nth that is equal gets `~n`, as those of samples in `shards/`."""
    taken, counts = set(names), Counter[bytes]()
    for name in names:
        counts[name] += 1
        shown = name
        while counts[name] > 1 and (shown := shorten(name, b"~%d" % counts[name])) in taken:
            counts[name] += 1
        taken.add(shown)
        yield shown
