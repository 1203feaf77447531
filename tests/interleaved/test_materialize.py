"""Images get the bytes that their locators name, each read once, and errors where they name none."""

import gzip
import tarfile

import fsspec
import pytest
from interleaved_tars import make_image, make_wds_tar
from item_rows import batch_of, contents, errors, image_row, ranges_of, text_row
from tars import add

from touchfs.core.errors import ArgumentValueError
from touchfs.interleaved.items.batch import InterleavedBatch
from touchfs.interleaved.items.materialize import materialize, materialized_parts
from touchfs.source.local import LocalFile

IMAGES = {f"a.{i}.png": make_image("png", seed=i) for i in range(4)}


@pytest.fixture
def tar(tmp_path):
    return make_wds_tar(tmp_path / "x.tar", IMAGES.items())


@pytest.fixture
def reads(monkeypatch):
    """The ranges that are read of local files."""
    found = []
    original = LocalFile.read

    def read(self, offset, length):
        found.append((self.path, offset, length))
        return original(self, offset, length)

    monkeypatch.setattr(LocalFile, "read", read)
    return found


def in_tar(tar, name, position=0, **columns):
    offset, size = ranges_of(tar)[name]
    return image_row(position, str(tar), name, offset, size, **columns)


def test_a_range_of_a_tar(tar):
    found = materialize(batch_of([in_tar(tar, "a.1.png")], str(tar)))
    assert contents(found) == [IMAGES["a.1.png"]]
    assert errors(found) == [None]


def test_a_member_whose_range_is_not_known(tar):
    rows = [image_row(0, str(tar), "a.1.png"), image_row(1, str(tar), "a.2.png", 0, 0)]
    assert contents(materialize(batch_of(rows, str(tar)))) == [IMAGES["a.1.png"], IMAGES["a.2.png"]]


def test_a_file_of_its_own_by_a_path_relative_to_the_shard(tar, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(IMAGES["a.0.png"])
    assert contents(materialize(batch_of([image_row(0, "images/a.png")], str(tar)))) == [IMAGES["a.0.png"]]


def test_a_range_without_a_member_reads_only_the_range(tmp_path, reads):
    """The original reads the whole file."""
    (tmp_path / "a.bin").write_bytes(b"0123456789" * 100)
    shard = str(tmp_path / "x.parquet")
    rows = [image_row(0, "a.bin", None, 10, 5), image_row(1, "a.bin", None, None, 4)]
    assert contents(materialize(batch_of(rows, shard))) == [b"01234", b"0123"]
    assert [(offset, length) for _, offset, length in reads if length > 6] == []


def test_mixed_strategies_in_one_batch_and_rows_that_stay_as_they_are(tar, tmp_path):
    (tmp_path / "b.png").write_bytes(b"file")
    rows = [
        text_row(0, "hello"),
        in_tar(tar, "a.0.png", 1),
        image_row(2, str(tar), "a.1.png"),
        image_row(3, "b.png"),
        image_row(4),
        image_row(5, "b.png", binary_content=b"had"),
        {"sample_id": "s", "position": -1, "modality": "metadata", "source_ref": rows_ref(tar)},
    ]
    found = materialize(batch_of(rows, str(tar)))
    assert contents(found) == [None, IMAGES["a.0.png"], IMAGES["a.1.png"], b"file", None, b"had", None]
    assert errors(found) == [None, None, None, None, "missing path", None, None]
    assert found.table.column_names == batch_of(rows).table.column_names


def rows_ref(tar):
    return image_row(0, str(tar), "a.0.png")["source_ref"]


@pytest.mark.parametrize("ref", [None, "", "{}", '{"path": null}', '{"path": ""}'])
def test_missing_paths(ref):
    assert errors(materialize(batch_of([image_row(0) | {"source_ref": ref}]))) == ["missing path"]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (("x.tar", "gone.png"), "missing member 'gone.png'"),
        (("gone.tar", "a.png"), "failed to read path"),
        (("gone.png",), "failed to read path"),
        (("x.tar", "a.0.png", 10**9, 5), "empty range read for member 'a.0.png'"),
        (("x.tar", "a.0.png", 512, 10**8), "range read error for member 'a.0.png'"),
        (("x.tar", None, 5, 0), "empty range read for path 'x.tar'"),
        (("x.tar", None, 5, None), "an offset without a size: 'x.tar'"),
        (("notes.txt", "a.png"), "failed to read path"),
    ],
)
def test_errors(tar, tmp_path, row, error):
    (tmp_path / "notes.txt").write_bytes(b"no tar" * 200)
    found = materialize(batch_of([image_row(0, *row), in_tar(tar, "a.1.png", 1)], str(tar)))
    assert errors(found) == [error, None]
    assert contents(found) == [None, IMAGES["a.1.png"]]


@pytest.mark.parametrize(
    "text", ["no JSON", "[1]", '{"path": "a", "byte_offset": "x"}', '{"path": "a", "byte_size": -1}']
)
def test_a_locator_that_is_none_is_an_error_of_its_row(tar, text):
    found = materialize(batch_of([image_row(0) | {"source_ref": text}, in_tar(tar, "a.1.png", 1)], str(tar)))
    assert "source_ref" in str(errors(found)[0])
    assert contents(found)[1] == IMAGES["a.1.png"]


def test_identical_ranges_are_read_once(tar, reads):
    rows = [in_tar(tar, "a.1.png", position) for position in range(5)]
    assert contents(materialize(batch_of(rows, str(tar)))) == [IMAGES["a.1.png"]] * 5
    offset, size = ranges_of(tar)["a.1.png"]
    assert [(at, length) for _, at, length in reads].count((offset, size)) == 1


def test_an_image_that_is_named_without_end(tmp_path):
    """Else a tar of 20 MB and a list of 300 names would take 6 GB. Frames of what is no TIFF are all of it, too."""
    data = IMAGES["a.1.png"]
    path = make_wds_tar(tmp_path / "b.tar", [("a.png", data), ("b.tiff", data)])
    frames = [image_row(i, str(path), "b.tiff", frame=i) for i in range(20)]
    found = materialize(batch_of([*(in_tar(path, "a.png", i) for i in range(20)), *frames], str(path)))
    assert contents(found) == [data] * 40
    found = materialize(found.replaced(found.table.drop_columns(["binary_content"])), max_decoded=5 * len(data))
    assert contents(found).count(data) == 2 + 5
    assert errors(found).count(None) == 2 + 5
    assert {error.partition(": ")[0] for error in errors(found) if error} == {
        "member 'b.tiff' repeated",
        "member 'a.png' repeated",
    }


def test_success_clears_an_error_of_before_and_failure_replaces_it(tar):
    rows = [in_tar(tar, "a.1.png", materialize_error="before"), image_row(1, materialize_error="before")]
    assert errors(materialize(batch_of(rows, str(tar)))) == [None, "missing path"]


def test_rows_with_bytes_are_read_again_only_when_asked(tar):
    batch = batch_of([in_tar(tar, "a.1.png", binary_content=b"old")], str(tar))
    assert contents(materialize(batch)) == [b"old"]
    assert contents(materialize(batch, only_missing_binary=False)) == [IMAGES["a.1.png"]]


def test_only_some_content_types(tar):
    rows = [
        in_tar(tar, "a.0.png"),
        in_tar(tar, "a.1.png", 1, content_type="image/jpeg"),
        image_row(2, content_type=None),
    ]
    found = materialize(batch_of(rows, str(tar)), content_types=("image/jpeg",))
    assert contents(found) == [None, IMAGES["a.1.png"], None]
    assert errors(found) == [None, None, None]


def test_an_empty_batch_and_one_without_images():
    assert materialize(InterleavedBatch()).count() == 0
    found = materialize(batch_of([text_row(0, "hello")]))
    assert found.table.to_pylist() == batch_of([text_row(0, "hello")]).table.to_pylist()


def test_columns_of_the_user_stay(tar):
    """The original adds columns of these names, and removes them."""
    row = in_tar(tar, "a.0.png", _src_path="mine", _src_own="also", url="u")
    found = materialize(batch_of([row], str(tar))).table.to_pylist()[0]
    assert (found["_src_path"], found["_src_own"], found["url"]) == ("mine", "also", "u")


def test_a_data_frame_is_materialised_too(tar):
    batch = batch_of([in_tar(tar, "a.0.png"), text_row(1, "t")], str(tar))
    found = materialize(batch.replaced(batch.to_pandas()))
    assert contents(found) == [IMAGES["a.0.png"], None]


def test_checksums_of_locators(tar):
    wrong = in_tar(tar, "a.0.png")
    offset, size = ranges_of(tar)["a.0.png"]
    wrong = image_row(0, str(tar), "a.0.png", offset, size, checksum="CRC32:00000000")
    found = materialize(batch_of([wrong], str(tar)))
    assert contents(found) == [None]
    assert "CRC32" in str(errors(found)[0])


def test_no_image_over_the_limit(tar):
    rows = [in_tar(tar, "a.0.png"), image_row(1, str(tar)), image_row(2, str(tar), "a.1.png")]
    found = materialize(batch_of(rows, str(tar)), max_decoded=100)
    assert contents(found) == [None] * 3
    assert errors(found) == ["range read error for member 'a.0.png'", "failed to read path", "failed to read path"]


def test_parts_bound_what_is_in_memory_at_a_time(tar):
    rows = [in_tar(tar, name, sample_id=name) for name in IMAGES]
    batch = batch_of(rows, str(tar))
    largest = max(map(len, IMAGES.values()))
    parts = list(materialized_parts(batch, 2 * largest + 1000))
    assert [part.count() for part in parts] == [2, 2]
    assert [content for part in parts for content in contents(part)] == list(IMAGES.values())
    assert all(part.source_files == batch.source_files for part in parts)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst"])
def test_ranges_into_a_compressed_tar_are_never_wrong(tmp_path, suffix):
    """The original reads ranges of the decompressed tar from the compressed file, without an error."""
    plain = make_wds_tar(tmp_path / "y.tar", IMAGES.items())
    compressed = make_wds_tar(tmp_path / f"x{suffix}", IMAGES.items())
    rows = [image_row(i, str(compressed), name, *ranges_of(plain)[name]) for i, name in enumerate(IMAGES)]
    rows += [image_row(8, str(compressed), "a.0.png"), image_row(9, str(compressed), None, 512, 100)]
    found = materialize(batch_of(rows, str(compressed)))
    assert contents(found) == [*IMAGES.values(), IMAGES["a.0.png"], None]
    assert errors(found) == [None] * 5 + [f"ranges of a compressed tar are not read: '{compressed}'"]


def test_a_compressed_tar_whose_name_does_not_say_so(tmp_path):
    compressed = make_wds_tar(tmp_path / "x.tar.gz", IMAGES.items()).rename(tmp_path / "x.tar")
    plain = make_wds_tar(tmp_path / "y.tar", IMAGES.items())
    rows = [image_row(0, str(compressed), "a.0.png", *ranges_of(plain)["a.0.png"])]
    found = materialize(batch_of(rows, str(compressed)))
    assert (contents(found), errors(found)) == ([None], ["range read error for member 'a.0.png'"])


@pytest.mark.parametrize(("name", "is_read"), [("X.TAR.GZ", True), ("x.tar.gz?y", False), ("x.gz", False)])
def test_compressed_tars_of_other_names(tmp_path, name, is_read):
    path = make_wds_tar(tmp_path / "x.tar.gz", IMAGES.items()).rename(tmp_path / name)
    found = materialize(
        batch_of([image_row(0, str(path), "a.0.png"), image_row(1, str(path), "a.0.png", 9, 9)], str(path))
    )
    assert contents(found) == [IMAGES["a.0.png"] if is_read else None] * 2


def test_a_member_over_the_limit_leaves_the_others(tmp_path):
    files = [("large.png", bytes(5000)), ("small.png", b"small")]
    tar, compressed = make_wds_tar(tmp_path / "x.tar", files), make_wds_tar(tmp_path / "x.tar.gz", files)
    memory = fsspec.filesystem("memory")
    memory.pipe("/four/x.tar.gz", compressed.read_bytes())
    paths = [str(tar), str(compressed), "memory://four/x.tar.gz"]
    rows = [image_row(0, path, name) for path in paths for name, _ in files]
    found = materialize(batch_of(rows, *paths[:2]), ["memory://four"], max_decoded=1000)
    assert contents(found) == [None, b"small"] * 3
    assert errors(found) == ["failed to read path", None] * 3


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst"])
def test_compressed_tars_of_another_store(tmp_path, suffix):
    path = make_wds_tar(tmp_path / f"x{suffix}", IMAGES.items())
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/five/x{suffix}": path.read_bytes(), f"/five/cut{suffix}": path.read_bytes()[:-20]})
    rows = [image_row(0, f"memory://five/{name}{suffix}", "a.1.png") for name in ("x", "cut")]
    found = materialize(batch_of(rows), locations=["memory://five"])
    assert contents(found) == [IMAGES["a.1.png"], None]
    assert errors(found) == [None, "failed to read path"]


def test_links_in_a_tar_are_followed(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        add(tar, "d/a.png", b"abc")
        for name, kind, target in (("hard", tarfile.LNKTYPE, "d/a.png"), ("d/soft", tarfile.SYMTYPE, "a.png")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, target
            tar.addfile(link)
        out = tarfile.TarInfo("out")
        out.type, out.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(out)
    rows = [image_row(0, "x.tar", name) for name in ("d/a.png", "hard", "d/soft", "out", "d")]
    found = materialize(batch_of(rows, str(tmp_path / "y.parquet")))
    assert contents(found) == [b"abc", b"abc", b"abc", None, None]


def test_options_of_no_location_are_refused(tar):
    with pytest.raises(ArgumentValueError, match="storage options are given for locations"):
        materialize(batch_of([in_tar(tar, "a.0.png")], str(tar)), storage_options={"anon": {}})


def test_a_file_system_that_is_not_known(tar):
    rows = [image_row(0, "nosuch://bucket/a.png"), in_tar(tar, "a.0.png", 1)]
    found = materialize(batch_of(rows, str(tar)), locations=["nosuch://bucket"])
    assert errors(found) == ["failed to resolve filesystem", None]


def test_each_range_of_another_store_is_asked_for_once(monkeypatch):
    memory = fsspec.filesystem("memory")
    memory.pipe({"/one/a": b"0123456789", "/one/b": b"abcdefghij"})
    calls = []
    original = type(memory).cat_file

    def cat_file(self, path, start=None, end=None, **options):
        calls.append((path, start, end))
        return original(self, path, start, end, **options)

    monkeypatch.setattr(type(memory), "cat_file", cat_file)
    rows = [
        image_row(0, "memory://one/a", "m", 2, 3),
        image_row(1, "memory://one/b", "m", 0, 2),
        image_row(2, "memory://one/a", "m", 2, 3),
        image_row(3, "memory://one/b", "m", 8, 5),
        image_row(4, "memory://one/gone", "m", 0, 5),
    ]
    found = materialize(batch_of(rows), locations=["memory://one"])
    assert contents(found) == [b"234", b"ab", b"234", None, None]
    assert errors(found)[3:] == ["range read error for member 'm'"] * 2
    assert sorted(each for each in calls if each[1:] != (0, 6)) == [
        ("/one/a", 2, 5),
        ("/one/b", 0, 2),
        ("/one/b", 8, 13),
        ("/one/gone", 0, 5),
    ]
    assert len(calls) == 7  # and the first bytes of each file, as a compressed tar has no ranges


def test_a_compressed_tar_in_memory_whose_name_does_not_say_so(tmp_path):
    plain = make_wds_tar(tmp_path / "y.tar", IMAGES.items())
    fsspec.filesystem("memory").pipe("/two/x.tar", gzip.compress(plain.read_bytes()))
    rows = [image_row(0, "memory://two/x.tar", "a.0.png", *ranges_of(plain)["a.0.png"])]
    assert contents(materialize(batch_of(rows), locations=["memory://two"])) == [None]
