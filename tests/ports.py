"""Ports for servers of other programs, which a test starts, and perhaps starts again."""

import random
import socket
from contextlib import suppress


def free_port() -> int:
    """Below those that the kernel gives to connections: one of them could have it while the server is away."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().randrange(20_000, 32_000)))
            port: int = probe.getsockname()[1]
            return port
