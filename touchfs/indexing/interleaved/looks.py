"""Look whether a tar has interleaved samples: at the JSON of its first samples, which its catalog finds."""

from __future__ import annotations

from itertools import islice

from touchfs.dataset import Dataset, Shard
from touchfs.dataset.open_shard import OpenShard
from touchfs.json_text import parse_json
from touchfs.limits import Limits

# JSON members that are looked at, and samples in which they are looked for
_DOCUMENTS, _SAMPLES = 8, 64
_LISTS = ("texts", "images")


def looks_interleaved(shard: Shard, limits: Limits) -> bool:
    """True if one of the first JSON members of a shard has lists of texts and of images. Raises as reads do."""
    opened = OpenShard(Dataset(shard.path, [shard], "not needed", limits), 0)
    table = opened.tables["shards"]
    rows = (row for ordinal in range(min(shard.samples, _SAMPLES)) for row in table.files(ordinal))
    documents = (row for row in rows if table.name(row).lower().endswith(b".json"))
    small = (row for row in islice(documents, _DOCUMENTS) if table.size[row] <= limits.json)
    return any(_has_lists(opened.read(table, row)) for row in small)


def _has_lists(data: bytes) -> bool:
    try:
        value = parse_json(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and all(isinstance(value.get(name), list) for name in _LISTS)
