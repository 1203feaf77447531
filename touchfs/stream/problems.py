"""Problems of the data of a stream: it has no JSON lines at all, or some of its samples are damaged."""

from __future__ import annotations

import logging

from touchfs.core.control_characters import one_line
from touchfs.core.errors import FormatError
from touchfs.dataset import counted
from touchfs.registry.directory.other_formats import HEAD_SIZE, describe_bytes
from touchfs.source.lines import PIPE

log = logging.getLogger(__name__)


class ProblemLog:
    """Writes the first problem of a stream to the log, and at the end of the stream how many there were."""

    def __init__(self, path: str) -> None:
        self.path = one_line(path)
        self.count = 0

    def add(self, problem: str) -> None:
        """Note a problem."""
        self.count += 1
        if self.count == 1:
            # Problems of a whole shard name its path already.
            log.warning("%s: %s", self.path, one_line(problem).removeprefix(f"{self.path}: "))

    def close(self) -> None:
        """Write the number of problems if that is more than the log has already."""
        if self.count > 1:
            log.warning("%s: %s in all", self.path, counted(self.count, "problem"))


def check_first_line(path: str, line: bytes, offset: int) -> None:
    """Raise FormatError unless the first line that is not blank, at an offset, may be one of JSON lines.

    A line that is not JSON is a damaged sample. Bytes that are no text are no samples at all.
    """
    is_command = path.startswith(PIPE)
    what = describe_bytes(line[:HEAD_SIZE])
    if what is not None:
        remedy = "let the command write JSON lines" if is_command else "name the file by its format"
        raise FormatError(f"is {what}, and not JSON lines: {remedy}", path=path)
    try:
        line.decode()
    except UnicodeDecodeError as error:
        message = f"is not UTF-8, as JSON lines are: {error.reason}"
        raise FormatError(message, path=path, offset=offset + error.start) from error
