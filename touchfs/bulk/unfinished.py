"""The files of an unfinished pack or conversion in its output, so that it is resumed with the same settings.

    OUT/.touchfs-pack.json              the settings; written before anything else, removed when all is done
    OUT/.touchfs-pack-000000003.jsonl   the lines that were skipped in an existing shard (for a conversion: more)
    OUT/.touchfs-tmp-…                  a shard that was being written

Shards that were being written are removed when a job begins, and when it succeeds: a cluster may have lost workers.

Every writer holds the plan locked, shared; a process that cleans up holds it exclusively (`bulk/locks.py`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from touchfs.bulk.locks import lock
from touchfs.core.errors import ChangedError, SourceError, UsageError
from touchfs.posix.atomic import SWAP_PREFIX, TEMPORARY_PREFIX, is_locked

PLAN = ".touchfs-pack.json"
_SKIPPED = ".touchfs-pack-{}.jsonl"
_KIND = "touchfs pack touch"
_VERSION = 1
# Names of TouchNet's files; of tars and Shar; of Parquet files; of any target.
_OF_A_DATASET = re.compile(r"[0-9]{9}|data\.list|([^.]+\.)?[0-9]{6}\.(tar|jsonl|parquet)(\.idx)?|skipped\.jsonl")


@contextmanager
def open_plan(output: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Create the plan, or resume an existing one with the same settings, and lock it until the block ends.

    Then the plan is removed. After an exception it stays if there are shards to resume from. Raises UsageError if the
    output contains anything else, has other settings or is being written, and ChangedError if what it reads changed.
    """
    if not (output / PLAN).exists():
        _check_free(output)
    output.mkdir(parents=True, exist_ok=True)
    with _opened(output) as descriptor:
        existing = _read(output, descriptor)
        if existing is not None and _published(output):
            _compare(output, existing, settings)
        else:
            try:
                _check_free(output)
            except UsageError:
                _remove_plan(output)  # this plan is ours: another run ended in between and removed its own
                raise
            _write(descriptor, {_KIND: _VERSION, **settings})
        _clean(output)
        # Not atomic: another process may lock it in between, and then this fails.
        _lock(output, descriptor, fcntl.LOCK_SH)
        try:
            yield
        except BaseException:
            if not _published(output):
                _remove_plan(output)
            raise
        with suppress(UsageError):  # a worker that a cluster gave up may still write
            _lock(output, descriptor, fcntl.LOCK_EX)
            _clean(output)
        _remove_plan(output)


@contextmanager
def join_plan(output: Path) -> Iterator[None]:
    """Lock the plan in a worker, so that no process cleans up meanwhile. Raises ChangedError if it is gone."""
    try:
        descriptor = os.open(output / PLAN, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ChangedError("the plan was removed by another run: pack again", path=str(output / PLAN)) from error
    try:
        _lock(output, descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def skipped_path(output: Path, shard: str) -> Path:
    return output / _SKIPPED.format(shard)


@contextmanager
def _opened(output: Path) -> Iterator[int]:
    while True:
        descriptor = _open_plan(output / PLAN)
        try:
            _lock(output, descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else the file was removed meanwhile
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _open_plan(path: Path) -> int:
    """Open or create the plan. Refuses a link that somebody put into the output, as its target would be overwritten."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
    else:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_nlink <= 1:
            return descriptor
        os.close(descriptor)
    raise UsageError("is not a plan of `touchfs pack` but a link, or not a file: remove it", path=str(path))


def _lock(output: Path, descriptor: int, kind: int) -> None:
    lock(descriptor, kind, str(output), "touchfs pack")


def _read(output: Path, descriptor: int) -> dict[str, Any] | None:
    """Read the plan. None if it is new, or incomplete: then a run was killed before it wrote anything else."""
    try:
        plan = json.loads(os.pread(descriptor, 2**20, 0))
    except ValueError:
        return None
    if not isinstance(plan, dict) or plan.pop(_KIND, None) != _VERSION:
        raise UsageError("was begun by another version of touchfs: remove it, and pack again", path=str(output))
    return plan


def _write(descriptor: int, plan: Mapping[str, Any]) -> None:
    data = json.dumps(plan, indent=1).encode()
    os.ftruncate(descriptor, 0)
    if os.pwrite(descriptor, data, 0) != len(data):
        raise SourceError("the plan cannot be written: no space")
    os.fsync(descriptor)


def _compare(output: Path, existing: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    remedy = "or remove it and pack again"
    for name in settings:
        if name != "sha256" and existing.get(name) != settings[name]:
            shown = "dataset" if name == "source" else name
            raise UsageError(
                f"was begun with {shown} {existing.get(name)}, not {settings[name]}: go on with that, {remedy}",
                path=str(output),
            )
    if existing.get("sha256") != settings["sha256"]:
        raise ChangedError(
            f"has changed since {output} was begun: go on with what it was, {remedy}",
            path=str(settings.get("jsonl") or settings["source"]),
        )


def _check_free(output: Path) -> None:
    if names := _published(output):
        raise UsageError(f"already holds {names[0]!r}: remove it, or choose another output", path=str(output))


def _published(output: Path) -> list[str]:
    """The files of a dataset in the output: shards, data.list, skipped.jsonl."""
    try:
        return sorted(name for name in os.listdir(output) if _OF_A_DATASET.fullmatch(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot be the output: {error.strerror}", path=str(output)) from error


def _remove_plan(output: Path) -> None:
    """Remove the files of an unfinished run, the plan last."""
    for path in output.glob(_SKIPPED.format("*")):
        path.unlink()
    (output / PLAN).unlink(missing_ok=True)


def _clean(output: Path) -> None:
    for path in output.glob(f"{TEMPORARY_PREFIX}*"):
        if path.name.startswith(SWAP_PREFIX):
            continue  # belongs to `touchfs meta put`, which may be running
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif not is_locked(path):  # as `touchfs index` may do beside a shard
            path.unlink(missing_ok=True)
