"""The index of interleaved samples: which shards have some, their files, and what becomes of items without bytes."""

import json
import struct

import pytest
from interleaved_tars import WdsSample, make_image, make_tiff, make_wds_tar, random_sample
from mint_documents import (
    HOSTILE_IDS,
    document,
    frames_of,
    is_same_image,
    make_hostile_tar,
    make_mint_tar,
    shown_items,
    tree_of,
)

from touchfs.core.errors import FormatError, UsageError
from touchfs.core.extent import Extent, Memory
from touchfs.indexing import open_dataset
from touchfs.interleaved.forms.document import DOCUMENT
from touchfs.limits import LIMITS
from touchfs.shard.options import INTERLEAVED, ITEM_POLICIES, Options
from touchfs.storage import list_storage


def report_of(dataset):
    return dataset.interleaved.shards[0].report


def test_a_mint_tar_has_a_file_for_each_item(tmp_path):
    samples = make_mint_tar(tmp_path / "mint.tar")
    dataset = open_dataset(str(tmp_path), in_memory=True)
    shown = shown_items(dataset)
    assert report_of(dataset) == ""
    for sample in samples:
        own = {name.rpartition("/")[2]: data for name, data in shown.items() if f"/{sample.key}/" in name}
        texts = {f"{i:03d}.txt": text.encode() for i, text in enumerate(sample.texts) if text is not None}
        images = [f"{i:03d}.tiff" for i, token in enumerate(sample.images) if token is not None]
        assert list(own) == [*sorted([*texts, *images]), "metadata.json", "sample.json"]
        assert {name: own[name] for name in texts} == texts
        (tiff,) = sample.members.values()
        for name, frame in zip(images, frames_of(tiff), strict=True):
            assert is_same_image(own[name], frame)
        assert own["sample.json"] == sample.document()
        assert json.loads(own["metadata.json"]) == {"sample_id": sample.key, **sample.passthrough}


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz"])
def test_images_are_the_bytes_of_members(tmp_path, name):
    images = {f"{{}}.{ext}": make_image(ext, seed=i) for i, ext in enumerate(("jpg", "png", "webp", "gif", "bmp"))}
    images |= {"{}.JPG": make_image("jpg", seed=9), "{}.tif": make_tiff(1)}
    samples = []
    for key in ("a", "folder/a", "b%2Ec"):
        members = {member.format(key): data for member, data in images.items()}
        samples.append(WdsSample(key, [None, "in between", None], [*members, "not a member"], members))
    make_wds_tar(tmp_path / name, samples)
    shown = shown_items(open_dataset(str(tmp_path / name), in_memory=True))
    for directory in ("a", "folder%2Fa", "b%252Ec"):
        ends = ["000.jpg", "001.png", "002.webp", "003.gif", "004.bmp", "005.jpg", "006.tiff", "007.jpg"]
        found = [shown[f"a/{directory}/{end}"] for end in ends]
        assert found == [*images.values(), images["{}.jpg"]]  # the last is the default member
        assert shown[f"a/{directory}/001.txt"] == b"in between"


def test_an_image_may_be_a_member_of_no_sample(tmp_path):
    image = make_image("jpg", seed=1)
    make_wds_tar(tmp_path / "a.tar", [WdsSample("a", [], ["d/picture"], {"d/picture": image})])
    shown = shown_items(open_dataset(str(tmp_path / "a.tar"), in_memory=True))
    assert image in shown.values()


def test_a_frame_that_cannot_be_copied_is_encoded_again(tmp_path):
    tiff = make_tiff([(20, 10), (21, 10), (22, 10)])
    # The second frame does not say how long its strip is.
    damaged = tiff.replace(struct.pack("<HHII", 279, 4, 1, 21 * 10 * 3), struct.pack("<HHII", 280, 4, 1, 21 * 10 * 3))
    assert damaged != tiff
    make_wds_tar(tmp_path / "a.tar", [WdsSample("a", [], ["1", "2", "3"], {"a.tiff": damaged})])
    dataset = open_dataset(str(tmp_path), in_memory=True)
    assert report_of(dataset) == ""
    shown = shown_items(dataset)
    for number, frame in enumerate(frames_of(tiff)):
        assert is_same_image(shown[f"a/a/{number:03d}.tiff"], frame)


def test_positions_of_our_own_writer(tmp_path):
    sample = WdsSample(
        "a", ["one", "two", None], [None, None, "gone.png"], passthrough={"touchfs_positions": [4, 4, 2]}
    )
    make_wds_tar(tmp_path / "a.tar", [sample])
    shown = shown_items(open_dataset(str(tmp_path), in_memory=True))
    assert {path: shown[path] for path in shown if "/0" in path} == {
        "a/a/002.png": "missing member 'gone.png'",
        "a/a/004.txt": b"one",
        "a/a/004~2.txt": b"two",
    }
    assert json.loads(shown["a/a/metadata.json"]) == {"sample_id": "a"}


def test_what_is_no_tiff_is_shown_as_it_is(tmp_path):
    members = {"a.tiff": make_image("png"), "b.tif": make_tiff(3)[:60], "c.tif": b""}
    make_wds_tar(tmp_path / "a.tar", [WdsSample("a", [], [*members, "b.tif"], members)])
    dataset = open_dataset(str(tmp_path), in_memory=True)
    shown = shown_items(dataset)
    assert (shown["a/a/000.tiff"], shown["a/a/002.tiff"]) == (members["a.tiff"], b"")
    assert all(shown[f"a/a/{i:03d}.tiff"].startswith("failed to extract frame") for i in (1, 3))
    assert dataset.interleaved.shards[0].damaged == 1


def test_same_positions_and_gaps(tmp_path):
    tiff = make_tiff(2)
    members = {"a.0.png": make_image("png"), "a.tiff": tiff}
    texts = ["zero", None, None, "three"] + [None] * 1100 + ["far"]
    images = ["a.0.png", None, None, "a.tiff"]
    make_wds_tar(tmp_path / "a.tar", [WdsSample("a", texts, images, members)])
    shown = shown_items(open_dataset(str(tmp_path), in_memory=True))
    names = ["0000.png", "0000.txt", "0003.tiff", "0003.txt", "1104.txt", "metadata.json", "sample.json"]
    assert list(shown) == [f"a/a/{name}" for name in names]
    assert is_same_image(shown["a/a/0003.tiff"], frames_of(tiff)[0])


def test_ids_of_all_kinds(tmp_path):
    long = "x" * 10_000
    members = [(f"l{i}.json", document(long + str(i % 2), ["t"], [])) for i in range(3)]
    members += [(f"d{i}.json", document("twice", ["t"], [])) for i in range(2)]
    members += [
        ("e.json", document("", ["t"], [])),
        ("b\udcff.json", b'{"texts": ["t"], "images": []}'),
    ]
    make_wds_tar(tmp_path / "ids.tar", members)
    dataset = open_dataset(str(tmp_path), in_memory=True)
    shown = shown_items(dataset)
    directories = dict.fromkeys(path.split("/")[1] for path in shown)
    short = [name for name in directories if name.startswith("xxx")]
    assert len(short) == 3 and all(len(name) <= 255 and "%~" in name for name in short)
    assert set(directories) - set(short) == {"twice", "twice~2", "e", "b%ED%B3%BF"}
    assert shown["ids/b%ED%B3%BF/000.txt"] == b"t"
    ids = {json.loads(shown[f"ids/{name}/metadata.json"])["sample_id"] for name in short}
    assert ids == {long + "0", long + "1"}


def test_hostile_documents_leave_others_alone(tmp_path):
    make_hostile_tar(tmp_path / "h.tar")
    dataset = open_dataset(str(tmp_path), in_memory=True)
    shown = shown_items(dataset)
    tree = tree_of(dataset)
    for name, raw in HOSTILE_IDS.items():
        assert shown[f"h/{name}/000.txt"] == b"text"
        entry = tree.resolve(f"interleaved/h/{name}/000.txt")
        assert tree.attributes(entry.inode)["id"] == raw
    assert sum(path.startswith("h/many/") for path in shown) == 3002
    assert [path for path in shown if path.startswith("h/bad")] == [f"h/bad{i}/sample.json" for i in range(6)]
    report = report_of(dataset)
    assert report.startswith("6 of the 14 samples") and all(f"('bad{i}')" in report for i in range(6))
    assert shown["h/ERROR.txt"] == report.encode()
    assert dataset.shards[0].report == ""


@pytest.mark.parametrize("policy", ITEM_POLICIES)
def test_items_without_bytes(tmp_path, policy):
    good = WdsSample("good", ["fine"], [])
    frames = WdsSample("frames", ["here"], [None, "f.tiff", "f.tiff", "f.tiff"], {"f.tiff": make_tiff(2)})
    lost = WdsSample("lost", [None, "text"], ["page_1_image_2", None, "gone.png"])
    make_wds_tar(tmp_path / "p.tar", [good, frames, lost])
    dataset = open_dataset(str(tmp_path), options=Options(on_error=policy), in_memory=True)
    shown = {path.removeprefix("p/"): data for path, data in shown_items(dataset).items()}
    always = {"good/000.txt", "ERROR.txt"}
    kept = {"frames/000.txt", "frames/001.tiff", "frames/002.tiff", "lost/001.txt"}
    more = {
        "error": {"frames/003.tiff", "lost/000.bin", "lost/002.png"},
        "warn": {"frames/errors.json", "lost/errors.json"},
        "drop_row": set(),
        "drop_sample": set(),
    }[policy]
    names = {path for path in shown if not path.endswith(("metadata.json", "sample.json"))}
    assert names == always | more | (set() if policy == "drop_sample" else kept)
    lines = [
        "sample 1 ('frames'): position 3: failed to extract frame 2 from 'f.tiff': it has no such frame",
        "sample 2 ('lost'): position 0: missing member 'page_1_image_2'; position 2: missing member 'gone.png'",
    ]
    report = report_of(dataset)
    assert dataset.interleaved.shards[0].damaged == (2 if policy == "error" else 0)
    assert dataset.interleaved.samples == (1 if policy == "drop_sample" else 3)
    assert all((line in report) is (policy in ("error", "warn")) for line in lines)
    if policy == "error":
        assert shown["lost/000.bin"] == "missing member 'page_1_image_2'"
    if policy == "warn":
        error, _ = json.loads(shown["lost/errors.json"])
        assert error == {"position": 0, "modality": "image", "error": "missing member 'page_1_image_2'"}
    if policy == "drop_row":
        assert "3 items without bytes are left out (--on-error drop_row)" in report
    if policy == "drop_sample":
        assert "2 samples with items without bytes are left out (--on-error drop_sample)" in report


def test_which_shards_are_interleaved(tmp_path):
    make_mint_tar(tmp_path / "mint.tar", 1)
    make_wds_tar(tmp_path / "speech.tar", [("a.json", b'{"texts": ["only"]}'), ("a.wav", b"")])
    make_wds_tar(tmp_path / "plain.tar", [("a.txt", b"text")])
    dataset = open_dataset(str(tmp_path), in_memory=True)
    assert [shard.name for shard in dataset.interleaved.shards] == ["mint"]
    forced = open_dataset(str(tmp_path), options=Options(kind=INTERLEAVED), in_memory=True)
    assert [shard.name for shard in forced.interleaved.shards] == ["mint", "plain", "speech"]
    assert shown_items(forced)["speech/a/000.txt"] == b"only"
    only = open_dataset(str(tmp_path / "plain.tar"), in_memory=True)
    assert only.interleaved is None
    with pytest.raises(UsageError, match="no kind"):
        Options(kind="audio")


def test_what_is_indexed_is_not_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_mint_tar(tmp_path / "data" / "mint.tar")
    make_wds_tar(tmp_path / "data" / "plain.tar", [("a.txt", b"text")])

    def catalogs():
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.items-*.arrow")}

    first = shown_items(open_dataset(str(tmp_path / "data")))
    made = catalogs()
    assert len(made) == 1
    assert shown_items(open_dataset(str(tmp_path / "data"))) == first and catalogs() == made
    make_mint_tar(tmp_path / "data" / "mint.tar", 4)
    assert len(shown_items(open_dataset(str(tmp_path / "data")))) > len(first) and catalogs() != made
    (path,) = made
    path.write_bytes(b"damaged")
    assert len(shown_items(open_dataset(str(tmp_path / "data")))) > len(first)


def test_the_index_is_a_part_of_that_of_the_dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_mint_tar(tmp_path / "data" / "mint.tar")
    open_dataset(str(tmp_path / "data"))
    (index,) = [item for item in list_storage() if item.kind == "index"]
    files = {str(path) for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert set(index.files) == files and sum(".items-" in path for path in files) == 2


def test_an_index_in_place_moves_with_its_data(tmp_path):
    make_mint_tar(tmp_path / "data" / "mint.tar")
    first = shown_items(open_dataset(str(tmp_path / "data"), in_place=True))
    (tmp_path / "data").rename(tmp_path / "moved")
    (catalog,) = (tmp_path / "moved").rglob("*.items-*.arrow")
    made = catalog.stat()
    assert shown_items(open_dataset(str(tmp_path / "moved"), in_place=True)) == first
    assert catalog.stat().st_mtime_ns == made.st_mtime_ns and catalog.stat().st_ino == made.st_ino


def test_shards_and_keys_are_as_they_were(tmp_path, monkeypatch):
    """The catalogs of shards, and so all orders, keys and tokens, are the same bytes with and without the view."""
    make_wds_tar(tmp_path / "data" / "r.tar", [random_sample(f"s{i}", i) for i in range(20)])
    make_mint_tar(tmp_path / "data" / "mint.tar")

    def files(cache, **options):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
        dataset = open_dataset(str(tmp_path / "data"), options=Options(**options))
        kept = {path.name: path.read_bytes() for path in (tmp_path / cache).rglob("*") if path.is_file()}
        identities = [shard.identity for shard in dataset.shards]
        return {name: data for name, data in kept.items() if ".items-" not in name}, identities, dataset

    with_view, identities, dataset = files("with")
    assert dataset.interleaved is not None
    monkeypatch.setattr("touchfs.indexing.opening.open_interleaved", lambda *arguments, **options: None)
    without, others, dataset = files("without")
    assert dataset.interleaved is None and others == identities
    assert with_view.keys() == without.keys()
    assert all(
        with_view[name].replace(b"/with/", b"/without/")[19:] == data[19:]  # after the checksum
        for name, data in without.items()
        if name.endswith("json")
    )
    assert all(with_view[name] == data for name, data in without.items() if not name.endswith("json"))


@pytest.mark.parametrize("detail", [b"", b"x", bytes(11), b"\xff" * 12])
def test_damaged_places_of_texts(detail):
    stored = document("a", ["text"], [])
    with pytest.raises(FormatError, match="index with --force"):
        DOCUMENT.content(Extent(Memory(stored), 0, len(stored)), detail, LIMITS).read(0, 9)


def test_texts_that_are_not_unicode(tmp_path):
    """JSON can hold half of a surrogate pair."""
    document = rb'{"texts": ["\ud800", "fine"], "images": [null, null], "title": "\udc00"}'
    make_wds_tar(tmp_path / "t.tar", [("a.json", document)])
    shown = shown_items(open_dataset(str(tmp_path / "t.tar"), in_memory=True))
    assert shown["t/a/000.txt"] == "\ud800".encode("utf-8", "surrogatepass") and shown["t/a/001.txt"] == b"fine"
    assert json.loads(shown["t/a/metadata.json"]) == {"sample_id": "a", "title": "\udc00"}


def test_progress_while_items_are_found(tmp_path):
    path = make_wds_tar(tmp_path / "t.tar", [WdsSample(f"s{i}", ["text"], [None]) for i in range(600)])
    heard = []
    open_dataset(str(path), in_memory=True, finding_items=lambda done, total: heard.append((done, total)))
    size = path.stat().st_size
    assert heard[0] == (0, size) and heard[-1] == (size, size) and len({done for done, _ in heard}) > 3
