"""The window of a shuffle: a number of samples, or the bytes that so many samples have on average."""

from __future__ import annotations

from touchfs.core.errors import UsageError
from touchfs.limits import parse_size
from touchfs.select.concatenation import Concatenation, SetSamples, datasets_of
from touchfs.select.selection import Selection


def samples_in(window: int | str, samples: SetSamples) -> int:
    """Return how many of `samples` a window has: that number, or as many as the mean size makes of a size like "2GB".

    Of segments, and of what a filter leaves, the mean is that of all of the dataset. Raises UsageError for no size.
    """
    if not isinstance(window, str):
        return window
    whole = sum(each.size for each in datasets_of(samples))
    return max(parse_size(window) * _all_of(samples) // max(whole, 1), 1)


def _all_of(samples: SetSamples) -> int:
    """Return how many samples there are before some of them were chosen."""
    if isinstance(samples, Concatenation):
        return sum(map(_all_of, samples.parts))
    return _all_of(samples.samples) if isinstance(samples, Selection) else len(samples)


def check_window(window: object, where: str) -> int | str:
    """Return the value of a window. Raises UsageError unless it is a number of samples or a size."""
    if isinstance(window, str):
        parse_size(window)
        return window
    if type(window) is not int or window < 1:
        raise UsageError(f'{where} is a number of samples from 1 on, or a size such as "2GB", not {window!r:.80}')
    return window
