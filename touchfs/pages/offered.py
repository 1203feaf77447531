"""What a list of samples can be filtered and sorted by: fields of its first samples, and what catalogs say of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from touchfs.core.errors import TouchfsError
from touchfs.core.json_text import parse_json
from touchfs.dataset.sample import Sample
from touchfs.dataset.samples import CataloguedSamples
from touchfs.explore.files import TEXTS
from touchfs.form.compressed_content import plain_extension
from touchfs.select.expression import spell_field
from touchfs.select.selection import AnySamples

# How many samples are read, bytes of a JSON, fields that are listed, and characters of each.
_SAMPLES, _READ, _FIELDS, _LENGTH = 10, 1 << 16, 40, 60
_OF_TEXTS, _OF_RECORDINGS = ("text", "characters"), ("duration", "rate", "channels", "coding")


def sorts_of(samples: AnySamples) -> tuple[str, ...]:
    """The facts that samples have an order by."""
    if not isinstance(samples, CataloguedSamples):
        return ()
    shards = samples.dataset.shards
    has_segments = any(shard.segments for shard in shards)
    if samples.view != "shards":
        return ("duration",) * has_segments
    return ("duration",) * any(shard.timed for shard in shards) + ("size",) + ("segments",) * has_segments


def fields_of(samples: AnySamples) -> tuple[str, ...]:
    """The fields of the first samples, as filters spell them. What cannot be read has none."""
    found = dict.fromkeys(("key", "shard"))
    if any(shard.segments for shard in samples.dataset.shards):
        found["segments"] = None
    for position in range(min(_SAMPLES, len(samples))):
        with suppress(TouchfsError, ValueError, RecursionError):
            for name in _fields(samples[position]):
                found |= {name: None} if len(name) <= _LENGTH else {}
    return tuple(islice(found, _FIELDS))


def _fields(sample: Sample) -> Iterator[str]:
    if sample.coding is not None:
        yield from _OF_RECORDINGS
    if sample.text_name is not None:
        yield from _OF_TEXTS
    for name in sample:
        yield spell_field(("size", name))
        if (plain := plain_extension(name)) in TEXTS - {"txt", "json"}:
            yield spell_field((plain,))
    for name, value in {**sample.overlaid(), **_json(sample)}.items():
        if isinstance(value, Mapping) and value:
            yield from (spell_field((name, inner)) for inner in value)
        else:
            yield from _OF_TEXTS if name == "text" else (spell_field((name,)),)


def _json(sample: Sample) -> Mapping[str, Any]:
    name = sample.json_name
    if name is None or sample.content(name).size > _READ:
        return {}
    fields = parse_json(sample.plain(name, _READ))
    return fields if isinstance(fields, dict) else {}
