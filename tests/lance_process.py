"""One process for all Lance datasets that tests index, one after the other. `LanceApart` starts one for each.

To start one takes a second of processor, as it imports Lance. What it is asked and what it answers stay the same. The
process itself is tested in `tables/test_lance_scan.py`. A room takes it by importing `one_lance_process` in its
conftest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from touchfs.tables.lance import apart

END = b"\xff" * 8  # in place of the length of a call: the next dataset comes
Process = subprocess.Popen[bytes]


class Questions:
    """The input of the process: it seems to end after each dataset."""

    ended = False

    def __init__(self) -> None:
        self._file = sys.stdin.buffer

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.ended |= not data
        return b"" if data == END else data


def main() -> None:
    answers, questions = os.dup(1), Questions()
    sys.stdin = SimpleNamespace(buffer=questions)  # type: ignore[assignment]
    while not questions.ended:
        os.dup2(answers, 1)
        with suppress(EOFError):
            apart.main()


class Lent:
    """The process as one dataset has it: to end it is to give it back."""

    def __init__(self, idle: list[Process], process: Process) -> None:
        self._idle, self._process, self._owner = idle, process, os.getpid()
        self.stdin, self.stdout, self.pid, self.poll = process.stdin, process.stdout, process.pid, process.poll
        self._given_back = False

    def kill(self) -> None:
        if self._given_back or os.getpid() != self._owner:  # a fork has its copy
            return
        self._given_back = True
        assert self.stdin is not None
        with suppress(OSError):
            self.stdin.write(END)
            self.stdin.flush()
            self._idle.append(self._process)
        self.stdin = None  # what is asked after this would reach the next dataset's

    def communicate(self) -> None:
        pass

    __del__ = kill


@pytest.fixture(scope="session", autouse=True)
def one_lance_process() -> Iterator[None]:
    idle: list[Process] = []
    owner, started = os.getpid(), list[Process]()
    start_one = apart.LanceApart._start

    def start(self: apart.LanceApart) -> Any:
        address = self._address()
        if address is not None or os.getpid() != owner:  # its stores are those of the environment of now
            return start_one(self)
        while idle and (process := idle.pop()).poll() is None:
            break
        else:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            environment = os.environ | {"PYTHONPATH": os.path.dirname(__file__), **apart._ENVIRONMENT}
            process = subprocess.Popen([sys.executable, __file__], env=environment, **pipes)
            started.append(process)
        assert process.stdin is not None
        apart._write(process.stdin, (self._table, address))
        return Lent(idle, process)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apart.LanceApart, "_start", start)
        yield
    for process in started:
        process.communicate()  # its questions end, and so does it


if __name__ == "__main__":
    main()
