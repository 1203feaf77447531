"""Which errors of readers are told: each kind of error of each file once a minute."""

from touchfs_mount.numbers.recent_errors import RecentErrors
from touchfs_mount.requests.refusals import Refusals

from touchfs.core.errors import FormatError, SourceError


def told(errors: RecentErrors) -> list[str]:
    return [line.partition(" ")[2] for line in errors.text().decode().splitlines()]


def test_each_file_is_told_once():
    errors = RecentErrors()
    refusals = Refusals(errors)
    for _ in range(2):
        refusals.log(FormatError("is damaged", path="a.tar"), 1)
        refusals.log(FormatError("is damaged", path="a.tar"), 2)
        refusals.log(SourceError("is away", path="a.tar"), 2)
        refusals.log(FormatError("kills"), 3)
        refusals.log(FormatError("kills"), 4)
    assert told(errors) == ["inode 4: kills", "inode 3: kills", "a.tar: is away", "a.tar: is damaged"]
