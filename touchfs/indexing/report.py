"""The text of ERROR.txt: what is wrong with a shard, and with which of its samples."""

from __future__ import annotations

from collections.abc import Sequence

from touchfs.core.control_characters import one_line, quote_name

REPORTED_MAX = 1000
THEN = "then `touchfs reload`, or mount or serve it again."
BREAK = "\n\n"
_KEY_SHOWN_MAX = 80


class SampleLines:
    """Lines about samples: how many there are, and the first `REPORTED_MAX` of them."""

    def __init__(self) -> None:
        self.count = 0
        self.lines: list[str] = []

    def add(self, ordinal: int, key: str, line: str) -> None:
        """Add a line about a sample."""
        self.count += 1
        if self.count <= REPORTED_MAX:
            self.lines.append(f"sample {ordinal} ('{quote_name(key[:_KEY_SHOWN_MAX])}'): {line}")

    def extend(self, others: SampleLines) -> None:
        """Add lines about samples that follow."""
        self.count += others.count
        self.lines = (self.lines + others.lines)[:REPORTED_MAX]


def summary(report: str) -> str:
    """A report in one line: what it says of the shard, and the first of the lines about it."""
    return f"{report.partition(BREAK)[0].removesuffix('.')}: {reasons(report)[0]}"


def reasons(report: str) -> list[str]:
    """The lines of a report about what is wrong: of its second paragraph, or of the only one."""
    _, _, others = report.partition(BREAK)
    return (others.partition(BREAK)[0] or report).splitlines()


def report_text(
    path: str,
    samples: int,
    problems: Sequence[str],
    remarks: Sequence[str],
    sample_problems: SampleLines,
    sample_remarks: SampleLines,
) -> str:
    """The report about the shard at a path; "" if nothing is wrong. Problems keep something from being shown."""
    damaged = sample_problems.count
    if damaged:
        are = "is" if damaged == 1 else "are"
        others = "; the others are served" if damaged < samples else ""
        head = f"{damaged} of the {samples} sample{'s' * (samples != 1)} of {path} {are} damaged{others}."
    elif problems:
        head = f"Not all of {path} can be shown; {samples} samples are served."
    elif remarks or sample_remarks.count:
        head = f"All {samples} samples of {path} are served, but it may not be what it should be."
    else:
        return ""
    counts = len(problems), len(remarks), sample_remarks.count, damaged
    left = sum(max(count - REPORTED_MAX, 0) for count in counts)
    more = [f"… and {left} more"] if left else []
    of_samples = *sample_remarks.lines, *sample_problems.lines
    lines = [*problems[:REPORTED_MAX], *remarks[:REPORTED_MAX], *of_samples, *more]
    return "\n".join([one_line(head), "", *map(one_line, lines), "", f"Repair the shard or make it again, {THEN}", ""])
