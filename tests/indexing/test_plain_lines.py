"""Plain lines, which are indexed together, get the catalog that they get one by one."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from touchfs.containers.lines import reader as jsonl
from touchfs.containers.lines.reader import JsonlShard
from touchfs.core import names
from touchfs.indexing.catalogs import make_catalog
from touchfs.segments.json_rules import MEMBERS
from touchfs.shard.options import DEFAULT, Options

KEYS = st.sampled_from(["a", "b", "a/b", "a.json", ".", "ERROR", "é", "%41", "\0", "", "x" * 252]) | st.text(max_size=3)
ODD_LINES = [
    *(b"", b" \r", b"[1]", b'{"id": ', b'\xff{"id": 1}', b'\xef\xbb\xbf{"id": "bom"}', b'{"id": "\\ud800"}'),
    *(b'{"id": "\xff"}', b'{"id": 12345678901234567890, "n": NaN}\r', b"[" * 900, b'{"id": true, "key": "k"}'),
]
SEGMENTS = st.sampled_from([{}, {"segments": [{"start": 0, "end": 1, "text": "a"}]}, {"words": []}, {"chunks": [{}]}])
LINES = st.dictionaries(st.sampled_from(["id", "key", "cut_id", "text"]), KEYS | st.integers(), max_size=3)
OBJECTS = st.builds(lambda line, segments: json.dumps(line | segments).encode(), LINES, SEGMENTS)


def catalog(path: Path, options: Options = DEFAULT) -> bytes:
    make_catalog(str(path), str(path.with_suffix(".catalog")), options)
    return path.with_suffix(".catalog").read_bytes()


@given(
    lines=st.lists(OBJECTS | st.sampled_from(ODD_LINES), max_size=20) | st.lists(OBJECTS, max_size=20),
    options=st.sampled_from([DEFAULT, Options(segments="words"), Options(segments="srt")]),
    block=st.integers(1, 9),
    ends=st.booleans(),
)
def test_runs_make_the_same_catalog_as_single_lines(tmp_path_factory, lines, options, block, ends):
    path = tmp_path_factory.mktemp("lines") / "data.jsonl"
    path.write_bytes(b"\n".join(lines) + (b"\n" if ends else b""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BLOCK_LINES", block)
        together = catalog(path, options)
        patch.setattr(JsonlShard, "runs", JsonlShard.samples)
        patch.setattr(names, "_plain_names", lambda keys, extensions: None)
        assert together == catalog(path, options)


@pytest.mark.parametrize("member", sorted(MEMBERS))
def test_a_line_with_segments_is_not_plain(tmp_path, member):
    entry = {"start": 0, "duration": 1, "end": 1, "txt": "one", "text": "one"}
    others = {
        "info": {"segments": [entry]},
        "results": {"utterances": [entry]},
        "timestamp": {"segment": [entry]},
        "transcription": [{"offsets": {"from": 0, "to": 1000}, "text": "one"}],
    }
    with_segments = {"id": "b", "audio_url": "a.wav", member: others.get(member, [entry])}
    plain, path = {"id": "a"}, tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (plain, with_segments, plain)))
    facts = make_catalog(str(path), str(tmp_path / "catalog"))
    assert (facts.samples, facts.segments) == (3, 1)
