"""touchfs: dataset shards as a directory of ordinary files."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["TouchDataset"]

if TYPE_CHECKING:
    from touchfs.touch_dataset import TouchDataset
else:

    def __getattr__(name: str) -> object:
        """Imported at first use, so that importing a part of touchfs does not cost NumPy."""
        if name in __all__:
            from touchfs.touch_dataset import TouchDataset

            return TouchDataset
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
