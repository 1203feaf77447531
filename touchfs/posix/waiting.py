"""Waiting for a descriptor with poll: `select.select` refuses numbers from 1,024 on, and a mount may have more."""

from __future__ import annotations

import select


def is_readable(descriptor: int, seconds: float = 0) -> bool:
    """Wait until a descriptor is readable, or has ended; False if it is not within so many seconds."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
