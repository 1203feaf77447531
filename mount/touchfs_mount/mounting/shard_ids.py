"""The ids that the shards of a mount have in its inode numbers, over all generations of its dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from touchfs.errors import MountError
from touchfs.tree.inode import SHARD_IDS_MAX


class ShardIds:
    """Kept by the process that outlives the generations. An id that was given here never means another shard.

    The state store gives ids that are the same after a remount. Where it cannot be used they are counted: from 1 on in
    a mount without a store, else from the last one down, which the store does not come to.
    """

    def __init__(self, *, has_store: bool) -> None:
        self._ids: dict[tuple[str, str, int], int] = {}
        self._taken: set[int] = set()
        self._counted = iter(range(SHARD_IDS_MAX, 0, -1) if has_store else range(1, SHARD_IDS_MAX + 1))

    def of(self, shards: Sequence[tuple[str, str]], stored: Sequence[int] | None) -> list[int]:
        """The ids of shards, given as (path, identity), in order. `stored` are those that the store gives, if it does.

        Raises MountError where there are none left.
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
            raise MountError(f"over {SHARD_IDS_MAX} shard ids were given: delete the state store")
        self._taken.add(shard_id)
        return shard_id
