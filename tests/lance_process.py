"""One process for all Lance datasets that tests index, one after the other. `LanceApart` starts one for each.

To start one takes a second of processor, as it imports Lance. What it is asked and what it answers stay the same. The
process itself is tested in `tables/test_lance_scan.py`. A room takes it by importing `one_lance_process` in its
conftest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from touchfs.posix.helper_process import HelperProcess, answer_calls
from touchfs.tables.lance import apart


def serve() -> Callable[..., Any]:
    """A call with a table begins the next dataset."""
    scans = [lambda: None]

    def answer(method: Any, *arguments: Any) -> Any:
        if isinstance(method, str):
            return scans[-1](method, *arguments)
        scans[:] = [apart.serve(method, *arguments)]
        return None

    return answer


def main() -> None:
    answer_calls(serve)


class Lender:
    """Lends idle processes, and starts one if there is none, in a thread that lives as long as this process."""

    def __init__(self) -> None:
        self._idle: list[HelperProcess] = []
        self._owner = os.getpid()
        self._thread = ThreadPoolExecutor(1)

    def __call__(self, module: str, table: Any, address: Any, **options: Any) -> HelperProcess | Lent:
        if address is not None or os.getpid() != self._owner:  # its stores are those of the environment of now
            return HelperProcess(module, table, address, **options)
        while self._idle and (helper := self._idle.pop())._process.poll() is None:
            break
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PYTHONPATH", os.path.dirname(__file__))
                helper = self._thread.submit(HelperProcess, __name__, **options).result()
        helper.call(table, address)
        return Lent(self, helper)

    def take_back(self, helper: HelperProcess) -> None:
        if os.getpid() == self._owner:  # a fork has its copy
            self._idle.append(helper)

    def end(self) -> None:
        for helper in self._idle:
            helper.close()
        self._thread.shutdown()


class Lent:
    """The process as one dataset has it: to close it is to give it back."""

    def __init__(self, lender: Lender, helper: HelperProcess) -> None:
        self._lender, self._helper, self._process = lender, helper, helper._process

    def call(self, *arguments: Any) -> Any:
        return self._helper.call(*arguments)

    def close(self) -> None:
        if (helper := self.__dict__.pop("_helper", None)) is not None:
            self._lender.take_back(helper)

    __del__ = close


@pytest.fixture(scope="session", autouse=True)
def one_lance_process() -> Iterator[None]:
    lender = Lender()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apart, "HelperProcess", lender)
        yield
    lender.end()
