"""Errors of Lance become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from touchfs.errors import FormatError, SourceError


@contextmanager
def lance_errors(path: str) -> Iterator[None]:
    """Raise FormatError or SourceError for an error of Lance in the block, also where its code panics."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"Lance cannot read it: {_first_line(error)}", path=path) from error
    except (ValueError, RuntimeError, NotImplementedError, TypeError, KeyError) as error:
        raise FormatError(f"Lance cannot read it: {_first_line(error)}", path=path) from error
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":  # PanicException, which is no Exception
            raise
        raise FormatError(f"Lance failed on it: {_first_line(error)}", path=path) from error


def _first_line(error: BaseException) -> str:
    """An error of Lance without the places in its source code, which follow a comma."""
    line = str(error).partition("\n")[0]
    return line.partition(", /")[0][:500]
