"""The companion of an offset index in NeMo's second version for WebDataset: JSON that identifies the indexed tar.

    x.tar.wds-v2.idx             the offset of each sample, then the size of the tar; see `offsets`
    x.tar.wds-v2.idx.meta.json   the tar's path, size, mtime and identity, counts, and the hash of the other file

A sample is a run of files with the same key, up to the first dot. NeMo accepts the pair only if everything is valid,
including the exact text of the JSON, and so does this module.

Source: NeMo's nemo/collections/common/data/lhotse/indexed_adapters.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from touchfs.core.errors import FormatError
from touchfs.core.extent import Buffer

_FORMAT = "nemo-wds-sample-index"
_VERSION = 2
_KEYS = "posix-parent-plus-basename-prefix-before-first-dot-v1"
_OFFSET = np.dtype("<u8")
_NONE = type(None)
_SHAPE = {
    "format": (str,),
    "version": (int,),
    "sample_key_algorithm": (str,),
    "source": (dict,),
    "regular_member_count": (int,),
    "sample_count": (int,),
    "offsets_sha256": (str,),
}
_SOURCE_SHAPE = {"path": (str,), "size_bytes": (int,), "mtime_ns": (int,), "object_identity": (str, _NONE)}


@dataclass(frozen=True, slots=True)
class Companion:
    """A parsed companion: path, size in bytes, mtime and identity of the tar, and its numbers of files and samples.

    `identity` is an object store's version or ETag; it is None for a local file, which `mtime_ns` identifies.
    """

    path: str
    size: int
    mtime_ns: int
    identity: str | None
    files: int
    samples: int


def parse_companion(data: Buffer, index: Buffer) -> Companion:
    """Parse a companion and check it against the bytes of its offset index. Raises FormatError.

    The caller checks that the tar is still the one described.
    """
    try:
        value = json.loads(str(data, "utf-8"))
        canonical = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not the JSON of an index's companion: {error}", offset=0) from error
    if data != canonical or not _has_shape(value, _SHAPE) or not _has_shape(value["source"], _SOURCE_SHAPE):
        raise FormatError("not the companion of an index: other keys, values or spelling than it has", offset=0)
    if (value["format"], value["version"], value["sample_key_algorithm"]) != (_FORMAT, _VERSION, _KEYS):
        raise FormatError(f"the companion of an index of version {value['version']}, only 2 is known", offset=0)
    if value["offsets_sha256"] != hashlib.sha256(index).hexdigest():
        raise FormatError("not the companion of this index: its hash is another one", offset=0)
    source = value["source"]
    found = Companion(
        source["path"],
        source["size_bytes"],
        source["mtime_ns"],
        source["object_identity"],
        value["regular_member_count"],
        value["sample_count"],
    )
    if len(index) != (found.samples + 1) * _OFFSET.itemsize:
        raise FormatError(f"an index of {len(index)} bytes for {found.samples} samples", offset=0)
    offsets = np.frombuffer(index, _OFFSET)
    if (offsets[1:] <= offsets[:-1]).any() or offsets[-1] != found.size:
        raise FormatError(f"the index does not ascend to the tar's {found.size} bytes", offset=0)
    return found


def _has_shape(value: Any, shape: Mapping[str, tuple[type, ...]]) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == shape.keys()
        and all(type(value[key]) in types for key, types in shape.items())
        and all(value[key] >= 0 for key, types in shape.items() if int in types)
        and all(value[key] != "" for key in shape)
    )
