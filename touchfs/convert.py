"""Conversion: the samples of any shards, in order, into shards of another kind, under the same keys.

A sample is what the tree shows of it, a key and files by extension; a target takes that, and refuses what it has no
place for (`write/convert_tar.py`, `convert_shar.py`, `convert_touch.py`). A sample that is damaged or refused ends the
conversion, or is skipped on request and then told in `skipped.jsonl`, as is what of a shard cannot be read. Shards
appear whole. One sample at a time is in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self

from touchfs.errors import FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.extent import Buffer, Extent
from touchfs.limits import too_large
from touchfs.progress import Progress, Sum, listening, reached, stage
from touchfs.sample import Sample
from touchfs.shard.find import find_shards
from touchfs.shard.open import Shard, fingerprint, open_shard, open_source
from touchfs.shard.options import DEFAULT, Options
from touchfs.source.atomic import atomic_file
from touchfs.source.pieces import StoredFile
from touchfs.view import raw
from touchfs.view.file import File
from touchfs.view.form import presenter
from touchfs.write.convert_names import own_key
from touchfs.write.convert_shar import SharTarget
from touchfs.write.convert_tar import TarTarget
from touchfs.write.convert_touch import TouchTarget

# The share of the time that it takes to convert a shard.
_OPENING = 0.1


class Writer(Protocol):
    """Shards in the making. At the end of its context all that was added is there, unless an exception ends it."""

    @property
    def shards(self) -> int:
        """How many there are."""
        ...

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        """One sample. Raises FormatError, and then nothing of it is written, where it has no place."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Target(Protocol):
    """A kind of shards, and how they are wanted."""

    def open(self, output: str, extensions: Callable[[], Collection[str]]) -> Writer:
        """`extensions` goes through the whole source, for those who must know of all files before the first shard."""
        ...


@dataclass(frozen=True, slots=True)
class ConvertReport:
    shards: int
    samples: int
    skipped: int


def convert(
    source: str,
    output: str,
    target: Target,
    *,
    options: Options = DEFAULT,
    leave_out: Collection[str] = (),
    skip_bad: bool = False,
    progress: Progress = lambda done, total: None,
) -> ConvertReport:
    """Files of the extensions `leave_out` are left out. `progress` hears how many bytes of the shards are done, of how
    many; twice, where all samples must be looked at before the first is written.

    Raises UsageError if anything is in the output, and whatever is wrong with the source.
    """
    paths = find_shards(source)
    _make(output)
    samples = 0
    with (
        _Skipped(output, skip_bad=skip_bad) as skipped,
        target.open(output, lambda: _extensions(paths, options, leave_out, progress)) as writer,
        _work(paths, progress) as work_on,
    ):
        for path in paths:
            with work_on(path):
                for found in _samples(path, options, leave_out):
                    if isinstance(found, TouchfsError):
                        skipped.add(path, None, found)
                        continue
                    sample, files = found
                    try:
                        if sample.problem:
                            raise FormatError(sample.problem)
                        shown = {file.label: files.read(file) for file in files.of(sample)}
                    except (FormatError, SourceError) as error:
                        skipped.add(path, sample, error)
                        continue
                    try:
                        writer.add(own_key(sample.key, shown, options.limits.json), shown)
                        samples += 1
                    except FormatError as error:  # no other: what cannot be written is not the sample's fault
                        skipped.add(path, sample, error)
    return ConvertReport(writer.shards, samples, skipped.count)


def _make(output: str) -> None:
    try:
        os.makedirs(output, exist_ok=True)
        names = sorted(os.listdir(output))
    except OSError as error:
        raise UsageError(f"cannot be the output: {error.strerror}", path=output) from error
    if names:
        raise UsageError(f"already holds {names[0]}: remove it, or choose another output", path=output)


@contextmanager
def _work(paths: list[str], progress: Progress) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Work on all shards. Yields a function that begins with the shard at a path."""
    sizes = {path: _size(path) for path in paths}
    total = sum(sizes[path] for path in paths)
    with Sum(progress, total) as done, listening(done.add, total):
        yield lambda path: stage(sizes[path] / max(total, 1))


def _size(path: str) -> int:
    try:
        return sum(identity.size for identity in fingerprint(path).values())
    except TouchfsError:  # which is told when it is opened
        return 0


def _extensions(paths: list[str], options: Options, leave_out: Collection[str], progress: Progress) -> set[str]:
    """What is wrong with the source is told when it is read."""
    extensions: set[str] = set()
    with _work(paths, progress) as work_on:
        for path in paths:
            with work_on(path):
                for found in _samples(path, options, leave_out):
                    if not isinstance(found, TouchfsError):
                        sample, files = found
                        extensions.update(file.label for file in files.of(sample))
    return extensions


def _samples(
    path: str, options: Options, leave_out: Collection[str]
) -> Iterator[tuple[Sample, _Files] | FormatError | NotFoundError]:
    """Those of a shard, and at its end what else of it cannot be read."""
    try:
        with stage(_OPENING):
            opened = open_shard(path, options)
        with closing(opened) as shard, closing(_Files(path, shard, leave_out, options.limits.decoded)) as files:
            for number, sample in enumerate(shard, 1):
                yield sample, files
                reached(_OPENING + (1 - _OPENING) * number / len(shard), 1)
            for problem in shard.problems:
                yield FormatError(problem)
    except (FormatError, NotFoundError) as error:
        yield error


class _Files:
    """The files of a shard's samples."""

    def __init__(self, path: str, shard: Shard, leave_out: Collection[str], limit: int) -> None:
        self._path = path
        self._shard = shard
        self._leave_out = leave_out
        self._limit = limit
        self._sources: dict[str, StoredFile] = {}

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    def of(self, sample: Sample) -> list[File]:
        return [file for file in raw.files(sample) if file.label not in self._leave_out]

    def read(self, file: File) -> Buffer:
        if file.form == "inline":
            return file.kept
        field = file.field
        if file.size - field.size > self._limit:  # of a matrix, or of a file with holes
            raise FormatError(too_large(self._limit))
        source = self._sources.get(field.source)
        if source is None:
            source = self._sources[field.source] = open_source(self._path, field.source, self._shard.files)
        content = presenter(field.form)(Extent(source, field.offset, field.size), field.detail)
        return content.read(0, content.size)


class _Skipped:
    """What was left out, a line each; without `skip_bad` the first is raised."""

    def __init__(self, output: str, *, skip_bad: bool) -> None:
        self.count = 0
        self._skip_bad = skip_bad
        self._path = os.path.join(output, "skipped.jsonl")
        self._stack = ExitStack()
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def add(self, path: str, sample: Sample | None, error: TouchfsError) -> None:
        reason = str(error)
        if not self._skip_bad:
            place = "" if sample is None else f"sample {sample.ordinal} ({sample.key!r}): "
            reason = reason.removeprefix(f"{path}: ")
            raise type(error)(f"{place}{reason}; mend it, or skip it with --skip-bad", path=path) from error
        told: dict[str, Any] = {"shard": path}
        if sample is not None:
            told |= {"sample": sample.ordinal, "key": sample.key}
        line = json.dumps(told | {"reason": reason}, ensure_ascii=False)
        self._file = self._file or self._stack.enter_context(atomic_file(self._path))
        self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        self.count += 1


if TYPE_CHECKING:
    _: list[type[Target]] = [TarTarget, SharTarget, TouchTarget]
