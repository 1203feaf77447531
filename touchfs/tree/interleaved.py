"""`interleaved/`: a directory for each shard with interleaved samples, and in it one for each sample.

Its rows are in catalogs of their own, so it has open shards of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from touchfs.dataset import Dataset
from touchfs.indexing.interleaved.tables import VIEW
from touchfs.tree.catalog_view import CatalogView
from touchfs.tree.open_shards import NonblockingShards, OpenShards

NAME = VIEW


class InterleavedView(CatalogView):
    """The directory `interleaved`, a `Subtree`. Its inodes have the view `number`.

    `shard_ids` are those of `dataset`, and `interleaved` has some of the shards of it, with their other catalogs.
    """

    def __init__(self, dataset: Dataset, interleaved: Dataset, shard_ids: Sequence[int], number: int) -> None:
        ids = {shard.name: shard_id for shard, shard_id in zip(dataset.shards, shard_ids, strict=True)}
        super().__init__(OpenShards(interleaved, [ids[shard.name] for shard in interleaved.shards]), NAME, number)

    def nonblocking(self, shards: NonblockingShards) -> InterleavedView:
        view = InterleavedView.__new__(InterleavedView)
        vars(view).update(vars(self))
        view._shards = NonblockingShards(self._shards)
        view._keep_directories()  # found through its own shards
        return view

    def attributes(self, inode: int) -> dict[str, str]:
        attributes = super().attributes(inode)
        return attributes | {"id": attributes["key"]} if "key" in attributes else attributes
