"""A plain reader of JSON lines, without tokens and states. `LazyManifestIterator` has states."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from touchfs.containers.lines.reader import parse_line
from touchfs.core.errors import FormatError
from touchfs.limits import LIMITS, Limits
from touchfs.node.core.iterator_node import IteratorNode
from touchfs.source.lines import lines_after
from touchfs.stream.lines import is_blank


class LazyJsonlIterator(IteratorNode):
    """The JSON objects in the lines of `path`: `NAME.jsonl`, `NAME.jsonl.gz` or the output of `pipe:COMMAND`.

    Blank lines are skipped. Iterating raises FormatError for a line that is not a JSON object or is longer than
    `limits.json` bytes, SourceError if the file cannot be read. It cannot be saved.
    """

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
