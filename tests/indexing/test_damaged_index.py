"""Whatever is damaged in the index of a .bin, no byte of another sample is shown without an error.

Each bit of each field of a small index is changed, or every eleventh bit. By every way to read samples, each one then
has its own bytes or none, and where it has none somebody is told. Only what nothing contradicts is believed: another
dtype of the same width, where documents begin, and which sequences are images.
"""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from megatron import INT32, PNG, fairseq_bytes, index_bytes, packed, split, tokens, write_prefix
from shown import files
from touchnet import write_speech

from touchfs import TouchDataset
from touchfs.catalog.catalog import Catalog
from touchfs.core.errors import FormatError
from touchfs.indexing.catalogs import make_catalog
from touchfs.registry.open import open_shard, open_source
from touchfs.shard.sample import StoredSamples
from touchfs.stream.open import open_streams

# Of each sample another one; of no length twice.
SEQUENCES = [tokens(*range(10 * i, 10 * i + count)) for i, count in enumerate((3, 0, 1, 4, 3, 0, 2))]
DOCUMENTS = [0, 3, 3, 4, 7]
# Of 6 and 7 the offsets tell.
WIDTHS = {1: {1}, 2: {1}, 3: {2}, 4: {4}, 5: {8}, 6: {4, 8}, 7: {4, 8}, 8: {2}, 9: {4}, 10: {8}}


class Variant(NamedTuple):
    """An index in a dataset, and what each of its samples is."""

    make: Callable[[Path], Variant]
    source: Path
    index: Path
    modality: str
    truth: list[bytes]


def touchnet(path: Path) -> Variant:
    pcm = [each.astype("<i2").tobytes() for each in SEQUENCES]
    write_speech(path, [({"key": f"utt{i}", "sample_rate": 8000}, each) for i, each in enumerate(pcm)])
    return Variant(touchnet, path, path / "audio.idx", "audio", pcm)


def metainfo(path: Path) -> Variant:
    """Of equal lengths: a sample that is shifted by one looks right."""
    told = [b'{"key": "%d"}' % i for i in range(7)]
    write_speech(path, [(each, b"ab") for each in told])
    return Variant(metainfo, path, path / "metainfo.idx", "metainfo", told)


def corpus(path: Path) -> Variant:
    index = write_prefix(path / "x_document", INT32, SEQUENCES, DOCUMENTS)
    return Variant(corpus, path, Path(index), "tokens", [each.tobytes() for each in SEQUENCES])


def images(path: Path) -> Variant:
    sequences = [*SEQUENCES[:3], packed(PNG), *SEQUENCES[3:]]
    index = write_prefix(path / "mm", INT32, sequences, [0, 4, 8], [0, 0, 0, 1, 0, 0, 0, 0])
    return Variant(images, path, Path(index), "tokens", [each.tobytes() for each in sequences])


def fairseq(path: Path) -> Variant:
    index = write_prefix(path / "train", 7, [each.astype("<f8") for each in SEQUENCES], fairseq=True)
    return Variant(fairseq, path, Path(index), "tokens", [each.astype("<f8").tobytes() for each in SEQUENCES])


def floats(path: Path) -> Variant:
    index = write_prefix(path / "x", 6, [each.astype("<f4") for each in SEQUENCES])
    return Variant(floats, path, Path(index), "tokens", [each.astype("<f4").tobytes() for each in SEQUENCES])


def pieces(path: Path) -> Variant:
    variant = corpus(path)
    split(str(variant.index.with_suffix("")), [5, 0, 20], 4)
    return variant._replace(make=pieces)


VARIANTS = [touchnet, metainfo, corpus, images, fairseq, floats, pieces]


class Field(NamedTuple):
    name: str
    ordinal: int
    at: int
    size: int


def fields(index: bytes) -> Iterator[Field]:
    """By the layout of the format."""
    (count,) = struct.unpack_from("<Q", index, 18)
    entries = 26 if len(index) == 26 + 12 * count else 34
    yield from (Field("magic", 0, 0, 9), Field("version", 0, 9, 8), Field("code", 0, 17, 1), Field("count", 0, 18, 8))
    yield from (Field("length", i, entries + 4 * i, 4) for i in range(count))
    yield from (Field("offset", i, entries + 4 * count + 8 * i, 8) for i in range(count))
    if entries == 34:
        (documents,) = struct.unpack_from("<Q", index, 26)
        yield Field("documents", 0, 26, 8)
        at = 34 + 12 * count
        yield from (Field("document", i, at + 8 * i, 8) for i in range(documents))
        yield from (Field("mode", i, i, 1) for i in range(at + 8 * documents, len(index)))


def mutants(index: bytes, field: Field) -> Iterator[bytes]:
    for bit in range(8 * field.size):
        mutant = bytearray(index)
        mutant[field.at + bit // 8] ^= 1 << bit % 8
        yield bytes(mutant)


@pytest.fixture(params=VARIANTS, ids=lambda variant: variant.__name__)
def variant(request: pytest.FixtureRequest, tmp_path: Path) -> Variant:
    made: Variant = request.param(tmp_path / "dataset")
    return made


def by_shard(variant: Variant) -> tuple[list[bytes | None], Sequence[str]]:
    """What is shown of each sample, and all that is told: as catalogs and streams read a shard."""
    path = str(variant.source if variant.modality in ("audio", "metainfo") else variant.index)
    shard = open_shard(path)
    try:
        assert isinstance(shard, StoredSamples)
        found: list[bytes | None] = []
        problems = list(shard.problems)
        for sample in shard:
            field = sample.fields.get(variant.modality) or sample.fields.get("image")
            if field is None:
                assert sample.problem
                problems.append(sample.problem)
                found.append(None)
            else:
                source = open_source(path, field.source, shard.files)
                found.append(bytes(source.read(field.offset, field.size)))
        return found, problems
    finally:
        shard.close()


def by_touch_dataset(variant: Variant) -> list[bytes | None]:
    found: list[bytes | None] = []
    with TouchDataset(variant.source, variant.modality) as dataset:
        for i in range(len(dataset)):
            try:
                found.append(dataset.get(i, variant.modality).tobytes())
            except FormatError:
                found.append(None)
    return found


@pytest.mark.parametrize(
    "every", [11, pytest.param(5, marks=pytest.mark.variant), pytest.param(1, marks=pytest.mark.soak)]
)
def test_no_change_of_any_field_shows_another_samples_bytes(variant: Variant, every: int) -> None:
    good, count = variant.index.read_bytes(), len(variant.truth)
    width = {touchnet: 2, metainfo: 1, fairseq: 8}.get(variant.make, 4)
    truths = [variant.truth, [PNG if packed(PNG).tobytes() == each else each for each in variant.truth]]
    assert by_shard(variant)[0] in truths
    assert not by_shard(variant)[1]
    assert by_touch_dataset(variant) == variant.truth
    told = 0
    changes = ((field, mutant) for field in fields(good) for mutant in mutants(good, field))
    for field, group in itertools.groupby(itertools.islice(changes, 0, None, every), operator.itemgetter(0)):
        for _, mutant in group:
            variant.index.write_bytes(mutant)
            try:
                shown, problems = by_shard(variant)
            except FormatError:
                told += 1
                # Of a .bin in pieces that seems too short, it is not known which bytes are missing.
                is_too_short = variant.make is pieces and (field.name, field.ordinal) == ("length", count - 1)
                assert is_too_short or field.name in ("magic", "version", "code", "count", "documents"), field
                continue
            read = by_touch_dataset(variant)
            assert len(shown) == len(read) == count, field
            for i, truth in enumerate(zip(*truths, strict=True)):
                assert read[i] in (None, truth[0]), (field, i)
                assert shown[i] in (None, *truth), (field, i)
                assert (shown[i] is None) == (read[i] is None), (field, i)
            damaged = [i for i, each in enumerate(shown) if each is None]
            told += bool(problems)
            if field.name == "length":
                assert damaged == [i for i in (field.ordinal, field.ordinal + 1) if i < count], field
            elif field.name == "offset":
                assert {field.ordinal} <= set(damaged) <= {field.ordinal - 1, field.ordinal, field.ordinal + 1}, field
            elif field.name == "code":
                assert bool(damaged) == (width not in WIDTHS[mutant[17]])
            else:
                assert field.name in ("documents", "document", "mode"), field
                assert damaged == []
    assert told > 64 // every


@pytest.mark.parametrize("make", [touchnet, corpus, fairseq, pieces])
def test_a_catalog_and_a_stream_serve_the_others_and_name_both_neighbours(
    make: Callable[[Path], Variant], tmp_path: Path
) -> None:
    variant = make(tmp_path / "dataset")
    path = str(variant.source if make is touchnet else variant.index)
    extension = "wav" if make is touchnet else "npy"
    make_catalog(path, str(tmp_path / "good.arrow"))
    good = files(Catalog(str(tmp_path / "good.arrow")), path)
    names = sorted(name for name in good if name.endswith(extension))
    index = bytearray(variant.index.read_bytes())
    length = next(field for field in fields(bytes(index)) if (field.name, field.ordinal) == ("length", 3))
    index[length.at : length.at + 4] = struct.pack("<i", 6)  # its 4 elements, and 2 of the next sample
    variant.index.write_bytes(index)
    make_catalog(path, str(tmp_path / "damaged.arrow"))
    shown = files(Catalog(str(tmp_path / "damaged.arrow")), path)
    report = shown.pop("ERROR.txt").decode()
    for ordinal in (3, 4):
        assert f"sample {ordinal} (" in report
        del good[names[ordinal]]
    assert shown == good
    assert report.count("\nsample ") == 2
    (stream,) = open_streams(str(variant.source))
    streamed = [made() for _, made in stream.samples([])]
    assert [extension in sample for sample in streamed] == [i not in (3, 4) for i in range(len(names))]
    for name, sample in zip(names, streamed, strict=True):
        assert extension not in sample or sample[extension] == good[name]


def test_zero_lengths_and_lengths_that_overflowed_are_no_damage(tmp_path: Path) -> None:
    """What real writers write: samples of length 0 anywhere, and lengths modulo 2**32."""
    lengths = [0, 0, 5, 0, 2**32 + 3, 0, 2**31, 1, 0]
    stored = [(length + 2**31) % 2**32 - 2**31 for length in lengths]
    offsets = [sum(lengths[:i]) for i in range(len(lengths))]
    with open(tmp_path / "x.bin", "wb") as file:
        file.truncate(sum(lengths))  # sparse
    for index in (index_bytes(1, stored, offsets), fairseq_bytes(1, stored, offsets)):
        (tmp_path / "x.idx").write_bytes(index)
        shard = open_shard(str(tmp_path / "x.idx"))
        assert not shard.problems
        assert [(sample.problem, sample.fields["tokens"].size) for sample in shard] == [("", each) for each in lengths]
        shard.close()
        with TouchDataset(tmp_path) as dataset:
            assert [dataset.get_idx(i, "tokens") for i in range(9)] == list(zip(offsets, lengths, strict=True))
