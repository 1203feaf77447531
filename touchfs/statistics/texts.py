"""Statistics of texts and of the fields of JSON, by random samples: any part of these is random, too.

Samples are taken in touchfs's own order of the seed 0, until there are `SAMPLES` of them, or a look has read enough
bytes, or for some seconds. A share is then right to 0.7 % of 20,000 samples.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np

from touchfs.core.errors import TouchfsError
from touchfs.dataset.sample import Sample
from touchfs.node.order.feistel import Feistel, round_keys
from touchfs.select.selection import AnySamples
from touchfs.statistics.buckets import Histogram

SAMPLES = 20_000
SPEED_STEPS = 64
_BYTES, _SECONDS = 64 << 20, 5.0
_TEXT_BYTES = 1 << 20
_WORDS, _FIELDS, _VALUES, _NAME_LENGTH, _VALUE_LENGTH = 1_000_000, 40, 51, 200, 60
_CHARACTERS = 1 << 16
# Larger numbers, infinity and NaN are not counted.
_NUMBER_MAX = 1e300


@dataclass(slots=True)
class TextStatistics:
    """What `samples` random samples say, `of` all. `lengths` are characters of texts, `speeds` a 64th of a character a
    second. `fields` has the counts of the values of each field of the JSON, None for one with many values. `numbers`
    has the values of fields that are numbers, `nulls` how often a field is null.
    """

    samples: int = 0
    of: int = 0
    lengths: Histogram = field(default_factory=Histogram)
    speeds: Histogram = field(default_factory=Histogram)
    characters: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    has_more_words: bool = False
    fields: dict[str, Counter[str] | None] = field(default_factory=dict)
    numbers: dict[str, array[float]] = field(default_factory=dict)
    nulls: Counter[str] = field(default_factory=Counter)

    @classmethod
    def read(cls, samples: AnySamples, most: int = SAMPLES, clock: Callable[[], float] = monotonic) -> TextStatistics:
        """Read the texts of random samples. Damaged ones have none."""
        found, total = cls(of=len(samples)), 0
        lengths, speeds = list[int](), list[int]()
        order, until = Feistel(len(samples), round_keys(0)), clock() + _SECONDS
        for position in order(np.arange(min(most, len(samples)), dtype=np.int64)).tolist():
            sample = samples[position]
            text, fields, size = _contents(sample)
            if text is not None:
                lengths.append(len(text))
                found._add_text(text)
                if text and (duration := _duration(sample)):
                    speeds.append(int(SPEED_STEPS * len(text) / duration))
            for name, value in fields.items():
                found._add_value(name, value)
            total += size
            found.samples += 1
            if total > _BYTES or clock() > until:
                break
        found.lengths.add(np.array(lengths, np.int64))
        found.speeds.add(np.array(speeds, np.int64))
        return found

    def _add_text(self, text: str) -> None:
        if len(self.characters) < _CHARACTERS:
            self.characters.update(text)
        if len(self.words) < _WORDS:
            self.words.update(text.split())
        else:
            self.has_more_words = True

    def _add_value(self, name: str, value: Any) -> None:
        if value is None:
            self.nulls[name] += 1
            return
        if name not in self.fields and (len(self.fields) >= _FIELDS or len(name) > _NAME_LENGTH):
            return
        counts = self.fields.setdefault(name, Counter())
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _NUMBER_MAX:
            self.numbers.setdefault(name, array("d")).append(value)
        if counts is None:
            return
        if name in ("text", "txt"):
            return
        is_small = isinstance(value, bool | int | float | str) and len(str(value)) <= _VALUE_LENGTH
        if is_small:
            counts[str(value)] += 1
        if not is_small or len(counts) >= _VALUES:
            self.fields[name] = None


def _contents(sample: Sample) -> tuple[str | None, dict[str, Any], int]:
    text, fields, size = None, dict[str, Any](), 0
    try:
        if (name := sample.text_name) is not None and sample.content(name).size <= _TEXT_BYTES:
            text = sample.text
            size += len(text or "")
        if (name := sample.json_name) is not None and sample.content(name).size <= _TEXT_BYTES:
            value = sample.json()
            size += sample.content(name).size
            fields = value if isinstance(value, dict) else {}
    except TouchfsError:
        return text, fields, size
    if text is None and isinstance(fields.get("text"), str):
        text = fields["text"]
    return text, fields, size


def _duration(sample: Sample) -> float | None:
    try:
        return sample.known_duration if sample.coding is not None else None
    except TouchfsError:
        return None
