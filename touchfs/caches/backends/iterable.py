"""The rows of a backend as an iterable dataset: each worker of a `DataLoader` reads its own shards from start to end.

All workers know the one order of the shards in an epoch. Worker w of n takes those at w, w + n, … in it. If there are
fewer shards than workers, several workers read a shard and each keeps every k-th row of it: so whatever the numbers,
and with shuffling, each row comes exactly once.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from touchfs.caches.backends.dataset import BackendDataset, Decode
from touchfs.caches.backends.indices import shuffled
from touchfs.caches.backends.protocol import StorageBackend
from touchfs.core.errors import UsageError

if TYPE_CHECKING:
    _Base = Iterable[Any]
else:
    try:
        from torch.utils.data import IterableDataset as _Base
    except ImportError:  # then there is no DataLoader that asks for its base class
        _Base = object

# Rows of a batch that are made at a time: a batch may have thousands, of which each is an image.
_ROWS = 64


class BackendIterableDataset(_Base):
    """The rows of a backend in the order of its shards; with `shuffle`, in an order of shards and rows for each epoch.

    An epoch's order is that of `seed` + epoch. Rows are shuffled as far as a buffer of `buffer_size` rows does it,
    which are in memory; with 1, only shards are. The epoch is that of `set_epoch`, which also reaches workers that
    persist. Of several ranks each reads its part. Raises UsageError for numbers that do not fit.
    """

    def __init__(
        self,
        backend: StorageBackend,
        decode: Decode | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        buffer_size: int = 1000,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise UsageError(f"rank {rank} of {world_size}")
        if buffer_size < 1 or seed < 0:
            raise UsageError(f"a buffer of {buffer_size} rows, and seed {seed}")
        self.backend = backend
        self.decode = decode
        self.shuffle = shuffle
        self.seed = seed
        self.buffer_size = buffer_size
        self.rank, self.world_size = rank, world_size
        self._epoch = _shared_number()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, from 0 on."""
        self._epoch[0] = epoch

    def __iter__(self) -> Iterator[Any]:
        worker, workers = _worker()
        seed = self.seed + int(self._epoch[0])
        rows = self._rows(self.rank * workers + worker, self.world_size * workers, seed)
        if self.shuffle and self.buffer_size > 1:
            rows = _mixed(rows, self.buffer_size, random.Random(f"{seed} {self.rank} {worker}"))
        return rows if self.decode is None else map(self.decode, rows)

    def _rows(self, share: int, shares: int, seed: int) -> Iterator[dict[str, Any]]:
        count = self.backend.num_shards
        if count <= 1:
            return self._every(share, shares)
        shards = shuffled(list(range(count)), seed) if self.shuffle else list(range(count))
        # Shares beyond the number of shards begin again with the first shard.
        part, parts = share // count, len(range(share % count, shares, count))
        return (row for shard in shards[share % count :: shares] for row in self._part(shard, part, parts))

    def _every(self, first: int, step: int) -> Iterator[dict[str, Any]]:
        """Yield every `step`-th row: what a backend of one shard need not read, it does not read."""
        items = BackendDataset(self.backend)
        numbers = range(first, len(items), step)
        count = _ROWS if self.backend.prefer_batched_take else 1
        for start in range(0, len(numbers), count):
            yield from items.__getitems__(numbers[start : start + count])

    def _part(self, shard: int, part: int, parts: int) -> Iterator[dict[str, Any]]:
        """Yield every `parts`-th row of a shard, from the row `part` on."""
        position, count = 0, _ROWS if parts == 1 else 1
        for batch in self.backend.iter_batches([shard]):
            for row in range((part - position) % parts, len(batch), max(count, parts)):
                yield from batch.slice(row, count).to_pylist()
            position += len(batch)


def _mixed(rows: Iterator[Any], size: int, draw: random.Random) -> Iterator[Any]:
    """Yield all rows: each from a random place of a buffer, which the next one takes."""
    buffer: list[Any] = []
    for row in rows:
        if len(buffer) < size:
            buffer.append(row)
            continue
        place = draw.randrange(size)
        yield buffer[place]
        buffer[place] = row
    draw.shuffle(buffer)
    yield from buffer


def _worker() -> tuple[int, int]:
    """Return the number of this DataLoader's worker, and how many there are; (0, 1) outside of one."""
    loader = sys.modules.get("torch.utils.data")
    info = None if loader is None else loader.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _shared_number() -> Any:
    """Return a sequence of one number, 0, in memory that is shared with workers if PyTorch makes them."""
    torch = sys.modules.get("torch")
    return [0] if torch is None else torch.zeros(1, dtype=torch.int64).share_memory_()
