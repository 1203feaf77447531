"""touchfs reload"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from touchfs.cli.limit_options import Seconds
from touchfs.cli.status import counts
from touchfs.cli.terminal import say
from touchfs.core.errors import FormatError, MountError

if TYPE_CHECKING:
    from touchfs.posix.mounts import Mount

_POLL_SECONDS = 0.05
# Each look starts a process, so it looks less often when it has waited for long: after so much of that time.
_LOOKING_PART = 4


@click.command("reload", context_settings={"show_default": True})
# Not type=click.Path(): its stat would wait for a mount that hangs.
@click.argument("mountpoint", shell_complete=click.Path().shell_complete)
@click.option("--wait-seconds", type=Seconds(0), default=600.0, help="Maximum time to wait for the reload.")
def command(mountpoint: str, wait_seconds: float) -> None:
    """Reload the dataset of a mount.

    The mount then shows new and changed shards, and no longer shows removed ones. Programs that read other shards are
    not affected. If the dataset cannot be read, the mount stays as it is, and the exit status is 1.

    \b
    Example:
      touchfs mount shards/ /mnt/speech
      touchfs reload /mnt/speech
    """
    from touchfs_mount.mounting.status import whole_at
    from touchfs_mount.mountpoints.mountpoint import EXIT_TIMEOUT, resolve

    from touchfs.posix.processes import is_stopped

    path = resolve(mountpoint)
    mounted = whole_at(path)
    before = info = _info(path)
    _send_sighup(mounted, before["pid"])
    begun = time.monotonic()
    deadline = begun + wait_seconds
    # A reload that began earlier may have missed the latest changes, so wait for one that began after the signal.
    while info["reloads_ended"] <= before["reloads_begun"]:
        if time.monotonic() > deadline:
            message = f"not reloaded after {wait_seconds:g} s: the reload continues"
            raise MountError(message, path=path, exit_status=EXIT_TIMEOUT)
        if is_stopped(before["pid"]):
            message = f"its process {before['pid']} is stopped: let it go on with kill -CONT {before['pid']}"
            raise MountError(message, path=path)
        time.sleep(max(_POLL_SECONDS, (time.monotonic() - begun) / _LOOKING_PART))
        # A mount that is busy with the reload may take its time; not one that did not answer before.
        info = _info(path, max(0.0, deadline - time.monotonic()))
    if info["reload_error"] is not None:
        raise MountError(info["reload_error"], path=path)
    say(f"{path} is read again ({counts(info)})")


def _info(path: str, wait_seconds: float = 0.0) -> dict[str, Any]:
    """The mount's `.touchfs/info`. Waits for it at least `ANSWER_SECONDS`. Raises MountError."""
    from touchfs_mount.mounting.status import ANSWER_SECONDS, read_control_file
    from touchfs_mount.mountpoints.mount_info import parse_info

    try:
        return parse_info(read_control_file(path, "info", max(wait_seconds, ANSWER_SECONDS)))
    except FormatError as error:
        raise MountError(error.message, path=path) from error


def _send_sighup(mounted: Mount, pid: int) -> None:
    """Send SIGHUP to the supervisor. Any other process would be killed by it."""
    from touchfs_mount.mountpoints.mount_info import zygotes

    if not zygotes(pid, mounted.device):
        message = f"its process {pid} is in another container, or another user's"
        raise MountError(message, path=mounted.point)
    try:
        os.kill(pid, signal.SIGHUP)
    except ProcessLookupError:
        raise MountError(f"its process {pid} has ended", path=mounted.point) from None
