"""`.touchfs/errors`: the last 128 errors, newest first, one a line, from all processes of a mount."""

import os
from datetime import UTC, datetime

from touchfs_mount.numbers.recent_errors import RecentErrors

KEPT, LINE_MAX = 128, 1023


def messages(errors):
    """The messages without their times."""
    return [line.partition(" ")[2] for line in errors.text().decode().splitlines()]


def test_none():
    assert RecentErrors().text() == b""


def test_the_newest_comes_first_with_its_time():
    errors = RecentErrors()
    begun = datetime.now(UTC).replace(microsecond=0)
    errors.add("first")
    errors.add("second")
    assert messages(errors) == ["second", "first"]
    for line in errors.text().decode().splitlines():
        assert begun <= datetime.fromisoformat(line.partition(" ")[0]) <= datetime.now(UTC)


def test_the_last_128_are_kept():
    errors = RecentErrors()
    for number in range(KEPT):
        errors.add(f"error {number}")
    assert messages(errors) == [f"error {number}" for number in reversed(range(KEPT))]
    for number in range(KEPT, 2 * KEPT + 5):
        errors.add(f"error {number}")
    assert messages(errors) == [f"error {number}" for number in reversed(range(KEPT + 5, 2 * KEPT + 5))]


def test_a_long_line_is_cut_and_its_neighbours_are_whole():
    errors = RecentErrors()
    for message in ("before", "x" * 5000, "ä" * 600, "after"):
        errors.add(message)
    after, wide, long, before = errors.text().splitlines()
    assert (len(long), len(wide)) == (LINE_MAX, LINE_MAX)
    assert long.endswith(b" " + b"x" * (LINE_MAX - long.index(b"x")))
    assert (after.split()[1], before.split()[1]) == (b"after", b"before")


def test_a_message_is_one_line_whatever_a_file_is_called():
    errors = RecentErrors()
    errors.add("a\nb\x1b[31m\0\udcff")
    assert errors.text().count(b"\n") == 1
    assert messages(errors) == ["a\\nb\\u001b[31m\\u0000\\udcff"]


def test_processes_share_it():
    errors = RecentErrors()
    for number in range(4):
        if not (pid := os.fork()):
            errors.add(f"process {number}")
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    assert messages(errors) == [f"process {number}" for number in reversed(range(4))]
