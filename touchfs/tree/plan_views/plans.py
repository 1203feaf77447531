"""Registries of merge plans. A plan that is in use has a number, which is a part of inode numbers below `merged/`."""

from __future__ import annotations

from typing import Protocol

from touchfs.tree.open_shards import WouldBlockError


class Plans(Protocol):
    """The registry of plans. It numbers them from 1 on, at most 1,023, equally in all processes of a mount."""

    def number(self, name: str, *, is_guest: bool = False) -> int:
        """The number of a plan by its canonical name; registers it if it is new.

        Raises FullError if the registry is full. A guest, a user who does not own the mount, may fill only a part.
        """
        ...

    def name(self, number: int) -> str | None:
        """The canonical name of a plan, or None if the number is not in use."""
        ...

    def names(self) -> list[tuple[str, int]]:
        """`(name, number)` of all registered plans."""
        ...


class LocalPlans:
    """A registry of plans (`Plans`) for a single process, without a limit."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def number(self, name: str, *, is_guest: bool = False) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name) + 1

    def name(self, number: int) -> str | None:
        return self._names[number - 1] if 0 < number <= len(self._names) else None

    def names(self) -> list[tuple[str, int]]:
        return [(name, number) for number, name in enumerate(self._names, 1)]


class NonblockingPlans:
    """Stands in for the registry on a thread that must not block: every call raises WouldBlockError."""

    def number(self, name: str, *, is_guest: bool = False) -> int:
        raise WouldBlockError

    def name(self, number: int) -> str | None:
        raise WouldBlockError

    def names(self) -> list[tuple[str, int]]:
        raise WouldBlockError
