"""The reloads of a mount, as its control directory shows them: how many, and the error of the last one."""

from __future__ import annotations

import mmap

_ERROR_SIZE = 2048


class Reloads:
    """The numbers of reloads, and the error of the last one. Only the supervisor writes it.

    The numbers only grow, so a program that requests a reload can tell if one that began later has ended.
    """

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, 3 * 8 + _ERROR_SIZE))
        self._numbers = memory[: 3 * 8].cast("q")  # begun, ended, generations after the first
        self._error = memory[3 * 8 :]

    def begin(self) -> None:
        """A reload begins."""
        self._numbers[0] += 1

    def advance(self) -> None:
        """All workers now serve the next generation."""
        self._numbers[2] += 1

    def end(self, error: str | None) -> None:
        """A reload ends, with an error message or None. The text is written before the number, for readers of both."""
        self._error[:] = (error or "").encode("utf-8", "replace")[:_ERROR_SIZE].ljust(_ERROR_SIZE, b"\0")
        self._numbers[1] += 1

    @property
    def ended(self) -> int:
        """How many reloads have ended."""
        return self._numbers[1]

    def info(self) -> dict[str, object]:
        """The fields for `.touchfs/info`."""
        begun, ended, advanced = self._numbers
        error = bytes(self._error).rstrip(b"\0").decode("utf-8", "replace")
        return {
            "generation": 1 + advanced,
            "reloads_begun": begun,
            "reloads_ended": ended,
            "reload_error": error or None,
        }
