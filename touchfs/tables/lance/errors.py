"""Errors of Lance become ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from touchfs.core.errors import FormatError, SourceError, TouchfsError

# Where Lance finds a dataset at a URL (`endpoint`): who knows it can read the data.
_ADDRESS = re.compile(r"(?:http://127\.0\.0\.1:\d+|s3:/)/[0-9a-f]{32}/\d+/?")
# The last error of each dataset at a URL, and when it was. Lance knows only that a request of its own has failed.
_PROBLEMS: dict[str, tuple[float, TouchfsError]] = {}


def note_problem(path: str, error: TouchfsError) -> None:
    """Have `lance_errors` raise an error of reading a dataset instead of what Lance says about it."""
    _PROBLEMS[path] = monotonic(), error


@contextmanager
def lance_errors(path: str) -> Iterator[None]:
    """Raise FormatError or SourceError for an error of Lance in the block, also where its code panics."""
    began = monotonic()
    try:
        yield
    except OSError as error:
        raise noted_problem(path, began) or SourceError(_text("cannot read", error), path=path) from error
    except (ValueError, RuntimeError, NotImplementedError, TypeError, KeyError) as error:
        raise noted_problem(path, began) or FormatError(_text("cannot read", error), path=path) from error
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":  # PanicException, which is no Exception
            raise
        raise noted_problem(path, began) or FormatError(_text("failed on", error), path=path) from error


def noted_problem(path: str, began: float) -> TouchfsError | None:
    """The last error that was noted of a dataset since `began`, a time of `monotonic`."""
    when, error = _PROBLEMS.get(path, (0.0, None))
    return error if when >= began else None


def _text(what: str, error: BaseException) -> str:
    """An error of Lance, without addresses of ours, and without places in its source code, which follow a comma."""
    line = _ADDRESS.sub("", str(error).partition("\n")[0])
    return f"Lance {what} it: {line.partition(', /')[0][:500]}"
