"""DATASET:PATH: where the name of a dataset ends, and a path in its tree begins."""

import pytest

from touchfs.indexing.dataset_path import ROOT_NAMES, split_dataset_path
from touchfs.tree import tree


def test_names_of_the_root():
    assert {*ROOT_NAMES} == {name for name in tree._NUMBERS if "/" not in name}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train", ("train", "")),
        ("train:shards//a/", ("train", "shards/a")),
        ("train:a", ("train", "a")),
        ("train:", ("train", "")),
        ("train:1", ("train:1", "")),  # a directory of that name exists
        ("train:1:shards/a:b", ("train:1", "shards/a:b")),
        ("train:shards", ("train:shards", "")),  # so does this one
        ("train:shards:shards/a", ("train:shards", "shards/a")),
        ("C:/data", ("C:/data", "")),
        ("C:/data:shards/a", ("C:/data", "shards/a")),
        ("C:/nosuch:shards/a", ("C:/nosuch", "shards/a")),
        ("nosuch:1", ("nosuch:1", "")),
        (":shards", (":shards", "")),
        ("s3://bucket:shards", ("s3://bucket", "shards")),
        ("s3://bucket/2024-01-01T10:00:00/x.tar", ("s3://bucket/2024-01-01T10:00:00/x.tar", "")),
        ("s3://bucket/2024-01-01T10:00:00/x.tar:shards/a:b", ("s3://bucket/2024-01-01T10:00:00/x.tar", "shards/a:b")),
        ("http://[::1]:80/x", ("http://[::1]:80/x", "")),
        ("http://host:80/x:by-key/a", ("http://host:80/x", "by-key/a")),
        ("http://host/a.tar?signature=%3A:shards/a", ("http://host/a.tar?signature=%3A", "shards/a")),
        ("zip://a:b.tar::s3://bucket/all.zip:shards/a", ("zip://a:b.tar::s3://bucket/all.zip", "shards/a")),
        ("zip+s3://bucket/all.zip!/a:b.tar:shards/a", ("zip+s3://bucket/all.zip!/a:b.tar", "shards/a")),
    ],
)
def test_split(tmp_path, monkeypatch, text, expected):
    monkeypatch.chdir(tmp_path)
    for name in ("train", "train:1", "train:shards", "C:/data"):
        (tmp_path / name).mkdir(parents=True)
    assert split_dataset_path(text) == expected
