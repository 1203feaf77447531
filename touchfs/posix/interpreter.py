"""Start Python interpreters that never import from the current directory.

`python -c` puts the current directory first in `sys.path`, and multiprocessing starts its processes that way. That
directory is often the dataset's, where others may write: a file `json.py` in it would be run. `-I` would hide packages
installed with `pip install --user`, so we use `-P`; multiprocessing takes no options, so there it is PYTHONSAFEPATH.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "PYTHONSAFEPATH"


def command(code: str) -> list[str]:
    """Return the command that runs this code in a new interpreter."""
    return [sys.executable, "-P", "-c", code]


@contextmanager
def safe_path() -> Iterator[None]:
    """Within this context, processes started by multiprocessing do not import from the current directory.

    The variable is set only here, because it would change the scripts that a user has us run (`pipe:`).
    """
    before = user_setting()
    os.environ[_VARIABLE] = "1"
    try:
        yield
    finally:
        restore(before)


def user_setting() -> str | None:
    """Return the user's own value of PYTHONSAFEPATH, for `restore` in a process started under `safe_path`."""
    return os.environ.get(_VARIABLE)


def restore(value: str | None) -> None:
    """Set PYTHONSAFEPATH to a value from `user_setting`; None unsets it."""
    if value is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = value
