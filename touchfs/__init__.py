"""touchfs: dataset shards as a directory of ordinary files."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__all__ = ["SampleSet", "TouchDataset", "__version__"]

if TYPE_CHECKING:
    __version__: str
    from touchfs.sample_set import SampleSet
    from touchfs.touch_dataset import TouchDataset
else:
    _MODULES = {"SampleSet": "touchfs.sample_set", "TouchDataset": "touchfs.touch_dataset"}

    def __getattr__(name: str) -> object:
        """Import a public name at its first use, so that importing a part of touchfs does not cost NumPy."""
        if name == "__version__":
            return importlib.import_module("importlib.metadata").version("touchfs")
        if name in _MODULES:
            return getattr(importlib.import_module(_MODULES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
