"""The zygote's part of a reload (`reload`): it switches to a new generation of the dataset.

What may take long or wait happens in children of the zygote, which must go on to fork workers meanwhile.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from touchfs.core.errors import TouchfsError
from touchfs_mount.daemon.children import Children
from touchfs_mount.daemon.session import clone_session


@dataclass(frozen=True, slots=True)
class Renewal:
    """The functions that switch the operations to a new generation of the dataset.

    `reopen` is called in a child of the zygote, where it may take long; its result is pickled and passed to `adopt` in
    the zygote. `adopt` returns a function that is called in another child, with the FUSE descriptor, once all workers
    of the old generation have exited. `meanwhile` is called in the zygote from time to time.
    """

    reopen: Callable[[], Any]
    adopt: Callable[[Any], Callable[[int], None]]
    meanwhile: Callable[[], None]


class Renewer:
    """Runs a `Renewal` in children of the zygote. `descriptor` is that of the mount, and `control` that of its control
    mount, if there is one. `send` sends an event to the supervisor.
    """

    def __init__(
        self,
        renewal: Renewal,
        children: Children,
        descriptor: int,
        control: int | None,
        send: Callable[[dict[str, object]], None],
    ) -> None:
        self._renewal = renewal
        self._children = children
        self._descriptor = descriptor
        self._control = control
        self._send = send
        self._reopening: int | None = None
        self._invalidate: Callable[[int], None] = _nothing

    def reload(self) -> None:
        """Open the dataset again, adopt it, and send `reloaded`."""
        try:
            outcome = os.memfd_create("touchfs-generation", os.MFD_CLOEXEC)
        except OSError as error:
            self._send({"reloaded": f"no file in memory can be made: {error}"})
            return
        self._reopening = self._children.fork_aside(partial(self._reopen, outcome), partial(self._reopened, outcome))

    def invalidate(self) -> None:
        """Invalidate the kernel's caches after a reload, and send `invalidated`."""
        self._children.fork_aside(self._run_invalidation, self._invalidation_ended)

    def stop(self) -> None:
        """Kill the child that opens the dataset, if there is one."""
        if self._reopening is not None:
            os.kill(self._reopening, signal.SIGKILL)

    def _reopen(self, outcome: int) -> int:
        # Or the mounts could not end before this process, even if all others die.
        os.close(self._descriptor)
        self._close_control()
        with open(outcome, "wb") as file:
            try:
                pickle.dump(self._renewal.reopen(), file)
            except TouchfsError as error:
                file.write(str(error).encode("utf-8", "replace"))
                return 1
        return 0

    def _reopened(self, outcome: int, status: int) -> None:
        self._reopening = None
        with open(outcome, "rb") as file:
            file.seek(0)
            if status:
                message = file.read().decode("utf-8", "replace") if status > 0 else ""
                self._send({"reloaded": message or f"the process that read it ended with status {status}"})
                return
            try:
                self._invalidate = self._renewal.adopt(pickle.load(file))
            except TouchfsError as error:
                self._send({"reloaded": str(error)})
                return
        gc.collect()  # the generation before; not the modules, which are frozen
        self._send({"reloaded": None})

    def _run_invalidation(self) -> int:
        # This process may wait for a directory's lock, whose holder waits for a request. If all other processes die,
        # the kernel must fail that request; it does so only if this process does not share their descriptor.
        clone_session(self._descriptor)
        self._close_control()
        self._invalidate(self._descriptor)
        return 0

    def _close_control(self) -> None:
        if self._control is not None:
            os.close(self._control)

    def _invalidation_ended(self, status: int) -> None:
        self._invalidate = _nothing
        error = f"the process that invalidates its caches ended with status {status}"
        self._send({"invalidated": error if status else None})


def _nothing(descriptor: int) -> None: ...
