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
# Not type=click.Path(): its stat would wait for a mount that hangs.
@click.argument("mountpoint", shell_complete=click.Path().shell_complete)
@click.option("--wait-seconds", type=click.FloatRange(0), default=600.0, help="Maximum time to wait for the reload.")
def command(mountpoint: str, wait_seconds: float) -> None:
    """Reload the dataset of a mount.

    The mount then shows new and changed shards, and no longer shows removed ones. Programs that read other shards are
    not affected. If the dataset cannot be read, the mount stays as it is, and the exit status is 1.

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
    before = info = _info(path)
    _send_sighup(path, before["pid"])
    deadline = time.monotonic() + wait_seconds
    # A reload that began earlier may have missed the latest changes, so wait for one that began after the signal.
    while info["reloads_ended"] <= before["reloads_begun"]:
        if time.monotonic() > deadline:
            message = f"not reloaded after {wait_seconds:g} s: the reload continues"
            raise MountError(message, path=path, exit_status=EXIT_TIMEOUT)
        time.sleep(_POLL_SECONDS)
        # A mount that is busy with the reload may take its time; not one that did not answer before.
        info = _info(path, max(0.0, deadline - time.monotonic()))
    if info["reload_error"] is not None:
        raise MountError(info["reload_error"], path=path)
    say(f"{path} is read anew ({counted(info['shards'], 'shard')}, {counted(info['samples'], 'sample')})")


def _info(path: str, wait_seconds: float = 0.0) -> dict[str, Any]:
    """The mount's `.touchfs/info`. Waits for it at least `ANSWER_SECONDS`. Raises MountError."""
    from touchfs_mount.mounting.status import ANSWER_SECONDS, read_control_file

    info: dict[str, Any] = json.loads(read_control_file(path, "info", max(wait_seconds, ANSWER_SECONDS)))
    return info


def _send_sighup(path: str, pid: int) -> None:
    """Send SIGHUP to the supervisor. Its pid may be from another container, and then belong to any process here, which
    the signal would kill.
    """
    try:
        is_ours = b"touchfs" in Path(f"/proc/{pid}/cmdline").read_bytes()
        if is_ours:
            os.kill(pid, signal.SIGHUP)
    except (FileNotFoundError, ProcessLookupError):
        is_ours = False
    except PermissionError:
        raise MountError(f"its process {pid} belongs to another user", path=path) from None
    if not is_ours:
        raise MountError(f"its process {pid} is not in this container", path=path)
