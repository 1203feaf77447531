"""The plans under `merged/` as all processes of a mount know them: in memory, so that no state store is needed."""

from __future__ import annotations

from touchfs.errors import FullError
from touchfs.state.shared_log import SharedLog

PLANS_MAX = 1000


class SharedPlans:
    """Plans numbered from 1 on in the order they were registered, for as long as the mount lives."""

    def __init__(self) -> None:
        self._log = SharedLog("touchfs-plans")

    def number(self, name: str) -> int:
        names = self._log.lines()
        if name not in names:
            names = self._log.append(lambda known: _new(name, known))
        return names.index(name) + 1

    def name(self, number: int) -> str | None:
        names = self._log.lines()
        return names[number - 1] if 0 < number <= len(names) else None

    def names(self) -> list[tuple[str, int]]:
        return [(name, number) for number, name in enumerate(self._log.lines(), 1)]


def _new(name: str, known: list[str]) -> str | None:
    if name in known:
        return None
    if len(known) >= PLANS_MAX:
        raise FullError(f"{PLANS_MAX} plans are registered: unmount and mount again")
    return name
