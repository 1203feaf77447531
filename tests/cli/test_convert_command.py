"""`touchfs convert`, and `touchfs pack tar` and `shar`, as a user calls them."""

import fcntl
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import soundfile
from command import TOUCHFS
from killing import kill_when, tree
from megatron import INT32, write_prefix
from speech import SENTENCES, SPEECH
from tars import write_tar

import touchfs as touchfs_library

KEYS = [told["key"] for told in SENTENCES]


def tar_of(path):
    with tarfile.open(path) as tar:
        return {name: tar.extractfile(name).read() for name in tar.getnames()}


@pytest.fixture
def data(here):
    (here / "data.jsonl").symlink_to(SPEECH / "speech.jsonl")
    (here / "wav").symlink_to(SPEECH / "wav")
    return here


def refused(touchfs, *arguments, status=1, **options):
    done = touchfs(*arguments, **options)
    assert (done.returncode, done.stdout) == (status, b"")
    assert done.stderr.count(b"\n") == 1
    return done.stderr.decode()


@pytest.mark.parametrize("between", ["tar", "shar"])
def test_there_and_back(text, shards, here, between):
    assert text("convert", shards, "there", "--to", between) == "there: 1 shard, 10 samples"
    told = text("convert", "there", "back", "--to", "touchnet", "--num-utt-per-shard", "4")
    assert told == "back: 3 shards, 10 samples"
    expected, found = tree(shards), tree(here / "back")
    assert found.pop("data.list") == b"".join(b"back/%09d audio+metainfo\n" % n for n in range(3))
    assert found == {name: data for name, data in expected.items() if name != "data.list"}


def test_what_errors_advise_is_an_option(touchfs, here):
    """Where neither the scratch store nor the index can be written."""
    write_tar(here / "in/a.tar", {"a.txt": b"a"})
    (here / "o.jsonl").write_text('{"key": "a", "n": 1}\n')
    (here / "file").touch()
    words = ["convert", "--overlay", "o.jsonl", "in", "out", "--to", "tar"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(here / "file")}
    done = touchfs(*words, env=environment)
    assert done.returncode == 1 and b"--in-place name another place" in done.stderr
    assert b"--scratch-dir names another place" in done.stderr
    done = touchfs(*words, "--in-place", "--scratch-dir", "scratch", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert tar_of("out/000000.tar")["a.n.txt"] == b"1"


@pytest.mark.parametrize("name", ["wds", "webdataset"])
def test_tars_have_the_names_of_other_tools(text, shards, here, name):
    assert text("convert", shards, "tars", "--to", name) == "tars: 1 shard, 10 samples"
    assert os.listdir("tars") == ["000000.tar"]


def test_lhotses_ordinary_manifests(text, here):
    """`cuts.jsonl` beside `recordings.jsonl` is no Shar: all three are there, and can be converted."""
    rows = {"cuts": [{"id": "a"}, {"id": "b"}], "recordings": [{"id": "r"}], "supervisions": [{"id": "s"}]}
    (here / "manifests").mkdir()
    for name, each in rows.items():
        (here / f"manifests/{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in each))
    assert text("ls", "manifests:shards").split() == ["cuts/", "recordings/", "supervisions/"]
    assert text("ls", "manifests/cuts.jsonl:shards/cuts").split() == ["a.json", "b.json"]
    assert text("convert", "manifests", "tars", "--to", "tar") == "tars: 1 shard, 4 samples"
    assert sorted(tar_of(here / "tars/000000.tar")) == ["a.json", "b.json", "r.json", "s.json"]


def test_options_of_each_target(text, shards, here):
    text("convert", shards, "tars", "--to", "tar", "--shard-size", "100000", "--index", "--leave-out", "txt")
    made = tree(here / "tars")
    assert {f"{name}.idx" for name in made if name.endswith(".tar")} == {name for name in made if name.endswith(".idx")}
    assert len(made) > 4
    assert not any(name.endswith(".txt") for name in tar_of(here / "tars/000000.tar"))
    text("convert", "tars", "slow", "--to", "touchnet", "--audio-resample", "8000", "--resample-in", "float")
    fast, slow = shards / "000000000/audio.bin", here / "slow/000000000/audio.bin"
    assert slow.stat().st_size > fast.stat().st_size / 2
    text("convert", "tars", "told", "--to", "touchnet", "--datatypes", "metainfo")
    assert sorted(os.listdir(here / "told/000000000")) == ["metainfo.bin", "metainfo.idx"]


def test_options_of_no_use(touchfs, shards, here):
    for option, target in [
        (["--index"], "shar"),
        (["--shard-size", "9"], "touchnet"),
        (["--audio-resample", "8000"], "tar"),
        (["--datatypes", "metainfo"], "shar"),
    ]:
        told = refused(touchfs, "convert", shards, "out", "--to", target, *option, status=2)
        assert told == f"touchfs: {option[0]} cannot be used with --to {target}\n"
    told = refused(touchfs, "convert", shards, "out", "--to", "touch", status=2)
    assert told == "touchfs: `--to touch` has another name now: --to touchnet\n"
    assert not (here / "out").exists()


def test_a_bad_sample(touchfs, here):
    write_tar(Path("x.tar"), {"a.wav": (SPEECH / "wav/01.wav").read_bytes(), "b.txt": b"x"})
    told = refused(touchfs, "convert", "x.tar", "out", "--to", "touchnet")
    assert told.startswith("touchfs: x.tar: sample 1 ('b'): has no recording")
    assert refused(touchfs, "convert", "x.tar", "x.tar", "--to", "tar", status=2).endswith("File exists\n")
    done = touchfs("convert", "x.tar", "some", "--to", "touchnet", "--skip-bad")
    assert done.stdout == b"some: 1 shard, 1 sample, 1 skipped: see some/skipped.jsonl\n"


def test_the_same_however_it_was_made(text, data, shards):
    """Packed at once, or by way of TouchNet's shards; in one process or more."""
    text("convert", shards, "tars", "--to", "tar", "--num-utt-per-shard", "4")
    text("convert", shards, "shar", "--to", "shar", "--num-utt-per-shard", "4")
    assert text("pack", "tar", "data.jsonl", "tars1", "--num-utt-per-shard", "4") == "tars1: 3 shards, 10 samples"
    text("pack", "tar", "data.jsonl", "tars2", "--num-utt-per-shard", "4", "--num-workers", "1")
    text("pack", "shar", "data.jsonl", "shar1", "--num-utt-per-shard", "4", "--num-workers", "2")
    assert tree(data / "tars1") == tree(data / "tars2")
    for number in range(3):
        packed, converted = (tar_of(data / place / f"{number:06d}.tar") for place in ("tars1", "tars"))
        assert packed.keys() == converted.keys()
        for name, content in packed.items():
            if name.endswith(".json"):  # `pack touch` adds the rate
                assert json.loads(content) | {"sample_rate": 16000} == json.loads(converted[name])
            else:
                assert content == converted[name]
    packed, converted = tree(data / "shar1"), tree(data / "shar")
    assert packed.keys() == converted.keys()
    assert all(packed[name] == converted[name] for name in packed if name.startswith("recording"))
    assert text("ls", "shar1:shards/cuts.000000") == text("ls", "shar:shards/cuts.000000")


def test_files_are_packed_as_they_are(text, data):
    text("pack", "tar", "data.jsonl", "tars", "--index")
    found = tar_of(data / "tars/000000.tar")
    lines = (data / "data.jsonl").read_bytes().splitlines()
    for told, line in zip(SENTENCES, lines, strict=True):
        assert found[f"{told['key']}.wav"] == (SPEECH / told["wav"]).read_bytes()
        assert found[f"{told['key']}.json"] == line
        assert found[f"{told['key']}.txt"] == told["txt"].encode()
    assert (data / "tars/000000.tar.idx").stat().st_size == 8 * (len(KEYS) + 1)


@pytest.mark.parametrize("kind", ["tar", "shar"])
def test_decoded_and_encoded_anew(text, here, kind):
    soundfile.write("a.flac", np.random.default_rng(0).normal(0, 0.1, (44100, 2)), 44100)
    soundfile.write("b.wav", np.arange(800, dtype="i2"), 8000)
    Path("l.jsonl").write_text('{"wav": "a.flac", "sample_rate": 44100}\n{"key": "b.1", "wav": "b.wav"}\n')
    member = "recording.000000.tar" if kind == "shar" else "000000.tar"
    key = {"tar": "b%2E1", "shar": "b.1"}[kind]
    text("pack", kind, "l.jsonl", "kept")
    extension = {"tar": ".flac", "shar": ".original"}[kind]
    assert tar_of(here / "kept" / member)[f"00000000{extension}"] == Path("a.flac").read_bytes()
    text("pack", kind, "l.jsonl", "mono", "--audio-format", "flac")
    mono = tar_of(here / "mono" / member)
    assert soundfile.info(io.BytesIO(mono["00000000.flac"])).samplerate == 44100
    samples, rate = soundfile.read(io.BytesIO(mono[f"{key}.flac"]), dtype="int16")
    assert (samples.tolist(), rate) == (list(range(800)), 8000)
    text("pack", kind, "l.jsonl", "slow", "--audio-resample", "4000")
    slow = tar_of(here / "slow" / member)
    found = [soundfile.info(io.BytesIO(slow[name])) for name in ("00000000.wav", f"{key}.wav")]
    assert [(each.samplerate, each.channels, each.frames) for each in found] == [(4000, 1, 4000), (4000, 1, 400)]
    if kind == "tar":
        assert json.loads(slow["00000000.json"]) == {"wav": "a.flac", "sample_rate": 4000}


@pytest.mark.parametrize("kind", ["tar", "shar"])
def test_lines_that_cannot_be_packed(touchfs, here, kind):
    soundfile.write("a.wav", np.zeros(100), 8000)
    Path("x.dat").write_bytes(b"?")
    good, bad = '{"wav": "a.wav"}\n', ['{"wav": "none.wav"}\n', "\n", "[]\n", '{"wav": "x.dat"}\n']
    Path("l.jsonl").write_text("".join([good, *bad, good]))
    told = refused(touchfs, "pack", kind, "l.jsonl", "out")
    assert "l.jsonl: line 2: " in told
    assert "none.wav: no such file; fix it and pack again, or skip it with --skip-bad" in told
    done = touchfs("pack", kind, "l.jsonl", "some", "--skip-bad", "--num-utt-per-shard", "2")
    assert done.stdout == b"some: 3 shards, 2 samples, 3 lines skipped: see some/skipped.jsonl\n", done.stderr
    skipped = [json.loads(line) for line in Path("some/skipped.jsonl").read_text().splitlines()]
    assert [each["line"] for each in skipped] == [2, 4, 5]
    assert "no extension of a recording: choose --audio-format" in skipped[2]["reason"]
    assert not list(Path("some").glob(".touchfs*"))


def test_names_in_packed_tars(text, here):
    soundfile.write("a.WAV", np.zeros(100), 8000, format="wav")
    keys = ["a", "a", "a.b", "a~2", 7, None, "a"]
    lines = [json.dumps({"key": key, "wav": "a.WAV"}) + "\n" for key in keys]
    Path("l.jsonl").write_text("".join(lines))
    text("pack", "tar", "l.jsonl", "out", "--num-utt-per-shard", "6")
    names = [name.removesuffix(".WAV") for name in tar_of(here / "out/000000.tar") if name.endswith(".WAV")]
    assert names == ["a", "a~2", "a%2Eb", "a~2~2", "7", "00000005"]
    assert list(tar_of(here / "out/000001.tar")) == ["a.WAV", "a.json"]


def killed(command, output, marks):
    """What is in the output after a command was killed when it had made a shard.

    One that was faster has removed its plan. Then it begins anew.
    """
    while True:
        kill_when([TOUCHFS, *command], lambda: any(output.glob(marks)))
        found = {name: data for name, data in tree(output).items() if not name.startswith(".touchfs")}
        if (output / ".touchfs-pack.json").exists():
            with open(output / ".touchfs-pack.json") as plan:
                fcntl.flock(plan, fcntl.LOCK_EX)  # its workers hold it for a moment
            return found
        shutil.rmtree(output)


@pytest.mark.parametrize(
    "kind", ["tar", *(pytest.param(kind, marks=pytest.mark.variant) for kind in ("shar", "touchnet"))]
)
def test_a_killed_conversion_goes_on(touchfs, shards, here, kind):
    """`tests/bulk/test_convert_resume.py` interrupts conversions to all kinds at every step."""
    options = ["--to", kind, "--num-utt-per-shard", "1", "--jobs", "2"]
    whole = touchfs("convert", shards, "whole", *options, "--jobs", "1")
    assert whole.returncode == 0, whole.stderr
    expected = tree(here / "whole")
    if kind == "touchnet":
        expected["data.list"] = expected["data.list"].replace(b"whole", b"out")
    command = ["convert", shards, "out", *options]
    output = here / "out"
    found = killed(command, output, {"tar": "*.tar", "shar": "cuts.*.idx", "touchnet": "0*"}[kind])
    assert found.items() <= expected.items()
    assert touchfs(*command).stdout == b"out: 10 shards, 10 samples\n"
    assert tree(output) == expected
    assert "already holds" in refused(touchfs, *command, status=2)


def test_an_output_with_spaces_says_where_touchnet_reads_it_from(text, shards, data):
    remark = "my out/data.list names the shards relative to itself: TouchNet reads it from there, after `cd 'my out'`"
    told = text("pack", "touchnet", "data.jsonl", "my out", "--num-utt-per-shard", "5")
    assert told.splitlines() == ["my out: 2 shards, 10 samples", remark]
    assert Path("my out/data.list").read_text() == "000000000 audio+metainfo\n000000001 audio+metainfo\n"
    assert text("info", "my out").splitlines()[1] == text("info", "my out/data.list").splitlines()[1]
    assert "10 samples" in text("index", "my out")
    told = text("convert", shards, "my other out", "--to", "touchnet")
    assert told.splitlines()[1].startswith("my other out/data.list names the shards relative to itself")
    assert Path("my other out/data.list").read_text() == "000000000 audio+metainfo\n"


@pytest.mark.parametrize(("kind", "more"), [("tar", ["--index"]), pytest.param("shar", [], marks=pytest.mark.variant)])
def test_killed_and_resumed(touchfs, data, kind, more):
    options = ["--num-utt-per-shard", "1", "--num-workers", "2", *more]
    whole = touchfs("pack", kind, "data.jsonl", "whole", *options, "--num-workers", "1")
    assert whole.returncode == 0, whole.stderr
    expected = tree(data / "whole")
    command = ["pack", kind, "data.jsonl", "out", *options]
    output = data / "out"
    assert killed(command, output, "*.tar").items() <= expected.items()
    other = refused(touchfs, *command, "--audio-format", "flac", status=2)
    assert "was begun with audio-format None, not flac" in other
    assert touchfs(*command).stdout == b"out: 10 shards, 10 samples\n"
    assert tree(output) == expected
    assert "already holds" in refused(touchfs, *command, status=2)


@pytest.mark.parametrize("kind", ["arrow", "lance", "parquet"])
def test_a_table_is_written_by_one_process(touchfs, shards, here, kind):
    for option in (["--jobs", "2"], ["--dask", "local"]):
        done = touchfs("convert", shards, "out", "--to", kind, *option)
        said = f"touchfs: --jobs and --dask cannot be used with --to {kind}, as one process writes a table: omit them\n"
        assert (done.returncode, done.stdout, done.stderr.decode()) == (2, b"", said)
    assert touchfs("convert", shards, "out", "--to", kind, "--jobs", "1").returncode == 0


@pytest.fixture
def widths(here):
    """Two tars with three samples each, whose JSON says how wide they are."""
    for number in range(2):
        members = {}
        for each in range(3):
            members[f"{number}{each}.json"] = json.dumps({"width": 10 * each}).encode()
            members[f"{number}{each}.txt"] = b"%d" % each
        write_tar(here / "wds" / f"{number}.tar", members)
    return here / "wds"


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (["--where", "width >= 10"], ["01", "02", "11", "12"]),
        (["--where", "width >= 10", "--take", "3"], ["01", "02", "11"]),
        (["--take", "1"], ["00"]),
        (["--select", "samples/1", "--where", "width < 20"], ["10", "11"]),
    ],
)
def test_what_is_chosen_is_converted(text, here, widths, options, keys):
    """The samples are those that `iterate` writes with the same options."""
    iterated = text("iterate", widths, *options).split()
    assert [os.path.basename(path).partition(".")[0] for path in iterated] == keys
    shards = -(-len(keys) // 2)
    told = text("convert", widths, "tars", "--to", "webdataset", "--num-utt-per-shard", "2", *options)
    assert told.startswith(f"tars: {shards} shard") and told.endswith(f"{len(keys)} sample{'s' * (len(keys) > 1)}")
    members = [name for number in range(shards) for name in tar_of(here / f"tars/{number:06}.tar")]
    assert members == [f"{key}.{extension}" for key in keys for extension in ("json", "txt")]


def test_what_is_chosen_becomes_a_table_and_rows_of_tables_are_chosen(text, touchfs, here, widths):
    assert text("convert", widths, "table", "--to", "parquet", "--where", "width >= 10").startswith("table: 4 rows")
    text("convert", "table", "rows", "--to", "arrow", "--where", "key != '01'", "--take", "2")
    with pyarrow.OSFile(str(next((here / "rows").glob("*.arrow")))) as file:
        rows = pyarrow.ipc.open_file(file).read_all()
    assert rows.schema.names == ["__key__", "json", "txt"]
    assert rows["__key__"].to_pylist() == ["02", "11"] and rows["txt"].to_pylist() == [b"2", b"1"]
    done = touchfs("convert", widths, "none", "--to", "parquet", "--where", "width > 99")
    assert done.stderr == b"touchfs: none: has no rows, because there are no samples\n"


def test_segments_and_merged_ones_are_samples_of_their_own(text, shards, here):
    for select, name in (("segments", "clips"), ("merged/max=30", "joined")):
        paths = text("iterate", shards, "--select", select, "--take", "3").split()
        assert text("convert", shards, name, "--to", "tar", "--select", select, "--take", "3").endswith("3 samples")
        members = tar_of(here / name / "000000.tar")
        below = [path.removeprefix(f"{select}/").partition("/")[2] for path in paths]
        assert [member for member in members if member.endswith(".wav")] == below
        for path, member in zip(paths, below, strict=True):
            assert members[member] == touchfs_bytes(shards, path)


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_windows_of_tokens_keep_their_keys(text, here, kind):
    """Windows of two shards have the same numbers: their keys name the shard."""
    for name in "ab":
        write_prefix(here / "in" / name, INT32, [np.arange(5, dtype="<i4")] * 3)
    assert text("convert", "in", "out", "--to", kind, "--select", "tokens/4").endswith(
        "8 samples" if kind == "tar" else "8 rows"
    )
    expected, found = touchfs_library.open("in").tokens(4), touchfs_library.open("out")
    assert [sample.key for sample in found] == [window.key for window in expected]
    assert [sample.array().tolist() for sample in found] == [window.array().tolist() for window in expected]


def touchfs_bytes(dataset, path):
    return subprocess.run([TOUCHFS, "cat", f"{dataset}:{path}"], capture_output=True, check=True).stdout


def test_a_choice_cannot_change_when_a_conversion_goes_on(touchfs, here):
    members = {"0.json": b'{"width": 1}', "1.json": b'{"width": 2}', "2.json": b"[", "3.json": b"{}"}
    write_tar(here / "x.tar", members)
    settings = ["--to", "touchnet", "--datatypes", "metainfo", "--num-utt-per-shard", "1", "--jobs", "1"]
    begun = ["convert", "x.tar", "out", *settings, "--take", "3"]
    told = refused(touchfs, *begun)
    assert "sample 2" in told and (here / "out/000000001").is_dir()
    for changed, difference in (
        (["--take", "4"], "take 3, not 4"),
        (["--take", "3", "--where", "width < 10"], "where None, not width < 10"),
        (["--take", "3", "--select", "samples/x"], "select samples, not samples/x"),
        ([], "select samples, not None"),
    ):
        told = refused(touchfs, "convert", "x.tar", "out", *settings, *changed, status=2)
        assert f"was begun with {difference}: go on with that" in told
    assert refused(touchfs, *begun) != ""
    assert touchfs(*begun, "--skip-bad").stdout.decode().startswith("out: 2 shards, 2 samples, 1 skipped")


def test_where_no_choice_can_be_made(touchfs, widths):
    told = refused(touchfs, "convert", widths, "o", "--to", "tar", "--where", "nothing > 1", status=2)
    assert "no sample has the field nothing" in told
    told = refused(touchfs, "convert", widths, "o", "--to", "tar", "--select", "frames", status=2)
    assert "there is no 'frames' to select" in told


def test_a_segment_that_cannot_be_cut_is_skipped_alone(touchfs, text, here):
    """Of a recording that cannot be decoded no segment can be written; those of the others are."""
    cut = json.dumps({"segments": [{"start": 0, "end": 0.1}, {"start": 0.1, "end": 0.2}]}).encode()
    sound = io.BytesIO()
    soundfile.write(sound, np.zeros(8000), 8000, format="WAV")
    members = {"a.mp3": b"ID3\3\0\0\0\0\0\0", "a.json": cut, "b.wav": sound.getvalue(), "b.json": cut}
    write_tar(here / "x.tar", members)
    told = refused(touchfs, "convert", "x.tar", "out", "--to", "tar", "--select", "segments")
    assert "sample 0 ('a/0000')" in told and "--skip-bad" in told
    told = text("convert", "x.tar", "out", "--to", "tar", "--select", "segments", "--skip-bad")
    assert told.startswith("out: 1 shard, 2 samples, 2 skipped")
    assert [name for name in tar_of(here / "out/000000.tar") if name.endswith("wav")] == ["b/0000.wav", "b/0001.wav"]
