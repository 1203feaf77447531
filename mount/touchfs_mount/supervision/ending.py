"""How a mount ends.

- It is unmounted from outside: the workers' sessions end, they exit with status 0, and so does the supervisor. After a
  lazy unmount this happens when the last user is gone. By then another mount may be at the path, so the supervisor
  identifies its mount by the device before it unmounts.
- SIGTERM or SIGINT: the supervisor unmounts. If the mount is busy, its name is detached at once (lazy), and programs
  with open files have `GRACE_SECONDS` until the connection is aborted. A second SIGINT aborts at once. Status 0.
- The supervisor is killed: the workers continue, and one of them, or the zygote, detaches the mount.
- The zygote is killed or hangs, or workers keep failing (`restart_limits`): the supervisor unmounts and exits with
  status 1, so that a service manager restarts it.
"""

from __future__ import annotations

import logging

import trio

from touchfs.core.errors import MountError
from touchfs.posix.service_manager import ServiceManager
from touchfs_mount.supervision.root import MountedRoot
from touchfs_mount.supervision.running import RunningWorkers

log = logging.getLogger(__name__)

GRACE_SECONDS = 5.0


class Ending:
    """The end of a mount. `over` is set when its session has ended, and no worker is to be replaced.

    `status` is the exit status of the supervisor, `problem` the error that it raises instead, if any.
    """

    def __init__(self, root: MountedRoot, workers: RunningWorkers, manager: ServiceManager) -> None:
        self.over = trio.Event()
        self.status = 0
        self.problem: MountError | None = None
        self.has_begun = False
        self._root = root
        self._workers = workers
        self._manager = manager
        self._announced = False

    async def unmount(self) -> None:
        """Unmount, and abort if the mount is in use for `GRACE_SECONDS` more."""
        self.has_begun = True
        self.announce()
        await self._root.detach()
        with trio.move_on_after(GRACE_SECONDS) as grace:
            await self.over.wait()
        if grace.cancelled_caught:
            log.warning("%s is still in use: aborting", self._root.path)
            self.abort()

    async def give_up(self) -> None:
        """Unmount because of a failure."""
        self.status = 1
        await self.unmount()

    async def lose_zygote(self, reason: str) -> None:
        """Unmount because no worker can be started any more, and the ends of the running ones are not reported."""
        log.error("%s: no worker can be started any more", reason)
        self.abort()  # readers must not wait for us to unmount
        self._workers.pids.clear()
        await self.give_up()

    def abort(self) -> None:
        """End now. The kernel fails unanswered requests once no process has the FUSE descriptor open."""
        self.over.set()
        self._workers.kill_all()

    async def wait_for_workers(self) -> None:
        """Wait until the workers have exited, at most `GRACE_SECONDS`; kill those that have not."""
        self.announce()
        with trio.move_on_after(GRACE_SECONDS):
            while self._workers.pids:
                await trio.sleep(0.01)

    def announce(self) -> None:
        """Notify the service manager, once."""
        if not self._announced:
            self._announced = True
            self._manager.notify("STOPPING=1")
