"""The dataset file: what each shard of a source was when its catalog was made, so that no catalog need be opened."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, get_origin, get_type_hints

from touchfs.dataset import Shard
from touchfs.errors import UntrustedError
from touchfs.shard.catalog import VERSION
from touchfs.source.local import FileIdentity
from touchfs.source.trust import open_own, own_file

_SHARD_TYPES = {name: get_origin(kind) or kind for name, kind in get_type_hints(Shard).items()}


def load_shards(path: str, source: str, distrusted: list[str]) -> dict[str, Shard]:
    """The shards of a dataset file by path; nothing where there is none that can be used, which costs time only."""
    try:
        with open(open_own(path, source), encoding="utf-8") as file:
            told = json.load(file)
        if told["version"] != VERSION:
            return {}
        return {shard.path: shard for shard in map(_parse_shard, told["shards"])}
    except UntrustedError as error:
        distrusted.append(str(error))
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _parse_shard(told: dict[str, Any]) -> Shard:
    files = {name: FileIdentity(**identity) for name, identity in told["files"].items()}
    shard = Shard(**{**told, "files": files})
    for name, kind in _SHARD_TYPES.items():
        if not isinstance(getattr(shard, name), kind):
            raise TypeError(f"{name} is not of {kind}")
    return shard


def save_shards(path: str, source: str, shards: Iterable[Shard]) -> None:
    told = {"version": VERSION, "source": source, "shards": [asdict(shard) for shard in shards]}
    with own_file(path) as file:
        file.write(json.dumps(told).encode())
