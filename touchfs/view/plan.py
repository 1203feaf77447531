"""Plans: how adjacent segments of a recording are merged into longer ones. A name in a path encodes the plan.

    merged/max=30,gap=0.5/<shard>/<key>/0000.wav

A plan is a list of `name=value`, separated by commas, in any order, each name once:

    max       maximum length of a merged segment, in seconds; the only one that is required; 0: nothing is merged
    min       minimum length, in seconds; shorter merged segments are left out; default 0
    gap       longest pause that is merged over, in seconds; default 1
    text      version of the text that is joined (`touchfs.segments.segment`); default: the default text
    seed      draws another target length from `min` to `max` for each merged segment; default: `max` for all
    epoch     draws other lengths with the same seed; default 0
    rate      sampling rate in Hz; default: that of the recording
    channels  `mono`, the mean of all channels, or the number of one, counted from 0; default: all
    format    `wav`, `f32` (a WAV of floats) or `flac`; default `wav`

The audio between two segments was not transcribed, but may be speech that was left out for its quality. A gap of over a
second is more than a breath, so merging over it must be requested; `gap` as large as `max` merges over everything.
Numbers are plain decimals. In `text`, a comma, a slash, a percent sign and control characters are percent-encoded as in
a URL (`%2C`).

A run is the segments that become one merged segment: their numbers, in order of time.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from typing import Any, cast

from touchfs.core.errors import UsageError
from touchfs.core.names import NAME_MAX
from touchfs.media.slices.rendering import MONO, Rendering
from touchfs.view.segments import is_version

SECONDS_MAX = 10**9
WHOLE_MAX = 2**63 - 1
_DRAWN_BITS = 53  # the precision of a float, so that any program can draw the same numbers

# Offset and length in samples. A length of 0 is an empty segment, which is in no run.
Span = tuple[int, int]

_SECONDS = re.compile(r"[0-9]{1,10}(\.[0-9]{1,6})?")
_WHOLE = re.compile(r"[0-9]{1,19}")
_QUOTED = re.compile(r"[\x00-\x1f\x7f%,/]")
_NOT_QUOTED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HEXADECIMAL = re.compile(rb"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A plan. `str()` is its canonical name: in this order, without defaults. Equal plans have equal names.

    Raises UsageError for values out of range.
    """

    max: Decimal
    min: Decimal = Decimal(0)
    gap: Decimal = Decimal(1)
    text: str = ""
    seed: int | None = None
    epoch: int = 0
    rate: int | None = None
    channels: str | None = None
    format: str = "wav"

    def __post_init__(self) -> None:
        for name in ("max", "min", "gap"):
            _parse_seconds(name, _decimal(getattr(self, name)))
        for name, whole in (("seed", self.seed), ("epoch", self.epoch)):
            if whole is not None:
                _parse_whole(name, str(whole))
        if self.min > self.max > 0:
            raise UsageError(f"min is {_decimal(self.min)}, more than max, {_decimal(self.max)}")
        if self.epoch and self.seed is None:
            raise UsageError("epoch needs a seed: without one nothing is drawn")
        if self.text and not is_version(self.text):
            raise UsageError(f"no version of a text can be called {self.text[:80]!r}")
        _rendering(self.rate, self.channels, self.format)
        if len(str(self).encode()) > NAME_MAX:
            raise UsageError(f"a plan's name is over {NAME_MAX} bytes: that of its text is too long")

    @property
    def rendering(self) -> Rendering | None:
        """How merged segments are shown; None: as they are."""
        rendering = _rendering(self.rate, self.channels, self.format)
        return None if rendering == Rendering() else rendering

    def __str__(self) -> str:
        values = [(each.name, getattr(self, each.name), each.default) for each in fields(self)]
        return ",".join(f"{name}={_build_value(value)}" for name, value, default in values if value != default)


def _rendering(rate: int | None, channels: str | None, format: str) -> Rendering:
    """Raises UsageError for values that no rendering has."""
    return Rendering(rate, channels, "f32") if format == "f32" else Rendering(rate, channels, None, cast(Any, format))


def _build_value(value: Decimal | str | int) -> str:
    if isinstance(value, Decimal):
        return _decimal(value)
    return _QUOTED.sub(lambda match: f"%{ord(match[0]):02X}", str(value))


def _decimal(value: Decimal) -> str:
    written = f"{value:f}"
    return written.rstrip("0").rstrip(".") if "." in written else written


def parse_plan(text: str) -> MergePlan:
    """Parse the name of a plan, canonical or not. Raises UsageError."""
    if len(text.encode("utf-8", "surrogatepass")) > NAME_MAX:
        raise UsageError(f"a plan's name is over {NAME_MAX} bytes: {text[:80]!r}…")
    values: dict[str, Any] = {}
    try:
        for part in text.split(","):
            name, equals, value = part.partition("=")
            if name not in _PARSERS or not equals:
                raise UsageError(f"{part!r} is not one of {'=, '.join(_PARSERS)}=")
            if name in values:
                raise UsageError(f"{name} is there twice")
            values[name] = _PARSERS[name](name, value)
        if "max" not in values:
            raise UsageError("max is missing, the seconds that a merged segment has at most, such as max=30")
        if "epoch" in values and "seed" not in values:  # even epoch=0, so that the next epoch is no surprise
            raise UsageError("epoch needs a seed: without one nothing is drawn")
        return MergePlan(**values)
    except UsageError as error:
        raise UsageError(f"plan {text!r}: {error.message}") from error


def _parse_seconds(name: str, value: str) -> Decimal:
    if not _SECONDS.fullmatch(value) or Decimal(value) > SECONDS_MAX:
        raise UsageError(
            f"{name} is {value!r}, not seconds as a plain decimal such as 30 or 0.5, "
            f"at most {SECONDS_MAX}, with at most 6 decimals"
        )
    return Decimal(value)


def _parse_whole(name: str, value: str) -> int:
    if not _WHOLE.fullmatch(value) or int(value) > WHOLE_MAX:
        raise UsageError(f"{name} is {value!r}, not a whole number from 0 to {WHOLE_MAX}")
    return int(value)


def _parse_channels(name: str, value: str) -> str:
    if value != MONO and not _WHOLE.fullmatch(value):
        raise UsageError(f"{name} is {value!r}, neither {MONO} nor the number of a channel")
    return value if value == MONO else str(int(value))


def _parse_format(name: str, value: str) -> str:
    return value


def _parse_text(name: str, value: str) -> str:
    if not value:
        raise UsageError(f"{name} names no version: leave it out for the default text")
    if _NOT_QUOTED.search(value):
        raise UsageError(f"{name} {value!r} has a % that is not followed by two hex digits: write %25")
    try:
        return _HEXADECIMAL.sub(
            lambda match: bytes([int(match[1], 16)]), value.encode("utf-8", "surrogatepass")
        ).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} {value!r} is not UTF-8") from error


_PARSERS: dict[str, Callable[[str, str], Decimal | int | str]] = {
    "max": _parse_seconds,
    "min": _parse_seconds,
    "gap": _parse_seconds,
    "text": _parse_text,
    "seed": _parse_whole,
    "epoch": _parse_whole,
    "rate": _parse_whole,
    "channels": _parse_channels,
    "format": _parse_format,
}


def merge(plan: MergePlan, key: str, spans: Sequence[Span], rate: int) -> list[list[int]]:
    """The runs of a recording.

    Segments are processed in order of their starts, and by number if starts are equal. A run begins with the first
    unused segment. The next one joins it if the pause before it is at most `gap`, and the length from the start of the
    run to its latest end stays at most the target; else it begins the next run. There is no pause between overlapping
    segments. So every segment is in one run, and one longer than the target is a run of its own. Finally, runs shorter
    than `min` are left out.

    The target is `max`. With a seed it is drawn for each run, uniformly from `min` to `max`: the first 53 bits of the
    BLAKE2b-64 of `SEED EPOCH RUN KEY` (numbers in decimal, RUN counted from 0 including runs left out later, the key
    in UTF-8), times the number of possible lengths, shifted right by 53, is the number of samples over `min`.

    Lengths are compared in whole samples: `max` and `gap` are rounded down, `min` up.
    """
    longest, pause = floor(_samples(plan.max, rate)), floor(_samples(plan.gap, rate))
    shortest = ceil(_samples(plan.min, rate))
    least = min(shortest, longest)  # after rounding, a `min` equal to `max` may be one sample larger
    runs: list[list[int]] = []
    first = last = target = 0
    # The sort is stable, so equal starts stay in the order of their numbers.
    for number in sorted((i for i, (_, length) in enumerate(spans) if length > 0), key=lambda i: spans[i][0]):
        offset, length = spans[number]
        end = max(last, offset + length)
        if runs and offset - last <= pause and end - first <= target:
            runs[-1].append(number)
            last = end
        else:
            drawn = None if plan.seed is None else _draw(plan.seed, plan.epoch, len(runs), key)
            target = longest if drawn is None else least + (drawn * (longest - least + 1) >> _DRAWN_BITS)
            runs.append([number])
            first, last = offset, offset + length
    return [run for run in runs if span_of(spans, run)[1] >= shortest]


def _samples(seconds: Decimal, rate: int) -> Fraction:
    """Exact, where a product of decimals is rounded to the precision of the caller's context."""
    return Fraction(seconds) * rate


def _draw(seed: int, epoch: int, run: int, key: str) -> int:
    message = f"{seed} {epoch} {run} {key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(message, digest_size=8).digest(), "big") >> 64 - _DRAWN_BITS


def span_of(spans: Sequence[Span], run: Sequence[int]) -> Span:
    """The span of a run's audio, from its first start to its latest end, pauses included."""
    offset = spans[run[0]][0]
    return offset, max(sum(spans[number]) for number in run) - offset


def joined_text(texts: Iterable[str | None]) -> str | None:
    """The texts of a run, joined in order. A segment without the plan's version of the text has None; so has a run if
    none of its segments has that version.

    Texts are stripped of white space and joined by one space; by none if the characters on both sides belong to scripts
    that are written without spaces.
    """
    stripped = [text.strip() for text in texts if text is not None]
    joined: list[str] = []
    for text in filter(None, stripped):
        if joined and not (_is_unspaced(joined[-1][-1]) and _is_unspaced(text[0])):
            joined.append(" ")
        joined.append(text)
    return "".join(joined) if stripped else None


def _is_unspaced(character: str) -> bool:
    """True if a character is Chinese or Japanese.

    It is if Unicode gives it the width of an ideograph, or half of that as for katakana, and it is a letter without
    case, a mark, a number such as 〇, or punctuation. Korean has the same width but is written with spaces; emoji are
    symbols, and Latin letters of any width have a case.
    """
    return (
        unicodedata.east_asian_width(character) in ("W", "F", "H")
        and (unicodedata.category(character) in ("Lo", "Lm", "Mn", "Nl") or unicodedata.category(character)[0] == "P")
        and "HANGUL" not in unicodedata.name(character, "")
    )


def as_json(
    plan: MergePlan, key: str, number: int, times: dict[str, Any], parts: list[dict[str, Any]], text: str | None
) -> dict[str, Any]:
    """The content of a merged segment's `.json`: its times and its parts, in samples or in seconds, and its text.

    They are those in the recording. A plan with a rendering adds what that is.
    """
    description = {"key": key, "plan": str(plan), "number": number, **times, "parts": parts, "text": text}
    rendering = plan.rendering
    if rendering is not None:
        shown: dict[str, Any] = {"format": plan.format}
        if plan.channels is not None:
            shown["channels"] = plan.channels
        if "sample_rate" in times:
            rate = times["sample_rate"]
            shown |= {"sample_rate": plan.rate or rate, "length": rendering.length_of(times["length"], rate)}
        elif plan.rate is not None:
            shown["sample_rate"] = plan.rate
        description["rendering"] = shown
    return description
