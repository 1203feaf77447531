"""touchfs: dataset shards as a directory of ordinary files.

touchfs.open(path)      the samples of any dataset, as a Python sequence
touchfs.SampleSet       samples to iterate over, with exact resuming, indexed or streamed
touchfs.TouchDataset    arrays of TouchNet and Megatron-LM shards by position
touchfs.node            the iterator graph that these are made of
touchfs.torch           datasets and samplers for PyTorch
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING

from touchfs.core.extras import DISTRIBUTION


def _find_namesake() -> str | None:
    """What to do about the other project `touchfs`, in a sentence, if it is installed beside us.

    The files of both are in one directory then, and some have replaced others. `importlib.metadata` would find it, too,
    but to import that takes longer than all else that we need at first.
    """
    for directory in sys.path:
        if os.path.basename(directory) in ("site-packages", "dist-packages") and os.path.isdir(directory):
            for name in os.listdir(directory):
                if name.startswith("touchfs-") and name.endswith((".dist-info", ".egg-info")):
                    return (
                        f"another project replaces files of this one ({directory}/{name}): "
                        f"`pip uninstall -y touchfs {DISTRIBUTION} && pip install {DISTRIBUTION}`"
                    )
    return None


NAMESAKE = _find_namesake()
if NAMESAKE is not None:
    warnings.warn(NAMESAKE, stacklevel=2)

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
            return importlib.import_module("importlib.metadata").version(DISTRIBUTION)
        if name in _MODULES:
            return getattr(importlib.import_module(_MODULES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_MODULES})
