"""Files that Megatron-LM's own builder wrote (tests/data/megatron): they are read as it wrote them."""

import struct
from pathlib import Path

import numpy as np
import pytest
from shown import dataset_files

from touchfs import TouchDataset
from touchfs.containers.touchnet.layout import mmidx
from touchfs.indexing import open_dataset

MEGATRON = Path(__file__).parent.parent / "data/megatron"


def test_indexes():
    plain, mixed = (
        mmidx.parse_index((MEGATRON / f"{name}.idx").read_bytes(), (MEGATRON / f"{name}.bin").stat().st_size)
        for name in ("gpt_text_document", "mm")
    )
    assert not plain.entries.damage.any() and not mixed.entries.damage.any()
    entries = plain.entries
    assert (plain.dtype.str, entries.lengths.tolist(), entries.offsets.tolist()) == ("<i4", [3, 2, 4], [0, 12, 20])
    assert (plain.documents.tolist(), plain.modes) == ([0, 1, 2, 3], None)
    assert (mixed.dtype.str, mixed.entries.lengths.tolist(), mixed.entries.offsets.tolist()) == (
        "<i4",
        [3, 252, 1, 252],
        [0, 12, 1020, 1024],
    )
    assert mixed.documents.tolist() == [0, 2, 4]
    assert mixed.modes is not None
    assert mixed.modes.tolist() == [0, 1, 0, 1]


def test_an_index_is_written_again_byte_for_byte():
    data = (MEGATRON / "gpt_text_document.idx").read_bytes()
    index = mmidx.parse_index(data, 0)
    assert mmidx.build_index(index.dtype, index.entries.lengths, index.documents) == data


@pytest.fixture
def shown(tmp_path):
    """Every file that the directory shows. Text is loaded by NumPy."""
    shown = {}
    for path, data in dataset_files(open_dataset(str(MEGATRON))).items():
        if path.endswith(".npy"):
            (tmp_path / "x.npy").write_bytes(data)
            loaded = np.load(tmp_path / "x.npy")
            assert loaded.dtype == np.int32
            shown[path] = loaded.tolist()
        else:
            shown[path] = data
    return shown


def test_every_sequence_is_a_file(shown):
    stored = (MEGATRON / "mm.bin").read_bytes()
    image = stored[16 : 16 + 1001]
    assert struct.unpack_from("<i", stored, 12) == (3,), "bytes of padding"
    assert image.startswith(b"\xff\xd8\xff\xe1")
    assert shown == {
        "gpt_text_document/00000000.npy": [1, 2, 3],
        "gpt_text_document/00000001.npy": [4, 5],
        "gpt_text_document/00000002.npy": [6, 7, 8, 9],
        "mm/00000000/0000.npy": [11, 12, 13],
        "mm/00000000/0001.jpg": image,
        "mm/00000001/0000.npy": [21],
        "mm/00000001/0001.jpg": image,
    }


def test_arrays():
    with TouchDataset(MEGATRON / "gpt_text_document") as dataset:
        assert [dataset.get(i, "tokens").tolist() for i in range(3)] == [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    with TouchDataset(MEGATRON) as dataset:
        assert len(dataset) == 7
        assert dataset.get_idx(6, "tokens") == (1024, 252)
