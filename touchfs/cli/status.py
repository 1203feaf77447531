"""touchfs status"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from touchfs.cli.limit_options import Seconds
from touchfs.cli.terminal import json_option, say, say_rows
from touchfs.dataset import counted

if TYPE_CHECKING:
    from touchfs_mount.mounting.status import MountStatus


@click.command("status", context_settings={"show_default": True})
# Not type=click.Path(): its stat would wait for a mount that hangs.
@click.argument("mountpoint", required=False, shell_complete=click.Path().shell_complete)
@json_option
@click.option("--stats", is_flag=True, help="Show counters and latencies of the mount at MOUNTPOINT.")
@click.option("--watch", is_flag=True, help="With --stats, show them every second, with rates, until Ctrl-C.")
@click.option("--wait-seconds", type=Seconds(0), default=5.0, help="Maximum time to wait for answers.")
def command(mountpoint: str | None, as_json: bool, stats: bool, watch: bool, wait_seconds: float) -> None:
    """List mounts, whether they answer, and their counters.

    A mount that does not answer, or whose daemon is gone, is listed too. The exit status is then 1.

    With --stats, requests with their latencies, bytes, caches and restarts are shown, from the beginning of the mount.
    MOUNTPOINT/.touchfs/stats has them as Prometheus text.

    \b
    Example:
      touchfs mount shards/ /mnt/speech
      touchfs status
      touchfs status --stats /mnt/speech
    """
    from touchfs_mount.mounting.status import PROBLEMS, list_mounts, whole_at
    from touchfs_mount.mountpoints.mountpoint import resolve

    path = None if mountpoint is None else resolve(mountpoint)
    if watch and (as_json or not stats):
        raise click.UsageError("--watch needs --stats, and excludes --json")
    if stats:
        if path is None:
            raise click.UsageError("--stats needs a MOUNTPOINT")
        from touchfs.cli.counters import print_counters  # only this needs them

        print_counters(whole_at(path).point, watch=watch, as_json=as_json)
        return
    found = list_mounts(path, wait_seconds)
    if path is not None and not found:
        whole_at(path)  # it says what is there instead
    if as_json:
        say_rows(map(asdict, found))
    else:
        for each in found:
            for line in _lines(each):
                say(line)
    if any(each.health in PROBLEMS for each in found):
        raise click.exceptions.Exit(1)


# Changed files of a mount that are named.
_CHANGED_SHOWN = 10
# How the other kinds of health are printed, unless as they are called.
_NO_PROBLEMS = {
    "no permission": "another user's",
    "hidden": "hidden: another file system is mounted over it",
    "not asked": "not asked: no process can be started for that now",
}


def _lines(status: MountStatus) -> list[str]:
    lines = [status.mountpoint, f"  source      {status.source}", f"  health      {_health(status)}"]
    info = status.info
    if status.image is not None:
        content = f"{counted(info['shards'], 'shard')}, {counted(info['files'], 'file')}"
        lines += [f"  content     {content}", f"  since       {info['since']}", f"  image       {status.image}"]
        return lines + [f"  changed     {path}" for path in info["changed"][:_CHANGED_SHOWN]]
    if not info:
        return lines
    content = f"{info['kind']}, {counts(info)}"
    processes = ", ".join(map(str, status.workers)) or "not to be seen here"
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


def counts(info: dict[str, Any]) -> str:
    """The shards and samples of a mount, or how many shards are indexed yet."""
    shards, samples = counted(info["shards"], "shard"), info["samples"]
    return (
        f"{shards}, {info['indexed_shards']:,} indexed yet"
        if samples is None
        else f"{shards}, {counted(samples, 'sample')}"
    )


def _health(status: MountStatus) -> str:
    from touchfs_mount.mounting.status import PROBLEMS

    return (PROBLEMS | _NO_PROBLEMS).get(status.health, status.health)
