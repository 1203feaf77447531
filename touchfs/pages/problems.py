"""What is wrong in a dataset: the lines of the reports of its shards, page by page."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice

from touchfs.core.names import REPORT
from touchfs.dataset.shard import Shard
from touchfs.explore.linked import OWN, ErrorList, url_of
from touchfs.indexing.report import reasons

LINES = 200
_OF_SAMPLE = re.compile(r"sample ([0-9]+) \(")


def errors_from(shards: Sequence[Shard], first: int) -> ErrorList:
    """The lines from this one on."""
    # A report has some thousands of lines at most, so those of all shards are counted.
    counts = [(shard, view, len(reasons(text))) for shard in shards for view, text in shard.reports.items()]
    total = sum(count for _, _, count in counts)
    first = min(max(first, 0), total)
    lines, skipped = list[tuple[str, str, str]](), 0
    for shard, view, count in counts:
        if skipped + count > first and len(lines) < LINES:
            found = reasons(shard.reports[view])
            begin = max(first - skipped, 0)
            lines += [_line(shard, view, each) for each in islice(found, begin, begin + LINES - len(lines))]
        skipped += count
    following = f"{OWN}errors?from={first + LINES}" if first + LINES < total else ""
    return ErrorList(lines, first, total, f"{OWN}errors?from={max(first - LINES, 0)}" if first else "", following)


def _line(shard: Shard, view: str, line: str) -> tuple[str, str, str]:
    sample = _OF_SAMPLE.match(line)
    url = f"{shard.path_in(view)}/{REPORT}"
    place = url_of(url) if sample is None else f"{OWN}sample/{url_of(shard.name)}/{int(sample[1]):08d}"
    return shard.name, line.replace(shard.path, os.path.basename(shard.path)), place
