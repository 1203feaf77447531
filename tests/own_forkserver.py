"""A fork server of one's own that has imported what its processes need: each starts in 20 ms, not in half a second."""

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext

import pytest


@contextmanager
def preloaded(*modules: str) -> Iterator[ForkServerContext]:
    """A context for processes. The server that other tests share has none of the modules, and goes on for them."""
    server = forkserver.ForkServer()
    server.set_forkserver_preload(list(modules))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ensure_running", "get_inherited_fds", "connect_to_new_process"):
            patch.setattr(forkserver, name, getattr(server, name))
        yield get_context("forkserver")
    server._stop()
