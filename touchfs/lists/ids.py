"""Ids of recordings that are unique in a dataset.

An id is the quoted key of the sample (`manifest.entry.recording_id`). If samples of the dataset share a key, or have
none, the name of the shard comes before all keys: `<shard>/<key>`. The second sample of a key in one shard is
`<shard>/<key>=~2`; no quoted key has `=~` in it.
"""

from __future__ import annotations

from touchfs.catalog.keys import Keys
from touchfs.core.names import hash_of, quote
from touchfs.dataset import Dataset
from touchfs.manifest.entry import recording_id


class RecordingIds:
    """The ids of the recordings of a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        keys = self._keys = dataset.keys
        self._are_unique = isinstance(keys, Keys) and len(keys) == dataset.samples and not len(keys.repeated)
        self._shards = [recording_id(shard.name) for shard in dataset.shards]

    def of(self, position: int, ordinal: int, key: str) -> str:
        """The id of a sample's recording. `key` is its shown key; `position` is that of its shard.

        If there is no index of keys, nobody knows which keys are repeated: then the ordinal is the key.
        """
        if self._are_unique:
            return recording_id(key)
        above = self._shards[position]
        if not isinstance(self._keys, Keys):
            return f"{above}/{ordinal:08d}"
        places = self._keys.find(hash_of(quote(key)))
        own = [holder.ordinal for holder in map(self._keys.holder, places) if holder.position == position]
        number = own.index(ordinal) + 1 if ordinal in own else 0  # 0: it has no key, and is called as another's key is
        mark = f"=~{number}" if own and number != 1 else ""
        return f"{above}/{recording_id(key)}{mark}"
