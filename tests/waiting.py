"""Waiting for what must happen, however slow the machine is."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], seconds: float = 60.0) -> Value:
    """What the condition returns once it is true. It is asked every hundredth of a second, and seldomer after a second:
    to ask takes what is waited for from a processor.
    """
    begin = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - begin
        assert waited < seconds, f"not true within {seconds} s"
        time.sleep(0.01 if waited < 1 else 0.05)
    return found
