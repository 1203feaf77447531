"""The output of a step: one line for each sample."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from touchfs.core.control_characters import has_control, quote_name
from touchfs.core.errors import NotFoundError, UsageError
from touchfs.dataset.sample import Sample
from touchfs.iterators.live_graph import LiveGraph
from touchfs.select.expression import spell_field
from touchfs.select.selection import source_of

# From the view as specs name it, the shard, the ordinal and the segment of a sample to its token.
ItemToken = Callable[[str, str, int, int], str]


class OutputLines:
    """The lines that steps tell. A non-empty `prefix` is prepended to paths."""

    def __init__(self, prefix: str, item_token: ItemToken) -> None:
        self._starts = {"path": os.fsencode(f"{prefix}/" if prefix else ""), "relpath": b""}
        self._is_broken = has_control(prefix)
        self._item_token = item_token

    def check(self, output: str) -> None:
        """Raise UsageError if the output is paths and their prefix has control characters, such as a line break."""
        if self._is_broken and output == "path":
            problem = "paths would have the control characters of the mount point"
            raise UsageError(f'{problem}: choose "output": "relpath", or mount with --path-prefix')

    def lines(self, graph: LiveGraph, tokens: Sequence[Any]) -> bytes:
        """Return the lines of samples, given their tokens, in the form of the spec's `output`. Raises as `check`."""
        output = graph.spec.output
        if self._is_broken:
            self.check(output)
        if not tokens:
            return b""
        if (start := self._starts.get(output)) is not None:
            extension = graph.spec.extension
            if extension is None:
                paths = graph.root.paths(tokens)
            else:
                paths = [path_of(sample, extension) for sample in graph.made(tokens)]
            return start + (b"\n" + start).join(paths) + b"\n"
        line_of = _key if output == "key" else partial(_json, self._item_token)
        lines = map(line_of, graph.made(tokens))
        return os.fsencode("".join([line + "\n" for line in lines]))


def path_of(sample: Sample, extension: str) -> bytes:
    """The path of the file with this extension. Raises UsageError, which says how to leave out samples without one."""
    try:
        return os.fsencode(sample.path(extension))
    except NotFoundError as error:
        field = spell_field(("size", extension))
        problem = f"{error.message}; where {field} exists leaves such samples out"
        raise UsageError(problem, key=sample.key) from error


def _key(sample: Sample) -> str:
    return quote_name(sample.key)


def _json(item_token: ItemToken, sample: Sample) -> str:
    line = {
        "key": sample.key,
        "shard": sample.shard,
        "ordinal": sample.ordinal,
        "files": {extension: sample.path(extension) for extension in sample},
        "token": json.loads(item_token(source_of(sample.view), sample.shard, sample.ordinal, sample.number)),
    }
    return json.dumps(line)
