"""The work of `touchfs index` on the indexes of other tools: find them, verify them, and write them.

The work on one file is a function of a `Task` that can run in another process. Errors are part of its result, so that
one damaged file of thousands does not keep the others from being indexed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from touchfs.containers.tar.adopted.energon import SQLITE_NAME
from touchfs.containers.tar.layout.grouping import INDEX_SUFFIX, WDS_V2_SUFFIX, Dialect
from touchfs.core.errors import NotFoundError, SourceError, TouchfsError, UsageError
from touchfs.core.task_paths import path_there
from touchfs.dataset import counted
from touchfs.peers.judge import IndexState, Verdict, judge
from touchfs.peers.lists import is_list, judge_list
from touchfs.peers.write import COMPRESSED_SUFFIXES, identify, identify_as, index_path, write_index
from touchfs.registry.containers import LINES, TAR, single_named
from touchfs.source.data import DATA, find_type
from touchfs.source.store import FileType


@dataclass(frozen=True, slots=True)
class Task:
    """The index of one file, or of many files if `data` and `index` are the same. `dialect` is None for JSONL.

    An index that names its data has the `name`, by default `data`. An index of many names files relative to the
    `directory`, by default the current one.
    """

    data: str
    index: str
    dialect: Dialect | None = None
    name: str = ""
    directory: str = ""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The outcome of a task: a line for the user, and lists of remarks and errors."""

    line: str = ""
    remarks: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def plan(found: Iterable[tuple[str, Dialect | None]], output_dir: str | None) -> list[Task]:
    """A task for the index of each file. Raises UsageError if two indexes would have the same path."""
    tasks: dict[str, Task] = {}
    for data, dialect in found:
        if not data:
            raise UsageError("the path is empty: is a variable unset?")
        task = Task(data, index_path(data, dialect, output_dir), dialect)
        if (other := tasks.setdefault(task.index, task)).data != data:
            problem = f"would be the index of {other.data} and of {data}: take a directory for each"
            raise UsageError(problem, path=task.index)
    return list(tasks.values())


def task_there(executor: Executor | None, task: Task) -> Task:
    """The task for the executor, whose workers may have other current directories."""
    data, index, directory = (path_there(executor, path) for path in (task.data, task.index, ""))
    return replace(task, data=data, index=index, name=task.data, directory=directory)


def run_task(work: Callable[[Task], TaskResult], task: Task) -> TaskResult:
    """Run a task, and return its error as a result, so that the other tasks continue."""
    try:
        return work(task)
    except TouchfsError as error:
        return TaskResult(wrong=(str(error),))


def size_of(task: Task) -> int:
    """The bytes of a task's data, for progress; 0 if unknown."""
    try:
        return DATA.stat(task.data).fingerprint.size
    except (NotFoundError, SourceError):
        return 0


def write(task: Task, *, force: bool) -> TaskResult:
    """Write an index. A right one is left as it is; a wrong one is an error, or with `force` replaced."""
    if not force and (os.path.lexists(task.index) or find_type(task.index) is not None):
        identify_as(task.data, task.dialect)
        verdict = judge(task.index, task.data)
        if not _is_right(verdict, task):
            return TaskResult(wrong=(f"{verdict}; --force replaces it",))
        return TaskResult(f"{task.index}: {counted(verdict.samples, 'sample')}; indexed already")
    report = write_index(task.data, task.index, task.dialect, task.name)
    remarks = (f"{task.data}: {report.remark}",) if report.remark else ()
    return TaskResult(f"{task.index}: {counted(report.samples, 'sample')}; indexed now", remarks)


def check(task: Task) -> TaskResult:
    """Check whether an index is right for its dialect."""
    identify_as(task.data, task.dialect)
    verdict = judge(task.index, task.data)
    return TaskResult(str(verdict)) if _is_right(verdict, task) else TaskResult(wrong=(str(verdict),))


def check_any(task: Task) -> TaskResult:
    """Check an index of any dialect, or one of many files, of which only the wrong ones are listed."""
    if task.data != task.index:
        identify(task.data)
        verdict = judge(task.index, task.data)
        return TaskResult(str(verdict)) if verdict.state is IndexState.FITS else TaskResult(wrong=(str(verdict),))
    fitting = samples = unchecked = 0
    wrong = []
    for verdict in judge_list(task.index, task.directory):
        if verdict.state is IndexState.FITS:
            fitting, samples = fitting + 1, samples + verdict.samples
        elif verdict.state is IndexState.UNCHECKED:
            unchecked += 1
        else:
            wrong.append(str(verdict))
    elsewhere = f", {unchecked:,} elsewhere and not checked" if unchecked else ""
    line = f"{task.index}: fits: {counted(fitting, 'shard')}, {counted(samples, 'sample')}{elsewhere}"
    return TaskResult(line, wrong=tuple(wrong))


def _is_right(verdict: Verdict, task: Task) -> bool:
    return verdict.state is IndexState.FITS and (task.dialect is None or task.dialect in verdict.readers)


def find_shar(directory: str) -> list[tuple[str, Dialect | None]]:
    """The files of a Shar directory that can have indexes, with their dialects.

    Raises NotFoundError if there are none.
    """
    found: list[tuple[str, Dialect | None]] = []
    for name in _names(directory):
        path = os.path.join(directory, name)
        container = single_named(name)
        if container in (LINES, TAR) and not name.startswith("."):
            found.append((path, None if container is LINES else Dialect.LHOTSE))
    if not found:
        compressed = any(name.endswith(COMPRESSED_SUFFIXES) for name in _names(directory))
        remark = "; what is compressed has no index, and Lhotse only streams it" if compressed else ""
        raise NotFoundError(f"no .jsonl and no .tar here{remark}", path=directory)
    return found


def find_indexes(source: str) -> Iterator[Task]:
    """Tasks for all indexes at a path: in a directory, the index itself, or the index of a file."""
    if find_type(source) is FileType.DIRECTORY:
        for path in _files_below(source):
            name = os.path.basename(path)
            if name == SQLITE_NAME or name.endswith((".idxpack", ".json")):
                if find_type(path) is FileType.FILE and is_list(path):
                    yield Task(path, path)
            elif (data := _data_of(path)) is not None:
                yield Task(data, path)
    elif (data := _data_of(source)) is not None:
        yield Task(data, source)
    elif is_list(source):
        yield Task(source, source)
    else:
        beside = [source + suffix for suffix in (INDEX_SUFFIX, WDS_V2_SUFFIX)]
        for index in [index for index in beside if find_type(index) is not None] or beside[:1]:
            yield Task(source, index)


def _files_below(directory: str) -> Iterator[str]:
    entries = sorted(DATA.list(directory), key=lambda entry: entry.name)
    paths = [(os.path.join(directory, entry.name), entry.is_dir()) for entry in entries]
    yield from (path for path, is_directory in paths if not is_directory)
    for path, is_directory in paths:
        if is_directory and not os.path.islink(path):
            yield from _files_below(path)


def _data_of(index: str) -> str | None:
    for suffix in (WDS_V2_SUFFIX, INDEX_SUFFIX):
        if index.endswith(suffix) and find_type(data := index.removesuffix(suffix)) is FileType.FILE:
            return data
    return None


def _names(directory: str) -> list[str]:
    return sorted(entry.name for entry in DATA.list(directory))
