"""Read a Lance dataset to index it, in a process of its own.

Lance has threads, and a process that has them should not fork: neither a mount that indexes a dataset before it forks
its workers, nor a program that opens one before PyTorch forks its own. If Lance crashes, only that process ends. It is
a new program, not a fork, and ends with the one that started it.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
from time import monotonic
from typing import Any, BinaryIO

from touchfs.errors import FormatError, SourceError, TouchfsError
from touchfs.posix import interpreter
from touchfs.posix.paths import is_url
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.endpoint import LanceAddress, address_of, adopt
from touchfs.tables.lance.errors import noted_problem
from touchfs.tables.lance.scan import LanceScan

_LENGTH = struct.Struct("<Q")
# From pyo3's panics: a new program prints them to our standard error.
_ENVIRONMENT = {"RUST_BACKTRACE": "0"}


class LanceApart:
    """The methods of `LanceScan` of a table, called in the process. It starts at the first call.

    They raise the same errors, and SourceError if the process dies.
    """

    def __init__(self, table: LanceTable) -> None:
        self._table = table
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method, and return its result."""
        began = monotonic()
        if self._process is None:
            self._process = self._start()
        stdin, stdout = self._process.stdin, self._process.stdout
        try:
            if stdin is None or stdout is None:
                raise EOFError
            _write(stdin, (method, arguments))
            result = _read(stdout)
        except (OSError, EOFError) as error:
            status = self._process.poll()
            self.close()
            how = f" by signal {-status}" if status is not None and status < 0 else ""
            raise SourceError(f"Lance was ended{how} while it read the dataset", path=self._table.path) from error
        if isinstance(result, TouchfsError):
            raise noted_problem(self._table.path, began) or result
        return result

    def _start(self) -> subprocess.Popen[bytes]:
        command = interpreter.program(__name__, end=signal.SIGKILL)
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | _ENVIRONMENT
        )
        if process.stdin is not None:
            _write(process.stdin, (self._table, self._address()))
        return process

    def _address(self) -> LanceAddress | None:
        """The address of a dataset at a URL, at the endpoint of this process: the other one has not its options."""
        if not is_url(self._table.path):
            return None
        return address_of(self._table.path, *self._table.pin())

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _write(file: BinaryIO | Any, value: object) -> None:
    data = pickle.dumps(value)
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def _read(file: BinaryIO | Any) -> Any:
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = file.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    """The entry point of the process: it answers calls until its input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints is an answer
    table, address = _read(sys.stdin.buffer)
    if address is not None:
        adopt(table.path, address)
    scan = LanceScan(table)
    while True:
        try:
            method, arguments = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            result = getattr(scan, method)(*arguments)
        except TouchfsError as error:
            result = error
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            result = FormatError(f"cannot be indexed: {type(error).__name__}: {error}", path=table.path)
        _write(answers, result)
