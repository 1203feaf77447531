"""`touchfs iterate`: what it writes, and that what it is told to go on from is exact."""

import io
import json
import os
import random
import subprocess
import tarfile
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from command import TOUCHFS
from megatron import INT32, tokens, write_prefix
from range_server import SlowReplies, range_server
from tars import write_tar

import touchfs as touchfs_library


def lines(text, *arguments, **options):
    return text("iterate", *arguments, **options).splitlines()


def test_paths_are_those_of_the_tree(shards, text):
    paths = lines(text, shards)
    assert len(set(paths)) == len(paths) == 10
    assert paths[0].startswith("shards/000000000/") and paths[0].endswith(".wav")
    assert text("stat", f"{shards}:{paths[1]}")


def test_the_file_of_a_path_is_chosen_by_its_extension(shards, text):
    paths = [path.replace(".wav", ".json") for path in lines(text, shards, "--shuffle", "3")]
    assert lines(text, shards, "--shuffle", "3", "--extension", "json") == paths


@pytest.mark.parametrize(
    ("view", "ending", "magic"),
    [
        ("segments", ".wav", b"RIFF"),
        ("merged/max=30", ".wav", b"RIFF"),
        ("merged/max=30,seed=3", ".wav", b"RIFF"),
        ("merged/max=0,rate=4000,format=flac", ".flac", b"fLaC"),
    ],
)
def test_segments_and_merged_ones(shards, text, touchfs, view, ending, magic):
    paths = lines(text, shards, "--select", view)
    assert all(path.startswith(f"{view}/000") and path.endswith(ending) for path in paths)
    assert touchfs("cat", f"{shards}:{paths[-1]}").stdout.startswith(magic)


def test_only_what_is_asked_for(here, shards, text, touchfs):
    paths = lines(text, shards)
    first = [path for path in paths if path.startswith("shards/000000000/")]
    assert 2 < len(first) < len(paths)
    assert lines(text, shards, "--select", "samples/000000000") == first
    chosen = ("--where", "shard == '000000000' and ordinal < 2")
    assert lines(text, shards, *chosen) == first[:2]
    assert lines(text, shards, "--select", "segments/000000000", "--where", "segment == 0")
    done = touchfs("iterate", shards, *chosen, "--shuffle", "7", "--repeat", "2", "--format", "tar")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        members = [name for name in tar.getnames() if name.endswith(".wav")]
    assert len(members) == 4 and {f"shards/000000000/{name}" for name in members} == set(first[:2])
    assert len(lines(text, shards, *chosen, "--take", "1", "--save-state", "state")) == 1
    assert lines(text, shards, *chosen, "--resume", "state") == first[1:2]


def test_windows_of_tokens_are_selected_by_their_length(here, text, touchfs):
    for name in "ab":
        write_prefix(here / "data" / name, INT32, [tokens(*range(5)), tokens(*range(5, 9))])
    paths = [f"tokens/4/{shard}/{window:06d}.npy" for shard in "ab" for window in range(3)]
    assert lines(text, "data", "--select", "tokens/4") == paths
    assert lines(text, "data", "--select", "tokens/4,drop_last/b") == [
        f"tokens/4,drop_last/b/00000{window}.npy" for window in range(2)
    ]
    assert sorted(lines(text, "data", "--select", "tokens/4", "--shuffle", "7")) == paths
    assert np.load(io.BytesIO(touchfs("cat", f"data:{paths[1]}").stdout)).tolist() == [4, 5, 6, 7]
    done = touchfs("iterate", "data", "--select", "tokens/4,overlap=4")
    assert done.returncode == 2
    assert done.stderr == b"touchfs: an overlap of 4 tokens in windows of 4: it is from 0 to 3\n"


def test_going_on_is_exact(here, shards, text):
    arguments = [shards, "--shuffle", "7", "--rank", "1", "--world-size", "2"]
    whole = lines(text, *arguments, "--repeat", "3")
    assert len(whole) == 15
    whole = [whole[:5], whole[5:10], whole[10:]]
    assert whole[0] != whole[1] != whole[2]
    assert lines(text, *arguments, "--epoch", "2") == whole[2]
    steps = [lines(text, *arguments, "--take", "3", "--save-state", "state")]
    for _ in range(5):
        steps.append(lines(text, *arguments, "--take", "3", "--resume", "state", "--save-state", "state"))
    assert steps == [step for epoch in whole for step in (epoch[:3], epoch[3:])]
    # Not told where to write it, it does not.
    before = (here / "state").read_bytes()
    assert lines(text, *arguments, "--take", "3", "--resume", "state") != []
    assert (here / "state").read_bytes() == before


def test_repeated_epochs_are_one(here, shards, text):
    arguments = [shards, "--shuffle", "7", "--repeat", "2"]
    whole = lines(text, *arguments)
    first = lines(text, *arguments, "--take", "13", "--save-state", "state")
    assert first + lines(text, *arguments, "--resume", "state") == whole


def test_ranks_share_the_samples(shards, text):
    parts = [lines(text, shards, "--shuffle", "7", "--rank", str(rank), "--world-size", "3") for rank in range(3)]
    assert sorted(chain(*parts)) == sorted(lines(text, shards))


def test_ranks_have_equally_many_if_told_so(shards, text):
    def parts(tail):
        ranks = ("--world-size", "4", "--tail", tail, "--shuffle", "7")
        return [lines(text, shards, *ranks, "--rank", str(rank)) for rank in range(4)]

    whole = lines(text, shards, "--shuffle", "7")
    assert [len(part) for part in parts("keep")] == [3, 3, 2, 2]
    dropped, padded = parts("drop"), parts("pad")
    assert [len(part) for part in dropped] == [2] * 4 and sorted(chain(*dropped)) == sorted(whole[:8])
    assert [len(part) for part in padded] == [3] * 4 and sorted(chain(*padded)) == sorted(whole + whole[:2])


def test_json(shards, text):
    told = [json.loads(line) for line in lines(text, shards, "--format", "json", "--take", "5")]
    assert [each["token"] for each in told] == [0, 1, 2, 3, 4]
    assert [(each["shard"], each["ordinal"]) for each in told[3:]] == [("000000000", 3), ("000000001", 0)]
    assert set(told[0]) == {"token", "key", "shard", "ordinal", "files"}
    assert [each["files"]["wav"] for each in told][1] == f"shards/000000000/{told[1]['key']}.wav"


@pytest.mark.parametrize("view", ["samples", "segments"])
def test_a_tar_has_the_files(shards, touchfs, view):
    done = touchfs("iterate", shards, "--select", view, "--take", "4", "--format", "tar")
    assert (done.returncode, done.stderr) == (0, b"")
    below = "segments" if view == "segments" else "shards"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        members = [(member.name, tar.extractfile(member).read()) for member in tar]
    assert len({name.rpartition("/")[0] + name.rpartition("/")[2].partition(".")[0] for name, _ in members}) == 4
    for name, data in members[1:2]:
        assert touchfs("cat", f"{shards}:{below}/000000000/{name}").stdout == data


def test_files_of_a_row_are_one_sample_of_a_tar(here, touchfs):
    """Also if its key has a dot. Readers take a name up to the first dot of its last part."""
    columns = {"id": ["a", "d/b.c"], "sound": [b"RIFF1", b"RIFF2"], "text": [b"one", b"two"]}
    with pa.ipc.new_file("rows.arrow", pa.table(columns).schema) as writer:
        writer.write_table(pa.table(columns))
    done = touchfs("iterate", "rows.arrow", "--format", "tar")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        names = tar.getnames()
    assert names == [f"{key}.{file}" for key in ("a", "d/b%2Ec") for file in ("sound.bin", "text.bin", "row.json")]


def test_the_state_of_other_data_or_order_is_refused(here, shards, touchfs, text):
    text("iterate", shards, "--shuffle", "7", "--take", "1", "--save-state", "state")
    for others in (
        ["--shuffle", "8"],
        ["--shuffle", "7", "--select", "segments"],
        ["--shuffle", "7", "--repeat", "2"],
        ["--shuffle", "7", "--tail", "drop"],
        ["--shuffle", "7", "--where", "ordinal < 9"],
    ):
        done = touchfs("iterate", shards, *others, "--resume", "state", "--save-state", "state")
        assert done.returncode == 2 and done.stdout == b"", done
        assert done.stderr.startswith(b"touchfs: state: ") and done.stderr.count(b"\n") == 1
    rank = touchfs("iterate", shards, "--shuffle", "7", "--world-size", "2", "--resume", "state")
    assert rank.returncode == 2 and b"merge_states" in rank.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--resume", "none"], "none: no such file"),
        (["--resume", "damaged"], "damaged: not JSON: "),
        (["--resume", "damaged", "--epoch", "1"], "leave out --epoch"),
        (["--select", "windows"], "there is no 'windows' to select: choose samples, segments, interleaved"),
        (["--select", "samples/none"], "there is no shard 'none'"),
        (["--where", "durations > 1"], "durations"),
        (["--where", "duration >"], "where, column 11: expected a number"),
        (["--select", "merged/max=no"], "max is 'no'"),
        (["--rank", "2", "--world-size", "2"], "there is no rank 2 of 2"),
        (
            ["--extension", "png"],
            "no file .png: there are .wav, .json, .txt; where size.png exists leaves such samples out",
        ),
        (["--extension", "wav", "--format", "tar"], "--extension chooses a path, and --format tar writes none: leave"),
        (["--tail", "cut"], "'cut' is not one of 'keep', 'drop', 'pad'"),
    ],
)
def test_errors_are_a_line(here, shards, touchfs, arguments, told):
    (here / "damaged").write_text("{")
    done = touchfs("iterate", shards, *arguments)
    assert done.returncode in (1, 2) and done.stdout == b""
    assert told in done.stderr.decode() and done.stderr.count(b"\n") == 1


def test_no_state_is_written_of_what_nobody_has_read(here, shards, text):
    text("iterate", shards, "--take", "1", "--save-state", "state")
    before = (here / "state").read_bytes()
    reader, writer = os.pipe()
    os.close(reader)
    command = [TOUCHFS, "iterate", shards, "--resume", "state", "--save-state", "state"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
    assert (here / "state").read_bytes() == before


def test_errors_of_shards_are_a_line_on_stderr(here, touchfs):
    (here / "cut").mkdir()
    for name, size in ("a", 10240), ("b", 1024):
        with tarfile.open(here / f"cut/{name}.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("x.txt"))
            tar.addfile(tarfile.TarInfo("y.txt"))
        os.truncate(here / f"cut/{name}.tar", size)
    done = touchfs("iterate", "cut")
    assert len(done.stdout.splitlines()) == 4
    assert done.stderr.decode().count("\n") == 1
    assert "cut: 1 of 2 shards with errors, 4 samples served: see `touchfs info " in done.stderr.decode()
    done = touchfs("iterate", "--strict", "cut")
    assert (done.returncode, done.stdout) == (1, b"") and "shard b: the archive has no end mark" in done.stderr.decode()


def test_a_tar_of_samples_of_another_store_waits_for_many_of_them_at_once(text, touchfs, tmp_path, monkeypatch):
    monkeypatch.setenv("TOUCHFS_SCRATCH_DIR", str(tmp_path / "scratch"))
    files = {f"s{number:02}.bin": random.Random(number).randbytes(1 << 20) for number in range(24)}
    with range_server() as server:
        url = server.put("/one.tar", write_tar(tmp_path / "one.tar", files).read_bytes())
        assert len(lines(text, url)) == len(files)
        server.fault = slow = SlowReplies()
        made = touchfs("iterate", url, "--shuffle", "7", "--format", "tar", "--requests", "8").stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        assert {member.name: tar.extractfile(member).read() for member in tar} == files
    assert 4 <= slow.most <= 8


def test_global_batches_go_on_with_other_ranks(shards, here, text, touchfs):
    """The state keeps the size of the batches, and its order is that of one process."""
    order = ("--shuffle", "7", "--window", "4")
    whole = lines(text, shards, *order)
    assert sorted(whole) == sorted(lines(text, shards)) and whole != lines(text, shards, "--shuffle", "7")
    assert (
        lines(text, shards, *order, "--global-batch", "4", "--take", "4", "--save-state", here / "state") == whole[:4]
    )
    parts = [
        lines(text, shards, *order, "--resume", here / "state", "--rank", str(rank), "--world-size", "2")
        for rank in range(2)
    ]
    assert parts == [whole[4:6] + whole[8:9], whole[6:8] + whole[9:]]
    done = touchfs("iterate", shards, *order, "--resume", here / "state", "--global-batch", "3")
    assert done.stdout.decode().splitlines() == whole[4:]
    assert done.stderr == b"touchfs: the state is of global batches of 4, which go on in 3\n"
    done = touchfs("iterate", shards, *order, "--global-batch", "3", "--world-size", "2")
    assert (done.returncode, b"2 ranks cannot share global batches of 3 samples: take 2 or 4" in done.stderr) == (
        2,
        True,
    )
    done = touchfs("iterate", shards, "--window", "4")
    assert (done.returncode, b"a window is of a shuffle: shuffle, too" in done.stderr) == (2, True)


@pytest.mark.parametrize("order", [(), ("--shuffle", "7"), ("--shuffle", "7", "--global-batch", "2")])
def test_what_a_state_has_seen_and_what_is_left_are_all(shards, here, text, touchfs, order):
    whole = lines(text, shards, *order)
    for taken in (3, 10):
        seen = lines(text, shards, *order, "--take", str(taken), "--save-state", here / "state")
        assert lines(text, shards, *order, "--until", here / "state") == seen == whole[:taken]
        assert lines(text, shards, *order, "--resume", here / "state") == whole[taken:]
    ended = lines(text, shards, *order, "--save-state", here / "state")
    assert lines(text, shards, *order, "--until", here / "state") == ended == whole
    done = touchfs("iterate", shards, "--until", here / "state", "--epoch", "1")
    assert (done.returncode, b"leave out --resume" in done.stderr) == (2, True)


def test_what_two_states_differ_in(shards, here, text, touchfs):
    for name, seed, taken in (("one", 7, 3), ("two", 7, 5), ("three", 8, 3)):
        order = ("--shuffle", str(seed), "--take", str(taken))
        text("iterate", shards, *order, "--save-state", here / name)
    assert touchfs("iterator", "diff", here / "one", here / "one").stdout == b""
    done = touchfs("iterator", "diff", here / "one", here / "two")
    assert (done.returncode, done.stdout) == (0, b"field\tfirst\tsecond\nstate.position\t3\t5\n")
    done = touchfs("iterator", "diff", "--json", here / "one", here / "three")
    assert json.loads(done.stdout) == [{"field": "state.config.seed", "first": 7, "second": 8}]
    (here / "none").write_text("{")
    done = touchfs("iterator", "diff", here / "one", here / "none")
    assert done.returncode == 2 and b"none: not JSON" in done.stderr


def test_a_state_goes_on_over_a_dataset_that_has_grown(here, touchfs, text):
    for shard in ("a", "b"):
        write_tar(here / "d" / f"{shard}.tar", {f"{shard}{number}.txt": b"x" for number in range(5)})
    order = ("d", "--shuffle", "7")
    first = lines(text, *order, "--take", "4", "--save-state", "one")
    whole = lines(text, *order)
    (here / "d" / "a.tar").unlink()
    write_tar(here / "d" / "c.tar", {f"c{number}.txt": b"x" for number in range(3)})
    done = touchfs("iterate", *order, "--resume", "one")
    assert done.returncode == 2 and done.stderr.startswith(
        b"touchfs: one: state was saved with length = 10, here it is 8"
    )
    assert b"--extend" in done.stderr
    left = [path for path in whole[4:] if "/b/" in path]
    done = touchfs("iterate", *order, "--resume", "one", "--extend", "--take", "3", "--save-state", "two")
    assert done.stderr.decode() == (
        f"touchfs: {len(left)} samples of the old order left, then 3 new samples; {6 - len(left)} samples lost with "
        "their shards before they came\n"
    )
    rest = done.stdout.decode().splitlines() + lines(text, *order, "--resume", "two")
    assert rest[: len(left)] == left and sorted(rest[len(left) :]) == [f"shards/c/c{number}.txt" for number in range(3)]
    seen = [path for path in first if "/b/" in path] + rest[:3]
    assert sorted(lines(text, *order, "--until", "two")) == sorted(seen)
    done = touchfs("iterate", *order, "--extend")
    assert (done.returncode, done.stderr) == (2, b"touchfs: --extend is for a state: give --resume, too\n")


def test_batches_by_length(shards, here, text, touchfs):
    """An empty line ends each, and what is counted are batches."""
    seconds = {sample.first_path().decode(): sample.duration for sample in touchfs_library.open(shards)}
    limit = 2.5 * max(seconds.values())
    order = ("--shuffle", "7", "--max-duration", f"{limit}", "--tail", "drop")
    batches = [batch.split("\n") for batch in text("iterate", shards, *order).removesuffix("\n").split("\n\n")]
    assert sorted(chain.from_iterable(batches)) == sorted(seconds) and 3 < len(batches) < 8
    assert all(len(batch) * max(map(seconds.__getitem__, batch)) <= limit for batch in batches)
    first = lines(text, shards, *order, "--global-batch", "2", "--take", "2", "--save-state", here / "state")
    assert first == [*batches[0], "", *batches[1]]
    assert lines(text, shards, *order, "--until", here / "state") == first
    ranks = [
        lines(text, shards, *order, "--resume", here / "state", "--rank", rank, "--world-size", "2") for rank in "01"
    ]
    assert ranks[0][: len(batches[2])] == batches[2] and ranks[1][: len(batches[3])] == batches[3]
    packed = [json.loads(line) for line in lines(text, shards, *order, "--pack", "--format", "json")]
    assert len(packed) == len(seconds)
    of_each = {number: [line["token"] for line in packed if line["batch"] == number] for number in range(99)}
    assert [token for tokens in of_each.values() for token in tokens] == [line["token"] for line in packed]
    whole = [sample.duration for sample in touchfs_library.open(shards)]
    assert all(sum(whole[token] for token in tokens) <= limit for tokens in of_each.values())
    made = touchfs("iterate", shards, *order, "--repeat", "2", "--format", "tar").stdout
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        assert sum(name.endswith(".wav") for name in tar.getnames()) == 2 * len(seconds)
    done = touchfs("iterate", shards, "--max-duration", "0.1", "--progress", "plain")
    assert done.returncode == 2 and b"leave such samples out with where duration <= 0.1\n" in done.stderr
    done = touchfs("iterate", shards, *order, "--progress", "plain")
    assert b"forming batches: 10 of 10 samples" in done.stderr
    done = touchfs("iterate", shards, "--pack")
    assert (done.returncode, b"give max_duration or max_tokens" in done.stderr) == (2, True)


def test_ids_are_those_of_a_file(here, shards, text, touchfs):
    keys = lines(text, shards, "--format", "json", "--where", "ordinal < 3")
    chosen = sorted(json.loads(line)["key"] for line in keys)
    (here / "some ids.txt").write_text("\n".join([*chosen, "nobody"]))
    found = lines(text, shards, "--format", "json", "--where", 'key in @"some ids.txt"')
    assert sorted(json.loads(line)["key"] for line in found) == chosen
    failed = touchfs("iterate", shards, "--where", "key in @none.txt")
    assert failed.returncode and b"none.txt: no such file" in failed.stderr and failed.stderr.count(b"\n") == 1
