"""What a step tells of the samples it took: a line each."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from touchfs.dataset.shown_sample import ShownSample
from touchfs.state.live_graph import LiveGraph

# The view as specs name it, the shard, the ordinal and the segment of a sample, and its token.
ItemToken = Callable[[str, str, int, int], str]


def tell(graph: LiveGraph, tokens: Sequence[Any], prefix: str, item_token: ItemToken) -> bytes:
    """`prefix` is put before paths, where there is one."""
    output = graph.spec.output
    if not tokens:
        return b""
    if output in ("path", "relpath"):
        before = os.fsencode(f"{prefix}/") if prefix and output == "path" else b""
        return before + (b"\n" + before).join(graph.paths(tokens)) + b"\n"
    samples = map(graph.root.make, tokens)
    lines = map(_key, samples) if output == "key" else (_json(sample, item_token) for sample in samples)
    return os.fsencode("".join([line + "\n" for line in lines]))


def _key(sample: ShownSample) -> str:
    return json.dumps(sample.key)[1:-1] if not sample.key.isprintable() else sample.key


def _json(sample: ShownSample, item_token: ItemToken) -> str:
    view = "samples" if sample.view == "shards" else sample.view
    told = {
        "key": sample.key,
        "shard": sample.shard,
        "ordinal": sample.ordinal,
        "files": {extension: sample.path(extension) for extension in sample},
        "token": json.loads(item_token(view, sample.shard, sample.ordinal, sample.number)),
    }
    return json.dumps(told)
