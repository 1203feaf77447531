"""Read a Lance dataset to index it, in a process of its own.

Lance has threads, and a process that has them should not fork: neither a mount that indexes a dataset before it forks
its workers, nor a program that opens one before PyTorch forks its own. If Lance crashes, only that process ends.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from time import monotonic
from typing import Any

from touchfs.core.errors import FormatError, SourceError, TouchfsError
from touchfs.posix.helper_process import HelperEndedError, HelperProcess, answer_calls
from touchfs.tables.lance.dataset import LanceTable
from touchfs.tables.lance.endpoint import LanceAddress, address_of, adopt
from touchfs.tables.lance.errors import noted_problem
from touchfs.tables.lance.scan import LanceScan


class LanceApart:
    """The methods of `LanceScan` of a table, called in the process. It starts at the first call.

    They raise the same errors, and SourceError if the process dies.
    """

    def __init__(self, table: LanceTable) -> None:
        self._table = table
        self._helper: HelperProcess | None = None

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method, and return its result."""
        began = monotonic()
        try:
            if self._helper is None:
                begin = self._table, self._address()
                self._helper = HelperProcess(__name__, *begin, end=signal.SIGKILL)
            return self._helper.call(method, *arguments)
        except HelperEndedError as error:
            self._helper = None
            raise SourceError(f"Lance was ended{error} while it read the dataset", path=self._table.path) from error
        except TouchfsError as error:
            raise noted_problem(self._table.path, began) or error from None

    def _address(self) -> LanceAddress | None:
        """The address of a dataset at a URL, at the endpoint of this process: the other one has not its options."""
        if not self._table.location.is_url:
            return None
        return address_of(self._table.path, *self._table.pin())

    def close(self) -> None:
        """End the process."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.close()


def serve(table: LanceTable, address: LanceAddress | None) -> Callable[..., Any]:
    """In the process: the function that calls methods of the `LanceScan` of a table."""
    if address is not None:
        adopt(table.path, address)
    scan = LanceScan(table)

    def call(method: str, *arguments: Any) -> Any:
        try:
            return getattr(scan, method)(*arguments)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
            raise FormatError(f"cannot be indexed: {type(error).__name__}: {error}", path=table.path) from error

    return call


def main() -> None:
    """The entry point of the process."""
    os.environ["RUST_BACKTRACE"] = "0"  # a panic is printed to our standard error
    answer_calls(serve)
