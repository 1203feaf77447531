"""Storage backends: random access to the rows of Arrow shards, Lance datasets and Lance video frames.

Names are imported when they are first used, so that the protocol needs neither pyarrow nor Lance nor PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from touchfs.caches.backends.arrow_shards import ArrowBackend
    from touchfs.caches.backends.dataset import BackendDataset
    from touchfs.caches.backends.iterable import BackendIterableDataset
    from touchfs.caches.backends.lance_rows import LanceBackend
    from touchfs.caches.backends.lance_video_frames import LanceVideoFramesBackend
    from touchfs.caches.backends.protocol import StorageBackend

_MODULES = {
    "ArrowBackend": "touchfs.caches.backends.arrow_shards",
    "BackendDataset": "touchfs.caches.backends.dataset",
    "BackendIterableDataset": "touchfs.caches.backends.iterable",
    "LanceBackend": "touchfs.caches.backends.lance_rows",
    "LanceVideoFramesBackend": "touchfs.caches.backends.lance_video_frames",
    "StorageBackend": "touchfs.caches.backends.protocol",
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
    return getattr(import_module(_MODULES[name]), name)
