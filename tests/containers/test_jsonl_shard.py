"""JSON lines as a shard: each line a file, byte for byte."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from conformance import Expected, check_shard
from hypothesis import given, settings
from hypothesis import strategies as st
from shown import files

from touchfs.catalog.catalog import Catalog
from touchfs.containers.lines import reader as jsonl
from touchfs.indexing.catalogs import make_catalog
from touchfs.registry.open import open_shard
from touchfs.shard.options import Options


def shown(path: Path) -> tuple[dict[str, bytes], str]:
    catalog = str(path.parent / "catalog.arrow")
    facts = make_catalog(str(path), catalog)
    return files(Catalog(catalog), str(path)), facts.report


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    lines = [
        b'{"id": "a/b", "key": "no"}\n',
        b"\n",
        b'{"key": 7}\r\n',
        b"  \n",
        b'{"cut_id": "\xe8\xaf\xad"}\n',
        b'{"id": "", "x": 1}\n',
        b'{"id": "a/b"}\n',
        b"[1]\n",
        b"{nonsense\n",
        b'{"id": "last"}',
    ]
    path.write_bytes(b"".join(lines))
    keys = ["a/b", "7", "语", "00000003", "a/b", "00000005", "00000006", "last"]
    kept = [line for line in lines if line.strip()]
    check_shard(
        lambda: open_shard(str(path), Options()),
        [
            Expected(key, {"json": line}, line[:1] != b"{" or b"non" in line)
            for key, line in zip(keys, kept, strict=True)
        ],
    )
    found, report = shown(path)
    report_file = found.pop("ERROR.txt")
    assert report_file.decode() == report and "the line at byte" in report
    names = ["a/b", "7", "语", "00000003", "a/b~2", "00000005", "00000006", "last"]
    assert found == {f"{name}.json": line for name, line in zip(names, kept, strict=True)}


def test_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "a"}\n{"id": "b"}\n')
    assert shown(tmp_path / "x.jsonl") == ({"a.json": b'\xef\xbb\xbf{"id": "a"}\n', "b.json": b'{"id": "b"}\n'}, "")


@settings(max_examples=settings().max_examples // 3)
@given(
    st.lists(
        st.sampled_from(["", " ", "\r"]) | st.dictionaries(st.sampled_from(["id", "key", "x"]), st.text(max_size=9))
    ),
    st.integers(1, 40),
    st.booleans(),
)
def test_any_lines_and_blocks(values: list[object], block: int, ended: bool) -> None:
    lines = [(v if isinstance(v, str) else json.dumps(v)).encode() + b"\n" for v in values]
    data = b"".join(lines) if ended else b"".join(lines)[:-1]
    expected = [line for line in data.split(b"\n") if line.strip()]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "x.jsonl"
        path.write_bytes(data)
        before, jsonl.BLOCK_SIZE = jsonl.BLOCK_SIZE, block
        try:
            found, report = shown(path)
        finally:
            jsonl.BLOCK_SIZE = before
        assert report == ""
        assert sorted(line.rstrip(b"\n") for line in found.values()) == sorted(expected)
