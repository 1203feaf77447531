"""Lines of files, compressed or not, and of commands; and going on behind one of them."""

from __future__ import annotations

import gzip
import time
from itertools import islice
from pathlib import Path

import pytest

from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError
from touchfs.source.lines import LinePosition, lines_after, stream_identity

TEXT = b"first\n\nthird, longer\nlast"


@pytest.fixture(params=["plain", "gz", "pipe"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return _write(tmp_path, request.param, TEXT)


def _write(directory: Path, kind: str, text: bytes) -> str:
    file = directory / ("lines.gz" if kind == "gz" else "lines")
    file.write_bytes(gzip.compress(text) if kind == "gz" else text)
    return f"pipe:cat {file}" if kind == "pipe" else str(file)


def test_all_lines_and_going_on_behind_each(path: str) -> None:
    whole = list(lines_after(path))
    assert [line for _, line in whole] == TEXT.splitlines(keepends=True)
    assert [place.offset for place, _ in whole] == [6, 7, 21, 25]
    for taken, (place, _) in enumerate(whole, 1):
        assert list(lines_after(path, place)) == whole[taken:]


@pytest.mark.parametrize("kind", ["plain", "gz", "pipe"])
@pytest.mark.parametrize("other", [b"firsT\n\nthird, longer\nlast", b"fir", b""])
def test_another_line_there_is_an_error(tmp_path: Path, kind: str, other: bytes) -> None:
    path = _write(tmp_path, kind, TEXT)
    (place, _), *_ = lines_after(path)
    _write(tmp_path, kind, other)
    with pytest.raises(ChangedError, match="another line ends here"):
        next(lines_after(path, place))


@pytest.mark.parametrize(
    "place",
    [
        LinePosition(-1, 0, 0),
        LinePosition(3, 4, 0),
        LinePosition(2**61, 2**60, 1),
        LinePosition(3, 0, 0),
        LinePosition(10**30, 1, 1),
    ],
)
def test_a_place_that_cannot_be_is_refused(path: str, place: LinePosition) -> None:
    with pytest.raises(FormatError, match="there is no line of"):
        next(lines_after(path, place))


def test_a_command_that_fails_is_an_error_at_its_end() -> None:
    lines = lines_after("pipe:echo one; exit 3")
    assert next(lines)[1] == b"one\n"
    with pytest.raises(SourceError, match="status 3"):
        next(lines)


def test_a_command_whose_rest_nobody_wants_is_ended() -> None:
    begun = time.monotonic()
    for command in ("yes", "echo one; exec sleep 60"):
        lines = lines_after(f"pipe:{command}")
        assert len(list(islice(lines, 1))) == 1
        lines.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begun < 30


def test_data_after_gzip_data_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"garbage")
    assert [line for _, line in lines_after(str(tmp_path / "a.gz"))] == [b"one\n", b"two\n"]


def test_damage(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"not compressed")
    (tmp_path / "b.gz").write_bytes(gzip.compress(TEXT * 1000)[:-20])
    for name in ("a.gz", "b.gz"):
        with pytest.raises(FormatError, match="cannot be decompressed"):
            list(lines_after(str(tmp_path / name)))
    for ask in (stream_identity, lambda path: next(lines_after(path))):
        with pytest.raises(NotFoundError):
            ask(str(tmp_path / "none"))
    with pytest.raises(SourceError):
        next(lines_after(str(tmp_path)))
