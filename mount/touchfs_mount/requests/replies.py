"""Replies to the kernel, and the counters of a worker: what is answered, late, refused or a bug of ours."""

from __future__ import annotations

import errno
import logging
import threading
from time import monotonic_ns

from touchfs.core.errors import SourceError, TouchfsError, errno_of, shortage_of
from touchfs.tree.open_shards import WouldBlockError
from touchfs_mount.messages.requests import Opcode, Request
from touchfs_mount.numbers.cells import FAILURES, LATE_REPLIES
from touchfs_mount.numbers.slots import OPERATIONS, Slot
from touchfs_mount.requests.connection import KernelConnection
from touchfs_mount.requests.refusals import Refusals
from touchfs_mount.requests.tree_answers import RefusedError, TreeAnswers

log = logging.getLogger(__name__)

# What a tree answers, and its place among the counted operations.
COUNTED: dict[int, int] = {
    opcode: OPERATIONS.index(name)
    for opcode, name in (
        (Opcode.LOOKUP, "lookup"),
        (Opcode.GETATTR, "getattr"),
        (Opcode.READLINK, "readlink"),
        (Opcode.READ, "read"),
        (Opcode.READDIR, "readdir"),
        (Opcode.READDIRPLUS, "readdir"),
        (Opcode.STATFS, "statfs"),
        (Opcode.GETXATTR, "getxattr"),
        (Opcode.LISTXATTR, "listxattr"),
    )
}
# These are answers and no errors: the kernel shall not send such a request again; no attribute of this kind exists;
# its value needs more room.
_ANSWERS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ERANGE})


class Replies:
    """Replies of one worker, from any of its threads."""

    def __init__(
        self, connection: KernelConnection, counters: memoryview[int], numbers: Slot, refusals: Refusals
    ) -> None:
        self._connection = connection
        self._counters = counters
        self._numbers = numbers
        self._refusals = refusals
        self._lock = threading.Lock()  # `numbers` are no atomic ones

    def answer(self, request: Request, answers: TreeAnswers, began: int) -> None:
        """Answer a request that came at `began` (monotonic, ns), or refuse it. Raises WouldBlockError: then it waits
        for its answer.
        """
        try:
            parts = answers.answer(request)
        except WouldBlockError:
            raise
        except RefusedError as error:
            self.refuse(request, error.errno, began)
        except TouchfsError as error:
            self.fail(request, error, began)
        except Exception as error:
            lacking = shortage_of(error)
            if lacking is None:
                self._counters[FAILURES] += 1
                log.exception("%r failed", request)
            else:
                log.warning("%r has no room: %s", request, error)
            self.refuse(request, lacking or errno.EIO, began)
        else:
            try:
                if not self._connection.answer(request.unique, parts):
                    self._counters[LATE_REPLIES] += 1
            except OSError as error:  # a page of a file that was cut short meanwhile, or memory is short
                self.fail(request, SourceError(f"cannot be handed to the kernel: {error.strerror}"), began)
            else:
                self._count(request, began, len(parts[0]) if request.opcode == Opcode.READ else 0)

    def fail(self, request: Request, error: TouchfsError, began: int) -> None:
        """Refuse a request with the errno of an error, which is logged."""
        self._refusals.log(error, request.inode)
        self.refuse(request, errno_of(error), began)

    def refuse(self, request: Request, number: int, began: int) -> None:
        """Refuse a request with an errno."""
        if not self._connection.refuse(request.unique, number):
            self._counters[LATE_REPLIES] += 1
        if number not in _ANSWERS:
            with self._lock:
                self._numbers.add_error(number)
        self._count(request, began, 0)

    def _count(self, request: Request, began: int, size: int) -> None:
        with self._lock:
            self._numbers.record(COUNTED[request.opcode], monotonic_ns() - began)
            if size:
                self._numbers.add_read(size)
