import os
import re
from pathlib import Path

import pytest
from megatron import INT32, split, tokens, write_prefix
from touchnet import INT16, UINT8, UINT16, write_shard, write_speech

from touchfs.core.errors import FormatError, LocationError, NotFoundError, SourceError, TouchfsError
from touchfs.registry.find import find_shards


def make(path: Path) -> str:
    return str(write_speech(path, [({"key": path.name}, b"ab")]))


def write_list(path: Path, *lines: str | bytes, ending: bytes = b"\n") -> str:
    path.write_bytes(b"".join((line if isinstance(line, bytes) else os.fsencode(line)) + ending for line in lines))
    return str(path)


def test_a_shard_a_directory_of_them_and_a_list(tmp_path: Path) -> None:
    paths = [make(tmp_path / f"{i:09d}") for i in (10, 9, 1)]
    assert find_shards(paths[0]) == [paths[0]]
    assert find_shards(str(tmp_path)) == sorted(paths)
    listing = write_list(tmp_path / "data.list", *(f"{path} audio+metainfo" for path in paths))
    assert find_shards(str(tmp_path)) == find_shards(listing) == paths, "in the order of the list"


def test_lists_one_level_down_name_their_shards(tmp_path: Path) -> None:
    paths = {part: [make(tmp_path / part / name) for name in ("b", "a")] for part in ("dev", "train")}
    for part in paths:
        write_list(tmp_path / part / "data.list", "b audio+metainfo", "a audio+metainfo")
        (tmp_path / part / "unlisted.tar").write_bytes(b"")
    assert find_shards(str(tmp_path)) == [*paths["dev"], *paths["train"]]
    write_list(tmp_path / "dev" / "data.list", "s3://bucket/a audio")
    with pytest.raises(LocationError):
        find_shards(str(tmp_path))
    assert find_shards(str(tmp_path), locations=["s3://bucket/"]) == ["s3://bucket/a", *paths["train"]]


def test_a_path_is_tried_as_written_then_beside_the_list_then_by_its_last_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for path in (here / "exp/0", there / "exp/0", there / "0", there / "exp/1", there / "1", there / "2"):
        make(path)
    monkeypatch.chdir(here)
    listing = write_list(there / "data.list", "exp/0 audio", "exp/1 audio", "/gone/exp/2 audio", "exp/2/ audio")
    assert find_shards(listing) == ["exp/0", str(there / "exp/1"), str(there / "2"), str(there / "2")]


def test_files_and_prefixes_are_looked_for_at_the_same_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    paths = [here / "exp/0.tar", there / "exp/1.tar", there / "2.tar", here / "exp/text.idx", there / "mm.idx"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.chdir(here)
    lines = ("exp/0.tar audio", "exp/1.tar audio", "/gone/2.tar audio", "exp/text text", "/gone/mm.bin text")
    listing = write_list(there / "data.list", *lines)
    assert find_shards(listing) == ["exp/0.tar", *map(str, paths[1:3]), "exp/text.idx", str(paths[4])]


def test_a_shard_that_is_not_there_is_listed_where_it_should_be(tmp_path: Path) -> None:
    listing = write_list(tmp_path / "data.list", "/gone/3 audio", "exp/4 audio")
    assert find_shards(listing) == ["/gone/3", str(tmp_path / "exp/4")]


@pytest.mark.parametrize(
    "name", ["with two  spaces", "tab\there", "é", "a\u2028b\x85c\x0cd", os.fsdecode(b"\xff\xfe"), "a+b c"]
)
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b" \t\n"])
def test_paths_of_all_kinds(tmp_path: Path, name: str, ending: bytes) -> None:
    shard = make(tmp_path / name)
    for between in (" ", "\t", "   "):
        listing = write_list(tmp_path / "data.list", "", f"{name}{between}audio+metainfo", "  ", ending=ending)
        assert find_shards(listing) == [shard]


def test_a_list_whose_last_line_has_no_end(tmp_path: Path) -> None:
    shard = make(tmp_path / "x")
    assert find_shards(write_list(tmp_path / "data.list", "x audio", ending=b"")) == [shard]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "lists no shard"),
        (b"\n \r\n", "lists no shard"),
        (b"only-a-path\n", "line 1 is not `SHARD_DIR DATATYPES`"),
        (b"x audio\n\naudio+metainfo\n", "line 3 is not"),
        (b"x audio+\n", "line 1 is not"),
        (b'{"key": "a", "wav": "/a.wav"}\n', "line 1 is not"),
        (b"x\0y audio\n", "line 1 is not"),
        (bytes(10**6), "line 1 is not"),
        (b"x" * 10**6 + b" audio\n", "line 1 is not"),
        (bytes(range(256)) * 4, "line 1 is not|line 2 is not"),
    ],
)
def test_files_that_are_no_list(tmp_path: Path, content: bytes, words: str) -> None:
    listing = tmp_path / "data.list"
    listing.write_bytes(content)
    with pytest.raises(FormatError, match=words) as caught:
        find_shards(str(listing))
    assert caught.value.path == str(listing)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def prefix(path: Path) -> str:
    return write_prefix(path, INT32, [tokens(1, 2), tokens(3)])


def test_a_prefix(tmp_path: Path) -> None:
    """By its index, by its .bin, or as Megatron-LM's own options name it."""
    index = prefix(tmp_path / "corpus_text_document")
    for source in ("corpus_text_document.idx", "corpus_text_document.bin", "corpus_text_document"):
        assert find_shards(str(tmp_path / source)) == [index]
    split(str(tmp_path / "corpus_text_document"), [5], 2)
    assert find_shards(str(tmp_path)) == find_shards(str(tmp_path / "corpus_text_document")) == [index]
    (tmp_path / "corpus_text_document").mkdir()
    with pytest.raises(NotFoundError, match="no shards here"):
        find_shards(str(tmp_path / "corpus_text_document"))


def test_any_idx_is_taken_for_an_index(tmp_path: Path) -> None:
    """What is wrong with it is said where it is opened."""
    (tmp_path / "x.idx").write_bytes(b"v1.2 3\n")
    assert find_shards(str(tmp_path / "x.idx")) == [str(tmp_path / "x.idx")]
    with pytest.raises(NotFoundError):
        find_shards(str(tmp_path / "y.idx"))


def test_prefixes_of_a_directory_are_a_shard_each(tmp_path: Path) -> None:
    names = ["a_text_document", "b_text_sentence", "mm", "train.en-de.en"]
    paths = [prefix(tmp_path / "flat" / name) for name in names]
    assert find_shards(str(tmp_path / "flat")) == paths
    below = make(tmp_path / "flat/000000000")
    assert find_shards(str(tmp_path / "flat")) == [*paths, below]
    speech = make(tmp_path / "speech")
    assert find_shards(str(tmp_path)) == [*paths, below, speech], "at any depth"


def test_shards_of_all_kinds_in_one_directory(tmp_path: Path) -> None:
    for name in ("b.tar", "a.jsonl", ".hidden.tar", "notes.txt", "b.tar.idx", "sub/c.tar", "sub/deeper/d.tar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "e.tar").mkdir()
    corpus, speech = prefix(tmp_path / "corpus"), make(tmp_path / "speech")
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.tar")]
    deep = [str(tmp_path / "sub" / name) for name in ("c.tar", "deeper/d.tar")]
    assert find_shards(str(tmp_path)) == [*paths, corpus, speech, *deep]
    assert find_shards(paths[1]) == [paths[1]]


TOUCHNET: list[dict[str, tuple[int, list[bytes]]]] = [
    {"audio": (INT16, [b"ab"]), "metainfo": (UINT8, [b"{}"])},
    {"pair_audio": (INT16, [b"ab"]), "pair_text": (UINT8, [b"{}"])},
    {"metainfo": (UINT8, [b"{}"])},
    {"texttoken": (UINT16, [b"ab"])},
    {"audiotoken": (UINT16, [b"ab"])},
    {"video": (UINT8, [b"{}"]), "label_document": (UINT8, [b"x"])},
    {"audio": (INT16, [b"ab"]), "x": (UINT8, [b"{}", b"unequal"])},
]


@pytest.mark.parametrize("modalities", TOUCHNET)
def test_one_modality_of_touchnets_makes_a_directory_a_shard(
    tmp_path: Path, modalities: dict[str, tuple[int, list[bytes]]]
) -> None:
    shard = str(write_shard(tmp_path / "s", **modalities))
    assert find_shards(shard) == find_shards(str(tmp_path)) == [shard]
    for name in modalities:
        assert find_shards(f"{shard}/{name}.idx") == [f"{shard}/{name}.idx"], "that one file was asked for"


def test_a_bin_alone_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(NotFoundError, match="no shards here"):
        find_shards(str(tmp_path))


def test_of_each_kind_of_other_files_one_is_named(tmp_path: Path) -> None:
    for name in ("README.md", "a.tfrecord", "b.tfrecord", "c.zip", "d.csv", "unknown"):
        (tmp_path / name).touch()
    told = "6 files left out: README.md (a Markdown text); a.tfrecord, b.tfrecord (a TFRecord file); d.csv"
    with pytest.raises(NotFoundError, match=re.escape(told) + r".*; c\.zip \(a zip archive, but damaged"):
        find_shards(str(tmp_path))


def test_what_nobody_has_finished_writing_is_not_found(tmp_path: Path) -> None:
    shard = make(tmp_path / "0")
    make(tmp_path / ".touchfs-tmp-0123456789abcdef")
    (tmp_path / ".touchfs-index").mkdir()
    assert find_shards(str(tmp_path)) == [shard]


def test_a_shard_of_a_crashed_job_is_found(tmp_path: Path) -> None:
    shard = make(tmp_path / "0")
    os.unlink(tmp_path / "0/audio.idx")
    os.unlink(tmp_path / "0/metainfo.idx")
    assert find_shards(str(tmp_path)) == [shard]


@pytest.mark.parametrize(
    ("name", "error"),
    [("missing", NotFoundError), ("empty", NotFoundError), ("pipe", NotFoundError), ("a\0b", NotFoundError)],
)
def test_sources_that_are_none(tmp_path: Path, name: str, error: type[TouchfsError]) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(error) as caught:
        find_shards(str(tmp_path / name))
    assert not isinstance(caught.value, SourceError)


def test_a_link_that_leads_nowhere_hides_nothing(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    shard.write_bytes(b"")
    for name, target in (("b.tar", "b.tar"), ("c", "c"), ("d.idx", "nothing")):
        (tmp_path / name).symlink_to(target)
    assert find_shards(str(tmp_path)) == [str(shard)]


def test_a_list_that_cannot_be_read() -> None:
    with pytest.raises(SourceError, match="Input/output error"):
        find_shards("/proc/self/mem")
