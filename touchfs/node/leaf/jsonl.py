"""The JSON objects of a file's lines, and no more: it cannot be saved. `LazyManifestIterator` can."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from touchfs.errors import FormatError
from touchfs.limits import LIMITS, Limits
from touchfs.node.core.base import IteratorNode
from touchfs.shard.jsonl import parse_line
from touchfs.source.lines import lines_after
from touchfs.stream.lines import is_blank


class LazyJsonlIterator(IteratorNode):
    """Over `NAME.jsonl`, `NAME.jsonl.gz` or `pipe:COMMAND`. A line over the limit is a FormatError."""

    def __init__(self, path: str | os.PathLike[str], *, limits: Limits = LIMITS) -> None:
        self.path = os.fspath(path)
        self.limits = limits

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for behind, line in lines_after(self.path, limit=self.limits.json):
            offset = behind.offset - behind.size
            if not is_blank(line, offset):
                parsed, problem = parse_line(line, offset)
                if problem:
                    raise FormatError(problem, path=self.path)
                yield parsed
