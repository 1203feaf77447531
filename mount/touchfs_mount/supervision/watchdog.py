"""Feeds the watchdog of systemd while the mount answers (`WatchdogSec=`, sd_watchdog_enabled(3)).

The evidence is a statfs of the root: the kernel caches no answer to it, so some worker has taken a request and answered
it. It is made at twice the rate that systemd requires. While one hangs nothing is fed, and no other is made: a worker
that is stuck is replaced, and then its statfs is answered, too. So WatchdogSec must be longer than the 10 seconds that
this takes.
"""

from __future__ import annotations

import logging

import trio

from touchfs.posix.service_manager import ServiceManager
from touchfs_mount.supervision.root import MountedRoot

log = logging.getLogger(__name__)


async def feed_watchdog(manager: ServiceManager, root: MountedRoot) -> None:
    """Feed for ever, or return at once if no watchdog is asked for."""
    if manager.watchdog_seconds is None:
        return
    while True:
        try:
            await root.answer_statfs()
        except OSError as error:
            log.warning("the watchdog is not fed: %s: %s", root.path, error.strerror)
        else:
            manager.notify("WATCHDOG=1")
        await trio.sleep(manager.watchdog_seconds / 2)
