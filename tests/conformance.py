"""One harness for each promise. A new implementation adds one line to the list in its test.

check_reads(content, data)            every Content: any range of it is that range of the flat bytes
check_source(make_source)             every Source: all the bytes asked for or an error; in threads, forked, pickled
check_shard(open_shard, expected)     every kind of shard: a sequence of samples, whose fields are where they say
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, Protocol

import pytest

from touchfs.core.errors import SourceError
from touchfs.core.extent import Buffer, Content, Source
from touchfs.registry.open import open_source
from touchfs.shard.sample import StoredSample
from touchfs.source.fingerprint import Fingerprint


def ranges(size: int, count: int = 60, seed: int = 0) -> Iterator[tuple[int, int]]:
    """(offset, length): all the edges of `size` bytes, some past them, and `count` at random."""
    for offset in (0, 1, size // 2, size - 1, size, size + 1, size + 5000, 2**40):
        for length in (0, 1, 2, size // 2, size - 1, size, size + 1, 2**31):
            if offset >= 0 and length >= 0:
                yield offset, length
    random_ = random.Random(seed)
    for _ in range(count):
        offset = random_.randrange(size + 1)
        yield offset, random_.choice([random_.randrange(100), random_.randrange(size - offset + 50)])


def check_reads(content: Content, data: bytes) -> None:
    assert content.size == len(data)
    for offset, length in ranges(len(data)):
        expected = data[offset : offset + length]
        assert bytes(content.read(offset, length)) == expected, (offset, length)
        at_once = content.read_nowait(offset, length)
        assert at_once is None or bytes(at_once) == expected, (offset, length)


def check_source(make_source: Callable[[bytes], Source]) -> None:
    """`make_source` makes a source of the bytes it is given."""
    data = random.Random(0).randbytes(100_003)
    source = make_source(data)

    def check(seed: int, source: Source = source) -> None:
        for offset, length in ranges(len(data), 200, seed):
            _check_exact(source, data, offset, length)

    check(0)
    check(1, pickle.loads(pickle.dumps(source)))
    child = os.fork()
    if not child:
        status = 1
        try:
            check(2)
            status = 0
        finally:
            os._exit(status)
    check(3)
    assert os.waitpid(child, 0)[1] == 0
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(check, range(4, 20)))
    empty = make_source(b"")
    for offset, length in ranges(0):
        _check_exact(empty, b"", offset, length)


def _check_exact(source: Source, data: bytes, offset: int, length: int) -> None:
    expected = data[offset : offset + length]
    if len(expected) == length:
        assert bytes(source.read(offset, length)) == expected, (offset, length)
        at_once = source.read_nowait(offset, length)
        assert at_once is None or bytes(at_once) == expected, (offset, length)
    else:
        with pytest.raises(SourceError):
            source.read(offset, min(length, 10**6))
        with suppress(SourceError):
            assert source.read_nowait(offset, min(length, 10**6)) is None


class MemorySource:
    """A source of the tests' own. It would wait for every second read, and says so."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def read(self, offset: int, length: int) -> Buffer:
        data = self.data[offset : offset + length]
        if len(data) != length:
            raise SourceError("the bytes end here", offset=len(self.data))
        return data

    def read_nowait(self, offset: int, length: int) -> Buffer | None:
        self.reads += 1
        return self.read(offset, length) if self.reads % 2 else None


class Expected(NamedTuple):
    """A sample as it should be: its fields' bytes as stored."""

    key: str
    fields: Mapping[str, bytes]
    damaged: bool = False


class OpenShard(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def files(self) -> Mapping[str, Fingerprint]: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[StoredSample]: ...

    def __getitem__(self, ordinal: int, /) -> StoredSample: ...


def check_shard(open_shard: Callable[[], OpenShard], expected: Sequence[Expected]) -> None:
    shard = open_shard()
    count = len(expected)
    assert len(shard) == count
    samples = list(shard)
    assert samples == list(open_shard())
    assert samples == [shard[i] for i in range(count)] == [shard[i - count] for i in range(count)]
    assert samples[1::2] == shard[1::2]  # type: ignore[index]
    for outside in (count, -count - 1):
        with pytest.raises(IndexError):
            shard[outside]
    for ordinal, (sample, wanted) in enumerate(zip(samples, expected, strict=True)):
        assert (sample.key, sample.ordinal) == (wanted.key, ordinal)
        assert bool(sample.problem) == wanted.damaged, sample.problem
        assert {name: _stored(shard, sample, name) for name in sample.fields} == wanted.fields


def _stored(shard: OpenShard, sample: StoredSample, name: str) -> bytes:
    field = sample.fields[name]
    assert field.name == name
    return bytes(open_source(shard.path, field.source, shard.files).read(field.offset, field.size))
