"""Imports without garbage collection: what they make lives as long as the process.

Collections would look at all of it again and again, and once more at exit: a quarter of the time of a short command.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def imports() -> Iterator[None]:
    """Import modules in this block. No collection looks at the objects that exist at its end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
