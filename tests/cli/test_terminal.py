"""Long work: progress bars where somebody looks, and the processes that share the work."""

import os
import pty
import re
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest
from command import TOUCHFS
from speech import SPEECH

from touchfs.cli import progress
from touchfs.cli.progress import PlainLines
from touchfs.cli.workers import available_cpus


def on_a_terminal(*arguments):
    """The status of the command, its stdout, and what it drew on the terminal that its stderr is."""
    terminal, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen([TOUCHFS, *arguments], stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    drawn = b""
    with suppress(OSError):  # EIO: nobody has the terminal open any more
        while data := os.read(terminal, 65536):
            drawn += data
    os.close(terminal)
    with process:
        return process.stdout.read(), drawn.decode(), process.wait()


class TestProgress:
    @pytest.fixture
    def own(self, here, shards):
        shutil.copytree(shards, here / "own [red]")
        return "own [red]"

    def test_is_drawn_on_a_terminal(self, own):
        out, drawn, status = on_a_terminal("index", "--jobs", "1", "--force", own)
        assert (out, status) == (b"own [red]: 3 shards, 10 samples; 3 indexed now\n", 0)
        assert "indexing own [red]" in drawn and re.search(r"([\d.]+ kB) of \1", drawn)

    def test_packing_too(self, here):
        out, drawn, status = on_a_terminal("pack", "touchnet", SPEECH / "speech.jsonl", "out", "--num-workers", "1")
        assert (out, status) == (b"out: 1 shard, 10 samples\n", 0)
        assert "packing" in drawn and "10 of 10 samples" in drawn

    def test_any_command_shows_that_it_indexes_first(self, own):
        out, drawn, status = on_a_terminal("ls", f"{own}:shards")
        assert (len(out.splitlines()), drawn, status) == (3, "", 0)  # nothing had to be indexed
        first = out.splitlines()[0].decode()
        out, drawn, status = on_a_terminal("ls", f"{own}:shards/{first}")
        assert (out != b"", "indexing" in drawn, status) == (True, True, 0)
        out, drawn, status = on_a_terminal("ls", f"{own}:manifests")
        assert (b"hf/" in out, "indexing" in drawn, status) == (True, True, 0)

    def test_is_not_drawn_where_nothing_is_to_be_done(self, own, touchfs):
        touchfs("index", own)
        for arguments in (["ls", own], ["index", own], ["info", own]):
            _, drawn, status = on_a_terminal(*arguments)
            assert (drawn, status) == ("", 0)

    def test_is_not_drawn_into_a_file(self, own, touchfs):
        for settings in ({}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}):
            assert touchfs("index", "--force", own, env=os.environ | settings).stderr == b""

    def test_lines_for_a_log(self, own, touchfs):
        for jobs in ("1", "2"):
            done = touchfs("index", "--jobs", jobs, "--force", "--progress", "plain", own)
            lines = done.stderr.decode().splitlines()
            assert lines[0].startswith("indexing own [red]: 0 bytes of "), lines
            assert re.fullmatch(r"indexing own \[red\]: ([\d.]+ kB) of \1, [\d.]+ [kM]?B(ytes)?/s", lines[-1]), lines
        done = touchfs("pack", "tar", SPEECH / "speech.jsonl", "tars", "--num-workers", "1", "--progress", "plain")
        lines = done.stderr.decode().splitlines()
        assert lines[0] == "packing: 0 of 10 samples"
        assert lines[-1].startswith("packing: 10 of 10 samples, ")
        done = touchfs("convert", "tars", "out", "--to", "shar", "--progress", "plain")
        assert re.search(r"^converting: ([\d.]+ kB) of \1, ", done.stderr.decode().splitlines()[-1])
        done = touchfs("index", "tar", "tars/000000.tar", "--progress", "plain")
        assert re.search(r"^indexing: ([\d.]+ kB) of \1, ", done.stderr.decode().splitlines()[-1])

    def test_can_be_turned_off(self, own):
        _, drawn, status = on_a_terminal("index", "--force", "--jobs", "1", "--progress", "none", own)
        assert (drawn, status) == ("", 0)


class TestPlainLines:
    def test_a_line_every_few_seconds(self):
        now, written = 100.0, []
        lines = PlainLines("indexing a\x1bb", "bytes", written.append, lambda: now)
        for second in range(21):
            now = 100.0 + second
            lines.update(second * 10**8, 2 * 10**9)
        lines.end()
        assert written == [
            "indexing a\\u001bb: 0 bytes of 2.0 GB",
            "indexing a\\u001bb: 500.0 MB of 2.0 GB, 100.0 MB/s, 15 s left",
            "indexing a\\u001bb: 1.0 GB of 2.0 GB, 100.0 MB/s, 10 s left",
            "indexing a\\u001bb: 1.5 GB of 2.0 GB, 100.0 MB/s, 5 s left",
            "indexing a\\u001bb: 2.0 GB of 2.0 GB, 100.0 MB/s",
        ]

    def test_work_that_begins_later_has_a_rate_of_its_own(self):
        now, written = 0.0, []
        lines = PlainLines("packing", "samples", written.append, lambda: now)
        lines.update(900, 1000)
        now = 5.0
        lines.update(950, 1000)
        assert written == ["packing: 900 of 1,000 samples", "packing: 950 of 1,000 samples, 10 samples/s, 5 s left"]
        lines.update(0, 10**6)
        now = 10.0
        lines.update(10, 10**6)
        assert written[2:] == [
            "packing: 0 of 1,000,000 samples",
            "packing: 10 of 1,000,000 samples, 2 samples/s, 138 h 53 min left",
        ]
        lines.end()
        lines.end()
        assert len(written) == 4

    def test_nothing_to_do_is_no_line(self):
        written = []
        PlainLines("packing", "samples", written.append, lambda: 0.0).end()
        assert written == []


def test_what_goes_on_after_its_block_is_not_shown(monkeypatch):
    reports = []
    monkeypatch.setattr(progress, "reported", lambda what, shown: lambda *amounts: reports.append(amounts))
    with progress.progress_bar("indexing") as update:
        update(1, 2)
    update(2, 2)
    assert reports == [(1, 2)]


class TestCpus:
    def test_those_that_this_process_may_use(self):
        assert available_cpus() == len(os.sched_getaffinity(0))

    def test_all_where_the_system_does_not_say(self, monkeypatch):
        monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
        assert available_cpus() == os.cpu_count()
        monkeypatch.setattr(os, "cpu_count", lambda: None)
        assert available_cpus() == 1

    @pytest.mark.parametrize(
        "command", ["index", *(pytest.param(each, marks=pytest.mark.variant) for each in ("info", "pack"))]
    )
    def test_commands_start_without_it(self, command):
        code = "import os; del os.sched_getaffinity; from touchfs.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code, command, "--help"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"Usage: touchfs {command} ")
