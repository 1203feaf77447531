"""Conversion: the samples of any shards, in order, become shards of another format, under the same keys.

A sample is a key and files by extension, as in the tree; a target takes that, and refuses what it cannot store
(`bulk/convert/tar.py`, `shar.py`, `touchnet.py`). A sample that is damaged or refused ends the conversion, or on
request is skipped and reported in `skipped.jsonl`, as are unreadable parts of a shard. Shards appear when they are
complete, and the same call resumes after the last of them (`bulk/convert/resume.py`).

A survey predicts where each new shard begins, so each is a task for an executor. A skipped sample moves the shards
behind it: what was made of them ahead is discarded, and made again from there. One sample at a time is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from touchfs.bulk import unfinished
from touchfs.bulk.chosen import Choice
from touchfs.bulk.convert.input import InputShard, inputs_of, release
from touchfs.bulk.convert.plan import plan_settings
from touchfs.bulk.convert.resume import ResumeState, StagedShard
from touchfs.bulk.convert.shar import SharTarget
from touchfs.bulk.convert.shard_task import Conversion, ShardTask, make_shard
from touchfs.bulk.convert.survey import DatasetSurvey, survey_shard
from touchfs.bulk.convert.tar import TarTarget
from touchfs.bulk.convert.target import Target
from touchfs.bulk.convert.touchnet import TouchTarget
from touchfs.bulk.convert.zip import ZipTarget
from touchfs.bulk.data_list import check_apart, check_output
from touchfs.core import jobs
from touchfs.core.errors import SourceError, UsageError
from touchfs.core.location import Location
from touchfs.core.progress import Progress
from touchfs.core.task_paths import path_there
from touchfs.registry.find import find
from touchfs.shard.options import DEFAULT, Options

# The share of all work that the survey does, for progress.
_SURVEY = 0.1


class TargetKind(NamedTuple):
    """A kind of new shards: what it is in a line of help, and the class of its settings."""

    words: str
    make: Callable[..., Target]


# By the names that users give to them.
TARGETS: Mapping[str, TargetKind] = {
    "touchnet": TargetKind("TouchNet shards (.bin/.idx): mono 16-bit PCM and metainfo", TouchTarget),
    "tar": TargetKind("WebDataset tars: each file that `touchfs ls` shows, unchanged", TarTarget),
    "zip": TargetKind("ZIP archives of the same files, which are stored as they are", ZipTarget),
    "shar": TargetKind("Lhotse Shar: cuts with recordings, supervisions, arrays", SharTarget),
}


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """The numbers of shards and samples that were written, and of samples and problems that were skipped."""

    shards: int
    samples: int
    skipped: int


def convert(
    dataset: str,
    output: str,
    target: Target,
    *,
    options: Options = DEFAULT,
    leave_out: Collection[str] = (),
    skip_bad: bool = False,
    choice: Choice | None = None,
    executor: Executor | None = None,
    progress: Progress = lambda done, total: None,
) -> ConvertReport:
    """Convert a dataset, or what is chosen of it, without the files of the extensions `leave_out`.

    The result does not depend on the executor. `progress` is called with the bytes of the dataset that are done and
    their total. Raises UsageError if the output contains anything but an unfinished conversion with the same settings,
    ChangedError if the dataset changed since that was begun, and the errors of the dataset.
    """
    check_output(output)
    check_apart(dataset, output)
    progress = _increasing(progress)
    found = find(Location.parse(dataset), audio_root=options.limits.audio_root, split=options.split).shards
    if not os.path.lexists(os.path.join(output, unfinished.PLAN)):
        _make(output)
    inputs = inputs_of(found, choice)
    settings = plan_settings(dataset, output, target, options, leave_out, inputs, choice)
    try:
        with unfinished.open_plan(Path(output), settings):
            state = ResumeState(output, target.mark)
            if state.skipped and not skip_bad:
                problem = "was begun with --skip-bad: go on with it, or remove it and convert again"
                raise UsageError(problem, path=output)
            there = [shard._replace(path=path_there(executor, shard.path)) for shard in inputs]
            survey = _survey(there, target, options, leave_out, executor, progress)
            place, paths = Path(os.path.abspath(output)), [each.path for each in inputs]
            work = Conversion(target, place, there, paths, options, leave_out, survey.extensions, skip_bad)
            while state.position.shard < len(inputs):
                _convert(work, survey, state, executor, progress)
            state.publish_skipped()
            target.publish(output, state.shards)
            return ConvertReport(state.shards, state.position.samples, state.skipped)
    except OSError as error:
        raise SourceError(f"cannot be written: {error.strerror}", path=output) from error
    finally:
        release()


def _make(output: str) -> None:
    try:
        os.makedirs(output, exist_ok=True)
        names = sorted(os.listdir(output))
    except OSError as error:
        raise UsageError(f"cannot be the output: {error.strerror}", path=output) from error
    if names:
        raise UsageError(f"already holds {names[0]!r}: remove it, or choose another output", path=output)


def _survey(
    inputs: list[InputShard],
    target: Target,
    options: Options,
    leave_out: Collection[str],
    executor: Executor | None,
    progress: Progress,
) -> DatasetSurvey:
    visit = target.needs_extensions or target.bytes_per_shard is not None
    survey = partial(survey_shard, options, leave_out, visit, target.new_names)
    sized = [(shard, shard.size) for shard in inputs]
    starts = [*accumulate((size for _, size in sized), initial=0)]

    def report(done: int, total: int) -> None:
        progress(int(_SURVEY * done), total)

    return DatasetSurvey([*jobs.run_sized(survey, sized, executor, progress=report)], starts)


def _increasing(progress: Progress) -> Progress:
    """A progress that never steps back, as when shards are made again."""
    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last
        if done > last:
            last = done
            progress(done, total)

    return report


def _convert(
    work: Conversion, survey: DatasetSurvey, state: ResumeState, executor: Executor | None, progress: Progress
) -> None:
    """Make the shards from the position on, all of them or up to one that ends elsewhere than predicted."""
    target, total = work.target, survey.starts[-1]
    ranges = survey.ranges(state.position, target.samples_per_shard, target.bytes_per_shard)
    tasks, ends = [], []
    for ordinal, (begin, end) in enumerate(ranges, state.records):
        size = survey.bytes_before(end) - survey.bytes_before(begin)
        tasks.append((ShardTask(ordinal, begin, end.samples - begin.samples), size))
        ends.append(end)
    before = survey.bytes_before(state.position)

    def report(done: int, _: int) -> None:
        progress(int(_SURVEY * total + (1 - _SURVEY) * (before + done)), total)

    staged: list[StagedShard] = []
    try:
        with closing(jobs.run_sized(partial(make_shard, work), tasks, executor, staged.append, report)) as results:
            for shard, end in zip(results, ends, strict=True):
                state.publish(shard)
                shard.discard()
                if shard.end != end:
                    break
    finally:
        for shard in staged:
            shard.discard()
