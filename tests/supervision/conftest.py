"""A supervisor whose other sides are scripted."""

import signal
from collections.abc import Callable, Iterator

import pytest
from scripted import Scene
from touchfs_mount.daemon.supervisor import SIGNALS


@pytest.fixture
def scene(tmp_path) -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def make(**how) -> Scene:
        scenes.append(Scene(f"{tmp_path}/notify-{len(scenes)}", **how))
        return scenes[-1]

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # as `serve` does
    yield make
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for each in scenes:
        each.close()
