"""The dataset file: facts about each shard of a source from when its catalog was made, so that no catalog is opened.

It is JSON whose first member, `crc32`, is the checksum (zlib's CRC-32) of all bytes after its 8 digits. Without it, a
damaged file could count other samples.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any, get_origin, get_type_hints

from touchfs.catalog.catalog import VERSION
from touchfs.catalog.key_endings import parse_endings
from touchfs.core.errors import UntrustedError
from touchfs.dataset.shard import Shard
from touchfs.posix.trust import atomic_own_file, open_trusted
from touchfs.registry.open import known_shard
from touchfs.source.fingerprint import build_files, parse_files

DATASET_SUFFIX = ".dataset.json"
_HEAD = b'{"crc32": "'
_SHARD_TYPES = {name: get_origin(kind) or kind for name, kind in get_type_hints(Shard).items()}


@dataclass(frozen=True, slots=True)
class DatasetFile:
    """Shards by path. `moved_from` is the source path when the data were indexed, or "" if they have not been moved.
    `split` is the split that these are all shards of, None for a whole source.
    """

    source: str
    shards: dict[str, Shard] = field(default_factory=dict)
    moved_from: str = ""
    split: str | None = None


def load_dataset_file(path: str, source: str, distrusted: list[str]) -> DatasetFile:
    """Load a dataset file. Returns one without shards if it is missing or unusable, which costs only time.

    If it is not trusted, the reason is appended to `distrusted`.
    """
    try:
        with open(open_trusted(path, source), "rb") as file:
            data = file.read()
        content = json.loads(data)
        if data == _sealed(data[len(_HEAD) + 8 :]) and content["version"] == VERSION:
            shards = {shard.path: shard for shard in map(_parse_shard, content["shards"])}
            return DatasetFile(str(content["source"]), shards, str(content.get("moved_from", "")), content.get("split"))
    except UntrustedError as error:
        distrusted.append(str(error))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    return DatasetFile(source)


def _parse_shard(record: dict[str, Any]) -> Shard:
    known = known_shard(record["path"], parse_files(record["files"]))
    endings = parse_endings(record["endings"])
    shard = Shard(**{**record, "container": known.container, "files": known.files, "endings": endings})
    for name, kind in _SHARD_TYPES.items():
        if not isinstance(getattr(shard, name), kind):
            raise TypeError(f"{name} is not of {kind}")
    return shard


def save_dataset_file(path: str, file: DatasetFile) -> None:
    """Write a dataset file. Raises UnwritableError or SourceError."""
    records = [{**asdict(shard), "files": build_files(shard.files)} for shard in file.shards.values()]
    for record in records:
        del record["container"]  # follows from the files
    content = {"version": VERSION, "source": file.source, "shards": records}
    if file.moved_from:
        content["moved_from"] = file.moved_from
    if file.split is not None:
        content["split"] = file.split
    with atomic_own_file(path) as written:
        written.write(_sealed(b'", ' + json.dumps(content).encode()[1:]))


def _sealed(rest: bytes) -> bytes:
    """The bytes of a file from those after its checksum."""
    return b"%b%08x%b" % (_HEAD, zlib.crc32(rest), rest)
