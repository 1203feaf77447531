"""Writers for a `with` block: at its end their files appear, unless an exception was raised."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Self


class WholeWriter:
    """Enters and leaves `_context`, set by a subclass, which creates the files and renames them into place."""

    _context: AbstractContextManager[None]

    def __enter__(self) -> Self:
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)
