"""What is a backend is decided without touching its data."""

from __future__ import annotations

import inspect
import subprocess
import sys

from touchfs.backend import ArrowBackend, StorageBackend


class Costly:
    prefer_batched_take = True
    num_rows = num_shards = 0
    is_file_backed = True
    schema = get_row = take = slice = iter_batches = __setstate__ = __getstate__ = print

    @property
    def table(self):
        raise AssertionError("it was read")


def test_isinstance_reads_nothing():
    assert isinstance(Costly(), StorageBackend)


def test_a_missing_member_is_seen():
    class Lacking(Costly):
        take = None

    assert not isinstance(Lacking(), StorageBackend)
    assert not isinstance([], StorageBackend)


def test_a_subclass_is_an_instance_of_itself_only():
    class Own(StorageBackend):
        pass

    assert not isinstance(Costly(), Own)


def test_names_and_defaults_of_parameters():
    """They are those of stable-datasets."""
    assert list(inspect.signature(ArrowBackend).parameters) == ["shard_paths", "table", "shard_row_counts", "schema"]
    for parameter in inspect.signature(ArrowBackend).parameters.values():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY and parameter.default is None
    defaults = {"shard_indices": None, "shuffle": False, "seed": None}
    for backend in (ArrowBackend, StorageBackend):
        found = inspect.signature(backend.iter_batches).parameters
        assert {name: each.default for name, each in found.items() if name != "self"} == defaults
        assert list(inspect.signature(backend.get_row).parameters) == ["self", "idx"]
        assert list(inspect.signature(backend.take).parameters) == ["self", "indices"]
        assert list(inspect.signature(backend.slice).parameters) == ["self", "start", "length"]


def test_without_pyarrow_the_protocol_is_there_and_the_extra_is_named():
    code = """
import sys
sys.modules["pyarrow"] = None
import touchfs.backend
from touchfs.core.errors import MissingExtraError
touchfs.backend.StorageBackend
try:
    touchfs.backend.ArrowBackend
except MissingExtraError as error:
    print(error)
"""
    assert "touchfs-shards[arrow]" in subprocess.check_output([sys.executable, "-c", code], text=True)
