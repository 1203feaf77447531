"""What a step tells of the samples it took: a line each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from touchfs.shown_sample import ShownSample

# The view as specs name it, the shard, the ordinal and the segment of a sample, and its token.
ItemToken = Callable[[str, str, int, int], str]


def tell(samples: Iterable[ShownSample], output: str, prefix: str, item_token: ItemToken) -> str:
    """`output` is that of a spec; `prefix` is put before paths, where there is one."""
    lines: dict[str, Callable[[ShownSample], str]] = {
        "path": lambda sample: f"{prefix}/{_path(sample)}" if prefix else _path(sample),
        "relpath": _path,
        "key": _key,
        "json": lambda sample: _json(sample, item_token),
    }
    line = lines[output]
    return "".join([line(sample) + "\n" for sample in samples])


def _path(sample: ShownSample) -> str:
    """Of its first file. Of a sample that cannot be shown, what says why."""
    for extension in sample:
        return sample.path(extension)
    return f"shards/{sample.shard}/ERROR.txt"


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
