"""`_metadata.json` of caches: what other tools wrote is read, we build the same, and all else is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.core.errors import CacheFormatError
from touchfs.format.cache_metadata.build import build_metadata
from touchfs.format.cache_metadata.layouts import LanceMetadata, ShardedMetadata, VideoFramesMetadata, VideoRecord
from touchfs.format.cache_metadata.parse import parse_lance, parse_member, parse_metadata, parse_sharded

# As the original tool writes them.
SHARDED = """{
  "cache_format_version": 1,
  "format": "arrow",
  "layout": "arrow-shards",
  "schema_fingerprint": "39cb9288bb800052",
  "num_rows": 60,
  "num_shards": 2,
  "shard_row_counts": [
    30,
    30
  ],
  "shard_filenames": [
    "shard-00000.arrow",
    "shard-00001.arrow"
  ],
  "shard_size_target_bytes": 40000
}"""
LANCE = """{
  "cache_format_version": 1,
  "format": "lance",
  "layout": "lance-rows",
  "schema_fingerprint": "39cb9288bb800052",
  "num_rows": 60
}"""
FRAMES = """{
  "cache_format_version": 1,
  "format": "lance",
  "layout": "lance-video-frames",
  "schema_fingerprint": "0123456789abcdef",
  "num_rows": 5,
  "total_rows": 5,
  "n_videos": 1,
  "n_skipped": 1,
  "encoding": "webp",
  "quality": 65,
  "resize": null,
  "video_column": "video",
  "videos": [
    {
      "id": 1,
      "key": "b",
      "path": "/data/b.mp4",
      "checksum": null,
      "T": 5,
      "H": 12,
      "W": 16,
      "start_row": 0,
      "metadata": {
        "label": 3
      }
    }
  ]
}"""


def changed(text, **members):
    """The same metadata with other members; None removes one."""
    return json.dumps({name: value for name, value in (json.loads(text) | members).items() if value is not None})


@pytest.mark.parametrize("text", [SHARDED, LANCE, FRAMES])
def test_what_the_original_wrote_is_read_and_built(text):
    assert build_metadata(parse_metadata(text, "cache")) == text
    assert build_metadata(parse_metadata(text.encode(), "cache")) == text


def test_what_it_says():
    sharded = ShardedMetadata(
        num_rows=60,
        shard_filenames=("shard-00000.arrow", "shard-00001.arrow"),
        shard_row_counts=(30, 30),
        schema_fingerprint="39cb9288bb800052",
        shard_size_target_bytes=40000,
    )
    assert parse_metadata(SHARDED, "cache") == parse_sharded(SHARDED, "cache") == sharded
    assert parse_metadata(LANCE, "cache") == LanceMetadata(num_rows=60, schema_fingerprint="39cb9288bb800052")
    frames = parse_metadata(FRAMES, "cache")
    assert isinstance(frames, VideoFramesMetadata) and frames == parse_lance(FRAMES, "cache")
    assert (frames.n_skipped, frames.quality, frames.resize, frames.video_column) == (1, 65, None, "video")
    assert frames.videos == (
        VideoRecord(
            id=1,
            key="b",
            path="/data/b.mp4",
            checksum=None,
            frames=5,
            height=12,
            width=16,
            start_row=0,
            metadata={"label": 3},
        ),
    )
    assert [parse_member(text, "layout", "") for text in (SHARDED, LANCE, FRAMES)] == [
        "arrow-shards",
        "lance-rows",
        "lance-video-frames",
    ]
    assert [parse_member(text, "format", "") for text in (SHARDED, LANCE)] == ["arrow", "lance"]


def test_members_that_are_written_only_if_given():
    extra = {"compression": "zstd", "lineage": {"operation": "map"}, "features": {"a": {"type": "Image"}}}
    metadata = parse_sharded(changed(SHARDED, **extra), "cache")
    assert (metadata.compression, metadata.lineage, metadata.features) == tuple(extra.values())
    assert json.loads(build_metadata(metadata)) == json.loads(SHARDED) | extra
    assert parse_sharded(changed(SHARDED, schema_fingerprint=None), "cache").schema_fingerprint == ""


@pytest.mark.parametrize(
    "text, problem",
    [
        ("{", r"metadata at cache/_metadata.json is not JSON: .* Rebuild the cache"),
        (b"\xff\xfe{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        (changed(SHARDED, layout=None), "missing required 'layout'. Rebuild the cache"),
        (changed(SHARDED, layout="x"), "Unknown cache layout 'x' in cache"),
        (changed(SHARDED, layout=["x"]), "Unknown cache layout"),
        (changed(SHARDED, format=None), r"Not an Arrow sharded cache: cache \(format=None\)"),
        (changed(SHARDED, format="lance"), r"Not an Arrow sharded cache: cache \(format='lance'\)"),
        (changed(SHARDED, cache_format_version=2), r"Unsupported cache format version 2 \(expected 1\)"),
        (changed(LANCE, cache_format_version=2), r"Unsupported cache format version 2 \(expected 1\)"),
        (changed(FRAMES, cache_format_version=None), "Unsupported cache format version None"),
        (changed(SHARDED, num_shards=3), "Metadata claims 3 shards but lists 2 filenames"),
        (changed(SHARDED, shard_row_counts=[60]), "Metadata claims 2 shards but has 1 row counts"),
        (changed(SHARDED, num_rows=61), r"Sum of shard_row_counts \(60\) != num_rows \(61\)"),
        (changed(SHARDED, shard_row_counts=[-30, 90]), r"shard_row_counts\[0\] is -30, not a count"),
        (changed(SHARDED, shard_row_counts=[True, 59]), "is True, not a count"),
        (changed(SHARDED, num_rows=None), "is missing 'num_rows'"),
        (changed(SHARDED, shard_filenames=None), "is missing 'shard_filenames'"),
        (changed(SHARDED, shard_filenames="ab"), "not a list"),
        (changed(SHARDED, compression=7), "compression is 7, not text"),
        (changed(SHARDED, features=[]), "features is .*, not an object"),
        (changed(LANCE, format="arrow"), r"Not a Lance cache: cache \(format='arrow'\)"),
        (changed(LANCE, num_rows="60"), "num_rows is '60', not a count"),
        (changed(FRAMES, videos=None), "is missing 'videos'"),
        (changed(FRAMES, videos=[7]), r"videos\[0\] is missing 'T'"),
        (changed(FRAMES, num_rows=4), r"videos\[0\] has the rows 0 to 5 of 4"),
    ],
)
def test_what_is_wrong_is_named(text, problem):
    with pytest.raises(CacheFormatError, match=problem) as raised:
        parse_metadata(text, "cache")
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("name", ["/etc/passwd", "../shard.arrow", "..", ".", "", "a/b.arrow", "a\0b", 7])
def test_shards_have_bare_names(name):
    with pytest.raises(CacheFormatError, match=r"shard_filenames\[1\] is .*, not the bare name of a file in the cache"):
        parse_metadata(changed(SHARDED, shard_filenames=["shard-00000.arrow", name]), "cache")


def test_a_layout_of_the_wrong_kind():
    with pytest.raises(CacheFormatError, match=r"Not an Arrow sharded cache: cache \(format='lance'\)"):
        parse_sharded(LANCE, "cache")
    with pytest.raises(CacheFormatError, match=r"Not an Arrow sharded cache: cache \(layout=None\)"):
        parse_sharded(changed(SHARDED, layout=None), "cache")
    with pytest.raises(CacheFormatError, match=r"Not a Lance cache: cache \(format='arrow'\)"):
        parse_lance(SHARDED, "cache")
    with pytest.raises(CacheFormatError, match="missing required 'format'"):
        parse_member(changed(LANCE, format=None), "format", "cache")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from((SHARDED, LANCE, FRAMES)), st.data())
def test_hostile_metadata_are_an_error_or_round_trip(text, data):
    members = json.loads(text)
    place = members["videos"][0] if "videos" in members and data.draw(st.booleans()) else members
    place[data.draw(st.sampled_from([*place, "features", "lineage"]))] = data.draw(JSON)
    try:
        metadata = parse_metadata(json.dumps(members), "cache")
    except CacheFormatError as error:
        assert "\n" not in str(error)
    else:
        again = parse_metadata(build_metadata(metadata), "cache")
        assert build_metadata(again) == build_metadata(metadata)
