"""What each command does with good input."""

import io
import json
import os
import re
import shutil
import subprocess
import time
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
from speech import SENTENCES, SPEECH
from tars import write_tar
from wav_files import wav_of

from touchfs import SampleSet
from touchfs.containers.touchnet.writer import TouchNetWriter

SEGMENTS = sum(len(each["info"]["segments"]) for each in SENTENCES if "info" in each)


def tree(path):
    return {os.fspath(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in path.rglob("*")}


class TestPack:
    def test_makes_shards_and_says_how_many(self, here, text):
        assert text("pack", "touchnet", SPEECH / "speech.jsonl", "out", "--num-utt-per-shard", "4") == (
            "out: 3 shards, 10 samples"
        )
        assert (here / "out" / "data.list").read_text() == "".join(
            f"out/{number:09d} audio+metainfo\n" for number in range(3)
        )

    def test_workers_make_no_difference(self, here, text):
        for workers in "12":
            text(
                "pack", "touchnet", SPEECH / "speech.jsonl", "out", "--num-utt-per-shard", "2", "--num-workers", workers
            )
            os.rename("out", workers)
        assert tree(here / "1") == tree(here / "2")


class TestIndex:
    @pytest.fixture
    def own(self, here, shards):
        shutil.copytree(shards, here / "own")
        (here / "own" / "data.list").unlink()
        return "own"

    def test_the_second_run_does_nothing(self, own, text):
        assert text("index", "--in-place", own) == "own: 3 shards, 10 samples; 3 indexed now"
        before = {path: path.stat().st_mtime_ns for path in Path(own, ".touchfs-index").iterdir()}
        assert len(before) == 5
        assert text("index", "--in-place", own) == "own: 3 shards, 10 samples; indexed already"
        assert {path: path.stat().st_mtime_ns for path in Path(own, ".touchfs-index").iterdir()} == before
        assert text("index", "--in-place", "--force", own) == "own: 3 shards, 10 samples; 3 indexed now"
        after = {path: path.stat().st_mtime_ns for path in Path(own, ".touchfs-index").iterdir()}
        assert after.keys() == before.keys() and all(after[path] > before[path] for path in before)

    def test_full_reads_recordings_whose_length_no_header_has(self, here, text, touchfs):
        file = io.BytesIO()
        soundfile.write(file, np.zeros(16000, np.int16), 8000, format="MP3")
        segments = b'{"segments": [{"start": 0.5, "end": 1.5}]}'
        members = {"a.mp3": file.getvalue(), "a.json": segments, "b.mp3": b"?", "b.json": segments}
        write_tar(Path("x.tar"), members)
        assert text("index", "x.tar") == "x.tar: 1 shard, 2 samples; 1 indexed now"
        found = [touchfs("ls", "-l", f"x.tar:segments/x/{key}") for key in "ab"]
        assert [(done.returncode, done.stderr) for done in found] == [(0, b""), (1, b"")]
        listed = [done.stdout.decode().splitlines()[1].split() for done in found]
        assert [(size, name) for size, *_, name in listed] == [("16044", "0000.wav"), ("?", "0000.wav")]
        assert "size:                  16044" in text("stat", "x.tar:segments/x/a/0000.wav")
        for news in ("1 indexed now", "indexed already"):
            done = touchfs("index", "--full", "x.tar")
            assert (done.returncode, done.stdout) == (1, f"x.tar: 1 shard, 2 samples; {news}\n".encode())
            assert b"sample 1 ('b'): its recording cannot be decoded: not a recording" in done.stderr
        assert text("ls", "x.tar:segments/x/b") == "0000.json"

    def test_only_what_has_changed_is_indexed_again(self, own, text):
        text("index", own)
        os.utime("own/000000001/audio.bin")
        shutil.copytree("own/000000000", "own/000000003")
        assert text("index", own) == "own: 4 shards, 14 samples; 2 indexed now"

    def test_processes_make_no_difference(self, own, text):
        made = []
        for jobs in "12":
            text("index", "--in-place", "--force", "--jobs", jobs, own)
            made.append(tree(Path(own, ".touchfs-index")))
        assert made[0] == made[1]

    def test_several_sources(self, own, text):
        assert text("index", "own/000000000", "own/000000002").splitlines() == [
            "own/000000000: 1 shard, 4 samples; 1 indexed now",
            "own/000000002: 1 shard, 2 samples; 1 indexed now",
        ]

    def test_shards_with_errors_are_named_on_stderr(self, own, touchfs):
        Path(own, "000000001", "audio.idx").write_bytes(b"nonsense")
        done = touchfs("index", own)
        assert (done.returncode, done.stdout) == (1, b"own: 3 shards, 6 samples; 3 indexed now\n")
        assert re.fullmatch(
            r"own: shard 000000001: audio\.idx: .*\nown: See `touchfs cat own:shards/000000001/ERROR.txt`\.\n",
            done.stderr.decode(),
        )


class TestLs:
    def test_the_views(self, shards, text):
        shown = "by-key/\nmanifests/\nmerged/\nsegments/\nshards/\nslices/"
        assert text("ls", shards) == text("ls", f"{shards}:") == text("ls", f"{shards}:/") == shown

    def test_a_directory(self, shards, text):
        listed = text("ls", f"{shards}:shards/000000000").splitlines()
        assert listed == ["numbers.json", "numbers.txt", "numbers.wav", "talks/"]
        assert text("ls", f"{shards}:/shards//000000000/").splitlines() == listed

    def test_a_file(self, shards, text):
        assert text("ls", f"{shards}:shards/000000000/talks/monday.wav") == "monday.wav"

    def test_sizes_and_times(self, shards, text):
        lines = text("ls", "-l", f"{shards}:shards/000000000").splitlines()
        pattern = re.compile(r" *(\d+) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)")
        found = {name: (int(size), told) for size, told, name in (pattern.fullmatch(line).groups() for line in lines)}
        modified = max(path.stat().st_mtime for path in (shards / "000000000").iterdir())
        told = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(modified))
        assert found["numbers.wav"] == ((SPEECH / "wav" / "04.wav").stat().st_size, told)
        assert found["talks/"] == (0, told)


class TestCat:
    def test_a_recording_is_the_one_that_was_packed(self, shards, touchfs):
        done = touchfs("cat", f"{shards}:shards/000000000/talks/monday.wav")
        assert done.stdout == (SPEECH / SENTENCES[0]["wav"]).read_bytes()

    def test_several_one_after_the_other(self, shards, touchfs):
        names = [f"{shards}:shards/000000000/talks/{day}.txt" for day in ("monday", "tuesday", "monday")]
        said = [SENTENCES[i]["txt"].encode() for i in (0, 1, 0)]
        assert touchfs("cat", *names).stdout == b"".join(said)

    def test_a_span_of_a_recording(self, shards, touchfs):
        recording = (SPEECH / SENTENCES[0]["wav"]).read_bytes()
        for span in ("0.25-0.5", "4000s-8000s", "0.250-0.50"):
            done = touchfs("cat", f"{shards}:slices/{span}/000000000/talks/monday.wav")
            assert done.stdout[44:] == recording[44 + 2 * 4000 : 44 + 2 * 8000]
        done = touchfs("cat", f"{shards}:slices/12.5s/000000000/talks/monday.wav")
        assert done.returncode != 0
        assert b"'12.5s' is no span: write seconds as 12.5-17.25, samples as 200000s-276000s, or all" in done.stderr

    def test_larger_than_a_piece(self, here, text, touchfs):
        Path("long.wav").write_bytes(wav_of(os.urandom(3_000_000), 16000))
        Path("long.jsonl").write_text('{"key": "long", "wav": "long.wav"}')
        text("pack", "touchnet", "long.jsonl", "out")
        assert touchfs("cat", "out:shards/000000000/long.wav").stdout == Path("long.wav").read_bytes()


class TestStat:
    def test_a_file(self, shards, text):
        lines = text("stat", f"{shards}:segments/000000000/talks/monday/0001.wav").splitlines()
        told = dict(line.split(maxsplit=1) for line in lines)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", told.pop("modified:"))
        start, end = (int(SENTENCES[0]["info"]["segments"][1][at] * 16000) for at in ("start", "end"))
        assert told == {
            "path:": "/segments/000000000/talks/monday/0001.wav",
            "type:": "file",
            "size:": str(44 + 2 * (end - start)),
            "user.touchfs.key:": "talks/monday",
            "user.touchfs.shard:": "000000000",
            "user.touchfs.ordinal:": "0",
            "user.touchfs.segment:": "1",
            "user.touchfs.field:": "audio",
            "user.touchfs.offset:": str(2 * start),
            "user.touchfs.size:": str(2 * (end - start)),
        }

    def test_a_directory(self, shards, text):
        lines = text("stat", f"{shards}:segments/000000000/talks").splitlines()
        assert [line.split()[:2] for line in lines[:3]] == [
            ["path:", "/segments/000000000/talks"],
            ["type:", "directory"],
            ["size:", "0"],
        ]
        assert text("stat", shards).splitlines()[0].split() == ["path:", "/"]


class TestCp:
    def test_a_file(self, shards, here, text):
        source = f"{shards}:shards/000000000/talks/monday.wav"
        recording = (SPEECH / SENTENCES[0]["wav"]).read_bytes()
        assert text("cp", source, "copy.wav") == ""
        (here / "there").mkdir()
        text("cp", source, "there")
        Path("old.wav").write_bytes(b"x" * 1_000_000)
        text("cp", source, "old.wav")
        for path in ("copy.wav", "there/monday.wav", "old.wav"):
            assert Path(path).read_bytes() == recording

    def test_all_is_what_cat_writes(self, shards, here, text, touchfs):
        text("cp", "-r", shards, "copy")
        copied = tree(here / "copy")
        files = {path: data for path, data in copied.items() if data is not None}
        assert touchfs("cat", *(f"{shards}:{path}" for path in files)).stdout == b"".join(files.values())
        files = {path: data for path, data in files.items() if not path.startswith(("by-key", "manifests"))}
        assert len(files) == 30 + sum(3 * len(s["info"]["segments"]) for s in SENTENCES if "info" in s)
        links = {path.name: os.readlink(path) for path in Path("copy", "by-key").iterdir()}
        assert sorted(links.values()) == sorted(f"../{path}" for path in files if path.startswith("shards"))
        text("cp", "-r", f"{shards}:shards/000000000/", "one")
        assert tree(here / "one") == tree(here / "copy" / "shards" / "000000000")

    def test_a_directory_goes_into_one_that_exists(self, shards, here, text):
        (here / "there").mkdir()
        text("cp", "-r", f"{shards}:segments/000000000/talks/monday", "there")
        assert sorted(os.listdir("there/monday")) == [f"000{i}.{e}" for i in (0, 1) for e in ("json", "txt", "wav")]

    def test_damaged_files_are_named_and_all_others_are_copied(self, here, touchfs):
        recording = (SPEECH / SENTENCES[0]["wav"]).read_bytes()
        segments = json.dumps({"segments": [{"start": 0, "end": 0.5}, {"start": 0.5, "end": 1}]}).encode()
        cut = recording[:40] + (10**6).to_bytes(4, "little") + recording[44:20_000]
        members = {"a.wav": cut, "a.json": segments, "b.wav": recording[:30], "b.json": segments, "c.wav": recording}
        write_tar(here / "x.tar", members | {"c.json": segments})
        done = touchfs("cp", "-r", "x.tar:segments", "out")
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.decode().splitlines() == [
            *(f"touchfs: segments/x/b/000{n}.wav: the WAV file ends before its data (at byte 30)" for n in (0, 1)),
        ]
        copied = tree(here / "out")
        assert len(copied["x/a/0000.wav"]) == len(copied["x/c/0000.wav"]) == 16_044
        wavs = {path for path in copied if path.endswith(".wav")}
        assert wavs == {f"x/{key}/000{n}.wav" for key in "ac" for n in (0, 1)}, "nothing is left of damaged ones"

    def test_devices_and_pipes_are_written_to_and_not_replaced(self, shards, touchfs):
        source = f"{shards}:shards/000000000/talks/monday.txt"
        assert touchfs("cp", source, "/dev/stdout").stdout == SENTENCES[0]["txt"].encode()
        assert touchfs("cp", source, "/dev/null").returncode == 0
        assert Path("/dev/null").is_char_device()


class TestInfo:
    def test_what_pictures_have_not_is_not_told(self, here, text):
        write_tar(here / "x.tar", {"a.jpg": b"\xff\xd8\xff", "b.jpg": b"\xff\xd8\xff"})
        told = dict(re.split(r": +", line) for line in text("info", "x.tar").splitlines())
        assert told.keys() <= {"kind", "shards", "samples", "data", "keys", "index overhead"}
        assert json.loads(text("info", "--json", "x.tar"))["samples_of_unknown_duration"] == 0

    def test_an_index_that_is_larger_than_a_list_has_no_overhead(self, here, text):
        (here / "nemo.jsonl").write_text('{"audio_filepath": "01.wav", "text": "a"}\n')
        assert "index overhead" not in text("info", "nemo.jsonl", "--audio-root", SPEECH / "wav")

    def test_it_is_told_to_people(self, shards, text):
        told = dict(re.split(r": +", line) for line in text("info", shards).splitlines())
        data = sum(path.stat().st_size for path in shards.glob("*/*.bin"))
        assert re.fullmatch(r"\d\.\d\d %", told.pop("index overhead"))
        assert told == {
            "kind": "TouchDataset (.bin/.idx)",
            "shards": "3",
            "samples": "10",
            "hours": f"0.00 ({seconds():.1f} s)",
            "recordings": "10",
            "rates": "16000 Hz (10)",
            "channels": "1 (10)",
            "codings": "wav (10)",
            "segments": f"{SEGMENTS}",
            "data": f"{data:,} bytes",
            "keys": "10",
        }

    def test_and_to_programs(self, shards, text):
        told = json.loads(text("info", "--json", shards))
        overhead = told.pop("index_overhead_percent")
        assert overhead == pytest.approx(float(re.search(r"overhead: +(.*) %", text("info", shards))[1]), abs=0.01)
        assert told == {
            "kind": "TouchDataset (.bin/.idx)",
            "shards": 3,
            "samples": 10,
            "hours": pytest.approx(seconds() / 3600, abs=0.0001),
            "recordings": 10,
            "rates": {"16000": 10},
            "channels": {"1": 10},
            "codings": {"wav": 10},
            "segments": SEGMENTS,
            "bytes": sum(path.stat().st_size for path in shards.glob("*/*.bin")),
            "samples_of_unknown_duration": 0,
            "by_key": 10,
            "damaged_samples": 0,
            "shards_with_errors": [],
        }

    def test_facts_of_recordings_are_shown_where_there_are_some(self, here, text):
        Path("lines.jsonl").write_text('{"id": "a"}\n')
        subprocess.run(["tar", "-cf", "texts.tar", "lines.jsonl"], check=True)
        for source in ("lines.jsonl", "texts.tar"):
            told = json.loads(text("info", "--json", source))
            assert (told["hours"], told["samples_of_unknown_duration"]) == (None, 0)
            assert not re.search("^(hours|recordings|segments):", text("info", source), re.MULTILINE)
            assert "no known duration" not in text("info", source)
            assert (told["recordings"], told["rates"], told["channels"], told["codings"]) == (0, {}, {}, {})

    def test_hours_of_recordings_in_a_tar(self, here, text):
        shutil.copy(SPEECH / SENTENCES[0]["wav"], "a.wav")
        soundfile.write("b.flac", np.zeros(44100 * 36, np.int16), 44100)
        Path("c.mp3").write_bytes(b"ID3")
        subprocess.run(["tar", "-cf", "x.tar", "a.wav", "b.flac", "c.mp3"], check=True)
        with wave.open("a.wav") as file:
            length = 36 + file.getnframes() / file.getframerate()
        told = json.loads(text("info", "--json", "x.tar"))
        assert told["hours"] == pytest.approx(length / 3600, abs=1e-6)
        assert told["samples_of_unknown_duration"] == 1
        expected = f"^hours: +0.01 \\({length:.1f} s, and 1 sample of unknown duration\\)$"
        assert re.search(expected, text("info", "x.tar"), re.MULTILINE)
        assert text("info", "x.tar").endswith("\n1 sample has no known duration: `touchfs index --full x.tar`")
        assert told["rates"] == {"16000": 1, "44100": 1, "unknown": 1}
        assert told["channels"] == {"1": 2, "unknown": 1}
        assert told["codings"] == {"wav": 1, "flac": 1, "mp3": 1}
        assert re.search(
            r"^rates: +16000 Hz \(1\), 44100 Hz \(1\), unknown \(1\)$", text("info", "x.tar"), re.MULTILINE
        )

    @pytest.mark.parametrize("form", ["wav", "flac"])
    @pytest.mark.parametrize("kind", ["tar", "shar"])
    def test_samples_tell_the_durations_that_info_adds_up(self, here, text, kind, form):
        text("pack", kind, SPEECH / "speech.jsonl", "out", "--audio-format", form)
        told = json.loads(text("info", "--json", "out"))
        assert told["samples_of_unknown_duration"] == 0
        whole = sum("info" not in each for each in SENTENCES) if kind == "shar" else 0  # cuts with one supervision
        assert told["segments"] == SEGMENTS + whole
        for indexed in (True, False):
            durations = [sample.duration for sample in SampleSet.from_file("out", indexed=indexed)]
            assert sum(durations) == pytest.approx(seconds())
        assert told["hours"] == pytest.approx(seconds() / 3600, abs=1e-6)
        assert (told["rates"], told["codings"]) == ({"16000": len(SENTENCES)}, {form: len(SENTENCES)})

    def test_indexes_are_under_two_percent_of_ordinary_speech(self, here, text):
        """Five seconds at 16 kHz a sample, with a transcript and two segments."""
        Path("five.wav").write_bytes(wav_of(os.urandom(160_000), 16000))
        words = "the quick brown fox jumps over the lazy dog and then sleeps for a while in the warm sun"
        segments = [{"start": 0.5, "end": 2.25, "txt": words[:40]}, {"start": 2.5, "end": 4.75, "txt": words[40:]}]
        lines = [
            json.dumps({"key": f"corpus/speaker{i % 7}/utterance-{i:08d}", "wav": "five.wav", "txt": words})[:-1]
            + f', "info": {{"segments": {json.dumps(segments)}}}}}'
            for i in range(120)
        ]
        Path("five.jsonl").write_text("\n".join(lines))
        text("pack", "touchnet", "five.jsonl", "five", "--num-utt-per-shard", "60")
        told = json.loads(text("info", "--json", "five"))
        assert told["samples"] == 120
        assert told["hours"] == pytest.approx(120 * 5 / 3600, abs=0.0001)
        assert 0 < told["index_overhead_percent"] < 2

    def test_it_says_what_is_wrong_with_each_shard(self, shards, here, text, touchfs):
        shutil.copytree(shards, here / "a bad one")
        os.truncate("a bad one/000000000/audio.bin", 50_000)
        Path("a bad one/000000001/metainfo.idx").unlink()
        Path("a bad one/data.list").write_text(
            "".join(f"a bad one/{name} audio+metainfo\n" for name in ("000000000", "000000001", "000000002", "gone"))
        )
        done = touchfs("info", "a bad one")
        lines = done.stdout.decode().splitlines()
        assert (done.returncode, done.stderr) == (1, b"")
        assert "shards:         4, 3 with errors" in lines
        assert "samples:        6, 3 damaged" in lines
        assert lines[-4].startswith("shard 000000000: 3 of 4 samples are damaged: sample 1 (")
        assert lines[-3:] == [
            "shard 000000001: metainfo.bin has no index: the job that wrote this shard did not end",
            "shard gone: no such shard",
            "See `touchfs cat 'a bad one:shards/000000000/ERROR.txt'`.",
        ]
        told = json.loads(touchfs("info", "--json", "a bad one").stdout)
        assert (told["damaged_samples"], told["shards_with_errors"]) == (3, ["000000000", "000000001", "gone"])
        report = text("cat", "a bad one:shards/gone/ERROR.txt")
        assert "no such shard" in report


def seconds():
    return sum((path.stat().st_size - 44) / 32000 for path in (SPEECH / "wav").iterdir())


class TestSources:
    """What DATASET may be, before the colon or alone."""

    def shown(self, text, source):
        return text("ls", f"{source}:shards"), text("cat", f"{source}:shards/000000000/talks/monday.txt")

    def test_a_shard(self, shards, text):
        assert self.shown(text, shards / "000000000") == ("000000000/", SENTENCES[0]["txt"])

    def test_a_directory_of_shards(self, shards, here, text):
        shutil.copytree(shards, here / "own", ignore=shutil.ignore_patterns("data.list"))
        assert self.shown(text, "own") == ("000000000/\n000000001/\n000000002/", SENTENCES[0]["txt"])

    def test_a_list_whose_paths_are_relative_to_it_and_have_spaces(self, shards, here, text):
        shutil.copytree(shards / "000000000", here / "my data" / "000000000")
        shutil.copytree(shards / "000000001", here / "my data" / "more shards" / "second one")
        Path("my data/my list").write_text(
            "more shards/second one audio+metainfo\n000000000 audio+metainfo\n", encoding="utf-8"
        )
        expected = "second one/\n000000000/", SENTENCES[0]["txt"]
        assert self.shown(text, "my data/my list") == expected
        os.chdir("/")
        assert self.shown(text, here / "my data" / "my list") == expected
        assert text("cat", f"{here}/my data/my list:shards/second one/{SENTENCES[4]['key']}.txt") == SENTENCES[4]["txt"]

    def test_a_list_made_elsewhere(self, shards, here, text):
        shutil.copytree(shards, here / "moved")
        Path("moved/data.list").write_text("/then/there/000000001 audio+metainfo\nold/000000000 audio+metainfo\n")
        assert self.shown(text, "moved") == self.shown(text, "moved/data.list")
        assert self.shown(text, "moved") == ("000000001/\n000000000/", SENTENCES[0]["txt"])

    def test_colons(self, shards, here, text):
        shutil.copytree(shards / "000000000", here / "a:b" / "000000000")
        shutil.copytree(shards / "000000000", here / "a" / "000000000")
        shutil.copytree(shards / "000000001", here / "a" / "000000001")
        assert self.shown(text, "a:b") == ("000000000/", SENTENCES[0]["txt"])
        assert self.shown(text, "a") == ("000000000/\n000000001/", SENTENCES[0]["txt"])
        assert text("ls", "a:b") == "by-key/\nmanifests/\nmerged/\nsegments/\nshards/\nslices/"

    def test_a_sample_rate_for_audio_that_names_none(self, here, text):
        with TouchNetWriter("bare", {"audio": np.dtype("<i2")}) as writer:
            writer.add({"audio": b"abcd"})
        assert text("ls", "bare:shards/bare") == "00000000.pcm"
        assert "name one with --sample-rate" in text("stat", "bare:shards/bare/00000000.pcm")
        assert text("ls", "--sample-rate", "8000", "bare:shards/bare") == "00000000.wav"
        assert "(0.0 s)" in text("info", "--sample-rate", "8000", "bare")


class TestNames:
    def test_a_source_may_be_any_bytes(self, shards, here, touchfs):
        shutil.copytree(shards, here / "sh\udcff")
        done = touchfs("index", b"sh\xff/000000000", env=os.environ | {"LC_ALL": "C.UTF-8"})
        assert done.stdout == rb"sh\udcff/000000000: 1 shard, 4 samples; 1 indexed now" + b"\n"
        assert touchfs("ls", b"sh\xff:shards/000000000").stdout.startswith(b"numbers.json\n")
        assert touchfs("cat", b"sh\xff:shards/000000000/numbers.txt").stdout == SENTENCES[3]["txt"].encode()
        done = touchfs("cp", "-r", b"sh\xff:shards/000000000", b"to\xfe")
        assert done.returncode == 0 and Path("to\udcfe/numbers.txt").exists()
        done = touchfs("ls", b"sh\xff:nosuch")
        assert done.returncode == 1 and done.stderr.count(b"\n") == 1

    def test_names_beyond_ascii_need_no_locale(self, shards, touchfs):
        path = f"{shards}:shards/000000001"
        expected = touchfs("ls", path).stdout
        assert any(byte > 127 for byte in expected)
        for settings in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}):
            assert touchfs("ls", path, env=os.environ | settings).stdout == expected

    def test_a_key_cannot_command_the_terminal(self, here, text):
        key = "\x1b[31mred\nline"
        shutil.copy(SPEECH / "wav" / "01.wav", "a.wav")
        Path("l.jsonl").write_text(json.dumps({"key": key, "wav": "a.wav"}))
        text("pack", "touchnet", "l.jsonl", "out")
        assert text("ls", "out:shards/000000000").splitlines()[0] == "%1B[31mred%0Aline.json"
        assert (
            r"user.touchfs.key:      \u001b[31mred\nline"
            in text("stat", "out:shards/000000000/%1B[31mred%0Aline.json").splitlines()
        )


def test_ls_lists_what_is_below_as_paths(text, shards):
    paths = text("ls", "-R", f"{shards}:segments").splitlines()
    (directory,) = (path for path in paths if path.endswith("000000000/talks/monday/"))
    below = text("ls", f"{shards}:segments/{directory}").splitlines()
    assert [path for path in paths if path.startswith(directory) and path != directory] == [
        directory + each for each in below
    ]
    assert text("ls", "-R", f"{shards}:segments/{directory}0000.txt") == "0000.txt"


def test_ls_shows_sizes_as_people_read_them(text, shards):
    place = f"{shards}:shards/000000000/talks/monday.wav"
    size = int(text("ls", "-l", place).split()[0])
    assert text("ls", "-lh", place).split()[:2] == [f"{size / 1000:.1f}", "kB"]


def test_tables_are_arrays_of_objects(text, touchfs, shards):
    place = f"{shards}:shards/000000000/talks"
    rows = json.loads(text("ls", "--json", place))
    assert [row["name"] for row in rows] == [name.rstrip("/") for name in text("ls", place).split()]
    for row in rows:
        facts = json.loads(text("stat", "--json", f"{place}/{row['name']}"))
        assert (facts["type"], facts["size"], facts["modified"]) == (row["type"], row["size"], row["modified"])
        assert facts["path"] == f"/shards/000000000/talks/{row['name']}"
    text("index", shards)
    (indexed,) = json.loads(text("index", "--json", shards))
    assert (indexed["dataset"], indexed["shards"], indexed["samples"], indexed["indexed_now"]) == (
        str(shards),
        3,
        10,
        0,
    )
    assert json.loads(text("iterator", "list", "--json", shards)) == []
    put = text("meta", "put", "--json", "--keep-missing", shards, stdin=None, input=b"")
    assert json.loads(put) == {"samples": 0, "shards": 0, "ignored": 0, "kept": 10}
    (fetched,) = json.loads(text("prefetch", "--json", shards))
    assert (fetched["dataset"], fetched["shards"]) == (str(shards), 3)
    found = json.loads(touchfs("doctor", "--json").stdout)
    assert {tuple(each) for each in found} == {("rating", "subject", "found", "advice")}
