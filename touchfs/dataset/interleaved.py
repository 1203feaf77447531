"""The samples of the view `interleaved/`: texts and images, each a file with its position as name."""

from __future__ import annotations

from touchfs.core.errors import UsageError
from touchfs.dataset import Dataset
from touchfs.dataset.catalogued import CataloguedSample
from touchfs.dataset.open_shard import OpenShard
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import DatasetSamples

_METADATA = "metadata.json"


class InterleavedSamples(DatasetSamples):
    """The samples of `dataset.interleaved`, which is their dataset. Raises UsageError if there is none."""

    view = "interleaved"

    def __init__(self, dataset: Dataset) -> None:
        if dataset.interleaved is None:
            raise UsageError(
                "the dataset has no interleaved samples; `touchfs interleave`, and --kind interleaved of commands "
                "that read, take all tars for such"
            )
        super().__init__(dataset.interleaved)

    def show(self, shard: OpenShard, position: int, number: int) -> Sample:
        """The sample with this ordinal."""
        table = shard.tables[self.view]
        return InterleavedDocument(self.view, shard, table, table.files(number), number)


class InterleavedDocument(CataloguedSample):
    """A sample of texts and images. The key of a file is its whole name, such as `001.jpg`."""

    __slots__ = ()

    @property
    def json_name(self) -> str | None:
        """The name of the file with its other fields; None if it has none."""
        return _METADATA if _METADATA in self else None
