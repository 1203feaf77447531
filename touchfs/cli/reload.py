"""touchfs reload"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import click

from touchfs.cli.terminal import say
from touchfs.dataset import counted
from touchfs.errors import MountError

_POLL_SECONDS = 0.05


@click.command("reload", context_settings={"show_default": True})
@click.argument("mountpoint", type=click.Path())
@click.option("--wait-seconds", type=click.FloatRange(0), default=600.0, help="How long to wait until it is done.")
def command(mountpoint: str, wait_seconds: float) -> None:
    """Have a mount read its dataset anew.

    Shards that have come, gone or changed are seen from then on. Programs that read others notice nothing. If the
    dataset cannot be read, all stays as it is, and the exit status is 1.

    \b
    Example:
      touchfs mount shards/ /mnt/speech
      touchfs reload /mnt/speech
    """
    from touchfs_mount.mounting.mountpoint import EXIT_TIMEOUT, FILE_SYSTEM, mounted_at, resolve

    path = resolve(mountpoint)
    mounted = mounted_at(path)
    if mounted is None or mounted.kind != FILE_SYSTEM:
        raise MountError("touchfs is not mounted here", path=path)
    before = told = _info(path)
    _hang_up(path, before["pid"])
    deadline = time.monotonic() + wait_seconds
    # One that had begun before may have missed what the caller wants seen.
    while told["reloads_ended"] <= before["reloads_begun"]:
        if time.monotonic() > deadline:
            raise MountError(f"not done after {wait_seconds:g} s: it goes on", path=path, exit_status=EXIT_TIMEOUT)
        time.sleep(_POLL_SECONDS)
        told = _info(path)
    if told["reload_error"] is not None:
        raise MountError(told["reload_error"], path=path)
    say(f"{path} is read anew ({counted(told['shards'], 'shard')}, {counted(told['samples'], 'sample')})")


def _info(path: str) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads(Path(path, ".touchfs", "info").read_bytes())
    except OSError as error:
        raise MountError(f"the mount does not answer: {error.strerror}", path=path) from error
    return told


def _hang_up(path: str, pid: int) -> None:
    """The pid may be of another container, and so any process here: SIGHUP ends what is not made for it."""
    try:
        is_ours = b"touchfs" in Path(f"/proc/{pid}/cmdline").read_bytes()
        if is_ours:
            os.kill(pid, signal.SIGHUP)
    except (FileNotFoundError, ProcessLookupError):
        is_ours = False
    except PermissionError:
        raise MountError(f"process {pid}, which serves it, is another user's", path=path) from None
    if not is_ours:
        raise MountError(f"process {pid}, which serves it, is not in this container", path=path)
