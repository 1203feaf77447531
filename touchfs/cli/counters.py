"""The counters and latencies of a mount, which `touchfs status --stats` shows."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from touchfs.cli.progress import BYTES, amount
from touchfs.cli.terminal import say
from touchfs.core.control_characters import one_line
from touchfs.core.errors import FormatError

if TYPE_CHECKING:
    from touchfs_mount.numbers.snapshot import Latencies, Snapshot

_WATCH_SECONDS = 1.0
# Metrics without labels, in the order of the table.
_COUNTS = (
    ("shards", "shards"),
    ("indexed shards", "indexed_shards"),
    ("in flight", "requests_in_flight"),
    ("renderings", "renderings_total"),
    ("iterator steps", "iterator_steps_total"),
    ("exact ranges", "exact_ranges_total"),
    ("restarts", "worker_restarts_total"),
    ("strikes", "strikes_total"),
    ("resends", "resends_total"),
    ("late replies", "late_replies_total"),
    ("lost races", "lost_races_total"),
    ("internal errors", "internal_errors_total"),
    ("reloads", "reloads_total"),
)


def print_counters(path: str, *, watch: bool, as_json: bool) -> None:
    """Print the counters of the mount at a path once, or show them every second until Ctrl-C."""
    snapshot = _read(path)
    if as_json:
        operations = {name: _summary(each) for name, each in snapshot.operations.items()}
        say(json.dumps({**snapshot.values, "operations": operations}))
    elif watch:
        with suppress(KeyboardInterrupt):
            _watch(path)
    else:
        for line in _lines(snapshot):
            say(line)


def _summary(latencies: Latencies) -> dict[str, float | None]:
    """An operation in JSON, with times in seconds. A time beyond all buckets is null, as JSON has no infinity."""
    times = {"mean": latencies.mean, "p50": latencies.quantile(0.5), "p99": latencies.quantile(0.99)}
    known = {name: None if seconds == float("inf") else seconds for name, seconds in times.items()}
    return {"count": latencies.count, "sum": latencies.seconds, **known}


def _read(path: str) -> Snapshot:
    from touchfs_mount.mounting.status import read_control_file
    from touchfs_mount.numbers.snapshot import parse_snapshot

    try:
        return parse_snapshot(read_control_file(path, "stats").decode("utf-8", "replace"))
    except FormatError as error:
        raise error.at(os.path.join(path, ".touchfs", "stats")) from error


def _watch(path: str) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    before, began = _read(path), time.monotonic()
    # A table that is higher than the terminal scrolls: by default its last rows would be replaced by "…".
    with Live(console=Console(highlight=False), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            time.sleep(_WATCH_SECONDS)
            now, moment = _read(path), time.monotonic()
            table = Text(_joined(_lines(now, before, moment - began)))
            if live.console.is_terminal:
                live.update(table, refresh=True)
            else:
                live.console.print(table)
            before, began = now, moment


def _joined(lines: Iterator[str]) -> str:
    return "\n".join(map(one_line, lines))


def _lines(now: Snapshot, before: Snapshot | None = None, seconds: float = 1.0) -> Iterator[str]:
    """The lines of the table. With an earlier snapshot, of so many seconds before, also rates, and no counts that are
    zero: so the table of most mounts fits into a terminal of 24 lines.
    """
    rate_title = "" if before is None else f"{'/s':>10}"
    yield f"{'operation':<16}{'requests':>12}{rate_title}{'mean':>10}{'50% in':>10}{'99% in':>10}"
    for name, latencies in now.operations.items():
        rate = ""
        if before is not None:
            earlier = before.operations.get(name)
            rate = f"{(latencies.count - (earlier.count if earlier else 0)) / seconds:>10,.0f}"
        times = (latencies.mean, latencies.quantile(0.5), latencies.quantile(0.99))
        yield f"{name:<16}{latencies.count:>12,}{rate}{''.join(f'{_time(each):>10}' for each in times)}"
    size = now.value("read_bytes_total")
    rate = ""
    if before is not None:
        rate = f", {amount(int((size - before.value('read_bytes_total')) / seconds), BYTES)}/s"
    yield f"{'bytes read':<16}{amount(int(size), BYTES)}{rate}"
    hits, misses = now.by_label("cache_hits_total"), now.by_label("cache_misses_total")
    for name, count in hits.items():
        if before is None or count or misses.get(name):
            yield f"{name + ' cache':<16}{count:,.0f} hits, {misses.get(name, 0):,.0f} misses"
    errors = [f"{name} {count:,.0f}" for name, count in now.by_label("errors_total").items() if count]
    yield f"{'errors':<16}{', '.join(errors) or 'none'}"
    for title, name in _COUNTS:
        if before is None or now.value(name):
            yield f"{title:<16}{now.value(name):,.0f}"


def _time(seconds: float) -> str:
    if seconds == float("inf"):
        return "long"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
