"""How much memory it takes to index much in one sample."""

import sys
from pathlib import Path

import pytest
from memory import peak
from tars import write_tar
from wav_files import wav_of

CUES = 60_000
INDEX = "import sys; from touchfs.indexing.catalogs import make_catalog; make_catalog(*sys.argv[1:])"


def subtitles(count: int) -> bytes:
    def time(number: int) -> str:
        seconds, milliseconds = divmod(number * 300, 1000)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02},{milliseconds:03}"

    return "".join(f"{i + 1}\n{time(i)} --> {time(i + 1)}\nword number {i}\n\n" for i in range(count)).encode()


@pytest.mark.soak
def test_the_subtitles_of_hours_take_little_memory(tmp_path: Path) -> None:
    """A cue takes 1.3 kB at the peak: 290 MB for the most that a recording may have."""
    used = []
    for count in (100, CUES):
        path = write_tar(tmp_path / f"{count}.tar", {"talk.wav": wav_of(bytes(16000)), "talk.srt": subtitles(count)})
        done, megabytes = peak(tmp_path, sys.executable, "-c", INDEX, path, tmp_path / "catalog")
        assert done.returncode == 0, done.stderr
        used.append(megabytes)
    assert (used[1] - used[0]) * 2**20 < 1600 * CUES
