"""What an unfinished pack or conversion keeps in its output, so that it can be resumed as what it was begun.

    OUT/.touchfs-pack.json              what was asked, written before anything else, removed when all is done
    OUT/.touchfs-pack-000000003.jsonl   the lines that were skipped in a shard that is there (of a conversion: more)
    OUT/.touchfs-tmp-…                  what was being written

Nobody may clean up under a process that still writes, as a worker may whose parent was killed. So all who write hold
the plan's flock, shared; who cleans up holds it alone.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from touchfs.errors import ChangedError, SourceError, UsageError
from touchfs.posix.atomic import SWAP_PREFIX, TEMPORARY_PREFIX

PLAN = ".touchfs-pack.json"
_SKIPPED = ".touchfs-pack-{}.jsonl"
_KIND = "touchfs pack touch"
_VERSION = 1
# Of TouchNet; a tar or a Shar; any.
_OF_A_DATASET = re.compile(r"[0-9]{9}|data\.list|([^.]+\.)?[0-9]{6}\.(tar|jsonl)(\.idx)?|skipped\.jsonl")
# A worker notices within moments that its parent was killed.
_PATIENCE_SECONDS = 3.0
_UNLOCKABLE = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})


@contextmanager
def open_plan(output: Path, asked: Mapping[str, Any]) -> Iterator[None]:
    """Makes the plan, or finds it, begun with the same that is asked. It is ours until the end. After an exception it
    stays if there are shards to go on with.
    """
    if not (output / PLAN).exists():
        _check_free(output)
    output.mkdir(parents=True, exist_ok=True)
    with _opened(output) as descriptor:
        begun = _read(output, descriptor)
        if begun is not None and _published(output):
            _compare(output, begun, asked)
        else:
            try:
                _check_free(output)
            except UsageError:
                remove_plan(output)  # ours, made after another run had ended and removed its own
                raise
            _write(descriptor, {_KIND: _VERSION, **asked})
        _clean(output)
        # Not at once: in between, another may take it, and then this fails.
        _lock(output, descriptor, fcntl.LOCK_SH)
        try:
            yield
        except BaseException:
            if not _published(output):
                remove_plan(output)
            raise


@contextmanager
def join_plan(output: Path) -> Iterator[None]:
    """For a worker: nobody cleans up meanwhile."""
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


def remove_plan(output: Path) -> None:
    """Last of all: what else it kept is gone before."""
    for path in output.glob(_SKIPPED.format("*")):
        path.unlink()
    (output / PLAN).unlink(missing_ok=True)


@contextmanager
def _opened(output: Path) -> Iterator[int]:
    """The plan's file, locked by us alone."""
    while True:
        descriptor = _open_plan(output / PLAN)
        try:
            _lock(output, descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # else it was removed meanwhile
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _open_plan(path: Path) -> int:
    """Not through a link that somebody has put into the output: what it leads to would be overwritten."""
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
    raise UsageError("is no plan of `touchfs pack`, but a link or no file: remove it", path=str(path))


def _lock(output: Path, descriptor: int, kind: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise UsageError("another `touchfs pack` is at work here: wait for it", path=str(output)) from error
            time.sleep(0.02)
        except OSError as error:
            if error.errno in _UNLOCKABLE:  # a file system without locks: there, do not pack twice at once
                return
            raise


def _read(output: Path, descriptor: int) -> dict[str, Any] | None:
    """None: new, or killed while it was written, so before there was anything else."""
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


def _compare(output: Path, begun: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    remedy = "or remove it and pack again"
    for name in asked:
        if name != "sha256" and begun.get(name) != asked[name]:
            raise UsageError(
                f"was begun with {name} {begun.get(name)}, not {asked[name]}: go on with that, {remedy}",
                path=str(output),
            )
    if begun.get("sha256") != asked["sha256"]:
        raise ChangedError(
            f"has changed since {output} was begun: go on with what it was, {remedy}",
            path=str(asked.get("jsonl") or asked["source"]),
        )


def _check_free(output: Path) -> None:
    if names := _published(output):
        raise UsageError(f"already holds {names[0]}: remove it, or choose another output", path=str(output))


def _published(output: Path) -> list[str]:
    """What there is of a dataset: shards, data.list, skipped.jsonl."""
    try:
        return sorted(name for name in os.listdir(output) if _OF_A_DATASET.fullmatch(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UsageError(f"cannot be the output: {error.strerror}", path=str(output)) from error


def _clean(output: Path) -> None:
    for path in output.glob(f"{TEMPORARY_PREFIX}*"):
        if path.name.startswith(SWAP_PREFIX):
            continue  # another one's, who may be at work
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
