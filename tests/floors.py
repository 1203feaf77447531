"""The floors of the tests: a pytest plugin that runs them bottom up, and stops at the first that is red.

What fails on a floor makes most above it fail, too, and says it less clearly.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

FLOORS = {
    "formats": ("core", "format", "posix", "segments", "manifest"),
    "bytes": ("source", "media", "picture", "store", "clusters", "features", "form", "catalog"),
    "shards": (
        "containers",
        "tables",
        "registry",
        "interleaved",
        "view",
        "dataset",
        "explore",
        "indexing",
        "peers",
        "idxpack",
        "lists",
    ),
    "library": (
        *("caches", "bulk", "stream", "verify", "node", "select", "tree", "statistics", "pages"),
        *("filesystem", "serve", "iterators", "library", "images"),
    ),
    "peers": ("interop",),
    "commands": ("cli",),
    "mounts": ("numbers", "messages", "supervision", "postgres", "systemd", "mount"),
}
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
ORDER = list(FLOORS)


def floor_of(node: str) -> str:
    """The floor of a test, by its id."""
    return FLOOR_OF[node.removeprefix("tests/").partition("/")[0]]


class Floors:
    """Orders the tests, and stops after the first floor with a failure, whichever processes it ran in."""

    def __init__(self) -> None:
        self._left: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        # With pytest-xdist, the session here runs no tests.
        self._runner = session.config.pluginmanager.getplugin("dsession") or session

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Large files come first: if one came last, the other processes would wait for it."""
        sizes = Counter(item.path for item in items)
        items.sort(key=lambda item: (ORDER.index(floor_of(item.nodeid)), -sizes[item.path], item.path))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._left = Counter(floor_of(item.nodeid) for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._left = Counter(map(floor_of, ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        floor = floor_of(report.nodeid)
        self._failed[floor] += report.failed
        self._left[floor] -= report.when not in ("setup", "call")  # the process of a test may crash before its end
        if self._failed[floor] and not self._left[floor] and any(self._left.values()):
            self._runner.shouldstop = f"the floor {floor!r} is red, and those above it were not run"


def pytest_configure(config: pytest.Config) -> None:
    """Raises UsageError here and not in pytest-xdist's processes, which would end without saying why."""
    for room in sorted({file.parent.name for file in Path(__file__).parent.glob("*/test_*.py")} - FLOOR_OF.keys()):
        raise pytest.UsageError(f"tests/{room} is on no floor: name it in tests/floors.py")
    config.pluginmanager.register(Floors(), "floors-of-tests")
