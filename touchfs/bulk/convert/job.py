"""Conversion: the samples of any shards, in order, become shards of another format, under the same keys.

A sample is a key and files by extension, as in the tree; a target takes that, and refuses what it cannot store
(`bulk/convert/tar.py`, `shar.py`, `touchnet.py`). A sample that is damaged or refused ends the conversion, or on
request is skipped and reported in `skipped.jsonl`, as are unreadable parts of a shard. Shards appear when they are
complete, and the same call resumes after the last of them (`bulk/convert/resume.py`). One sample at a time is in
memory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from touchfs.bulk import unfinished
from touchfs.bulk.convert.names import own_key
from touchfs.bulk.convert.resume import ResumePoint, ResumeState
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.bulk.data_list import check_output
from touchfs.errors import FormatError, NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.extent import Buffer
from touchfs.limits import Limits, too_large
from touchfs.progress import Progress, ProgressTotal, listening, reached, stage
from touchfs.sample import StoredSample
from touchfs.shard.contents import FieldContents
from touchfs.shard.find import find_shards
from touchfs.shard.open import ShardReader, fingerprint, open_shard
from touchfs.shard.options import DEFAULT, Options
from touchfs.source.local import FileIdentity
from touchfs.view import raw
from touchfs.view.file import File

# Its share of the time to convert a shard.
_OPENING = 0.1


class Writer(Protocol):
    """Writes shards. When its `with` block ends without an exception, everything that was added is in place."""

    @property
    def shards(self) -> int:
        """The number of complete shards."""
        ...

    def add(self, key: str, files: Mapping[str, Buffer]) -> None:
        """Add one sample. Raises FormatError, and writes nothing of it, if it cannot be stored."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Target(Protocol):
    """An output format with its settings. A dataclass: its name and fields identify an unfinished conversion."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def mark(self, ordinal: int) -> str:
        """The name of the file or directory of a shard that appears last."""
        ...

    def open(self, output: str, extensions: Callable[[], Collection[str]], first: int) -> Writer:
        """A writer that continues after `first` shards.

        `extensions` reads the whole source, for targets that need the extensions of all files before the first shard.
        """
        ...


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """The numbers of shards and samples that were written, and of samples and problems that were skipped."""

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
    """Convert a source without the files of the extensions `leave_out`.

    `progress` is called with the bytes of shards that are done and their total; twice, if the target needs all
    extensions before the first sample is written. Raises UsageError if the output contains anything but an unfinished
    conversion with the same settings, ChangedError if the source changed since that was begun, and the errors of the
    source.
    """
    check_output(output)
    paths = find_shards(source)
    if not os.path.lexists(os.path.join(output, unfinished.PLAN)):
        _make(output)
    settings = _settings(source, output, target, options, leave_out, paths)
    try:
        with unfinished.open_plan(Path(output), settings), ResumeState(output, target.mark) as state:
            if state.skipped and not skip_bad:
                problem = "was begun with --skip-bad: go on with it, or remove it and convert again"
                raise UsageError(problem, path=output)
            job = _Job(paths, options, frozenset(leave_out), state, skip_bad=skip_bad)
            with (
                target.open(output, lambda: job.extensions(progress), state.shards) as writer,
                _work(paths, progress) as work_on,
            ):
                position = job.run(writer, work_on)
            state.publish(position)
            unfinished.remove_plan(Path(output))
            return ConvertReport(writer.shards, position.samples, state.skipped)
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=output) from error


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
    """Report progress over all shards. Yields a context manager for the work on the shard at a path."""
    sizes = {path: _size(path) for path in paths}
    total = sum(sizes[path] for path in paths)
    with ProgressTotal(progress, total) as done, listening(done.add, total):
        yield lambda path: stage(sizes[path] / max(total, 1))


def _size(path: str) -> int:
    return sum(identity.size for identity in _identities(path).values())


def _identities(path: str) -> Mapping[str, FileIdentity]:
    """Identities of the files of a shard; empty if there is a problem, which is raised when the shard is opened."""
    try:
        return fingerprint(path)
    except TouchfsError:
        return {}


def _settings(
    source: str, output: str, target: Target, options: Options, leave_out: Collection[str], paths: list[str]
) -> dict[str, Any]:
    """Everything that determines the shards, and so must be equal to resume."""
    target_fields = {name.replace("_", "-"): value for name, value in asdict(target).items() if name != "limits"}
    files = [(path, sorted(_identities(path).items())) for path in paths]
    return {
        "kind": f"convert with {type(target).__name__}",
        "source": os.path.abspath(source),
        "output": output,
        **target_fields,
        "sample-rate": options.sample_rate,
        "key-rule": options.key_rule,
        "leave-out": sorted(leave_out),
        "sha256": hashlib.sha256(repr(files).encode(errors="surrogateescape")).hexdigest(),
    }


@dataclass(frozen=True, slots=True)
class _Job:
    """One conversion: the shards, and the handling of samples that cannot be converted."""

    paths: list[str]
    options: Options
    leave_out: frozenset[str]
    state: ResumeState
    skip_bad: bool

    def run(self, writer: Writer, work_on: Callable[[str], AbstractContextManager[None]]) -> ResumePoint:
        """Convert from where the existing shards end. Returns the position behind the last sample."""
        begin = self.state.position
        samples = begin.samples
        for number, path in enumerate(self.paths):
            with work_on(path):
                if number < begin.shard:
                    continue
                first = begin.ordinal if number == begin.shard else 0
                for found in _samples(path, self.options, self.leave_out, first):
                    if isinstance(found, TouchfsError):
                        self._skip(path, None, found)
                    elif self._add(writer, path, *found):
                        samples += 1
                        if writer.shards > self.state.shards:
                            self.state.add(ResumePoint(number, found[0].ordinal + 1, samples))
        return ResumePoint(len(self.paths), 0, samples)

    def _add(self, writer: Writer, path: str, sample: StoredSample, files: _Files) -> bool:
        """Add a sample to the writer. Returns False if it was bad and skipped."""
        try:
            if sample.problem:
                raise FormatError(sample.problem)
            shown = {file.label: files.read(file) for file in files.of(sample)}
        except (FormatError, SourceError) as error:
            self._skip(path, sample, error)
            return False
        try:
            writer.add(own_key(sample.key, shown, self.options.limits.json), shown)
        except FormatError as error:  # only this: other errors of writing are not the sample's fault
            self._skip(path, sample, error)
            return False
        return True

    def _skip(self, path: str, sample: StoredSample | None, error: TouchfsError) -> None:
        reason = str(error)
        if not self.skip_bad:
            place = "" if sample is None else f"sample {sample.ordinal} ({sample.key!r}): "
            reason = reason.removeprefix(f"{path}: ")
            raise type(error)(f"{place}{reason}; mend it, or skip it with --skip-bad", path=path) from error
        record: dict[str, Any] = {"shard": path}
        if sample is not None:
            record |= {"sample": sample.ordinal, "key": sample.key}
        line = json.dumps(record | {"reason": reason}, ensure_ascii=False)
        self.state.skip(line.encode("utf-8", "backslashreplace") + b"\n")

    def extensions(self, progress: Progress) -> set[str]:
        """The extensions of all samples. Problems of the source are reported when it is converted."""
        extensions: set[str] = set()
        with _work(self.paths, progress) as work_on:
            for path in self.paths:
                with work_on(path):
                    for found in _samples(path, self.options, self.leave_out, 0):
                        if not isinstance(found, TouchfsError):
                            sample, files = found
                            extensions.update(file.label for file in files.of(sample))
        return extensions


def _samples(
    path: str, options: Options, leave_out: Collection[str], first: int
) -> Iterator[tuple[StoredSample, _Files] | FormatError | NotFoundError]:
    """The samples of a shard from `first` on, then its problems as errors."""
    try:
        with stage(_OPENING):
            opened = open_shard(path, options)
        with closing(opened) as shard, closing(_Files(path, shard, leave_out, options.limits)) as files:
            for ordinal in range(first, len(shard)):
                yield shard.sample(ordinal), files
                reached(_OPENING + (1 - _OPENING) * (ordinal + 1) / len(shard), 1)
            for problem in shard.problems:
                yield FormatError(problem)
    except (FormatError, NotFoundError) as error:
        yield error


class _Files:
    """The files of a shard's samples."""

    def __init__(self, path: str, shard: ShardReader, leave_out: Collection[str], limits: Limits) -> None:
        self._contents = FieldContents(path, shard.files, limits)
        self._leave_out = leave_out
        self._limit = limits.decoded

    def close(self) -> None:
        self._contents.close()

    def of(self, sample: StoredSample) -> list[File]:
        return [file for file in raw.files(sample) if file.label not in self._leave_out]

    def read(self, file: File) -> Buffer:
        if file.size - file.field.size > self._limit:  # a compressed matrix, or a file with holes
            raise FormatError(too_large(self._limit))
        content = self._contents.content(file.field)
        return content.read(0, content.size)


if TYPE_CHECKING:
    _: list[type[Target]] = [TarTarget, SharTarget, TouchTarget]
