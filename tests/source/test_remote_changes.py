"""Files of a web server that change: when that is seen, also by a server with a wrong clock."""

import pytest

from touchfs.core.errors import ChangedError
from touchfs.source.data import DATA
from touchfs.source.remote import file as remote_file
from touchfs.source.remote.kept import KEPT
from touchfs.source.scratch.write_behind import WRITE_BEHIND

DAY = 86400
YEARS = {"1970": DAY, "2100": 130 * 365 * DAY}


def test_a_change_is_seen_after_the_time_that_is_given_and_not_before(server, monkeypatch):
    monkeypatch.setenv("TOUCHFS_REVALIDATE", "1")
    now = [1000.0]
    monkeypatch.setattr(remote_file, "monotonic", lambda: now[0])
    url = server.put("/a.bin", b"old" * 100)
    file = DATA.open(url)
    assert file.read(0, 300) == b"old" * 100
    server.put("/a.bin", b"new" * 100, '"2"')
    asked = len(server.requests)
    now[0] += 0.9
    assert file.read(0, 300) == b"old" * 100
    assert len(server.requests) == asked
    now[0] += 0.2
    with pytest.raises(ChangedError):
        file.read(0, 300)
    assert DATA.open(url).read(0, 300) == b"new" * 100


@pytest.mark.parametrize("etag", ["", '"{}"'])
@pytest.mark.parametrize("year", YEARS)
@pytest.mark.parametrize("now", YEARS.values(), ids=YEARS)
def test_a_clock_that_is_wrong_hides_no_version(server, monkeypatch, year, now, etag):
    """A time is only compared with other times of the same file, never with the clock of this machine."""
    monkeypatch.setenv("TOUCHFS_REVALIDATE", "0")
    server.now = now
    server.modified["/a.bin"] = YEARS[year]
    url = server.put("/a.bin", b"old" * 100, etag.format(1))
    file = DATA.open(url)
    assert file.read(0, 300) == b"old" * 100
    WRITE_BEHIND.wait()
    KEPT.forget()
    asked = len(server.ranges)
    assert DATA.open(url).read(0, 300) == b"old" * 100
    server.put("/a.bin", b"new" * 100, etag.format(2))
    server.modified["/a.bin"] -= 1  # also a time before that of the old version is another one
    with pytest.raises(ChangedError):
        file.read(0, 300)
    assert DATA.open(url).read(0, 300) == b"new" * 100
    assert len(server.ranges) == asked + 1, "both versions are kept, and only the new one was asked for"
