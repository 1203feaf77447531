"""Makes the catalog of a shard: runs every view over every sample, names the files, and writes the tables.

A shard that cannot be opened gets a catalog too, with one file, `ERROR.txt`. So does one with damaged samples, beside
the files of the others. The rest of a dataset is not held up by either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from touchfs.errors import TouchfsError
from touchfs.sample import Field, Sample
from touchfs.shard import names
from touchfs.shard.catalog import NO_SAMPLE, Entry, Facts, Kind, TableBuilder, write_catalog
from touchfs.shard.touch import AUDIO_NAMES, TouchShard, fingerprint
from touchfs.source.local import FileIdentity
from touchfs.view import raw, segments
from touchfs.view.file import File

VIEWS = ("shards", "segments")
REPORT_NAME = b"ERROR.txt"
REPORTED_MAX = 1000


@dataclass(slots=True)
class _Kinds:
    """Numbers the kinds as they turn up; 0 is the directory."""

    seen: dict[Kind, int] = field(default_factory=dict)

    def number(self, file: File) -> int:
        kind = Kind(file.field.name, file.field.source, file.field.form, file.field.note)
        return self.seen.setdefault(kind, len(self.seen) + 1)

    def entry(self, sample: Sample, file: File) -> Entry:
        return Entry(
            self.number(file),
            sample.ordinal,
            file.part,
            file.field.offset,
            file.field.size,
            file.size,
            file.inline or b"",
        )


def make_catalog(shard_path: str, catalog_path: str, sample_rate: int | None = None) -> Facts:
    """Index one shard. A damaged shard is not an error: its catalog says what is wrong."""
    files: dict[str, FileIdentity] = {}
    kinds = _Kinds()
    views = {view: TableBuilder() for view in VIEWS}
    samples: list[Sample] = []
    size = index_size = damaged = 0
    report = ""
    try:
        files = fingerprint(shard_path)
        shard = TouchShard(shard_path, sample_rate)
        samples = list(shard)
        size, index_size = shard.size, shard.index_size
        damaged = sum(bool(sample.problem) for sample in samples)
        report = _report(shard_path, samples) if damaged else ""
    except TouchfsError as error:
        samples = []
        report = f"This shard cannot be served.\n\n{error}\n\nRepair it or make it again, then mount again.\n"
    if report:
        nothing = Field("error", "", 0, 0, "inline", "txt")
        file = File("txt", nothing, inline=report.encode("utf-8", "replace"))
        entry = Entry(kinds.number(file), NO_SAMPLE, 0, 0, 0, file.size, file.inline or b"")
        views["shards"].add(b"", REPORT_NAME, entry)
    _add_raw(views["shards"], kinds, samples, reserved=bool(report))
    _add_segments(views["segments"], kinds, samples)
    facts = Facts(files, sample_rate, len(samples), _seconds(samples), size, index_size, damaged, report)
    write_catalog(catalog_path, views, list(kinds.seen), facts)
    return facts


def _add_raw(table: TableBuilder, kinds: _Kinds, samples: Sequence[Sample], *, reserved: bool) -> None:
    shown = [raw.files(sample) for sample in samples]
    keys = [sample.key for sample in samples]
    extensions = [[file.extension for file in files] for files in shown]
    taken = [REPORT_NAME] if reserved else []
    for sample, files, (directory, assigned) in zip(samples, shown, names.assign(keys, extensions, taken), strict=True):
        for file, name in zip(files, assigned, strict=True):
            table.add(directory, name, kinds.entry(sample, file))


def _add_segments(table: TableBuilder, kinds: _Kinds, samples: Sequence[Sample]) -> None:
    # Named among all samples, also those without segments: a repeated key has the same ~n here as in shards/.
    assigned = names.assign([sample.key for sample in samples], [[""] for _ in samples], [])
    for sample, (parent, (name,)) in zip(samples, assigned, strict=True):
        directory = parent + b"/" + name if parent else name
        for file in segments.files(sample):
            table.add(directory, file.extension.encode(), kinds.entry(sample, file))


def _seconds(samples: Sequence[Sample]) -> float:
    recordings = (field for sample in samples for name, field in sample.fields.items() if name in AUDIO_NAMES)
    return sum(
        field.size / segments.SAMPLE_SIZE / int(field.form.removeprefix("wav/"))
        for field in recordings
        if field.form.startswith("wav/")
    )


def _report(path: str, samples: Sequence[Sample]) -> str:
    lines = [f"sample {sample.ordinal} ({sample.key}): {sample.problem}" for sample in samples if sample.problem]
    head = f"{len(lines)} of the {len(samples)} samples of {path} are damaged; the others are served."
    if len(lines) > REPORTED_MAX:
        lines[REPORTED_MAX:] = [f"… and {len(lines) - REPORTED_MAX} more"]
    return "\n".join([head, "", *lines, "", "Repair the shard or make it again, then mount again.", ""])
