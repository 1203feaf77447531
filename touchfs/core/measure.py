"""In what the length of a sample is counted: seconds of a recording, or tokens of arrays.

Lengths are integers, so that their sums are exact: microseconds, or tokens.
"""

from __future__ import annotations

from touchfs.core.errors import UsageError

SECONDS, TOKENS = "seconds", "tokens"
MEASURES = (SECONDS, TOKENS)
# The length of a sample that no index knows.
UNKNOWN = -1
_PARTS = {SECONDS: 1_000_000, TOKENS: 1}
_UNKNOWN = {
    SECONDS: "`touchfs index --full` finds that of recordings, and where duration exists leaves out others",
    TOKENS: "it knows that of arrays in shards of .bin and .idx",
}
_MOST = 1 << 53


def check_measure(measure: object, where: str) -> str:
    """Return the name of a measure. Raises UsageError for any other value."""
    if measure not in MEASURES:
        raise UsageError(f"{where} is {' or '.join(MEASURES)}, not {measure!r:.80}")
    return str(measure)


def check_limit(value: object, measure: str, where: str) -> float:
    """Return a number of seconds or tokens. Raises UsageError unless it is above 0 and finite, of tokens an integer."""
    if measure == TOKENS and type(value) is not int:
        raise UsageError(f"{where} is an integer from 1 on, not {value!r:.80}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _MOST / _PARTS[measure]:
        raise UsageError(f"{where} is a number above 0, and below {_MOST // _PARTS[measure]}, not {value!r:.80}")
    return value


def length_of(value: float, measure: str) -> int:
    """Return a number of seconds or tokens as a length, of 1 or more."""
    return max(round(value * _PARTS[measure]), 1)


def spelled(length: int, measure: str) -> str:
    """Return the number of seconds or tokens of a length."""
    return f"{length / _PARTS[measure]:.12g}"


def unknown_length(measure: str) -> str:
    """Return the end of an error of a sample whose length no index knows."""
    return f"has no length in {measure} that the index knows: {_UNKNOWN[measure]}"
