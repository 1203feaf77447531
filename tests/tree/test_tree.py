"""The tree against a plain model: a dictionary of paths and bytes, made from samples by the rules of docs/tree.md."""

import io
import json
import os
import random
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from conformance import check_reads
from hypothesis import given, settings
from hypothesis import strategies as st
from tars import write_tar
from waiting import wait_until
from wav_files import wav_of

from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import ChangedError, NotFoundError, UsageError
from touchfs.indexing import open_dataset
from touchfs.tree import open_shards
from touchfs.tree.catalog_view import COLUMNS_FROM
from touchfs.tree.entry import Entry
from touchfs.tree.inode import ROOT, pack, unpack
from touchfs.tree.tree import Tree

RATE = 1000
SHARD_NAMES = ("000000000", "1 é")
MODALITIES = {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1"), "tokens": np.dtype("<u2")}


@dataclass(frozen=True)
class Spoken:
    """What a test says of a sample."""

    key: str
    pcm: bytes
    text: str | None
    has_rate: bool
    segments: tuple[tuple[float, float, str | None], ...]
    tokens: tuple[int, ...]

    @property
    def metainfo(self):
        told = {"key": self.key, "wav": "x.wav"}
        told |= {} if self.text is None else {"txt": self.text}
        told |= {"sample_rate": RATE} if self.has_rate else {}
        segments = [{"start": s, "end": e} | ({} if t is None else {"txt": t}) for s, e, t in self.segments]
        return json.dumps(told | ({"info": {"segments": segments}} if segments else {}), ensure_ascii=False).encode()


components = st.sampled_from(["a", "b", "a.wav", "b~2", "é", "语 料", "0000.wav", "A"])
samples = st.builds(
    Spoken,
    key=st.lists(components, min_size=1, max_size=3).map("/".join),
    pcm=st.integers(0, 40).map(lambda count: random.Random(count).randbytes(2 * count)),
    text=st.none() | st.sampled_from(["", "one", "schöne 语"]),
    has_rate=st.booleans() | st.just(True),
    segments=st.lists(
        st.tuples(
            st.integers(0, 50).map(lambda ms: ms / RATE),
            st.just(-1) | st.integers(0, 50).map(lambda ms: ms / RATE),
            st.none() | st.sampled_from(["", "two 二"]),
        ),
        max_size=3,
    ).map(tuple),
    tokens=st.lists(st.integers(0, 65535), max_size=4).map(tuple),
)
datasets = st.lists(st.lists(samples, max_size=8), min_size=1, max_size=2)


def write_shard(path, spoken):
    with TouchNetWriter(path, MODALITIES) as writer:
        for one in spoken:
            tokens = np.array(one.tokens, "<u2").tobytes()
            writer.add({"audio": one.pcm, "metainfo": one.metainfo, "tokens": tokens})


def write_dataset(path, dataset):
    for name, spoken in zip(SHARD_NAMES, dataset, strict=False):
        write_shard(path / name, spoken)


def npy(tokens):
    file = io.BytesIO()
    np.save(file, np.array(tokens, "<u2"))
    return file.getvalue()


def named(keys, extensions):
    """The paths of each sample's files: `~n` for the nth of a key, and where a name is a file's or directory's."""
    directories = {"/".join(key.split("/")[:depth]) for key in keys for depth in range(1, key.count("/") + 1)}

    def paths(key, suffixes, number):
        directory, slash, stem = key.rpartition("/")
        mark = f"~{number}" if number > 1 else ""
        stems = [stem.removesuffix(suffix) or stem if suffix else stem for suffix in suffixes]
        return [directory + slash + stem + mark + suffix for stem, suffix in zip(stems, suffixes, strict=True)]

    own = {path for key, suffixes in zip(keys, extensions, strict=True) for path in paths(key, suffixes, 1)}
    taken, numbers = set(directories), {}
    for key, suffixes in zip(keys, extensions, strict=True):
        number = numbers.get(key, 0) + 1
        while taken & set(paths(key, suffixes, number)) or (number > 1 and own & set(paths(key, suffixes, number))):
            number += 1
        numbers[key] = number
        taken.update(paths(key, suffixes, number))
        yield paths(key, suffixes, number)


def model(dataset):
    """Bytes by path, and the key by path, of every file."""
    files, keys = {}, {}
    for shard, spoken in zip(SHARD_NAMES, dataset, strict=False):
        shown = []
        for one in spoken:
            audio = {".wav": wav_of(one.pcm, RATE)} if one.has_rate else {".pcm": one.pcm}
            text = {} if one.text is None else {".txt": one.text.encode()}
            shown.append(audio | {".json": one.metainfo, ".tokens.npy": npy(one.tokens)} | text)
        names = named([one.key for one in spoken], [list(each) for each in shown])
        for one, each, paths in zip(spoken, shown, names, strict=True):
            for path, data in zip(paths, each.values(), strict=True):
                files[f"shards/{shard}/{path}"] = data
                keys[f"shards/{shard}/{path}"] = one.key
        for one, (directory,) in zip(spoken, named([one.key for one in spoken], [[""] for _ in spoken]), strict=True):
            for number, (start, end, text) in enumerate(one.segments):
                length = len(one.pcm) // 2
                first = min(int(start * RATE), length)
                last = length if end == -1 else int(end * RATE)
                stem = f"segments/{shard}/{directory}/{number:04d}"
                pcm = one.pcm[2 * first : 2 * max(last, first)]
                segment = {"start": start, "end": end} | ({} if text is None else {"txt": text})
                files |= {stem + ".wav": wav_of(pcm, RATE)} if one.has_rate else {}
                files[stem + ".json"] = segment
                files |= {} if text is None else {stem + ".txt": text.encode()}
                keys |= {f"{stem}.{extension}": one.key for extension in ("wav", "json", "txt")}
    return files, keys


def read(tree, entry):
    content = tree.content(entry.inode)
    data = bytes(content.read(0, content.size))
    assert content.size == entry.size
    check_reads(content, data)
    return data


def walk(tree, directory=ROOT, above=""):
    """Every entry by path. Checks that all ways to an entry agree, and that a listing resumes at every place."""
    listed = list(tree.entries(directory))
    places = [(name, entry.inode, place) for name, entry, place in listed]
    if above.count("/") > 1:
        assert [name for name, _, _ in listed] == sorted({name for name, _, _ in listed})
    for i, (name, entry, place) in enumerate(listed):
        path = above + name.decode()
        found = tree.entry(entry.inode)
        assert tree.find(directory, name) == found
        assert entry in (found, found._replace(size=None)), "a listing need not know a size"
        assert entry.is_link or tree.resolve(path) == found
        rest = [(name, entry.inode, place) for name, entry, place in tree.entries(directory, place)]
        assert rest == places[i + 1 :]
        yield path, found
        if entry.is_directory:
            yield from walk(tree, entry.inode, path + "/")


def shown(path, data):
    """A segment's JSON as stored: what touchfs adds to it is another test's."""
    if path.startswith("segments/") and path.endswith(".json"):
        told = json.loads(data)
        del told["touchfs"]
        return told
    return data


@settings(max_examples=settings().max_examples // 3)
@given(datasets, st.permutations([3, 7, 2**20 - 1]))
def test_the_tree_is_the_model(dataset, shard_ids):
    with tempfile.TemporaryDirectory() as place:
        write_dataset(Path(place), dataset)
        opened = open_dataset(place, in_place=True)
        tree = Tree(opened, shard_ids[: len(dataset)])
        walked = [each for each in walk(tree) if not each[0].startswith(("by-key", "manifests"))]
        entries = dict(walked)
        files, keys = model(dataset)
        assert {path: shown(path, read(tree, e)) for path, e in walked if not e.is_directory} == files
        implied = {str(parent) for path in files for parent in Path(path).parents} - {"."}
        has_recordings = any(path.startswith("shards/") and path.endswith(".wav") for path in files)
        has_segments = has_recordings or not files or any(path.startswith("segments/") for path in files)
        views = ("shards", "segments") if has_segments else ("shards",)
        shards = {f"{view}/{name}" for view in views for name in SHARD_NAMES[: len(dataset)]}
        parts = {*views, *(["merged"] if has_segments else []), *(["slices"] if has_recordings else [])}
        parts |= {"tokens" for path in files if path.startswith("shards/") and path.endswith(".npy")}
        assert {path for path, e in walked if e.is_directory} == implied | shards | parts
        assert {path: tree.attributes(entries[path].inode)["key"] for path in files} == {p: keys[p] for p in files}

        inodes = [entry.inode for _, entry in walked]
        assert len({ROOT, *inodes}) == len(inodes) + 1
        again = Tree(open_dataset(place, in_place=True), shard_ids[: len(dataset)])
        assert [each for each in walk(again) if each[0] in entries] == walked, (
            "the same numbers in every process, and after a remount"
        )

        inodes = [entry.inode for _, entry in walk(tree)]
        for number in {neighbour for inode in inodes for neighbour in (inode - 1, inode + 1, inode ^ 1 << 60)}:
            if number not in {ROOT, *inodes}:
                refuses(tree, number)


def refuses(tree, inode):
    """An inode that is nobody's is said to be so, whatever is asked of it."""
    for ask in (
        tree.entry,
        lambda i: tree.find(i, b"a"),
        lambda i: list(tree.entries(i)),
        tree.content,
        tree.attributes,
    ):
        with pytest.raises(ChangedError):
            ask(inode)


SPEECH = [
    [
        Spoken(
            "talks/one", random.Random(1).randbytes(200), "one", True, ((0.0, 0.05, "half"), (0.05, -1, None)), (1, 2)
        ),
        Spoken("two", random.Random(2).randbytes(100), None, False, (), ()),
    ],
    [Spoken("talks/one", random.Random(3).randbytes(60), "uno", True, (), (3,))],
]


@pytest.fixture
def speech(tmp_path):
    write_dataset(tmp_path, SPEECH)
    return tmp_path


@pytest.fixture(scope="module")
def tree_and_inodes(tmp_path_factory):
    place = tmp_path_factory.mktemp("nobody")
    write_dataset(place, SPEECH)
    tree = Tree(open_dataset(os.fspath(place), in_place=True), [1, 2])
    return tree, {ROOT, *(entry.inode for _, entry in walk(tree))}


@given(inode=st.integers(-(2**64), 2**64))
def test_numbers_of_nobody(tree_and_inodes, inode):
    tree, inodes = tree_and_inodes
    if inode not in inodes:
        refuses(tree, inode)


def is_noticed(asked):
    """Whether it is known by now that the data have changed."""
    try:
        asked()
    except ChangedError:
        return True
    return False


def test_files_as_columns_are_those_of_the_listing(tmp_path):
    """Also beside directories and empty files, which are no part of the columns."""
    names = [f"{'é' * (number % 50)}{number:04}.x" for number in range(400)]
    names[250] = "d/1"
    write_tar(tmp_path / "a.tar", {name: bytes(number % 300) for number, name in enumerate(names)})
    tree = Tree(open_dataset(str(tmp_path / "a.tar")), [1])
    shard = tree.resolve("shards/a").inode
    listed = list(tree.entries(shard))
    for after, count in ((0, 400), (1, 40), (100, 33), (150, 400), (360, 400), (399, 400), (400, 400)):
        files = tree.files(shard, after, count)
        others = (at for at in range(after, len(listed)) if listed[at][1].is_directory or not listed[at][1].size)
        expected = listed[after : min(after + count, next(others, len(listed)))]
        if len(expected) < COLUMNS_FROM:
            assert files is None
            continue
        assert files is not None
        assert [(name, entry) for name, entry, _ in expected] == [
            (files.names.at(place), Entry(files.inode + place, stat.S_IFREG, size, files.mtime_ns))
            for place, size in enumerate(files.sizes.tolist())
        ]
    for directory in (ROOT, tree.resolve("shards").inode, tree.resolve("shards/a/d").inode):
        assert tree.files(directory, 0, 100) is None


def test_a_replaced_shard_is_another_one(speech):
    before = Tree(open_dataset(os.fspath(speech), in_place=True), [1, 2])
    entry = before.resolve("shards/000000000/talks/one.wav")
    kept = before.content(entry.inode)
    shutil.rmtree(speech / "000000000")
    write_shard(speech / "000000000", SPEECH[1])
    assert bytes(kept.read(0, 999)) == wav_of(SPEECH[0][0].pcm, RATE), "the open file is still the old one"
    for asked in (lambda: kept.read(44, 10), lambda: before.content(entry.inode)):
        wait_until(lambda asked=asked: is_noticed(asked))
    dataset = open_dataset(os.fspath(speech), in_place=True)
    after = Tree(dataset, [3, 2])
    assert read(after, after.resolve("shards/000000000/talks/one.wav")) == wav_of(SPEECH[1][0].pcm, RATE)
    refuses(after, entry.inode)
    unseen = Tree(open_dataset(os.fspath(speech), in_place=True), [3, 2])
    shutil.rmtree(speech / "1 é")
    write_shard(speech / "1 é", SPEECH[0])
    open_dataset(os.fspath(speech), in_place=True)  # which writes the shard's catalog anew
    with pytest.raises(ChangedError, match="mount again"):
        unseen.resolve("shards/1 é/talks/one.wav")


def test_attributes_say_where_the_bytes_are(speech):
    tree = Tree(open_dataset(os.fspath(speech), in_place=True), [1, 2])
    first, second = SPEECH[0]

    def told(path):
        return tree.attributes(tree.resolve(path).inode)

    one = {"shard": "000000000", "key": "talks/one", "ordinal": "0"}
    audio = one | {"field": "audio"}
    metainfo = one | {"field": "metainfo", "offset": "0", "size": str(len(first.metainfo))}
    assert told("shards/000000000/talks/one.wav") == audio | {"offset": "0", "size": "200"}
    assert told("segments/000000000/talks/one/0001.wav") == audio | {"segment": "1", "offset": "100", "size": "100"}
    assert told("shards/000000000/talks/one.json") == told("shards/000000000/talks/one.txt") == metainfo
    pcm = told("shards/000000000/two.pcm")
    assert "--sample-rate" in pcm.pop("reason")
    assert pcm == {"shard": "000000000", "field": "audio", "key": "two", "ordinal": "1", "offset": "200", "size": "100"}
    stored = (speech / "000000000" / "audio.bin").read_bytes()
    assert stored[int(pcm["offset"]) :][: int(pcm["size"])] == second.pcm
    for directory in ("", "shards", "shards/000000000", "shards/000000000/talks"):
        assert told(directory) == {}


def test_a_key_is_told_as_it_is(tmp_path):
    keys = ["../a\n", "%41", "x" * 300, "a\ud800", ""]
    spoken = [Spoken(key, b"ab", None, True, (), ()) for key in keys]
    with TouchNetWriter(tmp_path / "s", MODALITIES) as writer:
        for one in spoken:
            metainfo = json.dumps({"key": one.key, "sample_rate": RATE}).encode()
            writer.add({"audio": one.pcm, "metainfo": metainfo, "tokens": b""})
    tree = Tree(open_dataset(os.fspath(tmp_path / "s"), in_place=True), [1])
    told = [tree.attributes(entry.inode) for path, entry in walk(tree) if path.endswith(".wav") and not entry.is_link]
    found = {int(each["ordinal"]): each["key"].encode("utf-8", "surrogateescape") for each in told}
    assert found == {i: (key or "00000004").encode("utf-8", "surrogatepass") for i, key in enumerate(keys)}


def test_many_shards_keep_only_some_open(tmp_path, monkeypatch):
    monkeypatch.setattr(open_shards, "SHARDS_KEPT", 2)
    for number in range(6):
        write_shard(tmp_path / f"{number}", [Spoken("a", bytes([number, 0]) * 5, None, True, (), ())])
    tree = Tree(open_dataset(os.fspath(tmp_path), in_place=True), range(1, 7))
    inodes = {}
    held = {}
    for number in [0, 1, 2, 3, 4, 5, 0, 5, 2, 2, 3]:
        entry = tree.resolve(f"shards/{number}/a.wav")
        assert inodes.setdefault(number, entry.inode) == entry.inode
        held[number] = tree.content(entry.inode)
    for number, inode in inodes.items():
        assert bytes(held[number].read(44, 99)) == bytes([number, 0]) * 5
        assert bytes(tree.content(inode).read(44, 99)) == bytes([number, 0]) * 5


def test_a_shard_listed_twice_has_two_directories(speech):
    (speech / "data.list").write_text("000000000 audio+metainfo\n" * 2)
    tree = Tree(open_dataset(os.fspath(speech / "data.list"), in_place=True), [1, 2])
    first, second = (tree.resolve(f"shards/{name}/talks/one.wav") for name in ("000000000", "000000000~2"))
    assert first.inode != second.inode
    assert read(tree, first) == read(tree, second)


def test_a_damaged_shard_says_so_and_the_others_are_served(speech):
    (speech / "000000000" / "audio.idx").write_bytes(b"nonsense")
    tree = Tree(open_dataset(os.fspath(speech), in_place=True), [1, 2])
    entries = dict(walk(tree))
    report = entries["shards/000000000/ERROR.txt"]
    assert b"audio.idx" in read(tree, report)
    assert tree.attributes(report.inode) == {"shard": "000000000", "field": "error"}
    assert read(tree, entries["shards/1 é/talks/one.wav"]) == wav_of(SPEECH[1][0].pcm, RATE)


def test_directories_are_not_read_and_files_not_listed(speech):
    tree = Tree(open_dataset(os.fspath(speech), in_place=True), [1, 2])
    for directory in ("", "segments", "shards/000000000", "shards/000000000/talks"):
        with pytest.raises(UsageError, match="is a directory"):
            tree.content(tree.resolve(directory).inode)
    file = tree.resolve("shards/000000000/talks/one.wav")
    assert tree.find(file.inode, b"one.wav") is None
    with pytest.raises(UsageError, match="not a directory"):
        list(tree.entries(file.inode))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nosuch", "there is no 'nosuch' in /"),
        ("shards/nosuch/x", "there is no 'nosuch' in /shards"),
        ("shards/000000000/talks/two", "there is no 'two' in /shards/000000000/talks"),
        ("shards/000000000/talks/one.wav/x", "/shards/000000000/talks/one.wav is a file"),
        ("shards/..", "there is no '..' in /shards"),
        ("segments/000000000/two", "there is no 'two' in /segments/000000000"),
    ],
)
def test_a_path_that_is_not_there_is_told_where_it_ends(speech, path, message):
    tree = Tree(open_dataset(os.fspath(speech), in_place=True), [1, 2])
    with pytest.raises(NotFoundError) as caught:
        tree.resolve(path)
    assert (caught.value.message, caught.value.path) == (message, path)


def test_slashes_around_a_path_do_not_matter(speech):
    tree = Tree(open_dataset(os.fspath(speech), in_place=True), [1, 2])
    assert tree.resolve("//shards///000000000/") == tree.resolve("shards/000000000")
    assert tree.resolve("/").inode == tree.resolve("").inode == ROOT


def test_an_id_that_does_not_fit_is_refused(speech):
    dataset = open_dataset(os.fspath(speech), in_place=True)
    last = Tree(dataset, [2**20 - 2, 2**20 - 1]).resolve("shards/1 é")
    assert unpack(last.inode) == (1, 2**20 - 1, 0) and last.inode == pack(1, 2**20 - 1, 0)
    with pytest.raises(UsageError, match="1048575"):
        Tree(dataset, [1, 2**20])


def test_the_shards_that_were_used_last_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_shards, "SHARDS_KEPT", 2)
    for name in "abc":
        write_tar(tmp_path / f"{name}.tar", {f"{name}.txt": b"text"})
    shards = open_shards.OpenShards(open_dataset(str(tmp_path), in_memory=True), (1, 2, 3))
    first = shards.get(1)
    for shard_id in (2, 1, 3):
        shards.get(shard_id)
    assert shards.get(1) is first
