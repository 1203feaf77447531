"""The service manager that started this process, if one did: the protocol of sd_notify(3).

A message is one datagram with lines `NAME=value`, sent to the socket that $NOTIFY_SOCKET names. If the name starts with
`@`, the socket is abstract. Sending never waits and never fails: a service works the same if nobody listens.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from touchfs.core.control_characters import one_line

_ADDRESS, _WATCHDOG, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """Gets notifications from this process. `address` is empty if there is no service manager.

    It expects `WATCHDOG=1` at least every `watchdog_seconds`, or never if that is None.
    """

    address: str = ""
    watchdog_seconds: float | None = None

    @classmethod
    def of_environment(cls) -> Self:
        """The service manager that the environment names."""
        microseconds = os.environ.get(_WATCHDOG, "")
        is_for_us = os.environ.get(_WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
        has_watchdog = is_for_us and microseconds.isdecimal() and int(microseconds) > 0
        return cls(os.environ.get(_ADDRESS, ""), int(microseconds) / 1e6 if has_watchdog else None)

    @classmethod
    def take(cls) -> Self:
        """Like `of_environment`; also removes it from the environment, so that no child speaks for this process."""
        found = cls.of_environment()
        for name in (_ADDRESS, _WATCHDOG, _WATCHDOG_PID):
            os.environ.pop(name, None)
        return found

    def notify(self, *lines: str) -> None:
        """Send one message."""
        if not self.address:
            return
        import socket  # a command that no service manager has started saves 4 ms

        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender, suppress(OSError):
            sender.sendto("\n".join(map(one_line, lines)).encode(), address)
