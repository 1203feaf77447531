"""The list of what a job skipped: a part for each shard while the job is unfinished, `skipped.jsonl` at its end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from touchfs.posix.atomic import atomic_file

SKIPPED = "skipped.jsonl"


def skipped_line(record: Mapping[str, Any]) -> bytes:
    """A record as a line. A byte that is not UTF-8 is a lone surrogate here; Python's escape of it is also JSON's."""
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def publish_skipped(output: Path, lines: Iterable[bytes]) -> None:
    """Write the lines of all parts into the list of the output."""
    with atomic_file(output / SKIPPED) as file:
        file.writelines(lines)
