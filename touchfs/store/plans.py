"""The plans under `merged/`, shared by all processes of a mount in memory, so that they need no state store."""

from __future__ import annotations

from touchfs.core.errors import FullError
from touchfs.posix.memory.shared_log import SharedLog

PLANS_MAX = 1000
# Plans of users other than the mounter and root, at most: this leaves room for the mounter's.
GUESTS_MAX = 100
_OWN, _GUEST = "own ", "guest "


class SharedPlans:
    """Plans, numbered from 1 in the order of registration. None is removed, so a mount never reuses a number."""

    def __init__(self) -> None:
        self._log = SharedLog("touchfs-plans")

    def number(self, name: str, *, is_guest: bool = False) -> int:
        """Return the number of a plan, registering it if it is new. Raises FullError."""
        number = _find(name, self._log.lines())
        if number is None:
            number = _find(name, self._log.append(lambda known: _new(name, known, _GUEST if is_guest else _OWN)))
        return number or 0

    def name(self, number: int) -> str | None:
        """Return the name of a plan, or None if there is none of this number."""
        lines = self._log.lines()
        return _name(lines[number - 1]) if 0 < number <= len(lines) else None

    def names(self) -> list[tuple[str, int]]:
        return [(_name(line), number) for number, line in enumerate(self._log.lines(), 1)]


def _name(line: str) -> str:
    return line.partition(" ")[2]


def _find(name: str, lines: list[str]) -> int | None:
    for line in (_OWN + name, _GUEST + name):
        if line in lines:
            return lines.index(line) + 1
    return None


def _new(name: str, known: list[str], whose: str) -> str | None:
    if _find(name, known) is not None:
        return None
    if len(known) >= PLANS_MAX:
        raise FullError(f"{PLANS_MAX} plans are registered: unmount and mount again")
    if whose == _GUEST and sum(line.startswith(_GUEST) for line in known) >= GUESTS_MAX:
        raise FullError(f"{GUESTS_MAX} plans of other users are registered: the user who mounted may register more")
    return whose + name
