"""The processor time that the checksum of a catalog costs: with it, and without, in turn, from the page cache."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from harness import at_most, interleaved, report, run

from touchfs.catalog import catalog as module
from touchfs.catalog.catalog import Catalog, Facts, FileKind, write_catalog
from touchfs.catalog.table_builder import TableBuilder
from touchfs.format.arrow.build import build_file
from touchfs.format.arrow.mapped_columns import Column
from touchfs.format.arrow.mapped_file import parse_file
from touchfs.format.arrow.sealed import build_sealed, parse_sealed

LARGE, SMALL, ROUNDS, SMALL_TIMES = 1_000_000, 100, 15, 500
CHOSEN = random.Random(1)


def columns(files: int) -> dict[str, Column]:
    """Files like those of a tar with a recording a sample."""
    builder = TableBuilder()
    spans = np.stack((np.arange(files) * 10_240 + 512, CHOSEN.choices(range(1 << 20), k=files)), axis=1)
    keys = [b"utterance-%08d" % number for number in range(files)]
    builder.add_alike([1], range(files), spans.reshape(-1, 1, 2), [4], keys)
    return builder.columns((b"", key + b".wav") for key in keys)


def write(path: str, table: dict[str, Column]) -> None:
    write_catalog(path, {"shards": table}, [FileKind("wav", "x.tar", "bytes")], Facts({}, 0, 0.0, 0, 0, 0, ""))


def look_up(path: str, files: int) -> None:
    table = Catalog(path).tables["shards"]
    row = table.find(0, b"utterance-%08d.wav" % CHOSEN.randrange(files))
    assert row is not None and table.length[row] >= 0


def listed(path: str) -> None:
    table = Catalog(path).tables["shards"]
    for row in table.children(0):
        table.name(row)


def seconds(act: Callable[[], object], times: int, *, sealed: bool) -> float:
    """Seconds of one call, with or without checksums."""
    module.build_sealed = build_sealed if sealed else build_file  # type: ignore[attr-defined]
    module.parse_sealed = parse_sealed if sealed else parse_file  # type: ignore[attr-defined]
    start = time.process_time()
    for _ in range(times):
        act()
    return (time.process_time() - start) / times


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        large, small = str(Path(place, "large")), str(Path(place, "small"))
        start = time.process_time()
        table = columns(LARGE)
        making = time.process_time() - start
        write(small, columns(SMALL))
        acts: dict[str, tuple[Callable[[], object], int, float]] = {
            f"write {LARGE:,} files": (partial(write, large, table), 1, 1.5),
            f"open {LARGE:,} files": (partial(Catalog, large), 1, 0),
            "that and the first lookup": (partial(look_up, large, LARGE), 1, 0),
            "that and list all": (partial(listed, large), 1, 1.1),
            f"open {SMALL:,} files": (partial(Catalog, small), SMALL_TIMES, 1.2),
            "that and a lookup": (partial(look_up, small, SMALL), SMALL_TIMES, 1.2),
        }
        rows = [("names and rows of these files, without the samples", f"{making * 1e3:,.0f} ms", "")]
        for name, (act, times, most) in acts.items():
            contestants = {str(sealed): partial(seconds, act, times, sealed=sealed) for sealed in (False, True)}
            found = interleaved(contestants, ROUNDS if times > 1 or most < 1 else 3)
            without, sealed = found["False"], found["True"]
            told = f"{sealed * 1e3:,.2f} ms, {without * 1e3:,.2f} without checksum: {sealed / without:.2f}"
            rows.append((name, told, at_most(sealed / without, most) if most else ""))
        report("Catalogs", rows)


run(main)
