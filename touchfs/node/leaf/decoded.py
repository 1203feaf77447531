"""Samples whose JSON a function decodes, as for Lhotse's manifests, and the skipping of samples that fail."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, cast

from touchfs.core.errors import UsageError
from touchfs.core.token import Token
from touchfs.dataset.samples import Samples
from touchfs.node.core.iteration import Pair, same
from touchfs.node.core.saved import Saved
from touchfs.node.order.ordered_node import OrderedNode, OrderIteration
from touchfs.store.shard_lists import ShardList

# Called as by Lhotse, with the error, the ordinal and the path.
OnError: TypeAlias = Callable[[Exception, int, str], None]


class DecodedSamples:
    """A sequence of the values that `decode` returns for the samples' JSON.

    Without `decode` it yields the samples themselves, after checking that their JSON can be parsed.
    """

    def __init__(self, samples: Any, decode: Callable[[Any], Any] | None) -> None:
        if not isinstance(samples, Samples):
            raise UsageError(f"decode takes the .json of samples, and {type(samples).__name__} has none: map its items")
        self.samples = samples
        self.decode = decode

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the samples."""
        return self.samples.fingerprint

    def shard_list(self) -> ShardList | None:
        """The shards of the samples."""
        return self.samples.shard_list()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, ordinal: int) -> Any:
        sample = self.samples[ordinal]
        name = sample.json_name
        if name is None:
            raise UsageError("decode takes the .json of a sample, and this one has none", key=sample.key)
        limit = self.samples.dataset.limits.json
        data = sample.plain(name, limit)
        try:
            value = json.loads(data)
        except ValueError as error:
            # Its type is Lhotse's, so it stays; it does not say where it was.
            error.add_note(f"in {self.samples.dataset.source}: sample {ordinal}, key {sample.key!r:.200}")
            raise
        return sample if self.decode is None else self.decode(value)


class SkippingIteration(OrderIteration):
    """An iteration that makes each item at once, and skips it if its JSON cannot be decoded."""

    def __init__(self, node: OrderedNode, epoch: int, saved: Saved, path: str, on_error: OnError) -> None:
        super().__init__(node, epoch, saved)
        self._path = path
        self._on_error = on_error

    def walk(self) -> Iterator[Pair]:
        for token, make in super().walk():
            try:
                item = make()
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                self._on_error(error, self.node.ordinal_of(cast(Token, token)), self._path)
                continue
            yield token, partial(same, item)

    def take(self, count: int) -> list[Token | None]:
        return [token for token, _ in islice(self.pairs, count)]


def warn_of(error: Exception, ordinal: int, path: str) -> None:
    """Warn that a sample is skipped."""
    warnings.warn(f"{path}: sample {ordinal} is left out: {type(error).__name__}: {error}", stacklevel=2)
