"""Waiting for what must happen, however slow the machine is."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], seconds: float = 60.0) -> Value:
    """What the condition returns once it is true. It is asked every hundredth of a second."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        time.sleep(0.01)
    return found
