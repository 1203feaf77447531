"""The error of the last failed change of the state store, shared by all processes of a mount."""

from __future__ import annotations

import mmap

_SIZE = 1 << 12
_LENGTH = 2  # bytes in front of the text


class SharedProblem:
    """A short text in shared memory, empty if there is no problem. Create it before forking."""

    def __init__(self) -> None:
        self._memory = memoryview(mmap.mmap(-1, _SIZE))

    def __bool__(self) -> bool:
        return self._memory[0] + self._memory[1] > 0

    def set(self, text: str) -> None:
        """Set the text, cut to 4 KiB."""
        encoded = text.encode("utf-8", "replace")[: _SIZE - _LENGTH]
        self.clear()  # so that no reader sees a partial text
        self._memory[_LENGTH : _LENGTH + len(encoded)] = encoded
        self._memory[:_LENGTH] = len(encoded).to_bytes(_LENGTH, "little")

    def clear(self) -> None:
        """Set the empty text."""
        self._memory[:_LENGTH] = bytes(_LENGTH)

    def text(self) -> str:
        """Return the text."""
        length = int.from_bytes(self._memory[:_LENGTH], "little")
        return bytes(self._memory[_LENGTH : _LENGTH + length]).decode("utf-8", "replace")
