"""Whether the kernel has killed processes because memory was short: it counts them in /proc/vmstat, for all cgroups."""

from __future__ import annotations

import re
from contextlib import suppress

_COUNT = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


class ShortMemory:
    """Remembers the kernel's count."""

    def __init__(self) -> None:
        self._seen = _count()

    def was_short(self) -> bool:
        """True if the kernel has killed a process since the last call."""
        before, self._seen = self._seen, _count()
        return self._seen > before


def _count() -> int:
    with suppress(OSError), open("/proc/vmstat", "rb") as file:
        if match := _COUNT.search(file.read()):
            return int(match[1])
    return 0
