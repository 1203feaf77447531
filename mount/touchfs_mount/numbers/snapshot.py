"""The numbers of a mount at one moment, parsed from its `.touchfs/stats`, for the command `touchfs status --stats`.

The text is that of `text`. It may be that of another version of touchfs, so metrics may be missing or unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from touchfs.core.errors import FormatError

_LINE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"(?:,|$)')
_HISTOGRAM = "touchfs_request_seconds"


@dataclass(slots=True)
class Latencies:
    """The requests of an operation: their number, the sum of their seconds, and how many took at most so long."""

    count: int = 0
    seconds: float = 0.0
    within: list[tuple[float, int]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """Seconds of a request on average."""
        return self.seconds / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """The seconds within which a part of the requests were answered: the end of a bucket, perhaps infinity."""
        return next((end for end, count in self.within if count >= part * self.count), 0.0)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`values` has the value of each metric, or its values by label. `operations` has those with requests."""

    values: dict[str, float | dict[str, float]]
    operations: dict[str, Latencies]

    def value(self, name: str) -> float:
        """A metric without labels, `name` without its prefix; 0 if there is none."""
        value = self.values.get(f"touchfs_{name}", 0.0)
        return 0.0 if isinstance(value, dict) else value

    def by_label(self, name: str) -> dict[str, float]:
        """A metric with a label, by label; empty if there is none."""
        value = self.values.get(f"touchfs_{name}", {})
        return value if isinstance(value, dict) else {}


def parse_snapshot(text: str) -> Snapshot:
    """Parse the text. Raises FormatError if it is not of this form."""
    values: dict[str, float | dict[str, float]] = {}
    operations: dict[str, Latencies] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        try:
            name, labels, value = match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])  # type: ignore[index]
            if name.startswith(f"{_HISTOGRAM}_") and "operation" in labels:
                _add(operations.setdefault(labels["operation"], Latencies()), name, labels, value)
            elif not labels:
                values[name] = value
            elif isinstance(by_label := values.setdefault(name, {}), dict):
                by_label[",".join(labels.values())] = value
        except (TypeError, ValueError, OverflowError):
            raise FormatError(f"line {number} is no metric") from None
    return Snapshot(values, operations)


def _add(latencies: Latencies, name: str, labels: dict[str, str], value: float) -> None:
    """Add a sample of the histogram. Raises ValueError or OverflowError for a value that is no number of requests."""
    match name.removeprefix(f"{_HISTOGRAM}_"):
        case "count":
            latencies.count = int(value)
        case "sum":
            latencies.seconds = value
        case "bucket" if "le" in labels:
            latencies.within.append((float(labels["le"]), int(value)))
