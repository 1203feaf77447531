"""Why the state store could not be changed when that was tried last, as all processes of a mount know it."""

from __future__ import annotations

import mmap

_SIZE = 1 << 12
_LENGTH = 2  # bytes in front of the text


class SharedProblem:
    """A short text in memory, made by the process that forks those which share it; empty where all is well."""

    def __init__(self) -> None:
        self._memory = memoryview(mmap.mmap(-1, _SIZE))

    def __bool__(self) -> bool:
        return self._memory[0] + self._memory[1] > 0

    def set(self, text: str) -> None:
        encoded = text.encode("utf-8", "replace")[: _SIZE - _LENGTH]
        self.clear()  # so that nobody takes half of it for the whole
        self._memory[_LENGTH : _LENGTH + len(encoded)] = encoded
        self._memory[:_LENGTH] = len(encoded).to_bytes(_LENGTH, "little")

    def clear(self) -> None:
        self._memory[:_LENGTH] = bytes(_LENGTH)

    def text(self) -> str:
        length = int.from_bytes(self._memory[:_LENGTH], "little")
        return bytes(self._memory[_LENGTH : _LENGTH + length]).decode("utf-8", "replace")
