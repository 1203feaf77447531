"""touchfs: dataset shards as a directory of ordinary files.

touchfs.open(path)      the samples of any dataset, as a Python sequence: begin here
touchfs.OpenDataset     what it returns, and each of its methods that choose or change items
touchfs.mux             several sets as one, exactly by weight
touchfs.Sample          an item of it: a mapping from extensions to bytes, with text, json(), image(), audio(), …

touchfs.SampleSet       samples to iterate over, indexed or streamed, with Lhotse's methods
touchfs.TouchDataset    arrays of TouchNet and Megatron-LM shards by position
touchfs.node            the iterator graph that all of these are made of
touchfs.torch           datasets and samplers for PyTorch
touchfs.cache, touchfs.backend, touchfs.write
                        caches of examples, and writers of shards
touchfs.interleaved     interleaved image-text samples
touchfs.limits, touchfs.testing, touchfs.core.errors
                        limits of memory and time, checks for nodes of your own, errors

These are public. All other modules and packages are internal: they may change in any version.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from types import ModuleType
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

__all__ = ["OpenDataset", "Sample", "SampleSet", "TouchDataset", "__version__", "mux", "open"]

if TYPE_CHECKING:
    __version__: str
    from touchfs.dataset.sample import Sample
    from touchfs.mixed_sets import mux
    from touchfs.open_dataset import OpenDataset, open
    from touchfs.sample_set import SampleSet
    from touchfs.touch_dataset import TouchDataset
else:
    _MODULES = {
        "OpenDataset": "touchfs.open_dataset",
        "Sample": "touchfs.dataset.sample",
        "SampleSet": "touchfs.sample_set",
        "TouchDataset": "touchfs.touch_dataset",
        "mux": "touchfs.mixed_sets",
        "open": "touchfs.open_dataset",
    }
    _PUBLIC = ("backend", "cache", "interleaved", "limits", "node", "testing", "torch", "write")

    class _Package(ModuleType):
        """Imports a public name at its first use, so that importing a part of touchfs does not cost NumPy."""

        def __getattr__(self, name: str) -> object:
            if name == "__version__":
                return importlib.import_module("importlib.metadata").version(DISTRIBUTION)
            if name in _MODULES:
                return getattr(importlib.import_module(_MODULES[name]), name)
            if name in _PUBLIC:
                return importlib.import_module(f"touchfs.{name}")
            raise AttributeError(f"module 'touchfs' has no attribute {name!r}")

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *__all__, *_PUBLIC})

    # A class, as functions of the module would be in its documentation.
    sys.modules[__name__].__class__ = _Package
