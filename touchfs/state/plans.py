"""The plans under `merged/` as all processes of a mount know them."""

from __future__ import annotations

from touchfs.state.store import StateStore


class RegisteredPlans:
    """Plans numbered by the state store at `path`, which is opened at first use: so each process has its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._store: StateStore | None = None
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}

    def _opened(self) -> StateStore:
        if self._store is None:
            self._store = StateStore(self._path)
        return self._store

    def _remember(self, name: str, number: int) -> int:
        self._numbers[name] = number
        self._names[number] = name
        return number

    def number(self, name: str) -> int:
        return self._numbers.get(name) or self._remember(name, self._opened().plan_number(name))

    def name(self, number: int) -> str | None:
        if number not in self._names:
            self.names()
        return self._names.get(number)

    def names(self) -> list[tuple[str, int]]:
        plans = self._opened().plans()
        for name, number in plans:
            self._remember(name, number)
        return plans
