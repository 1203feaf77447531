"""Python interpreters that we start: they never import from the current directory.

`python -c` has the current directory first in `sys.path`, and multiprocessing starts its processes so. That directory
is often the dataset's, where others may write: a file `json.py` in it would be run. `-I` would hide what is installed
with `pip install --user`, so it is `-P`, or for multiprocessing, which takes no options, PYTHONSAFEPATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "PYTHONSAFEPATH"


def command(code: str) -> list[str]:
    """The command that runs this code in a new interpreter."""
    return [sys.executable, "-P", "-c", code]


@contextmanager
def safe_path() -> Iterator[None]:
    """What multiprocessing starts meanwhile does not import from the current directory.

    Only meanwhile: the variable would change what scripts do that a user has us run (`pipe:`).
    """
    before = user_setting()
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        restore(before)


def user_setting() -> str | None:
    """The user's own value of the variable, for `restore` in a process that was started under `safe_path`."""
    return os.environ.get(_VARIABLE)


def restore(value: str | None) -> None:
    if value is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = value
