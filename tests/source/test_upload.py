"""Files that are written to stores."""

import threading

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from touchfs.core.errors import SourceTimeoutError
from touchfs.source.upload import new_file


def test_a_store_that_does_not_answer_is_not_waited_for(monkeypatch):
    is_over = threading.Event()
    monkeypatch.setattr(MemoryFileSystem, "put_file", lambda *_: is_over.wait(30))
    monkeypatch.setenv("TOUCHFS_STORE_TIMEOUT", "1")
    try:
        with pytest.raises(SourceTimeoutError), new_file("memory://bucket/a.bin") as file:
            file.write(b"abc")
    finally:
        is_over.set()
