"""The contract of a worker and its request handlers: services that it gives them, and hooks that it calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pyfuse3

from touchfs_mount.numbers.slots import Slot
from touchfs_mount.requests.alone import Alone


@dataclass(frozen=True, slots=True)
class Environment:
    """The services of a worker for its operations.

    `counters` are the worker's counters, `running` has the keys of the requests that run (`strikes`). `entered`, if
    any, must be called first by every handler. `offload` runs a blocking function on data, `offload_control` one of the
    control directory (`loop`). `alone` runs a request in a process of its own. `numbers` is the worker's slot.
    `opened`, if any, is called with the thread id of each reader that opens a file.
    """

    counters: memoryview[int]
    running: memoryview[int]
    entered: Callable[[], None] | None
    offload: Callable[..., Awaitable[Any]]
    offload_control: Callable[..., Awaitable[Any]]
    alone: Alone
    numbers: Slot
    opened: Callable[[int], None] | None = None


class Operations(pyfuse3.Operations):
    """Request handlers that are created before the fork of the workers."""

    def path_of(self, *arguments: Any) -> str:
        """The path, from the root of the mount, of a request with these arguments; empty if it has none."""
        raise NotImplementedError

    def started(self, environment: Environment) -> None:
        """Called in each worker after the fork. Opens resources that must not be shared with other processes."""
        raise NotImplementedError

    def ended(self) -> None:
        """Called in a worker that exits by itself."""
