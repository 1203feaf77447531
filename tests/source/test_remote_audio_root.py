"""Audio of another store: lists name it below a URL, and it is shown as from a disk."""

import json
import os
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest
import soundfile
from command import TOUCHFS
from range_server import SlowReplies, range_server
from stores import place_in
from tree_files import files_below

import touchfs
from touchfs.core.errors import ChangedError, UsageError
from touchfs.indexing import open_dataset
from touchfs.limits import Limits
from touchfs.shard.options import Options
from touchfs.tree.tree import Tree

pytestmark = pytest.mark.usefixtures("scratch", "own_cache")

RATE = 8000
PCM = np.random.default_rng(0).integers(-(2**15), 2**15, 2 * RATE, "<i2")
LINES = [
    {"key": "pcm", "audio_filepath": "a.wav", "offset": 0.25, "duration": 0.5, "text": "hi"},
    {"key": "coded", "audio_filepath": "b.flac", "offset": 0.5, "duration": 1},
    {"key": "unmeasured", "audio_filepath": "c.mp3"},
]


def cut(place):
    """As Lhotse has it, of a recording that is named by its URL."""
    source = {"type": "url", "channels": [0], "source": f"{place}/a.wav"}
    recording = {"id": "r", "sources": [source], "sampling_rate": RATE, "num_samples": len(PCM), "duration": 2.0}
    cut = {"id": "cut", "start": 0.5, "duration": 1.0, "channel": 0, "supervisions": [], "recording": recording}
    return cut | {"type": "MonoCut"}


@pytest.fixture
def files(tmp_path):
    """The list and the audio in a directory."""
    made = tmp_path / "made"
    made.mkdir()
    for name in ("a.wav", "b.flac", "c.mp3"):
        soundfile.write(made / name, PCM, RATE)
    write_lines(made / "list.jsonl", LINES)
    return made


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def files_of(source, root):
    """All files below `shards` and `segments`, and the problems of the shards."""
    options = Options(limits=Limits(audio_root=str(root)))
    dataset = open_dataset(str(source), options=options, in_memory=True)
    tree, files = Tree(dataset, [1]), {}

    for view in ("shards", "segments"):
        files |= {f"{view}/{name}": data for name, data in files_below(tree, view).items()}
    files = {name: data for name, data in files.items() if name.rpartition("/")[2] != "ERROR.txt"}
    return files, dataset.shards[0].report


@contextmanager
def web_server():
    with range_server() as server:
        yield f"{server.url}/set", lambda name, data, *etag: server.put(f"/set/{name}", data, *etag)


@pytest.mark.parametrize(
    "store", ["http", "sftp", *(pytest.param(each, marks=pytest.mark.variant) for each in ("s3", "gs", "az", "hf"))]
)
def test_it_is_shown_as_from_a_disk(store, files, tmp_path, monkeypatch):
    (tmp_path / "root").mkdir()
    with web_server() if store == "http" else place_in(store, tmp_path, monkeypatch) as (url, put):
        for path in files.iterdir():
            put(path.name, path.read_bytes())
        wanted = files_of(files / "list.jsonl", files)
        assert {"shards/list/pcm.wav", "shards/list/unmeasured.mp3", "segments/list/coded/0000.wav"} < wanted[0].keys()
        for source in (f"{url}/list.jsonl", files / "list.jsonl"):
            assert files_of(source, url) == wanted


def test_cuts_of_lhotse_name_urls(files):
    with web_server() as (url, put):
        put("a.wav", (files / "a.wav").read_bytes())
        there = files_of(write_lines(files / "cuts.jsonl", [cut(url)]), url)[0]
        here = files_of(write_lines(files / "cuts.jsonl", [cut(files)]), files)[0]
        name = "segments/cuts/cut/0000.wav"
        assert there[name] == here[name]
        assert there["shards/cuts/cut.wav"] == (files / "a.wav").read_bytes()


@pytest.mark.parametrize("kind", ["list.jsonl", "wav.scp"])
def test_files_are_looked_at_together_and_once(kind, files, tmp_path):
    """Each takes two requests, and a list may name ten thousand."""
    data = (files / "a.wav").read_bytes()
    names = [f"{number // 3}.wav" for number in range(60)]
    with range_server() as server:
        for name in names:
            server.put(f"/set/{name}", data)
        server.fault = slow = SlowReplies(0.1)
        if kind == "wav.scp":
            (tmp_path / kind).write_text("".join(f"{number} {name}\n" for number, name in enumerate(names)))
        else:
            write_lines(tmp_path / kind, [{"audio_filepath": name} for name in names])
        source = tmp_path if kind == "wav.scp" else tmp_path / kind
        options = Options(limits=Limits(audio_root=f"{server.url}/set"))
        dataset = open_dataset(str(source), options=options, in_memory=True)
        assert dataset.samples == len(names)
        assert not dataset.shards[0].report
        assert slow.most > 4
        assert len(server.ranges) == len(set(names))


def test_commands(files):
    with web_server() as (url, put):
        for path in files.iterdir():
            put(path.name, path.read_bytes())

        def run(*arguments):
            done = subprocess.run([TOUCHFS, *arguments], capture_output=True, timeout=120)
            assert done.returncode == 0, done.stderr
            return done.stdout

        for place in ("shards/list/pcm.wav", "segments/list/coded/0000.wav"):
            there = run("cat", "--audio-root", url, f"{url}/list.jsonl:{place}")
            assert there == run("cat", "--audio-root", files, f"{files}/list.jsonl:{place}")


def test_nothing_outside_is_asked_for(files, tmp_path):
    outside = ["../x.wav", "%2e%2e/x.wav", "d/../../x.wav", "/x.wav", "//127.0.0.1/x.wav", "file:///x.wav", "x.wav\0"]
    with range_server() as server:
        server.put("/x.wav", (files / "a.wav").read_bytes())
        server.put("/set/a.wav", (files / "a.wav").read_bytes())
        outside += [f"{server.url}/x.wav", f"{server.url}/set/../x.wav", f"{server.url}/setx.wav"]
        paths = ["a.wav", f"{server.url}/set/a.wav", *outside]
        lines = [{"key": str(number), "audio_filepath": path} for number, path in enumerate(paths)]
        source = write_lines(tmp_path / "hostile.jsonl", lines)
        shown, report = files_of(source, f"{server.url}/set")
        below = {name for name in shown if name.endswith(".wav") and name.startswith("shards/")}
        assert below == {"shards/hostile/0.wav", "shards/hostile/1.wav"}
        assert report.count("\nsample ") == len(outside), report
        assert {path for path, _, _ in server.ranges} == {"/set/a.wav"}


def test_a_file_that_changes_is_not_the_one_that_was_indexed(files):
    with web_server() as (url, put):
        for path in files.iterdir():
            put(path.name, path.read_bytes())
        options = Options(limits=Limits(audio_root=url))
        dataset = open_dataset(str(files / "list.jsonl"), options=options)
        put("a.wav", (files / "a.wav").read_bytes(), '"2"')
        dataset = open_dataset(str(files / "list.jsonl"), options=options)  # which reads no audio again
        tree = Tree(dataset, [1])
        with pytest.raises(ChangedError):
            tree.content(tree.resolve("shards/list/pcm.wav").inode).read(0, 100)


def test_a_store_that_does_not_answer_is_asked_once(files, tmp_path):
    """Its files are not taken for missing: they are looked for when the list is opened the next time."""
    source = write_lines(
        tmp_path / "many.jsonl", [{"key": str(number), "audio_filepath": "a.wav"} for number in range(50)]
    )

    def shown(root, timeout):
        command = [TOUCHFS, "ls", "--timeout", timeout, "--audio-root", root, f"{source}:shards/many"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.split()

    with range_server() as server:
        server.put("/set/a.wav", (files / "a.wav").read_bytes())
        server.fault = lambda: "503"
        assert shown(f"{server.url}/set", "0.5") == ["ERROR.txt"]
        assert len(server.ranges) < 50, "which are the lines"
        server.fault = lambda: None
        assert sum(name.endswith(".wav") for name in shown(f"{server.url}/set", "60")) == 50


@pytest.mark.parametrize("root", ["http://127.0.0.1/set?signature=1", "http://me:secret@127.0.0.1/set", "file:///set"])
def test_what_is_no_place_of_audio(files, root):
    with pytest.raises(UsageError) as caught:
        touchfs.open(files / "list.jsonl", audio_root=root)
    assert "secret" not in str(caught.value)
    done = subprocess.run(
        [TOUCHFS, "ls", "--audio-root", root, files / "list.jsonl"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert os.linesep not in done.stderr.strip()
