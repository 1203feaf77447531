"""Fingerprints of features and of datasets, by which caches are found and checked. Other tools compute the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from touchfs.core.errors import ArgumentValueError

if TYPE_CHECKING:
    from touchfs.features.features import Features


def features_fingerprint(features: Features) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of the features' text.

    Two sets of more than five label names that are equal in number have the same text.
    """
    return _digest(features.fingerprint_data())


def cache_fingerprint(cls_name: str, version: str, config_name: str, split: str, storage_format: str = "arrow") -> str:
    """Return the name of the directory of a cache: the same for the same dataset, version, configuration and split.

    The storage format is a part of the digest, so that caches of both formats may lie side by side. Raises
    ArgumentValueError for another than "arrow" or "lance".
    """
    if storage_format not in ("arrow", "lance"):
        raise ArgumentValueError(f"storage_format must be 'arrow' or 'lance', got {storage_format!r}")
    digest = _digest(f"{cls_name}:{version}:{config_name}:{split}:{storage_format}")
    return f"{cls_name.lower()}_{config_name}_{split}_{digest}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
