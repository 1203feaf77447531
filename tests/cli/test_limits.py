"""However large a line, an item or a recording claims to be, memory is bounded; byte ranges of any size are served."""

import gzip
import hashlib
import io
import json
import math
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import soundfile
from command import INSTALLED
from memory import peak
from range_server import range_server
from tars import Endless

from touchfs.containers.touchnet.layout import mmidx
from touchfs.core.errors import UsageError
from touchfs.limits import Limits
from touchfs.write import SharWriter

# Commands take 40 to 120 MB, with NumPy, a window of a recording or a parse of 16 MB. A large line would take 128 MB
# more, and a long recording 77 MB, mostly several times that.
BOUND = 160
LARGE = 128 * 10**6
RATE = 16000
SECONDS = 40 * 60


def line(key, text="x"):
    return json.dumps({"id": key, "txt": text}).encode() + b"\n"


def write_large_line(path):
    """Between two ordinary lines."""
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else open(path, "wb") as file:
        file.write(line("first"))
        file.write(b'{"id": "large", "txt": "')
        for _ in range(LARGE // 10**6):
            file.write(b"x" * 10**6)
        file.write(b'"}\n' + line("last"))


@pytest.mark.parametrize("limit", [5, pytest.param(20, marks=pytest.mark.variant)])
def test_members_without_end(touchfs, here, limit):
    """What the limit lets through is shown."""
    with range_server() as server:
        server.put("/endless.tar", Endless())
        directory = f"{server.url}/endless.tar:shards/endless"
        done, megabytes = peak(here, INSTALLED, "ls", "--max-members", f"{limit}M", directory)
        report = touchfs("cat", "--max-members", f"{limit}M", f"{directory}/ERROR.txt")
    assert megabytes < BOUND
    assert limit * 500 < done.stdout.count(b"\n") < limit * 1000
    problem = f"the list of its members takes over {limit},000,000 bytes of memory: --max-members raises the limit"
    assert problem in report.stdout.decode()


@pytest.mark.parametrize("name", ["lines.jsonl", pytest.param("lines.jsonl.gz", marks=pytest.mark.variant)])
def test_a_large_line_is_named_and_the_others_are_served(touchfs, here, name):
    write_large_line(here / name)
    done, megabytes = peak(here, INSTALLED, "index", "--scratch-dir", "scratch", name)
    assert done.returncode == 1, done
    assert megabytes < BOUND
    listed = touchfs("ls", "--scratch-dir", "scratch", f"{name}:shards/lines").stdout.split()
    assert listed == [b"00000001.json", b"ERROR.txt", b"first.json", b"last.json"]
    report = touchfs("cat", "--scratch-dir", "scratch", f"{name}:shards/lines/ERROR.txt").stdout.decode()
    at = len(line("first"))
    assert f"sample 1 ('00000001'): the line at byte {at} has over 16,000,000 bytes" in report
    assert "--max-json raises the limit" in report
    done, megabytes = peak(
        here,
        INSTALLED,
        *("cp", "--scratch-dir", "scratch", f"{name}:shards/lines/00000001.json", "copy"),
    )
    assert (done.returncode, os.path.getsize("copy")) == (0, LARGE + len(b'{"id": "large", "txt": ""}\n'))
    assert megabytes < BOUND


def test_the_limit_for_lines_is_an_option(text, here):
    (here / "lines.jsonl").write_bytes(line("a") + line("b", "x" * 100))
    assert text("ls", "lines.jsonl:shards/lines").split() == ["a.json", "b.json"]
    assert text("ls", "--max-json", "100", "lines.jsonl:shards/lines").split() == [
        "00000001.json",
        "ERROR.txt",
        "a.json",
    ]
    assert text("ls", "--max-json", "1k", "lines.jsonl:shards/lines").split() == ["a.json", "b.json"]


@pytest.mark.parametrize("node", ["LazyJsonlIterator", pytest.param("LazyManifestIterator", marks=pytest.mark.variant)])
def test_a_large_line_ends_a_stream_with_an_error(here, node):
    write_large_line(here / "lines.jsonl.gz")
    code = f"""
        import touchfs.node
        lines = iter(touchfs.node.{node}("lines.jsonl.gz"))
        next(lines)
        try:
            next(lines)
        except touchfs.core.errors.FormatError as error:
            print(error)
    """
    done, megabytes = peak(here, sys.executable, "-c", textwrap.dedent(code))
    told = (
        "lines.jsonl.gz: a line has over 16,000,000 bytes, and longer JSON is not parsed: --max-json raises the limit"
    )
    assert done.stdout.decode().removeprefix(f"{here}/") == f"{told} (at byte {len(line('first'))})\n", done.stderr
    assert megabytes < BOUND


def test_many_blank_lines_are_nothing(here, touchfs):
    with open("lines.jsonl", "wb") as file:
        file.write(line("first"))
        for _ in range(4):
            file.write(b"\n" * 10**6)
        file.write(line("last"))
    done, megabytes = peak(here, INSTALLED, "index", "lines.jsonl")
    assert (done.returncode, done.stderr) == (0, b"")
    assert megabytes < BOUND
    assert touchfs("ls", "lines.jsonl:shards/lines").stdout.split() == [b"first.json", b"last.json"]


@pytest.fixture
def touchnet(here):
    """A shard of three samples, the metainfo of the second of which has 1.5 GB, on no disk."""
    items = [line("first"), 3 * 2**29, line("last")]
    lengths = [item if isinstance(item, int) else len(item) for item in items]
    (here / "shard").mkdir()
    with open("shard/metainfo.bin", "wb") as file:
        for item in items:
            if isinstance(item, int):
                file.seek(item, os.SEEK_CUR)
            else:
                file.write(item.replace(b'"id"', b'"key"'))
        lengths[0], lengths[2] = lengths[0] + 1, lengths[2] + 1
    (here / "shard/metainfo.idx").write_bytes(mmidx.build_index(np.dtype("u1"), np.array(lengths)))
    return here / "shard"


def test_a_large_item_is_named_and_the_others_are_served(touchfs, touchnet, here):
    done, megabytes = peak(here, INSTALLED, "info", touchnet)
    assert b"1 of 3 samples are damaged" in done.stdout
    assert megabytes < BOUND
    report = touchfs("cat", f"{touchnet}:shards/shard/ERROR.txt").stdout.decode()
    assert "sample 1 ('00000001'): its metainfo has over 16,000,000 bytes" in report
    listed = touchfs("ls", "-l", f"{touchnet}:shards/shard").stdout.decode().splitlines()
    assert [each.split()[-1] for each in listed] == [
        *("00000001.json", "ERROR.txt", "first.json", "first.txt", "last.json", "last.txt"),
    ]
    assert listed[0].split()[0] == str(3 * 2**29)
    done, megabytes = peak(here, INSTALLED, "meta", "get", touchnet)
    assert (done.returncode, done.stdout) == (1, line("first").replace(b'"id"', b'"key"'))
    assert b"the metainfo of sample 1 has over 16,000,000 bytes" in done.stderr
    assert megabytes < BOUND


def test_a_large_item_in_python(touchnet, here):
    code = """
        from touchfs import TouchDataset
        dataset = TouchDataset("shard")
        try:
            dataset.metainfo(1)
        except Exception as error:
            print(error)
        print(dataset.get(1, "metainfo", 10**9, 10**6).sum(), dataset.metainfo(2)["key"])
    """
    done, megabytes = peak(here, sys.executable, "-c", textwrap.dedent(code))
    first, second = done.stdout.decode().splitlines()
    assert "sample 1: its metainfo has over 16,000,000 bytes" in first
    assert second == "0 last"
    assert megabytes < BOUND


@pytest.fixture(scope="module")
def shar(tmp_path_factory):
    """One cut: a FLAC of 40 minutes that is small, with a supervision over all of it and one at its end."""
    second = (np.arange(RATE) % 7 * 1000).astype("<i2")
    flac = io.BytesIO()
    with soundfile.SoundFile(flac, "w", RATE, 1, subtype="PCM_16", format="FLAC") as file:
        for number in range(SECONDS):
            second[:2] = number, -number
            file.write(second)
    place = tmp_path_factory.mktemp("shar")
    spans = [(0, SECONDS), (SECONDS - 3, 2)]
    supervisions = [
        {"id": f"s{i}", "recording_id": "cut", "start": start, "duration": duration, "channel": 0}
        for i, (start, duration) in enumerate(spans)
    ]
    cut = {"id": "cut", "start": 0, "duration": SECONDS, "channel": 0, "supervisions": supervisions, "type": "MonoCut"}
    with SharWriter(place, {"recording": "flac"}, compress_jsonl=False) as writer:
        writer.write(cut, {"recording": flac.getvalue()})
    return place


def test_the_first_byte_of_a_segment_of_a_long_flac_decodes_little(shar, here):
    code = f"""
        import resource, time
        from touchfs.dataset.segments import SegmentSamples
        from touchfs.indexing import open_dataset
        samples = SegmentSamples(open_dataset({str(shar)!r}))
        for segment in samples:
            wav = segment.content("wav")
            data = bytes(wav.read(0, 1))
            assert (data, wav.size) == (b"R", 44 + round(segment.duration * {RATE}) * 2), (data, wav.size)
            for offset in (44, wav.size // 2 // 2 * 2, wav.size - {RATE} * 2):
                part = bytes(wav.read(offset, 8))
                print(segment.number, (offset - 44) // 2, part.hex())
    """
    done, megabytes = peak(here, sys.executable, "-c", textwrap.dedent(code))
    shown = [each.split() for each in done.stdout.decode().splitlines()]
    assert len(shown) == 6, done.stderr
    for segment, first, samples in shown:
        at = int(first) + (0 if segment == "0" else SECONDS - 3) * RATE
        number, place = divmod(at, RATE)
        expected = (np.arange(place, place + 4) % 7 * 1000).astype("<i2")
        if place == 0:
            expected[:2] = number, -number
        assert samples == expected.tobytes().hex()
    assert megabytes < BOUND


def test_all_of_a_long_flac_is_decoded_in_windows(shar, here):
    """Written out it is what libsndfile makes of all of it."""
    command = [INSTALLED, "cp", f"{shar}:segments/cuts.000000/cut/0000.wav", "copy.wav"]
    done, megabytes = peak(here, *command)
    assert (done.returncode, done.stderr) == (0, b"")
    assert megabytes < BOUND
    with open("copy.wav", "rb") as file:
        file.seek(44)
        copied = hashlib.file_digest(file, "sha256").hexdigest()
    whole = hashlib.sha256()
    subprocess.run(["tar", "-xf", shar / "recording.000000.tar", "cut.flac"], check=True)
    for block in soundfile.blocks("cut.flac", 2**20, dtype="int16"):
        whole.update(block.astype("<i2").tobytes())
    assert copied == whole.hexdigest()


def test_a_part_that_takes_too_long_to_decode_is_an_error(shar, touchfs, here):
    path = f"{shar}:segments/cuts.000000/cut/0000.wav"
    done = touchfs("cat", "--decode-timeout", "0.000001", "--scratch-dir", "scratch", path)  # where nothing is decoded
    assert done.returncode == 1
    assert b"decoding takes over 1e-06 s, the limit: --decode-timeout raises it" in done.stderr
    assert (
        b"'--decode-timeout': 'inf' is no number of seconds" in touchfs("cat", "--decode-timeout", "inf", path).stderr
    )


def test_convert_refuses_what_decodes_to_too_much(shar, touchfs, here):
    arguments = ["convert", shar, "out", "--to", "touchnet", "--max-decoded", "50M"]
    done, megabytes = peak(here, INSTALLED, *arguments)
    assert done.returncode == 1
    assert (
        b"sample 0 ('cut'): cannot be decoded: decoded it has over 50,000,000 bytes: --max-decoded raises the limit"
        in done.stderr
    )
    assert megabytes < BOUND
    done = touchfs(*arguments, "--skip-bad")
    assert done.returncode == 0
    (skipped,) = map(json.loads, (here / "out/skipped.jsonl").read_text().splitlines())
    assert skipped["key"] == "cut"


def test_convert_refuses_a_file_that_is_mostly_a_hole(touchfs, here):
    with open("large.bin", "wb") as file:
        file.truncate(11 * 10**8)
    subprocess.run(["tar", "-S", "--format=gnu", "-cf", "holes.tar", "large.bin"], check=True)
    done, megabytes = peak(here, INSTALLED, "convert", "holes.tar", "out", "--to", "tar")
    assert done.returncode == 1
    assert b"decoded it has over 1,000,000,000 bytes: --max-decoded" in done.stderr
    assert megabytes < BOUND
    assert touchfs("ls", "-l", "holes.tar:shards/holes").stdout.split()[0] == b"1100000000"


def test_pack_refuses_a_recording_that_decodes_to_too_much(shar, touchfs, here):
    subprocess.run(["tar", "-xf", shar / "recording.000000.tar", "cut.flac"], check=True)
    (here / "data.jsonl").write_text('{"key": "cut", "wav": "cut.flac"}\n')
    done, megabytes = peak(
        here, INSTALLED, "pack", "touchnet", "data.jsonl", "out", "--num-workers", "1", "--max-decoded", "20M"
    )
    assert done.returncode == 1
    assert b"line 1: " in done.stderr
    assert b"cut.flac: decoded it has over 20,000,000 bytes: --max-decoded raises the limit" in done.stderr
    assert megabytes < BOUND


def test_pack_names_a_large_line(here, touchfs, text):
    wav = {"wav": os.fspath(here / "a.wav")}
    soundfile.write("a.wav", np.zeros(100), RATE)
    with open("data.jsonl", "wb") as file:
        file.write(json.dumps({"key": "a", **wav}).encode() + b"\r\n")
        for _ in range(LARGE // 10**6):
            file.write(b"x" * 10**6)
        file.write(b"\r\n" + json.dumps({"key": "b", **wav}).encode())
    arguments = ["pack", "touchnet", "data.jsonl", "out", "--num-workers", "1"]
    done, megabytes = peak(here, INSTALLED, *arguments)
    assert done.returncode == 1
    assert b"data.jsonl: line 2: the line has over 16,000,000 bytes" in done.stderr
    assert megabytes < BOUND
    assert text(*arguments, "--skip-bad").endswith("1 shard, 2 samples, 1 lines skipped: see out/skipped.jsonl")
    (skipped,) = map(json.loads, (here / "out/skipped.jsonl").read_text().splitlines())
    assert (skipped["line"], skipped["text"]) == (2, None)
    assert sorted(text("ls", "out:by-key").split()) == ["a.json", "a.wav", "b.json", "b.wav"]


def test_the_limit_for_lines_to_pack(here, touchfs):
    soundfile.write("a.wav", np.zeros(100), RATE)
    (here / "data.jsonl").write_text(json.dumps({"key": "a", "wav": "a.wav", "txt": "x" * 100}) + "\n")
    done = touchfs("pack", "tar", "data.jsonl", "out", "--max-json", "100")
    assert done.returncode == 1
    assert b"line 1: the line has over 100 bytes" in done.stderr
    assert touchfs("pack", "tar", "data.jsonl", "out").returncode == 0


def test_a_line_that_is_put_has_a_limit(here, touchfs, shards):
    lines = touchfs("meta", "get", shards).stdout
    done = touchfs("meta", "put", shards, "--max-json", "1k", input=lines[:500] + b"x" * 2000, stdin=None)
    assert done.returncode == 1
    assert b"has over 1,000 bytes" in done.stderr
    assert touchfs("meta", "get", shards).stdout == lines


@pytest.mark.parametrize("value", ["0", "many", "-1"])
def test_a_limit_that_is_none_is_refused(touchfs, here, value):
    (here / "lines.jsonl").write_bytes(line("a"))
    done = touchfs("ls", f"--max-json={value}", "lines.jsonl")
    assert done.returncode == 2, done
    assert b"--max-json" in done.stderr


@pytest.mark.parametrize(("name", "value"), [("json", 0), ("decoded", -1), ("window", 0), ("decode_seconds", math.nan)])
def test_a_wrong_limit_is_named(name, value):
    with pytest.raises(UsageError, match=f"the limit `{name}` is a positive number"):
        Limits(**{name: value})
