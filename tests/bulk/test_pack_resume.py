"""An interrupted pack goes on, and ends with the bytes of one that was not interrupted."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from make_data import audio_and_metainfo, tree, write_wav
from twice import Twice
from waiting import wait_until

from touchfs.bulk.pack.touchnet import PackReport, pack_touch
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, UsageError

PLAN = ".touchfs-pack.json"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Eight recordings, of which the sixth is missing."""
    for i in range(8):
        write_wav(tmp_path / f"{i}.wav", 100 * i)
    (tmp_path / "5.wav").rename(tmp_path / "away.wav")
    (tmp_path / "l.jsonl").write_text("".join(f'{{"wav": "{i}.wav"}}\n' for i in range(8)))
    return tmp_path / "l.jsonl"


def begin(data: Path) -> Path:
    """Two of four shards are there when it fails."""
    output = data.parent / "out"
    with pytest.raises(NotFoundError, match=r"line 6: .*5\.wav: no such file; fix it and pack again"):
        pack_touch(data, output, samples_per_shard=2)
    assert sorted(os.listdir(output)) == [PLAN, "000000000", "000000001"]
    return output


def test_mended_and_resumed(data: Path) -> None:
    output = begin(data)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in output.rglob("*.bin")}
    (data.parent / "away.wav").rename(data.parent / "5.wav")
    told: list[tuple[int, int]] = []
    report = pack_touch(data, output, samples_per_shard=2, progress=lambda lines, total: told.append((lines, total)))
    assert report == PackReport(4, 8, 0)
    assert told == [(lines, 8) for lines in range(4, 9)]
    assert tree(output) == audio_and_metainfo(data, str(output), 2, 16000)
    assert before == {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in before}
    with pytest.raises(UsageError, match="already holds '000000000'"):
        pack_touch(data, output, samples_per_shard=2)


def test_a_task_that_is_run_again_finds_its_shard(data: Path) -> None:
    (data.parent / "away.wav").rename(data.parent / "5.wav")
    output = data.parent / "out"
    with Twice(2) as executor:
        assert pack_touch(data, output, samples_per_shard=2, executor=executor) == PackReport(4, 8, 0)
    assert tree(output) == audio_and_metainfo(data, str(output), 2, 16000)


def test_resumed_with_skip_bad(data: Path) -> None:
    output = begin(data)
    assert pack_touch(data, output, samples_per_shard=2, skip_bad=True) == PackReport(4, 7, 1)
    made = tree(output)
    told = json.loads(made.pop("skipped.jsonl"))
    assert (told["line"], told["text"]) == (6, '{"wav": "5.wav"}')
    data.write_text(data.read_text().replace('{"wav": "5.wav"}', ""))
    assert made == audio_and_metainfo(data, str(output), 2, 16000)


def test_what_was_skipped_is_not_forgotten(data: Path) -> None:
    """Killed after a shard with a bad line: the list of all is made at the end."""
    output = data.parent / "out"
    (data.parent / "7.wav").rename(data.parent / "later.wav")
    (data.parent / "7.wav").mkdir()
    pack_touch(data, output, samples_per_shard=2, skip_bad=True)
    whole = tree(output)
    assert len(whole["skipped.jsonl"].splitlines()) == 2
    # As it was between the third and the fourth shard.
    with pytest.raises(NotFoundError):
        pack_touch(data, data.parent / "plan/../out2", samples_per_shard=2)
    plan = json.loads((data.parent / "out2" / PLAN).read_text()) | {"output": str(output)}
    (output / PLAN).write_text(json.dumps(plan))
    first, _ = whole["skipped.jsonl"].splitlines(keepends=True)
    (output / ".touchfs-pack-000000002.jsonl").write_bytes(first)
    for name in ("data.list", "skipped.jsonl", "000000003/audio.bin"):
        (output / name).unlink()
    (output / "000000003").rename(output / ".touchfs-tmp-0123456789abcdef")
    with pytest.raises(UsageError, match="was begun with --skip-bad"):
        pack_touch(data, output, samples_per_shard=2)
    assert pack_touch(data, output, samples_per_shard=2, skip_bad=True) == PackReport(4, 6, 2)
    assert tree(output) == whole


def test_killed_when_only_the_plan_was_left(data: Path) -> None:
    output = begin(data)
    plan = (output / PLAN).read_bytes()
    pack_touch(data, output, samples_per_shard=2, skip_bad=True)
    whole = tree(output)
    (output / PLAN).write_bytes(plan)
    assert pack_touch(data, output, samples_per_shard=2, skip_bad=True) == PackReport(4, 7, 1)
    assert tree(output) == whole


@pytest.mark.parametrize("plan", [b"", b'{"touchfs pack to'])
def test_killed_while_the_plan_was_written(data: Path, plan: bytes) -> None:
    output = data.parent / "out"
    output.mkdir()
    (output / PLAN).write_bytes(plan)
    pack_touch(data, output, samples_per_shard=2, skip_bad=True)
    assert not (output / PLAN).exists()


def test_nothing_done_nothing_to_resume(data: Path) -> None:
    """A failure before the first shard leaves no plan, so the JSONL may be changed."""
    with pytest.raises(NotFoundError):
        pack_touch(data, data.parent / "out")
    assert tree(data.parent / "out") == {}
    data.write_text('{"wav": "7.wav"}\n')
    assert pack_touch(data, data.parent / "out", rate=16000).samples == 1


def test_other_arguments_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = begin(data)
    before = tree(output)
    remedy = "go on with that, or remove it and pack again"
    with pytest.raises(UsageError, match=f"was begun with num-utt-per-shard 2, not 3: {remedy}"):
        pack_touch(data, output, samples_per_shard=3)
    with pytest.raises(UsageError, match=f"was begun with audio-resample 16000, not 8000: {remedy}"):
        pack_touch(data, output, samples_per_shard=2, rate=8000)
    with pytest.raises(UsageError, match="was begun with resample-in s16, not float"):
        pack_touch(data, output, samples_per_shard=2, arithmetic="float")
    with pytest.raises(UsageError, match=r"was begun with datatypes audio\+metainfo, not audio:"):
        pack_touch(data, output, samples_per_shard=2, datatypes="audio")
    with pytest.raises(UsageError, match="was begun with output "):
        pack_touch(data, f"{output}/", samples_per_shard=2)
    other = data.parent / "other.jsonl"
    other.write_bytes(data.read_bytes())
    with pytest.raises(UsageError, match="was begun with jsonl "):
        pack_touch(other, output, samples_per_shard=2)
    with monkeypatch.context() as patch:
        patch.chdir(data.parent)
        with pytest.raises(UsageError, match="was begun with directory "):
            pack_touch(data, output, samples_per_shard=2)
    text = data.read_text()
    data.write_text(text.replace("7.wav", "6.wav"))
    with pytest.raises(ChangedError, match=r"l\.jsonl: has changed since .*out was begun: go on with what it was"):
        pack_touch(data, output, samples_per_shard=2)
    assert tree(output) == before
    # Only touched, or written again as it was, it is the same.
    data.write_text(text)
    (data.parent / "away.wav").rename(data.parent / "5.wav")
    pack_touch(data, output, samples_per_shard=2)
    assert tree(output) == audio_and_metainfo(data, str(output), 2, 16000)


def test_a_plan_of_another_version(data: Path) -> None:
    output = begin(data)
    (output / PLAN).write_text('{"touchfs pack touch": 2}')
    with pytest.raises(UsageError, match="another version of touchfs"):
        pack_touch(data, output, samples_per_shard=2)


@pytest.mark.parametrize("plant", ["symlink", "hardlink", "pipe", "directory"])
def test_a_plan_that_somebody_planted_is_refused(data: Path, plant: str) -> None:
    victim, output = data.parent / "victim", data.parent / "out"
    victim.write_bytes(b"precious")
    output.mkdir()
    if plant == "symlink":
        (output / PLAN).symlink_to(victim)
    elif plant == "hardlink":
        (output / PLAN).hardlink_to(victim)
    elif plant == "pipe":
        os.mkfifo(output / PLAN)
    else:
        (output / PLAN).mkdir()
    with pytest.raises(UsageError, match=r"is not a plan of `touchfs pack` but a link, or not a file: remove it"):
        pack_touch(data, output, samples_per_shard=2)
    assert victim.read_bytes() == b"precious"


def test_a_changed_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l.jsonl").write_text('{"text": "a"}\n{"text": 1}\n')
    made = {"version": "1.0", "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}}
    (tmp_path / "t.json").write_text(json.dumps(made))
    arguments = {"datatypes": "texttoken", "samples_per_shard": 1, "tokenizer": tmp_path / "t.json"}
    with pytest.raises(FormatError, match="line 2"):
        pack_touch(tmp_path / "l.jsonl", tmp_path / "out", **arguments)
    (tmp_path / "t.json").write_text(json.dumps(made | {"version": "1.0 "}))
    with pytest.raises(UsageError, match="was begun with tokenizer "):
        pack_touch(tmp_path / "l.jsonl", tmp_path / "out", **arguments)


def test_a_jsonl_that_changes_meanwhile(data: Path) -> None:
    (data.parent / "away.wav").rename(data.parent / "5.wav")

    def change(lines: int, total: int) -> None:
        data.write_text(data.read_text() + "\n")

    with pytest.raises(ChangedError, match=r"l\.jsonl: has changed while it was packed"):
        pack_touch(data, data.parent / "out", samples_per_shard=2, progress=change)
    assert not (data.parent / "out/data.list").exists()


@pytest.mark.usefixtures("impatient")
def test_only_one_at_a_time(data: Path) -> None:
    """A second run of the same is refused while the first is at work."""
    (data.parent / "away.wav").rename(data.parent / "5.wav")
    output = data.parent / "out"
    caught: list[UsageError] = []

    def again(lines: int, total: int) -> None:
        if not caught:
            with pytest.raises(UsageError, match="another `touchfs pack` is at work here") as error:
                pack_touch(data, output, samples_per_shard=2)
            caught.append(error.value)

    pack_touch(data, output, samples_per_shard=2, progress=again)
    assert caught
    assert tree(output) == audio_and_metainfo(data, str(output), 2, 16000)


def check_listed(output: Path) -> None:
    """What data.list lists is there."""
    try:
        listed = (output / "data.list").read_text()
    except FileNotFoundError:
        return
    for line in listed.splitlines():
        assert (output.parent / line.split()[0] / "metainfo.idx").exists()


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.variant)])
def test_killed_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    monkeypatch.chdir(tmp_path)
    lines = []
    for i in range(60):
        soundfile.write(tmp_path / f"{i}.flac", np.random.default_rng(i).normal(0, 0.1, 20_000), 44100)
        lines.append(json.dumps({"wav": f"{tmp_path}/{i if i % 10 else 'none'}.flac", "key": i}) + "\n")
    data = tmp_path / "l.jsonl"
    data.write_text("".join(lines))

    def start(output: str) -> subprocess.Popen[bytes]:
        arguments = [
            "pack",
            "touchnet",
            "l.jsonl",
            output,
            "--num-utt-per-shard",
            "2",
            "--skip-bad",
            "--num-workers",
            "2",
        ]
        program = "import sys; from touchfs.cli.main import main; sys.exit(main())"
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stdout=subprocess.PIPE)

    assert pack_touch("l.jsonl", "whole", samples_per_shard=2, skip_bad=True) == PackReport(30, 54, 6)
    whole = tree(tmp_path / "whole")
    whole["data.list"] = whole["data.list"].replace(b"whole", b"out")
    output = tmp_path / "out"
    random_ = random.Random(3)
    runs, partial = 0, 0
    while runs < kills or not partial:  # one that is killed too late has packed all
        runs += 1
        if (output / "data.list").exists() and not (output / PLAN).exists():
            assert tree(output) == whole
            output.rename(tmp_path / f"done-{random_.random()}")  # and begin anew
        # Some shards later, and a moment.
        wanted = len(list(output.glob("0*"))) + random_.randrange(12)
        process = start("out")

        def is_time() -> bool:
            check_listed(output)
            return len(list(output.glob("0*"))) >= wanted or process.poll() is not None  # noqa: B023

        wait_until(is_time)
        time.sleep(random_.uniform(0, 0.03))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        check_listed(output)
        # Whatever is there by its name is whole.
        left = {name: data for name, data in tree(output).items() if not name.startswith(".touchfs")}
        assert left == {name: whole[name] for name in left}
        partial += 0 < len(left) < len(whole)
    if (output / PLAN).exists() or not (output / "data.list").exists():
        process = start("out")
        assert process.communicate()[0] == b"out: 30 shards, 54 samples, 6 lines skipped: see out/skipped.jsonl\n"
        assert process.returncode == 0
    assert tree(output) == whole


def test_a_worker_outlives_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the parent is killed: the next run waits for the workers to notice, and then goes on."""
    for i in range(6):
        write_wav(tmp_path / f"{i}.wav", 800_000 + i, rate=44100)
    data = tmp_path / "l.jsonl"
    data.write_text("".join(f'{{"wav": "{i}.wav"}}\n' for i in range(6)))
    program = "import sys; from touchfs.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "pack", "touchnet", "l.jsonl", "out", "--num-utt-per-shard", "1"]
    while not (tmp_path / "out").exists() or (tmp_path / "out/data.list").exists():  # it was killed too late
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        process = subprocess.Popen([*command, "--num-workers", "2"], cwd=tmp_path)
        wait_until(lambda: list((tmp_path / "out").glob(".touchfs-tmp-*")) or process.poll() is not None)  # noqa: B023
        process.kill()
        process.wait()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("touchfs.bulk.locks._PATIENCE_SECONDS", 60.0)  # a busy machine lets them notice later
    assert pack_touch("l.jsonl", "out", samples_per_shard=1) == PackReport(6, 6, 0)
    pack_touch("l.jsonl", "once", samples_per_shard=1)
    once = tree(tmp_path / "once")
    once["data.list"] = once["data.list"].replace(b"once", b"out")
    assert tree(tmp_path / "out") == once
