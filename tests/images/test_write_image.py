"""Images as they are written from catalogs, read by the second reader. The kernel's view is in tests/mount."""

import io
import json
import os
import random
import stat
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import TOUCHFS
from erofs_reader import Image
from image_trees import random_tar, tree_of, walk
from killed import kill_before, operations
from tars import write_tar
from variants import with_variants

import touchfs
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, UsageError
from touchfs.images.check import check_image
from touchfs.images.image import write_image
from touchfs.images.kept import find_or_make
from touchfs.images.owners import ImageOwners, Permissions
from touchfs.images.plan import plan_image
from touchfs.indexing import open_dataset
from touchfs.limits import LIMITS
from touchfs.shard.options import Options

SPEECH = Path(__file__).parent.parent / "data" / "speech"
US = Permissions(1234, 4321)


def owners(dataset, shard=US):
    return ImageOwners(Permissions(1, 2, directories=0o700), US, US, [shard] * len(dataset.shards))


def image_of(source, *, by_key=False, shard=US, **how):
    dataset = open_dataset(str(source), **how)
    plan, file = plan_image(dataset), io.BytesIO()
    write_image(plan, owners(dataset, shard), file, by_key=by_key)
    return dataset, plan, file.getvalue()


def devices_of(plan, data):
    """What the kernel gets for devices, by number: last the image itself."""
    files = [Path(each.full_path).read_bytes() for each in plan.devices]
    return dict(enumerate([*files, data], 1))


def assert_shows(dataset, plan, data, views=("shards",)):
    """The image has every entry of these views, with its type, size, time, owner and bytes."""
    image, tree = Image(data), tree_of(dataset)
    found = image.tree()
    files = devices_of(plan, data)
    expected = {path: entry for view in views for path, entry in walk(tree, view)}
    assert found.keys() == {b"", *expected}
    for path, entry in expected.items():
        inode = found[path]
        assert (stat.S_IFMT(inode.mode), inode.mtime) == (entry.kind, entry.mtime_ns // 10**9), path
        assert (inode.user, inode.group) == (1234, 4321)
        if entry.is_link:
            assert (image.bytes_of(inode), stat.S_IMODE(inode.mode)) == (tree.link(entry.inode), 0o777)
        elif not entry.is_directory:
            content = tree.content(entry.inode)
            assert image.bytes_of(inode, files) == bytes(content.read(0, content.size)), path
            assert stat.S_IMODE(inode.mode) == 0o444


def heard_below(audio):
    return Options(limits=LIMITS.with_audio(str(audio), ""))


def recordings(place):
    """A data directory of Kaldi's, and that of its recordings, which are of many sizes."""
    audio, directory, dice = place / "audio" / "deep", place / "kaldi", random.Random(3)
    audio.mkdir(parents=True)
    directory.mkdir()
    for size in (0, 1, 511, 512, 513, 1024, 4095, 4096, 4097, 20_000, 65_536, 200_001):
        (audio / f"{size}.mp3").write_bytes(dice.randbytes(size))
    lines = [f"{path.stem} {path}\n" for path in sorted(audio.iterdir())]
    (directory / "wav.scp").write_text("".join(lines))
    return directory, audio


@pytest.mark.parametrize("seed", with_variants(range(4), lambda seed: seed < 2))
def test_members_of_tars(tmp_path, seed):
    for number in range(3):
        random_tar(tmp_path / f"{number}.tar", 10 * seed + number)
        os.utime(tmp_path / f"{number}.tar", (0, 10**9 + 10**6 * number + 0.75))
    dataset, plan, data = image_of(tmp_path, by_key=True)
    assert_shows(dataset, plan, data, ("shards", "by-key"))
    assert not str(plan.left_out)
    assert stat.S_IMODE(Image(data).inode(Image(data).root).mode) == 0o700
    assert image_of(tmp_path, by_key=True)[2] == data, "the same data make the same image"


def test_splits(tmp_path):
    for split in ("train", "test"):
        write_tar(tmp_path / split / "a.tar", {"a.txt": b"a" * 700, "b.txt": split.encode()})
    assert_shows(*image_of(tmp_path))


def test_files_of_overlays(tmp_path):
    """Those that somebody names, and those beside tars, also of several blocks."""
    write_tar(tmp_path / "data/test/b.tar", {"0.txt": b"a" * 700, "deep/1.txt": b"b"})
    table = {"key": ["0", "deep/1"], "caption": ["", "c" * 70_000], "score": [None, 0.5]}
    pq.write_table(pa.table(table), tmp_path / "data/test/b.parquet")
    (tmp_path / "data/train").mkdir()
    random_tar(tmp_path / "data/train/a.tar", 3)
    samples = [each.key for each in touchfs.open(str(tmp_path / "data/train"))]
    rows = [{"key": key, "text": key * i} for i, key in enumerate(dict.fromkeys(samples))]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = Options(overlays=(str(tmp_path / "o.jsonl"),))
    dataset, plan, data = image_of(tmp_path / "data", by_key=True, options=options)
    assert_shows(dataset, plan, data, ("shards", "by-key"))
    assert not str(plan.left_out)
    found = Image(data).tree()
    assert {b"/shards/test/b/deep/1.caption.txt", b"/shards/test/b/0.overlay.json"} <= found.keys()
    assert sum(path.endswith(b".o.overlay.json") for path in found) > len(rows)


def test_a_damaged_file_of_an_overlay_is_refused(tmp_path, monkeypatch):
    """Catalogs have a checksum, but whoever is trusted may write another one."""
    write_tar(tmp_path / "a.tar", {"a.txt": b"a"})
    (tmp_path / "o.jsonl").write_text('{"key": "a", "n": 1}\n')
    dataset = open_dataset(str(tmp_path / "a.tar"), options=Options(overlays=(str(tmp_path / "o.jsonl"),)))
    catalog = dataset.catalog(0)
    monkeypatch.setattr(type(dataset), "catalog", lambda self, position: catalog)
    column = catalog.tables["shards"]._inline
    for value in (-7, 10**9):
        catalog.tables["shards"]._inline = replace(column, offsets=np.where(column.offsets, value, 0))
        with pytest.raises(FormatError, match=r"a\.tar"):
            write_image(plan_image(dataset), owners(dataset), io.BytesIO(), by_key=False)


def test_a_tar_without_samples_is_an_empty_directory(tmp_path):
    write_tar(tmp_path / "a.tar", {"a.txt": b"a"})
    with tarfile.open(tmp_path / "b.tar", "w"):
        pass
    assert_shows(*image_of(tmp_path))


def test_fields_of_a_shar_that_are_tars(tmp_path):
    options = ("--num-utt-per-shard", "6", "--jobs", "1")
    run = [TOUCHFS, "pack", "shar", SPEECH / "speech.jsonl", tmp_path / "shar", *options]
    subprocess.run(run, check=True, capture_output=True)
    dataset, plan, data = image_of(tmp_path / "shar")
    assert {Path(device.path).suffix for device in plan.devices} == {".tar"}
    assert len(plan.devices) == len(dataset.shards) == 2
    found, tree = Image(data).tree(), tree_of(dataset)
    shown = {path: entry for path, entry in walk(tree, "shards") if path in found}
    assert shown.keys() == found.keys() - {b""}
    recordings = {path for path in shown if path.endswith((b".wav", b".flac"))}
    assert len(recordings) == 10, "all recordings"
    left_out = sum(entry.kind == stat.S_IFREG for path, entry in walk(tree, "shards") if path not in found)
    assert sum(plan.left_out.files.values()) == left_out > 0


def test_recordings_that_a_kaldi_directory_names(tmp_path):
    directory, audio = recordings(tmp_path)
    dataset, plan, data = image_of(directory, by_key=True, options=heard_below(audio))
    assert_shows(dataset, plan, data, ("shards", "by-key"))
    assert len(plan.devices) == len(os.listdir(audio))
    assert not str(plan.left_out)
    assert len(data) < 40_000, "of 300,000 bytes of recordings"
    assert image_of(directory, by_key=True, options=heard_below(audio))[2] == data


def test_recordings_that_lines_name(tmp_path):
    _, audio = recordings(tmp_path)
    names = [*sorted(os.listdir(audio)), "4097.mp3", "gone.mp3"]
    lists = [{"audio_filepath": name, "duration": 1, "text": "x"} for name in names]
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / "lists" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "lists" / name).write_text("".join(json.dumps(line) + "\n" for line in lists))
    write_tar(tmp_path / "lists" / "c.tar", {"a.txt": b"a" * 600})
    dataset, plan, data = image_of(tmp_path / "lists", options=heard_below(audio))
    assert len(plan.devices) == len(os.listdir(audio)) + 1, "each file is a device once"
    image, tree = Image(data), tree_of(dataset)
    found = image.tree()
    files = devices_of(plan, data)
    shown = {path: entry for path, entry in walk(tree, "shards") if path.endswith((b".mp3", b".txt"))}
    assert shown.keys() == {path for path, inode in found.items() if stat.S_ISREG(inode.mode)}
    for path, entry in shown.items():
        content = tree.content(entry.inode)
        assert image.bytes_of(found[path], files) == bytes(content.read(0, content.size)), path
    assert len(shown) == 2 * (len(names) - 1) + 1 + 2, "the recordings of both lists, a text, and two ERROR.txt"
    assert plan.left_out.files["of damaged lines"] == 2


def test_a_recording_that_changed(tmp_path):
    directory, audio = recordings(tmp_path)
    changed = audio / "4097.mp3"
    image_of(directory, options=heard_below(audio))
    changed.write_bytes(b"c" * 5000)
    with pytest.raises(
        ChangedError, match=r"4097\.mp3: has changed since it was indexed: index the list again with --force"
    ):
        image_of(directory, options=heard_below(audio))
    dataset, plan, data = image_of(directory, options=heard_below(audio), force=True)
    assert_shows(dataset, plan, data)
    changed.unlink()
    with pytest.raises(NotFoundError, match=r"4097\.mp3"):
        image_of(directory, options=heard_below(audio))


def test_a_planted_name_of_a_recording_opens_nothing_outside(tmp_path):
    """Catalogs have a checksum, but whoever is trusted may write another one."""
    directory, audio = recordings(tmp_path)
    (tmp_path / "5.mp3").write_bytes(bytes(5))
    dataset = open_dataset(str(directory), options=heard_below(audio))
    plan = plan_image(dataset)
    outside = replace(plan, devices=tuple(replace(each, path="../5.mp3") for each in plan.devices))
    with pytest.raises(SourceError, match="leads out of"):
        write_image(outside, owners(dataset), io.BytesIO(), by_key=False)


def test_large_members_and_owners(tmp_path):
    path = tmp_path / "large.tar"
    size = 5 << 30
    with open(path, "wb") as file:
        for name, length in (("a.bin", size), ("b.txt", 3)):
            member = tarfile.TarInfo(name)
            member.size = length
            file.write(member.tobuf())
            file.seek(-(-length // 512) * 512, os.SEEK_CUR)
        file.write(bytes(1024))
    _, _, data = image_of(tmp_path, shard=Permissions(10**6, 10**6 + 1, 0o400, 0o500))
    found = Image(data).tree()
    assert found[b"/shards/large/a.bin"].extent == (1, 512, size)
    assert found[b"/shards/large/b.txt"].extent == (1, size + 1024, 3)
    assert {inode.user for path, inode in found.items() if path.startswith(b"/shards/large")} == {10**6}


def test_what_is_left_out_is_counted_by_kind(tmp_path):
    write_tar(tmp_path / "a.tar", {"a.txt": b"a"})
    write_tar(tmp_path / "b.tar.gz", {"c.txt": b"a", "d.txt": b"d"})
    (tmp_path / "c.jsonl").write_text('{"id": "x"}\n')
    holes = tmp_path / "holes.bin"
    with open(holes, "wb") as file:
        file.truncate(1 << 20)
        file.write(b"x")
    subprocess.run(["tar", "-S", "-C", tmp_path, "-cf", tmp_path / "d.tar", "holes.bin"], check=True)
    holes.unlink()
    _, plan, data = image_of(tmp_path)
    assert set(Image(data).tree()) == {b"", b"/shards", b"/shards/a", b"/shards/a/a.txt", b"/shards/d"}
    assert str(plan.left_out).split(", ") == [
        "2 files of compressed shards",
        "1 file of shards that are JSON lines",
        "1 file that are sparse",
    ]


def test_a_damaged_shard_is_left_out_and_named(tmp_path):
    good = write_tar(tmp_path / "good.tar", {"a.txt": b"a" * 600}).read_bytes()
    (tmp_path / "cut.tar").write_bytes(good[:700])
    (tmp_path / "nonsense.tar").write_bytes(b"n" * 3000)
    _, plan, data = image_of(tmp_path)
    assert set(Image(data).tree()) == {b"", b"/shards", b"/shards/good", b"/shards/good/a.txt"}
    assert sorted(plan.left_out.damaged) == ["cut", "nonsense"]
    assert all(plan.left_out.damaged.values())


def test_nothing_for_an_image(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"id": "x"}\n')
    with pytest.raises(UsageError, match=r"no file of it can be in an image.*1 file of shards that are JSON lines"):
        image_of(tmp_path)


def test_more_tars_than_an_image_can_have(tmp_path, monkeypatch):
    for number in range(3):
        write_tar(tmp_path / f"{number}.tar", {"a.txt": b"a"})
    monkeypatch.setattr("touchfs.images.plan.DEVICES_MAX", 3)
    with pytest.raises(UsageError, match="3 files are too many for one image, which can have 2: name fewer shards"):
        image_of(tmp_path)


def test_links_need_keys(tmp_path):
    write_tar(tmp_path / "a.tar", {"a.txt": b"a"})
    dataset = open_dataset(str(tmp_path))
    dataset.without_keys("nobody wrote it")
    with pytest.raises(UsageError, match="there is no by-key/: nobody wrote it"):
        write_image(plan_image(dataset), owners(dataset), io.BytesIO(), by_key=True)


def test_a_planted_name_is_refused(tmp_path, monkeypatch):
    """Catalogs have a checksum, but whoever is trusted may write another one."""
    write_tar(tmp_path / "a.tar", {"evil.txt": b"a"})
    dataset = open_dataset(str(tmp_path))
    table = dataset.catalog(0).tables["shards"]
    table._data = memoryview(bytes(table._data).replace(b"evil.txt", b"../../ab"))
    with pytest.raises(FormatError, match="is damaged: index with --force"):
        table.names  # noqa: B018


def problems(path, source, **how):
    dataset = open_dataset(str(source), **how)
    return [*check_image(str(path), plan_image(dataset), owners(dataset), by_key=False)]


def test_an_image_is_compared_with_its_dataset(tmp_path):
    random_tar(tmp_path / "a.tar", 1)
    image = tmp_path / "x.erofs"
    image.write_bytes(image_of(tmp_path)[2])
    assert problems(image, tmp_path) == []
    image.write_bytes(image_of(tmp_path, by_key=True)[2])
    assert problems(image, tmp_path) == ["is an image of other data, or of other options: write it again with --force"]
    data = bytearray(image_of(tmp_path)[2])
    data[random.Random(1).randrange(len(data) // 2, len(data))] ^= 4
    image.write_bytes(data)
    assert problems(image, tmp_path) == ["its checksum is wrong: write it again with --force"]
    write_tar(tmp_path / "b.tar", {"a.txt": b"a"})
    image.write_bytes(image_of(tmp_path)[2])
    write_tar(tmp_path / "b.tar", {"b.txt": b"a"})
    assert problems(image, tmp_path) == ["is an image of other data, or of other options: write it again with --force"]


def test_copies_are_compared_with_their_recordings(tmp_path):
    directory, audio = recordings(tmp_path)
    image, options = tmp_path / "x.erofs", heard_below(audio)
    image.write_bytes(image_of(directory, options=options)[2])
    assert problems(image, directory, options=options) == []
    changed = audio / "20000.mp3"
    mtime_ns = changed.stat().st_mtime_ns
    with open(changed, "r+b") as file:  # as nothing but its bytes tell
        file.seek(19_999)
        file.write(bytes([changed.read_bytes()[-1] ^ 1]))
    os.utime(changed, ns=(0, mtime_ns))
    assert problems(image, directory, options=options) == [
        "is an image of other data, or of other options: write it again with --force"
    ]


def test_bytes_that_mmap_would_show_are_named(tmp_path):
    path = write_tar(tmp_path / "a.tar", {"k/a.txt": b"a" * 600, "k/b.txt": b"b" * 512, "k/c.txt": b"c"})
    data = bytearray(path.read_bytes())
    data[512 + 600] = 7
    path.write_bytes(data)
    image = tmp_path / "x.erofs"
    image.write_bytes(image_of(tmp_path)[2])
    assert problems(image, tmp_path) == [
        "shards/a/k/a.txt: mmap would show bytes of the tar after its end; read() would not"
    ]


def kept(source):
    dataset = open_dataset(str(source))
    image = find_or_make(plan_image(dataset), owners(dataset), by_key=False)
    os.close(image.descriptor)
    return Path(image.path), image.files


def test_a_kept_image_survives_writers_that_are_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_tar(tmp_path / "data" / "a.tar", {"a.txt": b"a"})
    path, files = kept(tmp_path / "data")
    whole = path.read_bytes()
    count = operations(kept, tmp_path / "data")
    for operation in range(count):
        for left in path.parent.glob(f"{path.stem}.erofs*"):
            left.unlink()
        kill_before(operation, kept, tmp_path / "data")
        assert not path.exists() or path.read_bytes() == whole
        assert kept(tmp_path / "data") == (path, files)
        assert path.read_bytes() == whole
