"""Storage backends: random access to the rows of Arrow shards, Lance datasets and Lance video frames.

Names are imported when they are first used, so that the protocol needs neither pyarrow nor Lance nor PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from touchfs.backend.arrow_shards import ArrowBackend
    from touchfs.backend.dataset import BackendDataset
    from touchfs.backend.iterable import BackendIterableDataset
    from touchfs.backend.lance_rows import LanceBackend
    from touchfs.backend.lance_video_frames import LanceVideoFramesBackend
    from touchfs.backend.protocol import StorageBackend

_MODULES = {
    "ArrowBackend": "arrow_shards",
    "BackendDataset": "dataset",
    "BackendIterableDataset": "iterable",
    "LanceBackend": "lance_rows",
    "LanceVideoFramesBackend": "lance_video_frames",
    "StorageBackend": "protocol",
}

__all__ = [
    "ArrowBackend",
    "BackendDataset",
    "BackendIterableDataset",
    "LanceBackend",
    "LanceVideoFramesBackend",
    "StorageBackend",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
