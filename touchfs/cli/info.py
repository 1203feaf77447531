"""touchfs info"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from shlex import quote

import click

from touchfs.cli.command import Command
from touchfs.cli.dataset_argument import datasets_argument, open_indexed
from touchfs.cli.dataset_options import ReadOptions, dataset_options, repeated_options
from touchfs.cli.terminal import json_option, say
from touchfs.core.control_characters import quote_name
from touchfs.dataset import Dataset, counted
from touchfs.dataset.info import info_of, stored_columns
from touchfs.dataset.recordings.recording_formats import RecordingFormats, recording_formats
from touchfs.indexing.dataset_path import split_dataset_path
from touchfs.indexing.overlays.sides import joined_overlays
from touchfs.indexing.serving import first_reason, unshown_audio, why_unservable

ERRORS_SHOWN = 10
VALUES_SHOWN = 8
COLUMNS_SHOWN = 20


@click.command("info", cls=Command)
@datasets_argument("location", "DATASET[:PATH]")
@json_option
@click.option("--strict", is_flag=True, hidden=True, expose_value=False)  # what is always so since version 0.2
@dataset_options
def command(location: str, as_json: bool, read_options: ReadOptions) -> int:
    """Print the size of a dataset and its errors.

    With PATH, such as shards/NAME, it is that of this shard alone, and no other is indexed. The exit status is 1 if any
    shard has errors, also in interleaved/.

    \b
    Example:
      touchfs info shards/
      touchfs info shards/:shards/000000000
    """
    path, below = split_dataset_path(location)
    dataset = open_indexed(path, read_options, below=below)
    status = 1 if why_unservable(dataset, strict=True) else 0
    facts, formats = dataset.facts(), recording_formats(dataset)
    overlays = joined_overlays(dataset, read_options.options)
    if as_json:
        say(json.dumps(info_of(dataset) | ({"overlays": [each.facts() for each in overlays]} if overlays else {})))
        return status
    damaged, broken = facts["damaged_samples"], sum(bool(shard.reports) for shard in dataset.shards)
    has_recordings = bool(formats.count or facts["segments"] or dataset.seconds)
    lines = {
        "kind": facts["kind"],
        "shards": f"{len(dataset.shards):,}" + (f", {broken:,} with errors" if broken else ""),
        "samples": f"{dataset.samples:,}" + (f", {damaged:,} damaged" if damaged else ""),
        "splits": ", ".join(f"{quote_name(split)} ({count:,})" for split, count in dataset.splits.items()),
        "hours": _hours(dataset) if has_recordings else "",
        "recordings": f"{formats.count:,}" if has_recordings else "",
        "rates": _counts(formats.rates, " Hz"),
        "channels": _counts(formats.channels),
        "codings": _counts(formats.codings),
        "segments": f"{facts['segments']:,}" if has_recordings else "",
        "interleaved": _interleaved(dataset.interleaved),
        "data": f"{dataset.size:,} bytes",
        "columns": _shown_columns(dataset),
        "keys": str(facts["by_key"]) if isinstance(dataset.keys, str) else f"{len(dataset.keys):,}",
        # Of a list, whose audio is elsewhere, a share says nothing.
        "index overhead": "" if dataset.limits.audio_root else f"{100 * dataset.overhead:.2f} %",
    }
    for name, value in lines.items():
        if value:
            say(f"{name + ':':<15} {value}")
    for overlay in overlays:
        say(f"{'overlay:':<15} {overlay}")
    if dataset.moved_from:
        moved_from = quote_name(dataset.moved_from)
        say(f"{'moved from:':<15} {moved_from}; its index is used here, positions of iterators stay with that path")
    if dataset.left_out:
        say(str(dataset.left_out))
    if advice := unshown_audio(dataset):
        say(advice)
    if line := _untimed_line(path, dataset, formats):
        say(line)
    for line in error_lines(path, dataset):
        say(line)
    return status


def _untimed_line(path: str, dataset: Dataset, formats: RecordingFormats) -> str:
    """How many samples have no known duration, and the command that finds it; "" if there are none such."""
    untimed = min(dataset.samples - dataset.timed, formats.rates[None])
    if not untimed or not any(shard.unmeasured for shard in dataset.shards):
        return ""
    have = f"{untimed:,} samples have" if untimed > 1 else "1 sample has"
    return f"{have} no known duration: `touchfs index --full{repeated_options()} {quote(path)}`"


def _interleaved(dataset: Dataset | None) -> str:
    if dataset is None:
        return ""
    damaged = sum(shard.damaged for shard in dataset.shards)
    return f"{dataset}" + (f", {damaged:,} damaged" if damaged else "")


def _shown_columns(dataset: Dataset) -> str:
    columns = stored_columns(dataset)
    shown = [f"{quote_name(name)} ({kind})" for name, kind in islice(columns.items(), COLUMNS_SHOWN)]
    more = len(columns) - len(shown)
    return ", ".join(shown + ([f"and {more:,} more"] if more else []))


def _hours(dataset: Dataset) -> str:
    if dataset.facts()["hours"] is None:
        return "unknown"
    untimed = dataset.samples - dataset.timed
    left = f", and {counted(untimed, 'sample')} of unknown duration" if untimed else ""
    return f"{dataset.seconds / 3600:,.2f} ({dataset.seconds:,.1f} s{left})"


def _counts(counts: Counter[int | None] | Counter[str], unit: str = "") -> str:
    """The values that most recordings have, with the number of these: `16000 Hz (12), unknown (3)`."""
    shown = [
        f"unknown ({count:,})" if value is None else f"{value}{unit} ({count:,})"
        for value, count in counts.most_common(VALUES_SHOWN)
    ]
    more = len(counts) - len(shown)
    return ", ".join(shown + ([f"and {more:,} more"] if more else []))


def error_lines(path: str, dataset: Dataset) -> Iterator[str]:
    """A line for each of the first `ERRORS_SHOWN` shards with errors, and the command that shows details."""
    yield from _error_lines(path, dataset)
    if dataset.interleaved is not None:
        yield from _error_lines(path, dataset.interleaved, "interleaved")


def _error_lines(path: str, dataset: Dataset, view: str = "") -> Iterator[str]:
    broken = [position for position, shard in enumerate(dataset.shards) if shard.reports]
    for position in broken[:ERRORS_SHOWN]:
        yield first_reason(dataset, position)
    if len(broken) > ERRORS_SHOWN:
        yield f"and {len(broken) - ERRORS_SHOWN:,} more shards"
    if broken:
        first = dataset.shards[broken[0]]
        report = quote(f"{path}:{first.path_in(view or next(iter(first.reports)))}/ERROR.txt")
        yield f"See `touchfs cat{repeated_options()} {report}`."
