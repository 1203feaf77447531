"""Interleaved samples in a real mount: items as files, what cannot be read, and iterators over them."""

import errno
import json
import os
import stat

import pytest
from interleaved_tars import WdsSample, make_tiff, make_wds_tar, random_sample
from mint_documents import HOSTILE_IDS, frames_of, is_same_image, make_hostile_tar, make_mint_tar
from mounts import touchfs
from waiting import wait_until

from touchfs.tree.inode import unpack


def test_items_are_files(mount, tmp_path):
    samples = make_mint_tar(tmp_path / "data" / "mint.tar")
    make_hostile_tar(tmp_path / "data" / "h.tar")
    make_wds_tar(tmp_path / "data" / "a.tar", [WdsSample("a", ["fine"], [None, "page_1"])])
    top = mount(tmp_path / "data").path
    view = top / "interleaved"
    assert sorted(os.listdir(view)) == ["a", "h", "mint"]
    for sample in samples:
        own = view / "mint" / sample.key
        (tiff,) = sample.members.values()
        for number, frame in enumerate(frames_of(tiff)):
            path = own / f"{2 * number + 1:03d}.tiff"
            data = path.read_bytes()
            assert is_same_image(data, frame) and os.stat(path).st_size == len(data)
        assert (own / "000.txt").read_text() == "intro"
        assert (own / "sample.json").read_bytes() == (top / "shards" / "mint" / f"{sample.key}.json").read_bytes()
    for name, raw in HOSTILE_IDS.items():
        path = view / "h" / name / "000.txt"
        assert path.read_text() == "text"
        assert os.getxattr(path, "user.touchfs.id") == raw.encode()
    assert len(os.listdir(view / "h" / "many")) == 3002
    assert (view / "h" / "ERROR.txt").read_text().count("bad") == 6
    with pytest.raises(OSError) as caught:
        (view / "a" / "a" / "001.bin").read_bytes()
    assert caught.value.errno == errno.EIO
    assert "missing member 'page_1'" in (top / ".touchfs" / "errors").read_text()
    assert (view / "a" / "a" / "000.txt").read_text() == "fine"


def test_iterators_go_over_samples(mount, tmp_path):
    make_wds_tar(tmp_path / "data" / "r.tar", [random_sample(f"s{i}", i) for i in range(12)])
    make_mint_tar(tmp_path / "data" / "mint.tar", 5)
    top = mount(tmp_path / "data").path
    iterators = top / ".touchfs" / "iterators"

    def lines(name, spec):
        (iterators / name).mkdir()
        (iterators / name / "spec").write_text(json.dumps(spec))
        found = []
        while line := (iterators / name / "next").read_text():
            found.append(line.strip())
        return found

    def parents(found):
        return [os.path.relpath(os.path.dirname(path), top) for path in found]

    every = parents(lines("all", {"select": "interleaved"}))
    assert sorted(every) == sorted(
        [f"interleaved/r/s{i}" for i in range(12)] + [f"interleaved/mint/{i:032x}" for i in range(5)]
    )
    assert sorted(parents(lines("shuffled", {"select": "interleaved", "shuffle": 3}))) == sorted(every)
    assert parents(lines("shard", {"select": "interleaved/mint"})) == [f"interleaved/mint/{i:032x}" for i in range(5)]
    assert parents(lines("one", {"select": "interleaved/r/s7"})) == ["interleaved/r/s7"]
    assert len(parents(lines("where", {"select": "interleaved", "where": f"pdf_name == '{3:032x}.pdf'"}))) == 1
    assert len(lines("samples", {"select": "samples"})) == 17
    token = os.getxattr(top / "interleaved" / "mint" / f"{3:032x}" / "000.txt", "user.touchfs.token")
    (iterators / "shard" / "token").write_bytes(token)
    assert parents([(iterators / "shard" / "next").read_text().strip()]) == [f"interleaved/mint/{3:032x}"]


def test_shards_that_come_later(mount, tmp_path):
    """A compressed tar, which is decompressed while the others are served, and one that a reload finds."""
    samples = make_mint_tar(tmp_path / "data" / "a.tar.gz")
    make_wds_tar(tmp_path / "data" / "plain.tar", [("a.txt", b"text")])
    top = mount(tmp_path / "data", "--workers", 2).path
    view = top / "interleaved"
    wait_until(view.exists)
    assert (view / "a" / samples[2].key / "002.txt").read_text() == "text 0 of 2, 中文"
    number = os.stat(view / "a").st_ino
    make_mint_tar(tmp_path / "data" / "b.tar", 1)
    assert touchfs("reload", top).returncode == 0
    wait_until((view / "b").exists)
    assert sorted(os.listdir(view)) == ["a", "b"] and os.stat(view / "a").st_ino == number
    (tiff,) = samples[0].members.values()
    assert is_same_image((view / "b" / samples[0].key / "003.tiff").read_bytes(), frames_of(tiff)[1])


def test_tars_are_shown_as_before(mount, tmp_path):
    samples = [random_sample(f"s{i}", i) for i in range(8)]
    make_wds_tar(tmp_path / "a" / "r.tar", samples)
    top = mount(tmp_path / "a").path
    before = {
        str(path.relative_to(top)): (path.stat().st_ino, path.read_bytes())
        for path in (top / "shards").rglob("*")
        if stat.S_ISREG(path.stat().st_mode)
    }
    expected = {f"shards/r/{name}": data for sample in samples for name, data in sample.files()}
    assert {name: data for name, (_, data) in before.items()} == expected
    assert unpack((top / "interleaved").stat().st_ino) == (13, 0, 0)
    for sample in samples:
        assert (top / "by-key" / f"{sample.key}.json").read_bytes() == sample.document()


def test_the_commands_show_items(tmp_path):
    make_wds_tar(tmp_path / "a.tar", [WdsSample("a", ["fine"], [None, "a.tiff", "a.tiff"], {"a.tiff": make_tiff(2)})])
    listed = touchfs("ls", f"{tmp_path}/a.tar:interleaved/a/a")
    assert listed.stdout.split() == ["000.txt", "001.tiff", "002.tiff", "metadata.json", "sample.json"]
    assert touchfs("cat", f"{tmp_path}/a.tar:interleaved/a/a/000.txt").stdout == "fine"
    info = touchfs("info", tmp_path / "a.tar")
    assert "interleaved:    1 shard, 1 sample" in info.stdout
    assert json.loads(touchfs("info", "--json", tmp_path / "a.tar").stdout)["interleaved_samples"] == 1
    done = touchfs("iterate", "--select", "interleaved", tmp_path / "a.tar")
    assert done.stdout == "interleaved/a/a/000.txt\n", done.stderr
    assert touchfs("ls", "--on-error", "sometimes", tmp_path / "a.tar").returncode == 2
