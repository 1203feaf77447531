"""touchfs: dataset shards as a directory of ordinary files.

touchfs.open(path)      the samples of any dataset, as a Python sequence
touchfs.SampleSet       samples to iterate over, with exact resuming, indexed or streamed
touchfs.TouchDataset    arrays of TouchNet and Megatron-LM shards by position
touchfs.node            the iterator graph that these are made of
touchfs.torch           datasets and samplers for PyTorch
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__all__ = ["SampleSet", "TouchDataset", "__version__"]

if TYPE_CHECKING:
    __version__: str
    from touchfs.open_dataset import open as open
    from touchfs.sample_set import SampleSet
    from touchfs.touch_dataset import TouchDataset
else:
    # `open` is not in __all__: `from touchfs import *` must not replace Python's.
    _MODULES = {
        "SampleSet": "touchfs.sample_set",
        "TouchDataset": "touchfs.touch_dataset",
        "open": "touchfs.open_dataset",
    }

    def __getattr__(name: str) -> object:
        """Import a public name at its first use, so that importing a part of touchfs does not cost NumPy."""
        if name == "__version__":
            return importlib.import_module("importlib.metadata").version("touchfs")
        if name in _MODULES:
            return getattr(importlib.import_module(_MODULES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
