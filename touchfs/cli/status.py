"""touchfs status"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from touchfs.cli.terminal import printable, say
from touchfs.dataset import counted
from touchfs.errors import MountError

if TYPE_CHECKING:
    from touchfs_mount.mounting.status import MountStatus


@click.command("status", context_settings={"show_default": True})
# Not type=click.Path(): its stat would wait for a mount that hangs.
@click.argument("mountpoint", required=False, shell_complete=click.Path().shell_complete)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--wait-seconds", type=click.FloatRange(0), default=5.0, help="Maximum time to wait for answers.")
def command(mountpoint: str | None, as_json: bool, wait_seconds: float) -> None:
    """List mounts, and whether they answer.

    A mount that does not answer, or whose daemon is gone, is listed too. The exit status is then 1.

    \b
    Example:
      touchfs mount shards/ /mnt/speech
      touchfs status
    """
    from touchfs_mount.mounting.mountpoint import resolve
    from touchfs_mount.mounting.status import PROBLEMS, list_mounts

    path = None if mountpoint is None else resolve(mountpoint)
    found = list_mounts(path, wait_seconds)
    if path is not None and not found:
        raise MountError("touchfs is not mounted here", path=path)
    if as_json:
        say(json.dumps([asdict(each) for each in found]))
    else:
        for each in found:
            for line in _lines(each):
                say(printable(line))
    if any(each.health in PROBLEMS for each in found):
        raise click.exceptions.Exit(1)


def _lines(status: MountStatus) -> list[str]:
    lines = [status.mountpoint, f"  source      {status.source}", f"  health      {_health(status)}"]
    info = status.info
    if not info:
        return lines
    content = f"{info['kind']}, {counted(info['shards'], 'shard')}, {counted(info['samples'], 'sample')}"
    processes = ", ".join(map(str, status.workers)) or "in another container"
    lines += [
        f"  content     {content}",
        f"  since       {info['since']}",
        f"  supervisor  {info['pid']}",
        f"  workers     {processes}",
    ]
    lines += [f"  {name:<11} {info[name]}" for name in ("index", "state", "log", "metrics") if info.get(name)]
    if status.read_ahead_kb is not None:
        lines.append(f"  read-ahead  {status.read_ahead_kb} KiB")
    return lines


def _health(status: MountStatus) -> str:
    from touchfs_mount.mounting.status import PROBLEMS

    return "another user's" if status.health == "no permission" else PROBLEMS.get(status.health, status.health)
