"""The output of a step: one line for each sample."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from touchfs.control_characters import has_control, quote_name
from touchfs.dataset.sample import Sample
from touchfs.errors import UsageError
from touchfs.iterators.live_graph import LiveGraph
from touchfs.select.selection import source_of

# From the view as specs name it, the shard, the ordinal and the segment of a sample to its token.
ItemToken = Callable[[str, str, int, int], str]


def format_output(graph: LiveGraph, tokens: Sequence[Any], prefix: str, item_token: ItemToken) -> bytes:
    """Return the lines of samples, given their tokens, in the form of the spec's `output`.

    A non-empty `prefix` is prepended to paths. Raises UsageError as `check_paths`.
    """
    output = graph.spec.output
    check_paths(output, prefix)
    if not tokens:
        return b""
    if output in ("path", "relpath"):
        start = os.fsencode(f"{prefix}/") if prefix and output == "path" else b""
        return start + (b"\n" + start).join(graph.root.paths(tokens)) + b"\n"
    line_of = _key if output == "key" else partial(_json, item_token)
    lines = map(line_of, map(graph.root.make, tokens))
    return os.fsencode("".join([line + "\n" for line in lines]))


def check_paths(output: str, prefix: str) -> None:
    """Raise UsageError if the output is paths and this prefix has control characters, such as a line break."""
    if output == "path" and has_control(prefix):
        problem = "paths would have the control characters of the mount point"
        raise UsageError(f'{problem}: choose "output": "relpath", or mount with --path-prefix')


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
