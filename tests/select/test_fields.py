"""Fields of `where` besides those of the JSON: the names of classes, and small text files."""

import json
import logging
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from arrow_tables import write_arrow
from tars import write_tar

import touchfs
from touchfs.core.errors import UsageError


def keys(dataset: Any, where: str, **options: Any) -> list[str]:
    return [sample.key for sample in touchfs.open(dataset, **options).where(where)]


FEATURES = json.dumps({name: {"type": "ClassLabel", "names": ["cat", "dog"]} for name in ("label", "other")})
TABLE = pa.table({"id": [*"abcd"], "label": [0, 1, None, -1], "other": [1, 1, 0, 0], "n": [1, 2, 3, 4]})


@pytest.mark.parametrize("form", ["arrow", "parquet", "lance"])
def test_class_labels_compare_by_name_and_number(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"x.{form}"
    write = {"arrow": write_arrow, "parquet": lambda path, table: pq.write_table(table, path)}
    write.get(form, lambda path, table: lance.write_dataset(table, str(path)))(path, TABLE)
    for where, wanted in {
        "label == 'dog'": "b",
        "label == 1": "b",
        "label in ['cat', 1]": "ab",
        "label != 'dog'": "acd",
        "label > 'cat'": "b",
        "label contains 'at'": "a",
        "other == 'dog' and label == 0": "a",
        "not label == 'dog'": "acd",
    }.items():
        assert keys(path, where, features=FEATURES) == [*wanted], where
    with pytest.raises(UsageError, match="n is a number, never a text"):
        keys(path, "n == 'dog'", features=FEATURES)


def test_small_text_files_are_fields(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    members = {
        "a.cls": b"3\n",
        "a.caption": "ein Hünd".encode(),
        "a.jpg": b"\xff\xd8\xff",
        "b.cls": b"7",
        "b.caption": b"a cat",
        "b.json": b'{"caption": "a dog", "n": 1}',
        "c.txt": b"x" * 100_000,
        "c.cls": b"dog",
    }
    path = write_tar(tmp_path / "x.tar", members)
    with caplog.at_level(logging.WARNING):
        assert keys(path, "cls == 3") == ["a"] == keys(path, "cls == '3'") == keys(path, "caption contains 'Hünd'")
        assert keys(path, "cls > 3") == ["b"] and keys(path, "cls == 'dog'") == ["c"]
        caplog.clear()
        assert keys(path, "caption contains 'dog'") == ["b"]
        assert keys(path, "caption contains 'cat'") == []
    told = "where: caption is the field of the .json, not the file .caption"
    assert caplog.messages == [told] * 2
    with pytest.raises(UsageError, match="no sample has the field jpg"):
        keys(path, "jpg == 'x'")


def test_recordings_of_unknown_length_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    members = {"a.mp3": b"ID3", "a.json": b'{"n": 1}', "b.json": b'{"duration": 2.5, "n": 2}', "c.txt": b""}
    path = write_tar(tmp_path / "x.tar", members)
    assert keys(path, "duration > 1 and n > 0") == ["b"]
    assert caplog.messages == ["where: 1 sample has no known duration: `touchfs index --full`"]
