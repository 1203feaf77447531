"""Queries of URLs are taken out of a command's arguments, however these are written."""

import pytest

from touchfs.cli.queries import without_queries
from touchfs.core.location import kept_queries

URL = "https://host/i"


@pytest.fixture(autouse=True)
def _no_queries(monkeypatch):
    monkeypatch.setenv("TOUCHFS_URL_QUERIES", "{}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ls", f"{URL}?s=1"], ["ls", URL]),
        (["--index", f"{URL}?s=1"], ["--index", URL]),
        ([f"--index={URL}?s=1"], [f"--index={URL}"]),
        (["-o", f"index={URL}?s=1"], ["-o", f"index={URL}"]),
        ([f"-oindex={URL}?s=1"], [f"-oindex={URL}"]),
        (["-o", f"noexec,index={URL}?s=1,workers=2"], ["-o", f"noexec,index={URL},workers=2"]),
        (["-o", f'index="{URL}?s=1",fsname=a\\,b'], ["-o", f"index={URL},fsname=a\\,b"]),
        (["ls", f"{URL}?s=1:shards/a"], ["ls", f"{URL}:shards/a"]),
    ],
)
def test_a_query_is_kept_apart(arguments, expected):
    assert without_queries(arguments) == expected
    assert kept_queries() == {URL: "s=1"}


@pytest.mark.parametrize("written", [f'index="{URL}?s=1,2"', f"index={URL}?s=1\\,2"])
def test_a_comma_in_a_query_does_not_end_it(written):
    assert without_queries(["-o", f"{written},ro"]) == ["-o", f"index={URL},ro"]
    assert kept_queries() == {URL: "s=1,2"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["iterate", "set", "--where", f"url == '{URL}?s=1'"],
        ["-o", f'index="{URL}?s=1'],
        ["-o", "fsname=a?b=c,ro"],
        ["-c", 'print("https://host?")'],
    ],
)
def test_all_else_stays_as_it_is(arguments):
    assert without_queries(arguments) == arguments
