import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance import Expected, check_shard
from hypothesis import given
from hypothesis import strategies as st
from megatron import (
    FLOAT_6,
    FLOAT_7,
    INT32,
    JPEG,
    PNG,
    UINT8,
    UINT16,
    UINT64,
    begins,
    fairseq_bytes,
    index_bytes,
    packed,
    split,
    tokens,
    write_prefix,
)

from touchfs.containers.touchnet import megatron
from touchfs.core.errors import FormatError, NotFoundError
from touchfs.registry.find import find_shards
from touchfs.registry.open import open_shard

SEQUENCES = [tokens(1, 2, 3), tokens(), tokens(4), tokens(5, 6), tokens(7)]


def expected(*keys: str, damaged: tuple[int, ...] = ()) -> list[Expected]:
    return [
        Expected(key, {} if i in damaged else {"tokens": SEQUENCES[i].tobytes()}, damaged=i in damaged)
        for i, key in enumerate(keys)
    ]


EACH_ITS_OWN = expected("00000000", "00000001", "00000002", "00000003", "00000004")


@pytest.mark.parametrize(
    ("documents", "keys"),
    [
        (None, [each.key for each in EACH_ITS_OWN]),
        ([0, 3, 4, 5], ["00000000/0000", "00000000/0001", "00000000/0002", "00000001", "00000002"]),
        ([0, 0, 1, 1, 4, 4, 5, 5], ["00000001", "00000003/0000", "00000003/0001", "00000003/0002", "00000005"]),
        ([0, 5], [f"00000000/000{i}" for i in range(5)]),
        # Not as Megatron-LM writes it: an RWKV trainer's, one without its ends, and what makes no sense
        ([0], [each.key for each in EACH_ITS_OWN]),
        ([], [each.key for each in EACH_ITS_OWN]),
        ([2, 3], ["00000000/0000", "00000000/0001", "00000001", "00000002/0000", "00000002/0001"]),
        ([0, 4, 2, 5], [each.key for each in EACH_ITS_OWN]),
        ([0, 5, 9], [each.key for each in EACH_ITS_OWN]),
        ([-1, 5], [each.key for each in EACH_ITS_OWN]),
    ],
)
def test_documents(tmp_path: Path, documents: list[int] | None, keys: list[str]) -> None:
    path = write_prefix(tmp_path / "corpus_text_document", INT32, SEQUENCES, documents)
    check_shard(lambda: open_shard(path), expected(*keys))
    shard = open_shard(path)
    assert shard.size == os.path.getsize(tmp_path / "corpus_text_document.bin")
    assert shard.index_size == os.path.getsize(path)
    assert {str(sample.fields["tokens"].form) for sample in shard} == {"npy/<i4"}
    assert {sample.fields["tokens"].extension for sample in shard} == {"npy"}
    is_odd = documents is not None and len(documents) > 1 and (documents[0], documents[-1]) != (0, 5)
    assert bool(shard.problems) == (is_odd or documents == [0, 4, 2, 5])


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(UINT16, "<u2"), (FLOAT_6, "<f4"), (FLOAT_6, "<f8"), (FLOAT_7, "<f4"), (FLOAT_7, "<f8"), (UINT64, "<u8")],
)
@pytest.mark.parametrize("fairseq", [False, True])
def test_types(tmp_path: Path, code: int, dtype: str, fairseq: bool) -> None:
    """Which of the two a float is, its offsets tell, or the size of the .bin where there is one sample only."""
    for sequences in ([tokens(), tokens(1, 2, dtype=dtype), tokens(3, dtype=dtype)], [tokens(1, dtype=dtype)]):
        path = write_prefix(tmp_path / "train", code, sequences, fairseq=fairseq)
        check_shard(
            lambda path=path: open_shard(path),
            [Expected(f"{i:08d}", {"tokens": each.tobytes()}) for i, each in enumerate(sequences)],
        )
        assert str(open_shard(path)[-1].fields["tokens"].form) == f"npy/{dtype}"


def test_bytes_have_the_extension_of_their_magic(tmp_path: Path) -> None:
    files = [JPEG, b"?", b"", PNG]
    path = write_prefix(tmp_path / "files", UINT8, [np.frombuffer(each, np.uint8) for each in files])
    check_shard(lambda: open_shard(path), [Expected(f"{i:08d}", {"tokens": each}) for i, each in enumerate(files)])
    assert [sample.fields["tokens"].extension for sample in open_shard(path)] == ["jpg", "bin", "bin", "png"]


def test_images(tmp_path: Path) -> None:
    images = [JPEG[:size] for size in (14, 13, 12, 11)] + [PNG]
    sequences = [each for image in images for each in (tokens(7, 8), packed(image))]
    path = write_prefix(tmp_path / "mm", INT32, sequences, range(0, 11, 2), [0, 1] * 5)
    wanted = []
    for i, image in enumerate(images):
        wanted += [
            Expected(f"{i:08d}/0000", {"tokens": tokens(7, 8).tobytes()}),
            Expected(f"{i:08d}/0001", {"image": image}),
        ]
    check_shard(lambda: open_shard(path), wanted)
    fields = [sample.fields["image"] for sample in open_shard(path) if "image" in sample.fields]
    assert [(str(field.form), field.extension) for field in fields] == [("bytes", "jpg")] * 4 + [("bytes", "png")]


@pytest.mark.parametrize(
    "sequence",
    [
        tokens(),
        tokens(0),
        tokens(1, 2, 3),
        tokens(2, 50_000, 7),
        np.frombuffer(struct.pack("<i", 4) + JPEG[:12], np.int32),
        np.frombuffer(struct.pack("<i", -1) + JPEG[:12], np.int32),
    ],
)
def test_what_only_its_mode_calls_an_image_is_an_array(tmp_path: Path, sequence: Any) -> None:
    path = write_prefix(tmp_path / "mm", INT32, [sequence, tokens(5)], modes=[1, 2])
    check_shard(
        lambda: open_shard(path),
        [Expected("00000000", {"tokens": sequence.tobytes()}), Expected("00000001", {"tokens": tokens(5).tobytes()})],
    )
    assert [bool(sample.fields["tokens"].note) for sample in open_shard(path)] == [True, False]


def test_modes_of_other_types_are_no_images(tmp_path: Path) -> None:
    path = write_prefix(tmp_path / "mm", UINT16, [packed(PNG).view("<u2")], modes=[1])
    [sample] = open_shard(path)
    assert str(sample.fields["tokens"].form) == "npy/<u2"


# A .bin in pieces


@pytest.mark.parametrize("total", [3, 4])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (1, 1, 1), (0, 28, 0), (5, 0, 20)])
def test_pieces(tmp_path: Path, sizes: tuple[int, ...], total: int) -> None:
    """Of four pieces; the last number is their count, or the last one's."""
    path = write_prefix(tmp_path / "pile", INT32, SEQUENCES)
    size = open_shard(path).size
    split(str(tmp_path / "pile"), sizes, total)
    check_shard(lambda: open_shard(path), EACH_ITS_OWN)
    shard = open_shard(path)
    assert (shard.size, shard.index_size) == (size, os.path.getsize(path))
    assert list(shard.files) == ["pile.idx", *(f"pile-0000{i}-of-0000{total}.bin" for i in range(4))]
    assert find_shards(str(tmp_path)) == [path]
    (tmp_path / "pile-x-00000-of-00001.bin").write_bytes(b"another's")
    check_shard(lambda: open_shard(path), EACH_ITS_OWN)


def remove(number: int) -> Callable[[Path], None]:
    return lambda path: os.unlink(path / f"pile-0000{number}-of-00004.bin")


def cut(path: Path) -> None:
    os.truncate(path / "pile-00001-of-00004.bin", 7)


def second_split(path: Path) -> None:
    (path / "pile-00000-of-00009.bin").write_bytes(b"")


def pipe(path: Path) -> None:
    remove(2)(path)
    os.mkfifo(path / "pile-00002-of-00004.bin")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (remove(0), "has no pile-00000-of-00004.bin beside it"),
        (remove(2), "has no pile-00002-of-00004.bin beside it"),
        (remove(3), "has no pile-00003-of-00004.bin beside it"),
        (pipe, "has no pile-00002-of-00004.bin beside it"),
        (cut, "all pieces together have 27 bytes, the index needs 28: one is missing or cut off"),
        (second_split, "pieces of two splits"),
    ],
)
def test_pieces_that_are_not_whole_are_refused(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    """Which bytes are missing is not known, so none can be trusted."""
    path = write_prefix(tmp_path / "pile", INT32, SEQUENCES)
    split(str(tmp_path / "pile"), (8, 8, 8), 4)
    damage(tmp_path)
    with pytest.raises(FormatError, match=words):
        open_shard(path)


def test_the_last_of_pythias_pieces_is_missed(tmp_path: Path) -> None:
    path = write_prefix(tmp_path / "pile", INT32, SEQUENCES)
    split(str(tmp_path / "pile"), (8, 8, 8), 3)
    os.unlink(tmp_path / "pile-00003-of-00003.bin")
    with pytest.raises(FormatError, match="one is missing"):
        open_shard(path)


# Bad input


def test_a_negative_length_is_what_numpy_made_of_a_long_one(tmp_path: Path) -> None:
    """Of the second sample the offsets tell it; of the last one only that it overflowed, and the size of the .bin."""
    lengths = [1, 2**31 + 5, 2, 2**31]
    stored = [length - 2**32 if length >= 2**31 else length for length in lengths]
    (tmp_path / "big.idx").write_bytes(index_bytes(UINT8, stored, begins(lengths)))
    with open(tmp_path / "big.bin", "wb") as file:
        file.truncate(sum(lengths))  # sparse
    shard = open_shard(str(tmp_path / "big.idx"))
    assert [sample.fields["tokens"].size for sample in shard] == lengths
    os.truncate(tmp_path / "big.bin", sum(lengths) - 1)
    shard = open_shard(str(tmp_path / "big.idx"))
    assert [bool(sample.problem) for sample in shard] == [False, False, False, True]


def test_a_short_bin(tmp_path: Path) -> None:
    path = write_prefix(tmp_path / "x", INT32, SEQUENCES, [0, 3, 5])
    os.truncate(tmp_path / "x.bin", 15)
    keys = ["00000000/0000", "00000000/0001", "00000000/0002", "00000001/0000", "00000001/0001"]
    check_shard(lambda: open_shard(path), expected(*keys, damaged=(2, 3, 4)))
    assert open_shard(path)[2].problem == "x.bin ends before this sample does"


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (b"", "ends inside its header"),
        (b"TNTIDX\0\0" + bytes(60), "legacy TNTIDX index"),
        (b"v1.2 3\nwav 512 7 a.wav\n", "DALI index of a tar"),
        (struct.pack("<3Q", 0, 512, 1024), "not an index of a .bin"),
        (index_bytes(INT32, [1, 0, 0], [0, 4, 4])[:62], "the index is cut off: it has the size of fairseq's"),
        (fairseq_bytes(INT32, [1, 2], [4, 8]), "its entries are not those of 2 samples"),
        (fairseq_bytes(INT32, [1, -2], [0, 4])[:-1], "this has 49"),
    ],
)
def test_what_is_no_index(tmp_path: Path, index: bytes, words: str) -> None:
    (tmp_path / "x.idx").write_bytes(index)
    (tmp_path / "x.bin").write_bytes(bytes(100))
    with pytest.raises(FormatError, match=words) as caught:
        open_shard(str(tmp_path / "x.idx"))
    assert caught.value.path == str(tmp_path / "x.idx")


def test_what_is_not_there(tmp_path: Path) -> None:
    path = write_prefix(tmp_path / "x", INT32, SEQUENCES)
    with pytest.raises(NotFoundError):
        open_shard(str(tmp_path / "y.idx"))
    with pytest.raises(NotFoundError):
        open_shard(f"{path}/y.idx")
    os.unlink(tmp_path / "x.bin")
    with pytest.raises(FormatError, match=r"has no x\.bin beside it"):
        open_shard(path)
    os.mkfifo(tmp_path / "x.bin")
    with pytest.raises(FormatError, match=r"has no x\.bin beside it"):
        open_shard(path)


# Of all kinds

SHARDS = st.lists(st.lists(st.lists(st.integers(0, 65535), max_size=4), max_size=4), max_size=6)


@given(SHARDS, st.sampled_from([(INT32, "<i4"), (UINT16, "<u2"), (FLOAT_7, "<f8")]), st.booleans())
def test_any_documents(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[list[int]]], kind: tuple[int, str], modes: bool
) -> None:
    code, dtype = kind
    sequences = [tokens(*sequence, dtype=dtype) for document in documents for sequence in document]
    starts = [sum(map(len, documents[:i])) for i in range(len(documents) + 1)]
    prefix = tmp_path_factory.mktemp("shard") / "x"
    path = write_prefix(prefix, code, sequences, starts, [0] * len(sequences) if modes else None)
    wanted = []
    own = starts == [0] and sequences
    for number, document in enumerate(documents):
        for i, sequence in enumerate(document):
            key = f"{number:08d}" if len(document) == 1 or own else f"{number:08d}/{i:04d}"
            wanted.append(Expected(key, {"tokens": tokens(*sequence, dtype=dtype).tobytes()}))
    check_shard(lambda: open_shard(path), wanted)


def test_the_prefixes_of_a_directory(tmp_path: Path) -> None:
    paths = [write_prefix(tmp_path / name, INT32, SEQUENCES) for name in ("b_text_document", "a", "c-00000-of-00001")]
    for name in ("._a.idx", "._a.bin", "notes.txt", "lone.bin", "pytorch_model-00001-of-00002.bin"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "x.tar").write_bytes(b"")
    (tmp_path / "x.idx").write_bytes(b"v1.2 0\n")
    (tmp_path / "d.idx").mkdir()
    shards = [paths[1], paths[0], paths[2], str(tmp_path / "x.tar")]
    assert find_shards(str(tmp_path)) == shards
    os.unlink(tmp_path / "a.bin")
    assert find_shards(str(tmp_path)) == shards, "it lost its .bin, and will say so"


def test_fingerprint_is_of_its_own_files_only(tmp_path: Path) -> None:
    path = write_prefix(tmp_path / "x", INT32, SEQUENCES)
    write_prefix(tmp_path / "xy", INT32, SEQUENCES)
    (tmp_path / "x-00000-of-00001.bin").write_bytes(b"left over")
    assert list(megatron.fingerprints(path)) == ["x.bin", "x.idx"]
