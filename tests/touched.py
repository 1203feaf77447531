"""Which test touches which lines: a pytest plugin for a run under coverage (`make coverage`).

What a test or a shared fixture touches is measured under its name, also in the processes that it starts. For each test,
a file has whether it is a variant, and the names of its shared fixtures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from touch import NAME, touch_as
from touch_map import DATA, TESTS


@contextmanager
def touching(name: str) -> Iterator[None]:
    before = os.environ.get(NAME, "")
    touch_as(name)
    yield
    touch_as(before)


def _shared(definition: pytest.FixtureDef[object]) -> str:
    return f"{definition.baseid}:{definition.argname}"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Each process of pytest-xdist collects the same tests."""
    tests = {}
    for item in session.items:
        definitions = [each for found in item._fixtureinfo.name2fixturedefs.values() for each in found]
        shared = [_shared(each) for each in definitions if each.scope != "function"]
        tests[item.nodeid] = (item.get_closest_marker("variant") is not None, shared)
    path = DATA / f"tests.{os.getpid()}"
    path.write_text(json.dumps(tests))
    path.rename(TESTS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with touching(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
    """A daemon that a shared fixture starts works for all tests that have the fixture."""
    if fixturedef.scope == "function":
        return (yield)
    with touching(_shared(fixturedef)):
        return (yield)
