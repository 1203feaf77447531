"""One shard that several processes index gets the same catalog as from one."""

import json
import os
import random
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from touchnet import INT16, UINT8, write_shard

from touchfs.core.errors import LostWorkerError
from touchfs.indexing import visit_samples
from touchfs.indexing.catalogs import make_catalog

SEGMENTS = {"info": {"segments": [{"start": 0, "end": 0.001, "txt": "é"}, {"start": 9, "end": 1, "txt": "b"}]}}
lines = st.lists(
    st.sampled_from([b"", b"no JSON", b"[1]", b'{"id": "\\ud800"}', b'{"id": "a/b", "text": "x"}', b'{"id": 7}\r'])
    | st.dictionaries(st.sampled_from(["id", "key", "text"]), st.text(max_size=3) | st.integers(), max_size=3).map(
        lambda fields: json.dumps(fields | SEGMENTS).encode()
    ),
    max_size=30,
)


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(3) as executor:
        yield executor


def catalogs(path, directory, executor):
    one, parts = directory / "one", directory / "parts"
    assert make_catalog(str(path), str(one)) == make_catalog(str(path), str(parts), executor=executor)
    return one.read_bytes(), parts.read_bytes()


@settings(max_examples=settings().max_examples // 2)
@given(lines=lines, size=st.integers(1, 12))
def test_parts_of_lines_make_the_same_catalog(tmp_path_factory, pool, lines, size):
    directory = tmp_path_factory.mktemp("lines")
    (directory / "data.jsonl").write_bytes(b"\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visit_samples, "PART_SAMPLES", size)
        one, parts = catalogs(directory / "data.jsonl", directory, pool)
    assert one == parts


@settings(max_examples=settings().max_examples // 4)
@given(rates=st.lists(st.sampled_from([None, 8000, 16000, 44100]), min_size=1, max_size=20), size=st.integers(1, 9))
def test_parts_of_a_touch_dataset_make_the_same_catalog(tmp_path_factory, pool, rates, size):
    directory = tmp_path_factory.mktemp("samples")
    metainfo = [
        json.dumps({"key": f"k{i % 7}", "txt": "a", "sample_rate": rate, **SEGMENTS}).encode()
        for i, rate in enumerate(rates)
    ]
    audio = [bytes(2 * random.Random(i).randrange(99)) for i in range(len(rates))]
    write_shard(directory / "000000000", metainfo=(UINT8, metainfo), audio=(INT16, audio))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visit_samples, "PART_SAMPLES", size)
        one, parts = catalogs(directory / "000000000", directory, pool)
    assert one == parts


def test_processes_make_the_same_catalog(tmp_path, monkeypatch, processes):
    monkeypatch.setattr(visit_samples, "PART_SAMPLES", 700)
    (tmp_path / "data.jsonl").write_text(
        "".join(json.dumps({"id": f"k{i}"} | SEGMENTS) + "\n" for i in range(3000)) + "x"
    )
    one, parts = catalogs(tmp_path / "data.jsonl", tmp_path, processes)
    assert one == parts and b"sample 3000" in one


def end_process():
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_is_an_error_and_makes_no_catalog(tmp_path):
    (tmp_path / "data.jsonl").write_text('{"id": "a"}\n')
    with ProcessPoolExecutor(1, get_context("forkserver")) as executor:
        executor.submit(end_process)
        with pytest.raises(LostWorkerError, match="a worker died"):
            make_catalog(str(tmp_path / "data.jsonl"), str(tmp_path / "catalog"), executor=executor)
    assert not (tmp_path / "catalog").exists()
