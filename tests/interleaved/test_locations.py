"""Data opens only what lies beside it, or below an allowed location. Everything else is an error of its row."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleaved_tars import make_wds_tar
from item_rows import batch_of, contents, errors, image_row

from touchfs.core.errors import ArgumentValueError, LocationError
from touchfs.interleaved.items.materialize import materialize
from touchfs.source.named.addresses import parse_address
from touchfs.source.named.locations import LocalPlace, Locations, RemotePlace

SECRET = b"root:secret"


@pytest.fixture
def data(tmp_path):
    """A dataset, and a secret that lies outside of it."""
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.png").write_bytes(b"elsewhere")
    directory = tmp_path / "data"
    make_wds_tar(directory / "x.tar", [("a.png", b"in tar")])
    (directory / "images").mkdir()
    (directory / "images" / "a.png").write_bytes(b"beside")
    (directory / "link-in").symlink_to("images/a.png")
    (directory / "link-out").symlink_to("../secret")
    (directory / "link-up").symlink_to("..")
    (directory / "link-absolute").symlink_to(tmp_path / "secret")
    (directory / "link-shadow").symlink_to("/etc/shadow")
    (directory / "link.tar").symlink_to("../outside.tar")
    make_wds_tar(tmp_path / "outside.tar", [("a.png", SECRET)])
    os.mkfifo(directory / "pipe")
    return directory


def fetched(data, path, *locations, **row):
    found = materialize(batch_of([image_row(0, path, **row)], str(data / "x.tar")), locations)
    return contents(found)[0], errors(found)[0]


@pytest.mark.parametrize("path", ["images/a.png", "./images/a.png", "link-in", "images/../images/a.png"])
def test_files_below_the_dataset_are_read(data, path):
    assert fetched(data, path) == (b"beside", None)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/shadow",
        "/etc/passwd",
        "../secret",
        "images/../../secret",
        "link-out",
        "link-up/secret",
        "link-absolute",
        "link-shadow",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "FILE:///etc/passwd",
        "local:///etc/passwd",
        "http://169.254.169.254/latest/meta-data/",
        "https://example.invalid/a.png",
        "s3://bucket/a.png",
        "memory://a",
        "data:text/plain,hello",
        "simplecache::file:///etc/passwd",
        "filecache::http://169.254.169.254/",
        "zip://a.png::file:///etc/archive.zip",
        "x.tar::split_00000",
        "images/a.png\0.jpg",
        "pipe",
        "images",
        ".",
        "/proc/self/environ",
        "/dev/zero",
    ],
)
@pytest.mark.parametrize(
    "row", [{}, {"offset": 0, "size": 5}, {"member": "a.png"}, {"member": "a.png", "offset": 0, "size": 5}]
)
def test_nothing_else_is(data, path, row):
    content, error = fetched(data, path, **row)
    assert content is None
    assert error is not None and "\n" not in error


@pytest.mark.parametrize("row", [{"member": "a.png"}, {"member": "a.png", "offset": 512, "size": 11}])
def test_a_tar_that_a_link_outside_leads_to(data, row):
    assert fetched(data, "link.tar", **row)[0] is None


def test_errors_say_how_to_allow_it(data):
    for path in ("/etc/shadow", "https://example.invalid/a.png"):
        error = fetched(data, path)[1]
        assert path in error and "--allow-location" in error


def test_an_absolute_path_of_the_dataset_is_refused_unless_it_is_the_shard_that_was_read(data):
    assert fetched(data, str(data / "images" / "a.png"))[0] is None
    assert fetched(data, str(data / "x.tar"), member="a.png") == (b"in tar", None)


def test_a_shard_that_gave_several_batches_is_still_the_shard(data):
    batch = batch_of([image_row(0, str(data / "x.tar"), "a.png")], f"{data}/x.tar::split_00001")
    assert contents(materialize(batch)) == [b"in tar"]


def test_allowed_directories_and_files(data, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "out").symlink_to(tmp_path / "secret")
    for location in (elsewhere, f"{elsewhere}/", elsewhere / "a.png"):
        assert fetched(data, str(elsewhere / "a.png"), str(location)) == (b"elsewhere", None)
    assert fetched(data, str(elsewhere / "out"), str(elsewhere))[0] is None
    assert fetched(data, f"{elsewhere}/../secret", str(elsewhere))[0] is None
    assert fetched(data, f"{elsewhere}2/a.png", str(elsewhere))[0] is None
    assert fetched(data, f"file://{elsewhere}/a.png", str(elsewhere))[0] is None


def test_all_files_of_the_machine_can_be_allowed(data, tmp_path):
    assert fetched(data, str(tmp_path / "secret"), "/") == (SECRET, None)


def test_shards_of_two_directories(data, tmp_path):
    """A relative path is looked for beside each shard that a batch came from."""
    batch = batch_of([image_row(0, "a.png")], str(data / "x.tar"), str(tmp_path / "elsewhere" / "y.tar"))
    assert contents(materialize(batch)) == [b"elsewhere"]


def test_a_relative_path_needs_a_dataset():
    assert "not known" in str(errors(materialize(batch_of([image_row(0, "a.png")])))[0])


LOCATION = "http://host/data"


@pytest.mark.parametrize(
    "url", ["http://host/data", "http://HOST/data/a.png", "http://host/data/a/b?x=1", "HTTP://host/data/x"]
)
def test_urls_below_a_location(url):
    assert isinstance(Locations(allowed=[LOCATION]).find(url), RemotePlace)


@pytest.mark.parametrize(
    "url",
    [
        "https://host/data/a",
        "http://host.evil/data/a",
        "http://host:8080/data/a",
        "http://host@evil/data/a",
        "http://user@host/data/a",
        "http://host\\@evil/data/a",
        "http://evil#http://host/data/",
        "http://evil?http://host/data/",
        "http://host/database",
        "http://host/data/../secret",
        "http://host/data/%2e%2e/secret",
        "http://host/data/%2E./secret",
        "http://host/data/a%2f..%2f..%2fsecret",
        "http://host/data/./a",
        "http://host /data/a",
        "http://host/data/a\nb",
        "http:///data/a",
        "http:/host/data/a",
        "http:host/data/a",
        "//host/data/a",
        "zip://a::http://host/data/a.zip",
    ],
)
def test_urls_that_only_look_like_it(url):
    with pytest.raises(LocationError):
        Locations(allowed=[LOCATION]).find(url)


@pytest.mark.parametrize(
    "location", ["", "file:///data", "local://x", "http://", "http:///x", "s3://b/../c", "a:b", "s3://b::x"]
)
def test_locations_that_cannot_be_allowed(location):
    with pytest.raises(ArgumentValueError):
        Locations(allowed=[location])


def test_keys_of_other_stores_may_have_blanks():
    assert isinstance(Locations(allowed=["s3://b"]).find("s3://b/my file\\1.png"), RemotePlace)
    assert isinstance(Locations(source_files=["s3://b/my file.tar"]).find("s3://b/my file.tar"), RemotePlace)


def test_relative_paths_of_a_dataset_in_another_store():
    places = Locations(source_files=["memory://d/x.parquet"])
    place = places.find("images/a.png")
    assert isinstance(place, RemotePlace) and place.url == "memory://d/images/a.png"
    for path in ("../a.png", "a/../../b", "memory://e/a.png", "/etc/passwd"):
        with pytest.raises(LocationError):
            places.find(path)


@given(st.text("abch:/.%2eE@?#\\ ~", max_size=30))
def test_any_text_is_below_the_location_or_refused(text):
    places = Locations(source_files=["/d/x.tar"], allowed=[LOCATION, "/data/images"])
    for path in (text, f"http://host/data/{text}", f"http://host/data{text}", f"/data/images{text}"):
        try:
            place = places.find(path)
        except LocationError:
            continue
        if isinstance(place, LocalPlace):
            assert place.root in ("/d", "/data/images") or place.path == "/data/images"
            assert place.root is None or not os.path.isabs(place.path)
        else:
            assert parse_address(place.url).parts[:2] == ("host", "data")
