"""The extensions of the files of a column."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Of a file that nothing says more about.
UNKNOWN = "bin"
_EXTENSION = re.compile("[A-Za-z0-9]{1,10}")


def extension_of(name: str | None) -> str:
    """The extension in a name, or that is the name; "" if it has none."""
    if not name:
        return ""
    _, dot, last = name.rpartition(".")
    return last.lower() if dot and _EXTENSION.fullmatch(last) else ""


def numbered(extensions: Sequence[str]) -> tuple[NDArray[np.intp], list[str]]:
    """For the extension of each row an index, and the extensions."""
    different, of_rows = np.unique(np.array(extensions, np.str_), return_inverse=True)
    return of_rows.reshape(-1), different.tolist()
