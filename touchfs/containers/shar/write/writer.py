"""Writer of Lhotse Shar: for each shard a JSONL of its cuts, and beside it a file for each field of their data.

    cuts.000000.jsonl.gz   one cut a line, with a placeholder for the data of each field
    recording.000000.tar   two members a cut: data and its manifest; both empty if the cut has none
    text.000000.jsonl.gz   a field of plain values: {"cut_id": …, "text": …} a line
    *.idx                  offsets of the samples of each file that is not compressed

The same cuts become the same bytes as with Lhotse's SharWriter, which this one can replace. But here the files of a
shard appear when it is full, cuts last, and each index after its file. An exception discards the shard being written;
earlier shards stay, and are replaced when they are written again.

Source: lhotse/shar/writers/.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from touchfs.containers.lines.writer import JsonlWriter
from touchfs.containers.shar.write.cut import CUTS, store_cut, unload, unstored
from touchfs.containers.shar.write.fields import VALUE, check_fields
from touchfs.containers.tar.writer import TarWriter
from touchfs.core.errors import SourceError, UsageError
from touchfs.core.extent import Buffer
from touchfs.shard.whole import WholeWriter


class SharWriter:
    """`with SharWriter("shar", {"recording": "flac", "text": "jsonl"}) as writer: writer.write(cut)`

    `fields` maps each field to its kind (`write/shar/fields.py`). Shards of `shard_size` cuts are written to
    `output_dir`, with numbers from `shard_offset` on. Without a `shard_size` there is a single shard, whose files have
    `shard_suffix`, if given, instead of a number. `include_cuts=False` leaves out the file of cuts. `compress_jsonl`
    gzips the files of lines, which then have no index; with `create_index`, the other files get theirs. With
    `warn_unused_fields`, data of a cut that is not among `fields` causes a warning. Raises UsageError for arguments
    that do not fit together.
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
        """The paths of the files of each field and of the cuts, including the shard being written."""
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
        """Finish the current shard, for use without `with`."""
        self._end(None, None, None)

    def write(self, cut: Any, payloads: Mapping[str, Any] | None = None) -> None:
        """Write one `cut`: one of Lhotse's, or its JSON object as in a manifest and the data of its fields, `payloads`.

        The data of a field is encoded bytes, an array, an `Audio`, a plain value, or None. Plain values may also be in
        the object's "custom". With a recording the object needs only an id; recordings and arrays need no manifests.
        Raises FormatError, and writes nothing of the cut, if it cannot be stored.
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
    """The writers of one shard. Their files appear in the reverse order of `paths`."""

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
        # A key that a tar cannot store is refused by the first writer, before anything is written.
        for name, data in sorted(stored.items(), key=lambda pair: isinstance(pair[1], bytes)):
            if isinstance(data, bytes):
                self._lines[name].add(data)
            else:
                self._tars[name].add(key, data)
        self._count += 1

    def __len__(self) -> int:
        return self._count
