"""Writer of Lhotse Shar: for each shard of cuts a JSONL of them, and beside it a file for each field of their data.

    cuts.000000.jsonl.gz   a cut a line; where it has data of a field, a placeholder
    recording.000000.tar   two members a cut: data and its manifest; both empty where the cut has none
    text.000000.jsonl.gz   of fields of plain values: {"cut_id": …, "text": …} a line
    *.idx                  of each file that is not compressed, where its samples begin

The same cuts become the same bytes as by Lhotse's SharWriter, in whose place this one can be put. But here the files of
a shard appear when it is full, cuts last, and each index after its file. An exception drops the shard at work; those
before it stay, and are replaced when they are written again.

Source: lhotse/shar/writers/.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from touchfs.errors import SourceError, UsageError
from touchfs.extent import Buffer
from touchfs.write.jsonl import JsonlWriter
from touchfs.write.shar.cut import CUTS, store_cut, unstored
from touchfs.write.shar.fields import VALUE, check_fields
from touchfs.write.shar.lhotse_cut import unload
from touchfs.write.tar import TarWriter
from touchfs.write.whole import WholeWriter


class SharWriter:
    """`with SharWriter("shar", {"recording": "flac", "text": "jsonl"}) as writer: writer.write(cut)`

    `fields` says how each is stored (`write/shar_fields.py`). Without a shard_size all is one shard, whose files have
    `shard_suffix`, if there is one, instead of a number.
    """

    def __init__(
        self,
        output_dir: str | os.PathLike[str],
        fields: Mapping[str, str],
        shard_size: int | None = 1000,
        warn_unused_fields: bool = True,
        include_cuts: bool = True,
        shard_suffix: str | None = None,
        shard_offset: int = 0,
        compress_jsonl: bool = True,
        create_index: bool = True,
    ) -> None:
        self.output_dir = os.fspath(output_dir)
        self.fields = dict(fields)
        check_fields(self.fields)
        if "://" in self.output_dir or self.output_dir.startswith("pipe:"):
            raise UsageError("only a local directory can be written", path=self.output_dir)
        if shard_size and shard_suffix is not None:
            raise UsageError("files have a number or a suffix: give shard_size or shard_suffix", path=self.output_dir)
        if (shard_size or 0) < 0 or shard_offset < 0:
            problem = f"no shards can have {shard_size} cuts, from number {shard_offset} on"
            raise UsageError(problem, path=self.output_dir)
        if create_index and compress_jsonl:
            problem = "compressed JSONL cannot be indexed, so Lhotse will only stream: use compress_jsonl=False"
            warnings.warn(problem, stacklevel=2)
        lines = ".jsonl.gz" if compress_jsonl else ".jsonl"
        kinds = {CUTS: VALUE, **self.fields} if include_cuts else self.fields
        self._extensions = {name: lines if kind == VALUE else ".tar" for name, kind in kinds.items()}
        self._create_index = create_index
        self._warn_unused = warn_unused_fields
        self._shard_size = shard_size or None
        self._suffix = shard_suffix or ""
        self._first = self._next = shard_offset
        self._shard: _Shard | None = None

    @property
    def output_paths(self) -> dict[str, list[str]]:
        """Of each field, and of the cuts; the shard at work included."""
        return {
            name: [self._path(name, number) for number in range(self._first, self._next)] for name in self._extensions
        }

    def _path(self, name: str, number: int) -> str:
        suffix = self._suffix if self._shard_size is None else f".{number:06d}"
        return os.path.join(self.output_dir, name + suffix + self._extensions[name])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._end(*error)

    def close(self) -> None:
        """For use without `with`."""
        self._end(None, None, None)

    def write(self, cut: Any, payloads: Mapping[str, Any] | None = None) -> None:
        """A cut of Lhotse's. Or the JSON object that such a cut is in a manifest, and what its fields hold: bytes that
        are encoded already, an array, an `Audio`, a plain value, or None. Nothing of it is written if any of it does
        not fit.

        The object needs no more than an id if there is a recording, by which all else is known; recordings and arrays
        need no manifests. Plain values may be in its "custom" instead.
        """
        row, data = (cut, payloads or {}) if isinstance(cut, Mapping) else unload(cut, self.fields)
        if self._warn_unused:
            for name in unstored(row, self.fields):
                warnings.warn(f"cuts have {name}, which is not among the fields to store", stacklevel=2)
        stored = store_cut(row, self.fields, data)
        if self._shard is None:
            self._shard = self._begin()
        self._shard.add(row["id"], {name: stored[name] for name in self._extensions})
        if len(self._shard) == self._shard_size:
            self.close()

    def _begin(self) -> _Shard:
        try:
            os.makedirs(self.output_dir, exist_ok=True)
        except OSError as error:
            raise SourceError(f"cannot be made: {error.strerror}", path=self.output_dir) from error
        paths = {name: self._path(name, self._next) for name in self._extensions}
        self._next += 1
        return _Shard(paths, create_index=self._create_index).__enter__()

    def _end(self, *error: Any) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.__exit__(*error)


class _Shard(WholeWriter):
    """Its files are done in the reverse order of `paths`."""

    def __init__(self, paths: Mapping[str, str], *, create_index: bool) -> None:
        self._paths = paths
        self._lines: dict[str, JsonlWriter] = {}
        self._tars: dict[str, TarWriter] = {}
        self._count = 0
        self._context = self._files(create_index)

    @contextmanager
    def _files(self, create_index: bool) -> Iterator[None]:
        with ExitStack() as stack:
            for name, path in self._paths.items():
                if path.endswith(".tar"):
                    self._tars[name] = stack.enter_context(TarWriter(path, create_index=create_index))
                else:
                    index = create_index and path.endswith(".jsonl")
                    self._lines[name] = stack.enter_context(JsonlWriter(path, create_index=index))
            yield
            writers: list[TarWriter | JsonlWriter] = [*self._tars.values(), *self._lines.values()]
            for writer in writers:
                if len(writer) != self._count:
                    raise SourceError(f"an error came while cut {self._count} was written", path=writer.path)

    def add(self, key: str, stored: Mapping[str, bytes | Mapping[str, Buffer]]) -> None:
        # A key that no tar can hold is refused by the first, before anything is written.
        for name, data in sorted(stored.items(), key=lambda pair: isinstance(pair[1], bytes)):
            if isinstance(data, bytes):
                self._lines[name].add(data)
            else:
                self._tars[name].add(key, data)
        self._count += 1

    def __len__(self) -> int:
        return self._count
