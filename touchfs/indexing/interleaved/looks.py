"""Look whether a tar has interleaved samples: at the JSON of its first samples, which its catalog finds."""

from __future__ import annotations

from functools import partial
from itertools import islice

from touchfs.core.json_text import parse_json
from touchfs.dataset import Dataset
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.shard import Shard
from touchfs.indexing.index_task import index_again
from touchfs.shard.options import Options

# JSON members that are looked at, and samples in which they are looked for
_DOCUMENTS, _SAMPLES = 8, 64
_LISTS = ("texts", "images")


def looks_interleaved(shard: Shard, options: Options) -> bool:
    """True if one of the first JSON members of a shard has lists of texts and of images. Raises as reads do."""
    again = partial(index_again, options)
    opened = OpenShard(Dataset.of(shard.path, [shard], "not needed", options.limits, index_again=again), shard)
    table = opened.tables["shards"]
    rows = (row for ordinal in range(min(shard.samples, _SAMPLES)) for row in table.files(ordinal))
    documents = (row for row in rows if table.name(row).lower().endswith(b".json"))
    small = (row for row in islice(documents, _DOCUMENTS) if table.size[row] <= options.limits.json)
    return any(_has_lists(opened.read(table, row)) for row in small)


def _has_lists(data: bytes) -> bool:
    try:
        value = parse_json(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and all(isinstance(value.get(name), list) for name in _LISTS)
