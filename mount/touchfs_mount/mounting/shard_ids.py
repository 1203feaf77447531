"""The ids of a mount's shards in its inode numbers, over all generations of its dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from touchfs.core.errors import MountError
from touchfs.tree.inode import SHARD_IDS_MAX


class ShardIds:
    """Assigns ids to shards, in the process that outlives the generations. An id is never reused for another shard.

    The state store provides ids that are the same after a remount. If it cannot be used, ids are counted: from 1 up in
    a mount without a store, else from the maximum down, which the store never reaches.
    """

    def __init__(self, *, has_store: bool) -> None:
        self._ids: dict[tuple[str, str, int], int] = {}
        self._taken: set[int] = set()
        self._counted = iter(range(SHARD_IDS_MAX, 0, -1) if has_store else range(1, SHARD_IDS_MAX + 1))

    def of(self, shards: Sequence[tuple[str, str]], stored: Sequence[int] | None) -> list[int]:
        """The ids of shards, given as `(path, identity)`, in order. `stored` are the ids from the store, if it works.

        Raises MountError if no ids are left.
        """
        ids, seen = [], Counter[tuple[str, str]]()
        for position, shard in enumerate(shards):
            seen[shard] += 1
            key = *shard, seen[shard]
            if key not in self._ids:
                self._ids[key] = self._new(stored[position] if stored is not None else 0)
            ids.append(self._ids[key])
        return ids

    def _new(self, stored: int) -> int:
        shard_id = stored
        if not 0 < stored <= SHARD_IDS_MAX or stored in self._taken:
            shard_id = next((free for free in self._counted if free not in self._taken), 0)
        if not shard_id:
            raise MountError(f"more than {SHARD_IDS_MAX} shard ids are in use: delete the state store")
        self._taken.add(shard_id)
        return shard_id
