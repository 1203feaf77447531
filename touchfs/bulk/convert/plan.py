"""The plan of a conversion: all settings that determine the new shards, and a digest of the files that it reads."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

from touchfs.bulk.chosen import CHOICE_WORDS, Choice
from touchfs.bulk.convert.input import InputShard
from touchfs.bulk.convert.target import Target
from touchfs.core.location import Location
from touchfs.shard.options import Options


def plan_settings(
    dataset: str,
    output: str,
    target: Target,
    options: Options,
    leave_out: Collection[str],
    inputs: list[InputShard],
    choice: Choice | None = None,
) -> dict[str, Any]:
    """Everything that determines the shards, and so must be equal to resume."""
    target_fields = {name.replace("_", "-"): value for name, value in asdict(target).items() if name != "limits"}
    return {
        "kind": f"convert with {target.kind}",
        "source": Location.of(dataset).absolute.path,
        "output": output,
        **target_fields,
        "sample-rate": options.sample_rate,
        "key-rule": options.key_rule,
        "segments": options.segments,
        "audio-root": options.limits.audio,
        "split": options.split,
        "key": options.key_column,
        "layout": options.layout,
        "features": options.features,
        "leave-out": sorted(leave_out),
        **dict.fromkeys(CHOICE_WORDS),
        **(choice.words if choice else {}),
        "sha256": plan_digest(inputs),
    }


def plan_digest(shards: Iterable[InputShard]) -> str:
    """The SHA-256 of the paths and fingerprints of all shards, which the plan of an unfinished conversion holds."""
    facts = [
        (each.path, each.partition, [(name, file.hashed) for name, file in sorted(each.files.items())])
        + ((os.path.basename(each.overlaid),) if each.overlaid else ())
        for each in shards
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()
