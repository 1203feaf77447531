"""The reloads of a mount, as its control directory shows them: how many, and the error of the last one."""

from __future__ import annotations

from touchfs.posix.memory.shared import SharedText, shared_cells


class Reloads:
    """The numbers of reloads, and the error of the last one. Only the supervisor writes it.

    The numbers only grow, so a program that requests a reload can tell if one that began later has ended.
    """

    def __init__(self) -> None:
        self._begun, self._ended, self._advanced = shared_cells(1, 1, 1)
        self._error = SharedText()

    def begin(self) -> None:
        self._begun[0] += 1

    def advance(self) -> None:
        """All workers now serve the next generation."""
        self._advanced[0] += 1

    def end(self, error: str | None) -> None:
        """A reload ends, with an error message or None. The text is written before the number, for readers of both."""
        self._error.set(error or "")
        self._ended[0] += 1

    @property
    def ended(self) -> int:
        return self._ended[0]

    def info(self) -> dict[str, object]:
        """The fields for `.touchfs/info`."""
        return {
            "generation": 1 + self._advanced[0],
            "reloads_begun": self._begun[0],
            "reloads_ended": self._ended[0],
            "reload_error": self._error.text() or None,
        }
