"""Writer of TouchNet shards: a directory with, for each modality, a .bin of elements and an .idx with their ranges.

The .bin files grow while samples are added; of a sample only its lengths are kept in memory. The directory appears when
everything is written, so an existing shard is complete.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

import numpy as np

from touchfs.containers.touchnet.layout import mmidx
from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Buffer
from touchfs.posix.atomic import atomic_directory
from touchfs.shard.whole import WholeWriter


class TouchNetWriter(WholeWriter):
    """Write one shard: `with TouchNetWriter(path, {"audio": np.dtype("<i2")}) as writer: writer.add({"audio": pcm})`

    `modalities` maps each modality to the dtype of its elements.
    """

    def __init__(self, path: str | os.PathLike[str], modalities: Mapping[str, np.dtype[Any]]) -> None:
        for name, dtype in modalities.items():
            mmidx.dtype_code(dtype)
            if not name or "/" in name or "\0" in name:
                raise UsageError(f"a modality cannot be named {name!r}")
        self._path = path
        self._modalities = dict(modalities)
        self._lengths = {name: array("q") for name in modalities}
        self._bins: dict[str, BinaryIO] = {}
        self._context = self._shard()

    @contextmanager
    def _shard(self) -> Iterator[None]:
        with atomic_directory(self._path) as directory:
            with ExitStack() as stack:
                for name in self._modalities:
                    self._bins[name] = stack.enter_context(open(directory / f"{name}.bin", "xb"))
                yield
            for name, dtype in self._modalities.items():
                index = mmidx.build_index(dtype, np.asarray(self._lengths[name]))
                (directory / f"{name}.idx").write_bytes(index)

    def add(self, fields: Mapping[str, Buffer]) -> None:
        """Add one sample: its data by modality in `fields`.

        Raises FormatError, and writes nothing of it, if it cannot be stored.
        """
        ordinal = len(self)
        if fields.keys() != self._modalities.keys():
            raise FormatError(f"sample {ordinal} has {', '.join(fields)}, the shard {', '.join(self._modalities)}")
        lengths = {}
        for name, dtype in self._modalities.items():
            lengths[name], rest = divmod(len(fields[name]), dtype.itemsize)
            if rest or lengths[name] >= mmidx.LENGTH_LIMIT:
                size = len(fields[name])
                raise FormatError(f"sample {ordinal} has {size} bytes of {name}, not up to 2**31 - 1 of {dtype.str}")
        for name, length in lengths.items():
            self._bins[name].write(fields[name])
            self._lengths[name].append(length)

    def __len__(self) -> int:
        return len(next(iter(self._lengths.values()), ()))
