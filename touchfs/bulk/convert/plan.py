"""The plan of a conversion: all settings that determine the new shards, and a digest of the files that it reads."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import asdict
from itertools import starmap
from typing import Any

from touchfs.bulk.convert.input import InputShard
from touchfs.bulk.convert.target import Target
from touchfs.posix.paths import absolute
from touchfs.shard.options import FIRST_RULE, Options
from touchfs.source.fingerprint import Fingerprint


def plan_settings(
    dataset: str, output: str, target: Target, options: Options, leave_out: Collection[str], inputs: list[InputShard]
) -> dict[str, Any]:
    """Everything that determines the shards, and so must be equal to resume."""
    target_fields = {name.replace("_", "-"): value for name, value in asdict(target).items() if name != "limits"}
    return {
        "kind": f"convert with {target.kind}",
        "source": absolute(dataset),
        "output": output,
        **target_fields,
        "sample-rate": options.sample_rate,
        "key-rule": options.key_rule,
        # Not in plans from before there were rules.
        **({} if options.segments == FIRST_RULE else {"segments": options.segments}),
        **({} if options.limits.audio_root is None else {"audio-root": options.limits.audio_root}),
        **({} if options.split is None else {"split": options.split}),
        **{name: value for name, value in _table_options(options).items() if value is not None},
        "leave-out": sorted(leave_out),
        "sha256": plan_digest(inputs),
    }


def _table_options(options: Options) -> dict[str, str | None]:
    """The options for tables; not in plans from before there were tables."""
    return {"key": options.key_column, "layout": options.layout, "features": options.features}


def plan_digest(shards: Iterable[InputShard]) -> str:
    """The SHA-256 of the files of all shards, which the plan of an unfinished conversion holds.

    The text that is hashed never changes, or no plan would fit any more: it is what version 0.1 hashed, the `repr` of
    a list of pairs, with the name that the class of fingerprints had then. Files of other stores add their etags, and
    tables the values of their directories.
    """

    def spelled(name: str, file: Fingerprint) -> str:
        fingerprint = f"FileIdentity(size={file.size}, mtime_ns={file.mtime_ns}, inode={file.inode})"
        return f"({name!r}, {fingerprint})" if file.etag is None else f"({name!r}, {fingerprint}, {file.etag!r})"

    listed = ((each, ", ".join(starmap(spelled, sorted(each.files.items())))) for each in shards)
    text = ", ".join(f"({each.path!r}, [{files}]{each.partition})" for each, files in listed)
    return hashlib.sha256(f"[{text}]".encode(errors="surrogateescape")).hexdigest()
