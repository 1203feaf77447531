"""Item tokens: each identifies a sample or a segment, and the dataset."""

from __future__ import annotations

from functools import cached_property

from touchfs.core.token import to_json
from touchfs.dataset import Dataset
from touchfs.dataset.samples import DatasetSamples


class ItemTokens:
    """The item tokens of a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def token(self, view: str, shard: str, ordinal: int, segment: int) -> str:
        """Return the token of a sample as JSON, in the form that can be written to the file `token` of an iterator."""
        sample = {"source": view, "shard": shard, "ordinal": ordinal, "segment": segment}
        return to_json({"kind": "item", "fingerprint": self.fingerprint, **sample})

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the dataset's samples, which every token contains."""
        return DatasetSamples(self._dataset).fingerprint
