import json
import multiprocessing
import os
import pickle
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import megatron
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import touchfs
import touchfs.touch_dataset
from touchfs import TouchDataset
from touchfs.containers.touchnet.writer import TouchNetWriter
from touchfs.core.errors import ChangedError, FormatError, NotFoundError, SourceError, UsageError

Array = NDArray[Any]

CODES = {"|u1": 1, "<i2": 3, "<i4": 4, "<u2": 8}
# Of each shard; the empty ones come first, last and together.
COUNTS = (0, 5, 0, 0, 9, 1, 0)


def write_modality(shard: Path, name: str, samples: Sequence[Array], dtype: str) -> None:
    """As the layout in TouchNet's documentation, entry by entry."""
    shard.mkdir(parents=True, exist_ok=True)
    data = [sample.astype(dtype).tobytes() for sample in samples]
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[dtype], len(data), len(data) + 1)
    index += b"".join(struct.pack("<i", len(sample)) for sample in samples)
    index += b"".join(struct.pack("<q", sum(map(len, data[:i]))) for i in range(len(data)))
    index += b"".join(struct.pack("<q", i) for i in range(len(data) + 1))
    (shard / f"{name}.bin").write_bytes(b"".join(data))
    (shard / f"{name}.idx").write_bytes(index)


def text(sample: dict[str, Any]) -> Array:
    return np.frombuffer(json.dumps(sample, ensure_ascii=False).encode(), np.uint8)


class Truth:
    """Three modalities over several shards. Each sample's values tell which it is, so a neighbour's are found out."""

    def __init__(self, root: Path) -> None:
        self.path = root
        self.metainfo = [{"key": f"ключ/{i}", "txt": "x" * i, "sample_rate": 16000} for i in range(sum(COUNTS))]
        self.samples: dict[str, list[Array]] = {
            "audio": [np.full(i * 37 % 120, i + 1, "<i2") for i in range(sum(COUNTS))],
            "metainfo": [text(metainfo) for metainfo in self.metainfo],
            "texttoken": [np.arange(i % 4, dtype="<i4") + 100 * i for i in range(sum(COUNTS))],
        }
        first = 0
        for number, count in enumerate(COUNTS):
            for name, samples in self.samples.items():
                write_modality(root / f"{number:09d}", name, samples[first : first + count], samples[0].dtype.str)
            first += count

    def check(self, dataset: TouchDataset, i: int, name: str) -> None:
        expected = self.samples[name][i]
        found = dataset.get(i, name)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tolist() == expected.tolist()


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return Truth(tmp_path_factory.mktemp("truth"))


@pytest.fixture(scope="module")
def dataset(truth: Truth) -> Iterator[TouchDataset]:
    with TouchDataset(truth.path) as dataset:
        yield dataset


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """One shard of three samples: 100 of 1, 200 of 2, 300 of 3."""
    path = tmp_path / "000000000"
    with TouchNetWriter(path, {"audio": np.dtype("<i2"), "metainfo": np.dtype("u1")}) as writer:
        for i in (1, 2, 3):
            writer.add({"audio": np.full(100 * i, i, "<i2").tobytes(), "metainfo": b'{"key": %d}' % i})
    return path


def test_every_sample(truth: Truth, dataset: TouchDataset) -> None:
    assert len(dataset) == sum(COUNTS)
    assert dataset.datatypes == ("audio", "metainfo", "texttoken")
    for i in range(-len(dataset), len(dataset)):
        for name in truth.samples:
            truth.check(dataset, i, name)
        assert dataset.metainfo(i) == truth.metainfo[i]
        truth.check(dataset, int(np.int32(i)), "audio")


def test_arrays_are_the_callers(dataset: TouchDataset) -> None:
    array = dataset.get(3, "audio")
    assert array.flags.writeable and array.flags.owndata
    array[:] = 0
    assert dataset.get(3, "audio").tolist() == [4] * 111


@given(st.data())
def test_ranges_are_numpy_slices(truth: Truth, dataset: TouchDataset, data: st.DataObject) -> None:
    i = data.draw(st.integers(-len(dataset), len(dataset) - 1))
    name = data.draw(st.sampled_from(sorted(truth.samples)))
    offset = data.draw(st.integers(0, 150) | st.integers(0, 2**70) | st.integers(0, 90).map(np.int8))
    length = data.draw(st.none() | st.integers(0, 150) | st.integers(0, 2**70) | st.integers(0, 90).map(np.int8))
    expected = truth.samples[name][i][int(offset) :][: None if length is None else int(length)]
    assert dataset.get(i, name, offset, length).tolist() == expected.tolist()


def test_get_idx(truth: Truth, dataset: TouchDataset) -> None:
    for i, expected in enumerate(truth.samples["texttoken"]):
        offset, length = dataset.get_idx(i, "texttoken")
        shard = next(n for n in range(len(COUNTS)) if i < sum(COUNTS[: n + 1]))
        data = (truth.path / f"{shard:09d}" / "texttoken.bin").read_bytes()
        assert np.frombuffer(data, "<i4", length, offset).tolist() == expected.tolist()


def test_one_shard_a_list_and_a_choice_of_datatypes(truth: Truth, tmp_path: Path) -> None:
    second = truth.path / "000000001"
    with TouchDataset(str(second), "metainfo+audio") as dataset:
        assert (len(dataset), dataset.datatypes) == (5, ("metainfo", "audio"))
        with pytest.raises(UsageError, match="no datatype 'texttoken': there are metainfo, audio"):
            dataset.get(0, "texttoken")
    listing = tmp_path / "data.list"
    listing.write_text(f"{truth.path}/000000004 audio+metainfo\n{second} video\n")
    with TouchDataset(listing) as dataset:
        assert (len(dataset), len(dataset.datatypes)) == (14, 3)
        assert dataset.metainfo(9) == truth.metainfo[0]
    with TouchDataset(second, "audio") as dataset, pytest.raises(UsageError, match="'metainfo': there are audio"):
        dataset.metainfo(0)


def test_few_blocks(truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touchfs.touch_dataset, "BLOCK_SAMPLES", 2)
    monkeypatch.setattr(touchfs.touch_dataset, "BLOCKS_MAX", 3)
    with TouchDataset(truth.path) as dataset:
        for i in random.Random(0).choices(range(len(dataset)), k=200):
            truth.check(dataset, i, "audio")
            truth.check(dataset, -i, "metainfo")
            assert len(dataset._blocks) <= 3


def test_a_position_that_is_not_there(dataset: TouchDataset) -> None:
    for i in (15, -16, 2**70):
        with pytest.raises(IndexError, match=f"sample {i} of 15"):
            dataset.get(i, "audio")
    with pytest.raises(TypeError):
        dataset.get(1.0, "audio")  # type: ignore[arg-type]
    for offset, length in ((-1, None), (0, -1)):
        with pytest.raises(UsageError, match="cannot be negative"):
            dataset.get(0, "audio", offset, length)


def test_pickled(truth: Truth, dataset: TouchDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(truth.path)
    relative = TouchDataset("000000001", "audio")
    monkeypatch.chdir("/")
    assert relative.get(4, "audio").tolist() == truth.samples["audio"][4].tolist()
    dataset.get(4, "audio")
    assert len(pickle.dumps(dataset)) < 300
    for source in (dataset, relative):
        with source, pickle.loads(pickle.dumps(source)) as copy:
            assert (len(copy), copy.datatypes) == (len(source), source.datatypes)
            truth.check(copy, 4, "audio")


def test_spawned(truth: Truth) -> None:
    with TouchDataset(truth.path) as dataset:
        truth.check(dataset, 9, "audio")
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(dataset.metainfo, range(len(dataset))))
    assert found == truth.metainfo


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_while_threads_read(truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touchfs.touch_dataset, "BLOCK_SAMPLES", 1)
    monkeypatch.setattr(touchfs.touch_dataset, "BLOCKS_MAX", 2)
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for i in range(len(dataset)):
                truth.check(dataset, i, "audio")

    with TouchDataset(truth.path) as dataset, ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            for _ in range(4):
                child = os.fork()
                if child == 0:
                    try:
                        for i in range(len(dataset)):
                            truth.check(dataset, i, "metainfo")
                        dataset.close()
                        os._exit(0)
                    finally:
                        os._exit(1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            done.set()
        for reader in readers:
            reader.result()


def test_eight_threads(truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(touchfs.touch_dataset, "BLOCK_SAMPLES", 2)
    monkeypatch.setattr(touchfs.touch_dataset, "BLOCKS_MAX", 4)
    monkeypatch.setattr("touchfs.source.local._pool.limit", 3)

    def read(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(200):
            name, i = choose.choice(sorted(truth.samples)), choose.randrange(len(dataset))
            expected = truth.samples[name][i]
            offset, length = choose.randrange(100), choose.randrange(100)
            assert dataset.get(i, name, offset, length).tolist() == expected[offset : offset + length].tolist()

    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with TouchDataset(truth.path) as dataset, ThreadPoolExecutor(8) as pool:
            list(pool.map(read, range(8)))
    finally:
        sys.setswitchinterval(switch_interval)


def test_closed(shard: Path) -> None:
    with TouchDataset(shard) as dataset:
        assert dataset.get(1, "audio").tolist() == [2] * 200
    dataset.close()
    for read in (lambda: dataset.get(0, "audio"), lambda: dataset.metainfo(0), lambda: dataset.get_idx(0, "audio")):
        with pytest.raises(UsageError, match="closed"):
            read()


def test_no_descriptor_is_left(shard: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    dataset = TouchDataset(shard)
    assert len(os.listdir("/proc/self/fd")) == before
    dataset.get(0, "audio")
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del dataset
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["audio.bin", "audio.idx"])
def test_a_file_replaced_while_open(shard: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("touchfs.source.local.VERIFY_SECONDS", 0.0)
    with TouchDataset(shard) as dataset:
        if name == "audio.bin":
            assert len(dataset.get(2, "audio")) == 300
        (shard / "new").write_bytes((shard / name).read_bytes())
        os.replace(shard / "new", shard / name)
        for _ in range(2):
            with pytest.raises(ChangedError, match=f"{name}: was replaced"):
                dataset.get(2, "audio")
        assert dataset.metainfo(2) == {"key": 3}
    with TouchDataset(shard) as dataset:
        assert len(dataset.get(2, "audio")) == 300


def test_a_file_cut_while_open(shard: Path) -> None:
    with TouchDataset(shard) as dataset:
        assert len(dataset.get(2, "audio")) == 300
        os.truncate(shard / "audio.bin", 500)
        with pytest.raises(ChangedError):
            dataset.get(2, "audio")


def test_a_bin_that_is_too_short(shard: Path) -> None:
    os.truncate(shard / "audio.bin", 2 * 599)
    with TouchDataset(shard) as dataset:
        assert [len(dataset.get(i, "audio")) for i in (0, 1)] == [100, 200]
        for offset in (0, 200, 299):
            with pytest.raises(FormatError, match=r"/audio\.idx: sample 2 is damaged: audio\.bin ends before"):
                dataset.get(2, "audio", offset, 1)
        assert dataset.metainfo(2) == {"key": 3}


def test_a_damaged_entry_costs_its_neighbour_and_no_other_sample(shard: Path) -> None:
    """Whichever length is damaged: the two samples at that seam are refused, by any way to read them."""
    index = (shard / "audio.idx").read_bytes()
    for length in (-1, 0, 199, 201, 400, 2**31 - 1):
        (shard / "audio.idx").write_bytes(index[:38] + struct.pack("<i", length) + index[42:])
        with TouchDataset(shard) as dataset:
            assert dataset.get(0, "audio").tolist() == [1] * 100
            for i, words in ((1, "does not end where the next"), (2, "does not begin where the one before")):
                for read in (dataset.get, dataset.get_idx):
                    with pytest.raises(FormatError, match=rf"/audio\.idx: sample {i} is damaged: audio\.idx .*{words}"):
                        read(i, "audio")
                assert dataset.metainfo(i) == {"key": i + 1}


@pytest.mark.parametrize("data", [b"[1]", b"\xff", b'{"a":', b""])
def test_metainfo_that_is_not_an_object(tmp_path: Path, data: bytes) -> None:
    good = text({"key": 1})
    write_modality(tmp_path / "s", "metainfo", [good, np.frombuffer(data, np.uint8), good], "|u1")
    with TouchDataset(tmp_path) as dataset:
        with pytest.raises(FormatError, match=rf"s/metainfo\.bin: sample 1: metainfo is not .*at byte {len(good)}"):
            dataset.metainfo(1)
        assert dataset.get(1, "metainfo").tobytes() == data
        assert [dataset.metainfo(i) for i in (0, 2)] == [{"key": 1}] * 2


def test_what_cannot_be_opened(shard: Path) -> None:
    def refused(error: type[Exception], words: str, datatypes: str | None = None) -> None:
        with pytest.raises(error, match=words) as caught:
            TouchDataset(shard.parent, datatypes)
        assert str(shard) in str(caught.value)

    refused(UsageError, "no datatype 'video': there are audio, metainfo", "audio+video")
    refused(UsageError, "no datatype ''", "")
    write_modality(shard, "metainfo", [text({})] * 2, "|u1")
    refused(FormatError, "unequal numbers of samples: audio has 3, metainfo has 2")
    assert len(TouchDataset(shard, "audio")) == 3
    os.truncate(shard / "metainfo.idx", 60)
    refused(FormatError, r"metainfo\.idx: an index of 2 samples and 3 documents has 82 bytes, this has 60")
    os.truncate(shard / "metainfo.idx", 20)
    refused(FormatError, "ends inside its header")
    write_modality(shard.parent / "000000001", "audio", [], "<i2")
    write_modality(shard, "metainfo", [text({})] * 3, "|u1")
    with pytest.raises(NotFoundError, match=r"000000001/metainfo\.idx: no such file"):
        TouchDataset(shard.parent)
    (shard / "audio.bin").unlink()
    with (
        TouchDataset(shard.parent, "audio") as dataset,
        pytest.raises(NotFoundError, match=r"audio\.bin: no such file"),
    ):
        dataset.get(0, "audio")
    with pytest.raises(NotFoundError, match="no such file or directory"):
        TouchDataset(shard / "nothing")


def test_a_bin_that_cannot_be_read(shard: Path) -> None:
    (shard / "audio.bin").unlink()
    (shard / "audio.bin").mkdir()
    with TouchDataset(shard) as dataset, pytest.raises(SourceError, match=r"audio\.bin: Is a directory"):
        dataset.get(0, "audio")


def test_an_index_cut_to_the_size_of_fairseqs(shard: Path) -> None:
    """Its header tells the number of samples all the same; where they are is not believed."""
    os.truncate(shard / "audio.idx", 26 + 3 * 12)
    with TouchDataset(shard) as dataset:
        assert len(dataset) == 3
        with pytest.raises(FormatError, match=r"audio\.idx: the index is cut off"):
            dataset.get(0, "audio")


SEQUENCES = [megatron.tokens(*range(i % 5)) + 10 * i for i in range(23)]


@pytest.mark.parametrize("pieces", [0, 3])
def test_megatron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    monkeypatch.setattr(touchfs.touch_dataset, "BLOCK_SAMPLES", 4)
    path = megatron.write_prefix(tmp_path / "a_text_document", megatron.INT32, SEQUENCES, [0, 3, 3, 23])
    if pieces:
        megatron.split(str(tmp_path / "a_text_document"), [5, 0, 70], pieces)
    for source in (path, path.removesuffix(".idx"), tmp_path):
        with TouchDataset(source) as dataset, pickle.loads(pickle.dumps(dataset)) as copy:
            assert (len(dataset), dataset.datatypes) == (23, ("tokens",))
            for i, expected in enumerate(SEQUENCES):
                found = copy.get(i, "tokens")
                assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
                assert dataset.get(i, "tokens", 1, 2).tolist() == expected[1:3].tolist()
                assert dataset.get_idx(i, "tokens") == (4 * sum(map(len, SEQUENCES[:i])), len(expected))
            with pytest.raises(UsageError, match="'metainfo': there are tokens"):
                dataset.metainfo(0)
    with pytest.raises(UsageError, match="no datatype 'audio': there are tokens"):
        TouchDataset(path, "audio")


def test_megatron_shards_of_several_types(tmp_path: Path) -> None:
    megatron.write_prefix(tmp_path / "a", megatron.UINT16, [megatron.tokens(1, 2, dtype="<u2")], modes=[0])
    megatron.write_prefix(tmp_path / "b", megatron.FLOAT_7, [megatron.tokens(3, dtype="<f8")], fairseq=True)
    megatron.write_prefix(tmp_path / "c", megatron.FLOAT_6, [megatron.tokens(dtype="<f4")] * 3000)
    megatron.write_prefix(tmp_path / "d", megatron.FLOAT_6, [megatron.tokens(4, dtype="<f4")], [0])
    with TouchDataset(tmp_path) as dataset:
        assert len(dataset) == 3003
        found = [dataset.get(i, "tokens") for i in (0, 1, 2, 3001, 3002)]
        assert [each.dtype.str for each in found] == ["<u2", "<f8", "<f8", "<f8", "<f4"]
        assert [each.tolist() for each in found] == [[1, 2], [3.0], [], [], [4.0]]


def test_megatron_that_cannot_be_read(tmp_path: Path) -> None:
    path = megatron.write_prefix(tmp_path / "a", megatron.INT32, SEQUENCES)
    size = os.path.getsize(tmp_path / "a.bin")
    megatron.split(str(tmp_path / "a"), [40, 40], 3)
    os.truncate(tmp_path / "a-00001-of-00003.bin", 39)
    with (
        TouchDataset(path) as dataset,
        pytest.raises(FormatError, match=rf"have {size - 1} bytes, the index needs {size}"),
    ):
        dataset.get(0, "tokens")
    os.unlink(tmp_path / "a-00001-of-00003.bin")
    with pytest.raises(FormatError, match=r"has no a-00001-of-00003\.bin beside it"):
        TouchDataset(path)
    Path(path).write_bytes(b"TNTIDX\0\0" + bytes(90))
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(FormatError, match=r"a\.idx: .*legacy TNTIDX"):
        TouchDataset(path)


def test_a_length_that_overflowed(tmp_path: Path) -> None:
    lengths = [3, 2**31 + 1, 2**31]
    index = megatron.index_bytes(1, [3, 1 - 2**31, -(2**31)], megatron.begins(lengths))
    (tmp_path / "x.idx").write_bytes(index)
    with open(tmp_path / "x.bin", "wb") as file:
        file.truncate(sum(lengths))
        file.seek(3 + 2**31)
        file.write(b"A")
    with TouchDataset(tmp_path) as dataset:
        assert [dataset.get_idx(i, "tokens")[1] for i in range(3)] == lengths
        assert dataset.get(1, "tokens", 2**31 - 1).tolist() == [0, 65]


def test_importing_is_cheap() -> None:
    code = "import sys, touchfs; touchfs.TouchDataset; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"rich", "click", "pyfuse3", "trio", "torch", "pyarrow"} & set(loaded)
    code = "import sys, touchfs; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "numpy" not in loaded
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = touchfs.nothing  # type: ignore[attr-defined]
